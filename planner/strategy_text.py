"""Strategies and placements as people type them: ``tp=8,pp=4,micro_batch=1`` and ``20/20/20/20``."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from costmodel.errors import InputError
from costmodel.fields import nearest_names
from costmodel.spec import ClusterSpec
from costmodel.strategy import FIELD_NAMES, RECOMPUTES, SCHEDULES, Strategy
from planner.mixed.cluster import default_groups
from planner.plans import Chunk, Placement
from planner.rules import divides_evenly
from planner.scenario import Scenario, check_order

_DISTSIM = re.compile(r"^(\d+)M(\d+)P(\d+)D$", re.IGNORECASE)
_TRUE = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def parse_strategy(text: str, scenario: Scenario) -> Strategy:
    """Read ``tp=8,pp=4,micro_batch=1`` (or DistSim's ``2M4P2D``) and fill in what follows from the scenario.

    ``dp`` defaults to the GPUs left over, ``microbatches`` to what the global batch leaves, and
    ``schedule`` to interleaved where ``vpp`` is above one.

    Raises:
        InputError: Naming the field, the value and the nearest legal value.
    """
    given = _given(text)
    strategy = Strategy(**given)
    model_parallel = strategy.tp * strategy.pp * strategy.cp
    if "dp" not in given:
        strategy = replace(strategy, dp=max(1, scenario.gpu_counts[-1] // model_parallel))
    if "microbatches" not in given:
        per_replica = scenario.training.global_batch // (strategy.dp * strategy.micro_batch)
        strategy = replace(strategy, microbatches=max(1, per_replica))
    if "schedule" not in given and strategy.vpp > 1:
        strategy = replace(strategy, schedule="interleaved")
    return strategy


def _given(text: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if match := _DISTSIM.match(part):
            given |= zip(("tp", "pp", "dp"), map(int, match.groups()), strict=True)
            continue
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in FIELD_NAMES or not equals:
            raise InputError(
                "must be field=value pairs of a strategy",
                key="--strategy",
                value=part,
                nearest=nearest_names(name, FIELD_NAMES),
            )
        given[name] = _value(name, value)
    return given


def _value(name: str, text: str) -> object:
    key = f"--strategy {name}"
    if name in ("schedule", "recompute"):
        choices = SCHEDULES if name == "schedule" else RECOMPUTES
        if text not in choices:
            raise InputError(
                "must be one of the known values", key=key, value=text, nearest=choices
            )
        return text
    if name == "sequence_parallel":
        if text.lower() not in _TRUE:
            raise InputError("must be true or false", key=key, value=text)
        return _TRUE[text.lower()]
    if name == "placement_order":
        return check_order(text, key)
    if name.startswith("offload"):
        return _share(text, key)
    if not text.isdecimal() or not int(name not in ("zero", "zero_group")) <= int(text) <= 10**6:
        raise InputError("must be a whole number of at least 1", key=key, value=text, nearest=1)
    return int(text)


def _share(text: str, key: str) -> float:
    try:
        share = float(text)
    except ValueError as error:
        raise InputError("must be a share from 0 to 1", key=key, value=text) from error
    if not 0 <= share <= 1:
        raise InputError("must be a share from 0 to 1", key=key, value=text, nearest=round(share))
    return share


def parse_placement(
    text: str | None, strategy: Strategy, layers: int, cluster: ClusterSpec | None = None
) -> Placement | None:
    """Read ``20/20/20/20`` (layers of each virtual stage) or return the even placement, None if there is none.

    ``20:5`` recomputes 5 of the 20 layers. Where ``recompute`` is full, every layer recomputes. In a cluster of several
    device groups ``20@1`` or ``20@NAME`` says on which group a rank runs; without it the groups are filled in order.

    Raises:
        InputError: If the counts are not those of the model, or a group is not one of the cluster's.
    """
    stages = strategy.pp * strategy.vpp
    text, groups = _groups(text, strategy, cluster)
    counts, again = _counts(text) if text else (even_counts(layers, stages), [0] * stages)
    if not counts:
        return None
    if len(counts) != stages or sum(counts) != layers:
        raise InputError(
            f"must list {stages} virtual stages with {layers} layers in all",
            key="--placement",
            value=text,
        )
    if strategy.recompute == "full":
        again = counts
    starts = [sum(counts[:i]) for i in range(stages)]
    return Placement(
        chunks=tuple(
            Chunk(first_layer=start, layers=count, recomputed=recomputed)
            for start, count, recomputed in zip(starts, counts, again, strict=True)
        ),
        device_groups=groups,
    )


def _groups(
    text: str | None, strategy: Strategy, cluster: ClusterSpec | None
) -> tuple[str | None, tuple[int, ...]]:
    """Return the text without device groups, and the group of each pipeline rank; none in a cluster of one."""
    names = [group.device.name for group in cluster.groups] if cluster else []
    if cluster is None or len(names) == 1 or not text or "@" not in text:
        filled = default_groups(cluster, strategy) if cluster and len(names) > 1 else ()
        return text, filled
    parts = [part.partition("@") for part in re.split(r"[/,]", text)]
    # All chunks of a rank run on its group: it is enough to name it at the first.
    found = [_group(name.strip(), names, text) for _, _, name in parts[: strategy.pp]]
    for at, (_, named, name) in enumerate(parts[strategy.pp :]):
        if named and _group(name.strip(), names, text) != found[at % strategy.pp]:
            raise _group_error("must name one device group for all chunks of a rank", text, names)
    return "/".join(count for count, _, _ in parts), tuple(found)


def _group(name: str, names: Sequence[str], text: str) -> int:
    """Return the group that an index or a device name means; the first of that name."""
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    if name in names:
        return names.index(name)
    raise _group_error("must name a device group of the cluster behind each @", text, names)


def _group_error(rule: str, text: str, names: Sequence[str]) -> InputError:
    return InputError(rule, key="--placement", value=text, nearest=tuple(names))


def even_counts(layers: int, stages: int) -> list[int]:
    """Return equal stages, counting embedding and loss as layers where only that divides; [] if nothing does."""
    if layers % stages == 0:
        return [layers // stages] * stages
    if not bool(divides_evenly(layers, stages)):
        return []
    if (layers + 2) % stages == 0 and stages > 1 and layers + 2 > stages:
        size = (layers + 2) // stages
        return [size - 1, *[size] * (stages - 2), size - 1]
    size = (layers + 1) // stages
    return [*[size] * (stages - 1), size - 1]


def _counts(text: str) -> tuple[list[int], list[int]]:
    counts, again = [], []
    for part in re.split(r"[/,]", text):
        match = re.fullmatch(r"\s*(\d+)(?::(\d+))?\s*", part)
        if match is None:
            raise InputError(
                "must be layers per virtual stage, such as 20/20/20/20 or 20:5/20/20/20",
                key="--placement",
                value=text,
            )
        counts.append(int(match[1]))
        again.append(int(match[2] or 0))
    return counts, again
