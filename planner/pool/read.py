"""POOL.yaml to a Pool; whatever is wrong is named by file, key path, value, rule and nearest legal value."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from costmodel.errors import InputError
from costmodel.fields import Fields, as_fields, nearest_names
from costmodel.load import read_data
from costmodel.units import parse_number, parse_seconds
from planner.pool.model import BatchMode, GpuGroup, Objective, Pool, Request, Spot

SECONDS_PER_HOUR = 3600
# Nodes of DGX and HGX machines, which is what a group without own word has.
USUAL_GPUS_PER_NODE = 8

_KEYS = ("mode", "objective", "gap", "time_limit", "tick", "groups", "models")
_GROUP_KEYS = (
    "name", "cluster", "gpus", "gpus_per_node", "from", "until", "price_per_gpu_hour", "spot",
)  # fmt: skip
_SPOT_KEYS = ("discount", "interruptions_per_node_hour", "checkpoint_every", "restart")
_MODEL_KEYS = (
    "name", "scenario", "tokens", "deadline", "priority", "min_gpus", "max_gpus", "groups",
    "checkpoints", "restart",
)  # fmt: skip

NodeSize = Callable[[str], int]
_Word = TypeVar("_Word", bound=StrEnum)


def read_pool(path: Path | str, node_size: NodeSize | None = None) -> Pool:
    """Read a pool file; scenario paths in it are relative to the file.

    Args:
        path: YAML, or JSON by its ending.
        node_size: Gives the GPUs per node of a cluster where the file does not.

    Raises:
        InputError: If anything is wrong, naming the file, the key path, the value, the rule and the nearest
            legal value.
    """
    file = str(path)
    try:
        fields = as_fields(read_data(path), file)
        pool = _pool(fields, Path(path).parent, node_size)
        for error in _contradictions(pool):
            raise error
    except InputError as error:
        raise (error if error.file else error.within(file)) from error
    return pool


def _pool(fields: Fields, base: Path, node_size: NodeSize | None) -> Pool:
    fields.refuse_unknown(_KEYS)
    models = _models(fields)
    names = _names(models)
    tick = _hours(fields, "tick", 1 / 60)
    if tick <= 0:
        raise fields.error("must be longer than nothing", "tick", nearest="1min")
    return Pool(
        mode=_word(fields, "mode", BatchMode.EACH),
        objective=_word(fields, "objective", Objective.MAKESPAN),
        gap=_share(fields, "gap", 0.01),
        time_limit_s=_seconds(fields, "time_limit", 60.0),
        tick_h=tick,
        groups=tuple(_group(group, node_size) for group in fields.children("groups")),
        requests=tuple(_request(m, n, base) for m, n in zip(models, names, strict=True)),
    )


def _models(fields: Fields) -> list[Fields]:
    """Return the models' mappings; a mere path stands for a mapping with that scenario."""
    items = fields.values.get("models")
    if not isinstance(items, list) or not items:
        raise fields.error("must be a list of at least one model", "models")
    written = [{"scenario": item} if isinstance(item, str) else item for item in items]
    return [as_fields(m, fields.file, f"models[{place}]") for place, m in enumerate(written)]


def _names(models: list[Fields]) -> list[str]:
    """Return a name for each model: its own, or its scenario file's, numbered where taken."""
    taken = {str(model.values["name"]) for model in models if "name" in model.values}
    names = []
    for model in models:
        stem = _stem(model)
        numbered = (f"{stem}-{number}" for number in itertools.count(2))
        free = (name for name in itertools.chain((stem,), numbered) if name not in taken)
        names.append(model.text("name", default="") or next(free))
        taken.add(names[-1])
    return names


def _stem(model: Fields) -> str:
    """Return the name of the scenario file, or of the model where the scenario stands in the pool file."""
    if isinstance(model.values.get("scenario"), Mapping):
        return model.child("scenario").text("model", default="model")
    return Path(model.text("scenario")).stem


def _group(fields: Fields, node_size: NodeSize | None) -> GpuGroup:
    fields.refuse_unknown(_GROUP_KEYS)
    cluster = fields.text("cluster")
    values = fields.values
    try:
        usual = node_size(cluster) if node_size else USUAL_GPUS_PER_NODE
        return GpuGroup(
            name=fields.text("name"),
            cluster=cluster,
            gpus=fields.integer("gpus"),
            gpus_per_node=fields.integer("gpus_per_node", default=usual),
            from_h=_hours(fields, "from", 0.0),
            until_h=_hours(fields, "until", 0.0) if "until" in values else None,
            price_per_gpu_hour=_amount(fields, "price_per_gpu_hour", 0.0),
            spot=_spot(fields.child("spot")) if "spot" in values else None,
        )
    except InputError as error:
        raise (error if error.file else _below(fields, error)) from error


def _below(fields: Fields, error: InputError) -> InputError:
    """Place an error of a value type, or of the catalog, at its key in the file."""
    name = (error.key or "").rpartition(".")[2]
    key = fields.key(name if name in _GROUP_KEYS else "cluster")
    return InputError(
        error.rule, file=fields.file, key=key, value=error.value, nearest=error.nearest
    )


