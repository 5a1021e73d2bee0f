"""Scenario files: YAML or JSON to a Scenario, every fault told by file and key path."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast, get_args

from costmodel import catalog, huggingface
from costmodel.errors import InputError
from costmodel.fields import Fields, as_fields, nearest_names
from costmodel.graph import ModelGraph, build_graph
from costmodel.inline_cluster import cluster_from_mapping
from costmodel.inline_model import model_from_mapping
from costmodel.load import read_data
from costmodel.spec import AttentionKernel, ClusterSpec, ModelSpec, Precision, TrainingSpec
from costmodel.strategy import RECOMPUTES, SCHEDULES
from costmodel.units import parse_bytes, parse_number
from planner.legality import LEGALITY
from planner.megatron_model import read_model
from planner.megatron_text import MEGATRON_ENDINGS, read_flags
from planner.mixed.cluster import subset_sizes
from planner.scenario import DECISIONS, Bound, Scenario, check_order
from planner.systems import SYSTEMS

SCHEMA = 1
MAX_GPUS = 10**6
MAX_COUNT = 10**9

SCENARIO_KEYS = (
    "schema",
    "name",
    "model",
    "cluster",
    "training",
    "limits",
    "search",
    "prices",
    "calibration",
)
_TRAINING_KEYS = (
    "global_batch", "sequence", "framework", "precision", "attention", "tokens", "decoder_sequence", "options",
)  # fmt: skip
_CHOICES: Mapping[str, tuple[object, ...]] = {
    "schedule": SCHEDULES,
    "recompute": RECOMPUTES,
    "sequence_parallel": (True, False),
    "zero": (0, 1, 2, 3),
}
_T = TypeVar("_T")


def load_scenario(path: Path | str, *, gpus: int | None = None) -> Scenario:
    """Read a scenario file.

    Args:
        path: YAML, or JSON by its ending.
        gpus: Budget that replaces the file's.

    Raises:
        InputError: Naming file, key path, value, rule and nearest legal value.
    """
    return scenario_from_mapping(read_data(path), file=str(path), base=Path(path).parent, gpus=gpus)


def scenario_from_mapping(
    data: object,
    *,
    file: str = "scenario",
    base: Path | None = None,
    gpus: int | None = None,
    graph: ModelGraph | None = None,
) -> Scenario:
    """Return the scenario that a mapping with the keys of a scenario file describes.

    Args:
        data: The keys and values.
        file: Named in messages.
        base: Folder from which relative paths start.
        gpus: Budget that replaces the mapping's.
        graph: A traced model that stands for the key ``model``.

    Raises:
        InputError: As ``load_scenario``.
    """
    try:
        fields = as_fields(data, file)
        fields.refuse_unknown(SCENARIO_KEYS)
        return _scenario(fields, base or Path(), gpus, graph)
    except InputError as error:
        raise (error if error.file else error.within(file)) from error


def _scenario(fields: Fields, base: Path, gpus: int | None, traced: ModelGraph | None) -> Scenario:
    if fields.integer("schema", default=SCHEMA) != SCHEMA:
        raise fields.error("is not a schema this version reads", "schema", nearest=SCHEMA)
    graph = traced or build_graph(_model(fields, base))
    cluster, counts = _cluster(fields, base, gpus)
    limits = _part(fields, "limits")
    limits.refuse_unknown(("memory", "max_global_batch"))
    search = _part(fields, "search")
    bounds, uneven = _search(search)
    system, options = _system(search)
    return Scenario(
        name=fields.text("name", default="") or f"{graph.model.name} on {cluster.kinds}",
        graph=graph,
        cluster=cluster,
        training=_training(_part(fields, "training"), limits, graph, cluster),
        memory_limit_bytes=_memory_limit(limits, cluster),
        bounds=bounds,
        gpu_counts=counts,
        max_global_batch=_count(limits, "max_global_batch", 0) or None,
        system=system,
        system_options=options,
        prices=tuple(
            _existing(base, name, f"prices[{i}]") for i, name in enumerate(_prices(fields))
        ),
        calibration=_existing(base, fields.text("calibration"), "calibration")
        if "calibration" in fields.values
        else None,
        uneven_stages=uneven,
    )


def _part(fields: Fields, name: str) -> Fields:
    if name not in fields.values:
        return Fields({}, fields.file, fields.key(name))
    return fields.child(name)


def _model(fields: Fields, base: Path) -> ModelSpec:
    value = fields.values.get("model")
    if isinstance(value, Mapping):
        return model_from_mapping(value, fields.file)
    name = fields.text("model")
    ending = Path(name).suffix
    is_path = "/" in name or ending == ".json" or (base / name).is_dir()
    if name in catalog.names("models") or not (is_path or ending in MEGATRON_ENDINGS):
        return catalog.model(name)
    path = _existing(base, name, "model")
    if ending in MEGATRON_ENDINGS:
        return read_model(read_flags(path), path.stem)
    return huggingface.read_model(path)


def _cluster(fields: Fields, base: Path, gpus: int | None) -> tuple[ClusterSpec, tuple[int, ...]]:
    """Return the cluster at its full budget, and the GPU counts a plan may use."""
    value = fields.values.get("cluster")
    part = {"name": fields.text("cluster")} if not isinstance(value, Mapping) else dict(value)
    asked = part.pop("gpus", "max")
    counts = _gpu_counts(asked if gpus is None else gpus, fields.file)
    budget = counts[-1] if counts else None
    mapping = part if budget is None else {**part, "gpus": budget}
    cluster = cluster_from_mapping(mapping, fields.file, base=base)
    return cluster, counts or subset_sizes(cluster)


def _gpu_counts(asked: object, file: str) -> tuple[int, ...]:
    """Return the numbers of GPUs asked for in rising order; empty means all there are."""
    if asked == "max":
        return ()
    values = asked if isinstance(asked, list) and asked else [asked]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_GPUS:
            rule = f"must be a whole number of GPUs from 1 to {MAX_GPUS}, a list of them, or max"
            nearest = min(max(round(value), 1), MAX_GPUS) if isinstance(value, float | int) else 8
            raise InputError(rule, file=file, key="cluster.gpus", value=value, nearest=nearest)
    return tuple(sorted(set(values)))


def _training(
    fields: Fields, limits: Fields, graph: ModelGraph, cluster: ClusterSpec
) -> TrainingSpec:
    fields.refuse_unknown(_TRAINING_KEYS)
    batch = _count(fields, "global_batch", 512)
    largest = _count(limits, "max_global_batch", MAX_COUNT)
    if batch > largest:
        raise fields.error(
            "must not exceed limits.max_global_batch", "global_batch", nearest=largest
        )
    sequence = _count(fields, "sequence", min(4096, graph.model.positions or 4096))
    if graph.model.vocab and 0 < graph.model.positions < sequence:
        positions = graph.model.positions
        rule = f"must not exceed the model's {positions} learned positions"
        raise fields.error(rule, "sequence", nearest=positions)
    return TrainingSpec(
        global_batch=batch,
        sequence=sequence,
        framework=_one_of(fields, "framework", "megatron", tuple(sorted(LEGALITY))),
        precision=_precision(fields, cluster),
        attention=_one_of(fields, "attention", "flash", get_args(AttentionKernel)),
        tokens=_tokens(fields),
        decoder_sequence=_count(fields, "decoder_sequence", 0),
        options=_options(_part(fields, "options")),
    )


def _precision(fields: Fields, cluster: ClusterSpec) -> Precision:
    """Return the precision; bf16 by default, fp16 on devices too old for it."""
    common = set.intersection(*({*group.device.peak_flops} for group in cluster.groups))
    runs = [name for name in get_args(Precision) if name in common]
    default = "bf16" if "bf16" in runs else "fp16"
    chosen: Precision = _one_of(fields, "precision", default, get_args(Precision))
    if chosen not in runs:
        rule = f"must be a precision that {cluster.device.name} has"
        raise fields.error(rule, "precision", nearest=runs)
    return chosen


def _count(fields: Fields, name: str, default: int) -> int:
    """Return a whole number of at least 1; ``1e6`` and 1000000.0 are whole numbers too."""
    if name not in fields.values:
        return default
    number = _number(fields, name)
    if number != int(number):
        raise fields.error("must be a whole number", name, nearest=max(1, round(number)))
    if not 1 <= number <= MAX_COUNT:
        nearest = 1 if number < 1 else MAX_COUNT
        raise fields.error(f"must be from 1 to {MAX_COUNT}", name, nearest=nearest)
    return int(number)


def _number(fields: Fields, name: str) -> float:
    return parse_number(fields.values[name], fields.key(name))


def _tokens(fields: Fields) -> float | None:
    if "tokens" not in fields.values:
        return None
    number = _number(fields, "tokens")
    if not 1 <= number <= 1e18:
        raise fields.error("must be from 1 to 1e18", "tokens")
    return number


def _one_of(fields: Fields, name: str, default: str, choices: Sequence[str]) -> _T:  # type: ignore[type-var]
    value = fields.text(name, default=default)
    if value not in choices:
        near = nearest_names(value, choices) or choices
        raise fields.error("must be one of the known values", name, nearest=near)
    return cast("_T", value)


def _options(fields: Fields) -> dict[str, str]:
    for name, value in fields.values.items():
        if not isinstance(value, str | int | float | bool):
            raise fields.error("must be text or a number", name)
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.values.items()
    }


def _memory_limit(limits: Fields, cluster: ClusterSpec) -> int:
    device = max((group.device for group in cluster.groups), key=lambda each: each.usable_bytes)
    if "memory" not in limits.values:
        return device.usable_bytes
    limit = parse_bytes(limits.values["memory"], limits.key("memory"))
    if limit > device.memory_bytes:
        rule = f"must not exceed the {device.name}'s memory"
        raise limits.error(rule, "memory", nearest=f"{device.memory_bytes / 2**30:.0f}GiB")
    return limit


def _prices(fields: Fields) -> list[str]:
    value = fields.values.get("prices", [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise fields.error("must be a list of table files", "prices")
    return value


def _existing(base: Path, name: str, key: str) -> Path:
    path = base / name
    if not path.exists():
        raise InputError("must be an existing file", key=key, value=str(path))
    return path


def _search(fields: Fields) -> tuple[dict[str, Bound], bool]:
    fields.refuse_unknown((*DECISIONS, "system", "uneven_stages"))
    bounds = {
        name: read_bound(name, value, fields)
        for name, value in fields.values.items()
        if name in DECISIONS
    }
    return bounds, fields.flag("uneven_stages", default=True)


def _system(fields: Fields) -> tuple[str | None, dict[str, object]]:
    """Read ``system: NAME`` or ``system: {name: NAME, ..knobs of that system}``."""
    given = fields.values.get("system")
    options = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = options.pop("name", None)
    if given is None:
        return None, {}
    if name not in SYSTEMS:
        near = nearest_names(str(name), SYSTEMS) or tuple(SYSTEMS)
        raise fields.error("must be one of the known systems", "system", nearest=near)
    SYSTEMS[str(name)].knobs(options)
    return str(name), options


def read_bound(decision: str, value: object, fields: Fields) -> Bound:
    """Read the bound of one decision: a value, a list, ``any``, or ``{min, max, exclude, values}``.

    Raises:
        InputError: If a value has the wrong type or range for the decision.
    """
    if value in ("any", None):
        return Bound()
    if isinstance(value, Mapping):
        part = fields.child(decision)
        part.refuse_unknown(("min", "max", "exclude", "values"))
        values = part.values.get("values")
        return Bound(
            allowed=None if values is None else _values(decision, values, fields),
            excluded=_values(decision, part.values.get("exclude", []), fields),
            minimum=_number(part, "min") if "min" in part.values else None,
            maximum=_number(part, "max") if "max" in part.values else None,
        )
    allowed = _values(decision, value, fields)
    if not allowed:
        raise fields.error("must allow at least one value", decision)
    return Bound(allowed=allowed)


def _values(decision: str, value: object, fields: Fields) -> tuple[object, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(_value_reader(decision)(decision, item, fields) for item in values)


def _value_reader(decision: str) -> Callable[[str, object, Fields], object]:
    if decision in _CHOICES:
        return _choice
    if decision.startswith("offload"):
        return _share
    return _order if decision == "placement_order" else _whole


def _choice(decision: str, value: object, fields: Fields) -> object:
    choices = _CHOICES[decision]
    if value not in choices or type(value) is not type(choices[0]):
        raise InputError(
            "must be one of the known values",
            key=fields.key(decision),
            value=value,
            nearest=choices,
        )
    return value


def _share(decision: str, value: object, fields: Fields) -> float:
    number = parse_number(value, fields.key(decision))
    if not 0 <= number <= 1:
        nearest = min(1.0, max(0.0, number))
        raise InputError(
            "must be a share from 0 to 1", key=fields.key(decision), value=value, nearest=nearest
        )
    return number


def _order(decision: str, value: object, fields: Fields) -> str:
    return check_order(value, fields.key(decision))


def _whole(decision: str, value: object, fields: Fields) -> int:
    smallest = 0 if decision == "zero_group" else 1
    if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value <= MAX_GPUS:
        raise InputError(
            f"must be a whole number from {smallest}, a list of them, or any",
            key=fields.key(decision),
            value=value,
            nearest=smallest,
        )
    return value