def _spot(fields: Fields) -> Spot:
    fields.refuse_unknown(_SPOT_KEYS)
    for name in _SPOT_KEYS[:2]:
        if name not in fields.values:
            raise fields.error("is missing", name)
    return Spot(
        discount=_share(fields, "discount", 0.0),
        interruptions_per_node_hour=_amount(fields, "interruptions_per_node_hour", 0.0),
        checkpoint_every_h=_hours(fields, "checkpoint_every", 1.0),
        restart_h=_hours(fields, "restart", 0.25),
    )


def _request(fields: Fields, name: str, base: Path) -> Request:
    fields.refuse_unknown(_MODEL_KEYS)
    inline = isinstance(fields.values["scenario"], Mapping)
    return Request(
        name=name,
        scenario=f"{fields.file}: {fields.key('scenario')}"
        if inline
        else str(base / fields.text("scenario")),
        content=dict(fields.child("scenario").values) if inline else None,
        base=str(base),
        tokens=_tokens(fields),
        deadline_h=_hours(fields, "deadline", 0.0) if "deadline" in fields.values else None,
        priority=fields.integer("priority", default=1),
        min_gpus=fields.optional_integer("min_gpus"),
        max_gpus=fields.optional_integer("max_gpus"),
        groups=_texts(fields, "groups"),
        checkpoints=_checkpoints(fields),
        restart_h=_hours(fields, "restart", 0.25),
    )


def _word(fields: Fields, name: str, default: _Word) -> _Word:
    value = fields.text(name, default=default.value)
    words = {member.value: member for member in type(default)}
    if value not in words:
        near = nearest_names(value, words) or tuple(words)
        raise fields.error("must be one of the known words", name, nearest=near)
    return words[value]


def _hours(fields: Fields, name: str, default: float) -> float:
    """Read ``30d``, ``12h``, ``15min``; a bare number is hours."""
    value = fields.values.get(name, default)
    if isinstance(value, str):
        return parse_seconds(value, fields.key(name)) / SECONDS_PER_HOUR
    return _amount(fields, name, default)


def _seconds(fields: Fields, name: str, default: float) -> float:
    return parse_seconds(fields.values.get(name, default), fields.key(name))


def _amount(fields: Fields, name: str, default: float) -> float:
    number = parse_number(fields.values.get(name, default), fields.key(name))
    if number < 0:
        raise fields.error("must not be negative", name, nearest=0)
    return number


def _share(fields: Fields, name: str, default: float) -> float:
    number = _amount(fields, name, default)
    if number >= 1:
        raise fields.error("must be a share below 1", name, nearest=number / 100)
    return number


def _tokens(fields: Fields) -> float | None:
    if "tokens" not in fields.values:
        return None
    number = _amount(fields, "tokens", 0.0)
    if not 1 <= number <= 1e18:
        raise fields.error("must be from 1 to 1e18", "tokens", nearest="1e12")
    return number


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    items = fields.values.get(name, [])
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise fields.error("must be a list of names", name)
    return tuple(items)


def _checkpoints(fields: Fields) -> tuple[float, ...]:
    items = fields.values.get("checkpoints", [])
    if not isinstance(items, list):
        raise fields.error("must be a list of shares of the work", "checkpoints")
    key = fields.key("checkpoints")
    shares = tuple(parse_number(item, f"{key}[{place}]") for place, item in enumerate(items))
    legal = sorted({share for share in shares if 0 < share < 1})
    if list(shares) != legal:
        raise fields.error("must rise between 0 and 1", "checkpoints", nearest=[legal])
    return shares


def _contradictions(pool: Pool) -> Iterator[InputError]:
    """Yield what single values cannot show."""
    if pool.mode is BatchMode.SHARE and not pool.groups:
        yield InputError("is required where models share a pool", key="groups")
    yield from _repeated("groups", [group.name for group in pool.groups])
    yield from _repeated("models", [request.name for request in pool.requests])
    for place, group in enumerate(pool.groups):
        if group.until_h is not None and group.until_h <= group.from_h:
            rule = f"must be after from ({group.from_h:g} h)"
            yield InputError(rule, key=f"groups[{place}].until", value=group.until_h)
    for place, request in enumerate(pool.requests):
        yield from _request_faults(pool, request, f"models[{place}]")


def _repeated(key: str, names: list[str]) -> Iterator[InputError]:
    for place, name in enumerate(names):
        if name in names[:place]:
            rule = f"must be unique, as {key}[{names.index(name)}] has it too"
            nearest = f"{name}-{place + 1}"
            yield InputError(rule, key=f"{key}[{place}].name", value=name, nearest=nearest)


def _request_faults(pool: Pool, request: Request, key: str) -> Iterator[InputError]:
    known = [group.name for group in pool.groups]
    for place, name in enumerate(request.groups):
        if name not in known:
            near = nearest_names(name, known)
            rule = "must be the name of a group"
            yield InputError(rule, key=f"{key}.groups[{place}]", value=name, nearest=near)
    low, high = request.min_gpus or 1, request.max_gpus
    if high is not None and high < low:
        rule = f"must be at least min_gpus ({low})"
        yield InputError(rule, key=f"{key}.max_gpus", value=high, nearest=low)
    allowed = [g.gpus for g in pool.groups if not request.groups or g.name in request.groups]
    if allowed and low > max(allowed):
        rule = "must be at most the GPUs of its largest group"
        yield InputError(rule, key=f"{key}.min_gpus", value=low, nearest=max(allowed))
