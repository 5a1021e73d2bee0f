"""Answers to what-if questions as JSON data and text; each returns both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from costmodel.errors import InputError
from costmodel.load import parse_yaml
from costmodel.units import format_bytes, format_seconds, parse_bytes
from planner.answer_json import plan_to_json
from planner.answer_text import layers_label, table
from planner.explain import with_gpus
from planner.plans import Plan
from planner.scenario import Scenario
from planner.search import plan
from planner.source import Source
from planner.whatif_search import (
    MemoryStep,
    Variant,
    fewest_gpus,
    gpu_sweep,
    largest,
    memory_points,
    memory_sweep,
    price_of_memory,
    set_grid,
)

_COLUMNS = ("strategy", "mbs x m", "layers per stage", "recompute", "iteration", "MFU", "peak")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """JSON data, text for people, and whether there was any plan at all."""

    data: dict[str, Any]
    text: str
    found: bool


def answer_memory(
    scenario: Scenario, text: str, on_step: Callable[[MemoryStep], None] | None = None
) -> Answer:
    """Answer ``--memory``: the given limits, or every threshold for ``sweep``.

    Args:
        scenario: The question.
        text: Limits separated by commas, or ``sweep``.
        on_step: Called with every step of a sweep as it is found, for progress.

    Raises:
        InputError: If a limit is no size.
    """
    if text == "sweep":
        return _sweep(scenario, on_step)
    limits = [parse_bytes(part.strip(), "--memory") for part in text.split(",")]
    answer = _variants(memory_points(scenario, limits), "memory")
    for variant, limit in zip(answer.data["variants"], limits, strict=True):
        variant["memory_bytes"] = limit
    return answer


def _sweep(scenario: Scenario, on_step: Callable[[MemoryStep], None] | None) -> Answer:
    steps = memory_sweep(scenario, on_step=on_step)
    price = price_of_memory(steps, scenario.memory_limit_bytes)
    rows = [
        [format_bytes(step.memory_bytes), *_cells(step.plan), f"{step.gap:.2%}"] for step in steps
    ]
    head = table(("from memory", *_COLUMNS, "gap"), rows)
    at = format_bytes(scenario.memory_limit_bytes)
    tail = (
        f"At {at}, one more GiB is worth {format_seconds(price)} of an iteration."
        if price
        else f"At {at}, more memory brings nothing."
    )
    data = {
        "steps": [_step(step) for step in steps],
        "price_of_memory_s_per_gib": price,
        "memory_limit_bytes": scenario.memory_limit_bytes,
    }
    return Answer(data=data, text=f"{head}\n\n{tail}\n{changes(steps)}", found=bool(steps))


def _step(step: MemoryStep) -> dict[str, Any]:
    return {
        "memory_bytes": round(step.memory_bytes),
        "iteration_s": step.plan.iteration_s,
        "lower_bound_s": step.lower_bound_s,
        "gap": step.gap,
        "plan": plan_to_json(step.plan),
    }


def changes(steps: Sequence[MemoryStep]) -> str:
    """Return what changes from each step to the next, in words."""
    lines = [
        f"  {format_bytes(after.memory_bytes)}: {_change(before.plan, after.plan)}"
        for before, after in pairwise(steps)
    ]
    return "\n".join(lines)


def _change(before: Plan, after: Plan) -> str:
    saved = 1 - after.iteration_s / before.iteration_s
    words = []
    if before.strategy.label() != after.strategy.label():
        words.append(f"{before.strategy.label()} becomes {after.strategy.label()}")
    fewer = _recomputed(before) - _recomputed(after)
    if fewer:
        words.append(f"{abs(fewer)} layers {'fewer' if fewer > 0 else 'more'} recompute")
    if before.strategy.micro_batch != after.strategy.micro_batch:
        words.append(
            f"micro-batch {before.strategy.micro_batch} becomes {after.strategy.micro_batch}"
        )
    if not words and before.placement.layer_counts() != after.placement.layer_counts():
        words.append("layers move between stages")
    return f"{', '.join(words) or 'switches change'}: {saved:.2%} faster"


def _recomputed(of: Plan) -> int:
    return sum(chunk.recomputed for chunk in of.placement.chunks)


def answer_set(source: Source, settings: Sequence[str]) -> Answer:
    """Answer ``--set KEY=V1,V2`` for one or several keys.

    Raises:
        InputError: If a setting is no KEY=VALUES or the scenario is wrong.
    """
    grid: dict[str, list[object]] = {}
    for setting in settings:
        key, equals, values = setting.partition("=")
        if not equals or not key or not values:
            raise InputError("must be KEY=V1,V2,..", key="--set", value=setting)
        grid[key.strip()] = _values(values, f"--set {key.strip()}")
    return answer_grid(source, grid)


def _values(text: str, key: str) -> list[object]:
    """Return the values of a comma-separated list; commas inside brackets and braces belong to a value."""
    found = parse_yaml(f"[{text}]", key)
    if not isinstance(found, list):
        raise InputError("must be values separated by commas", key=key, value=text)
    return found


def answer_grid(source: Source, grid: Mapping[str, Sequence[object]]) -> Answer:
    """Answer for every combination of values of the keys in ``grid``."""
    return _variants(set_grid(source, grid), "set")


def answer_gpus(scenario: Scenario, text: str) -> Answer:
    """Answer ``--gpus``: strong scaling over the given numbers, or powers of two for ``sweep``.

    Raises:
        InputError: If a number is none.
    """
    counts = None
    if text != "sweep":
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise InputError("must be numbers of GPUs or sweep", key="--gpus", value=text)
        counts = [int(part) for part in parts]
    variants = gpu_sweep(scenario, counts)
    base = next(((int(v.label), v.best) for v in variants if v.best), None)
    rows, data = [], []
    for variant in variants:
        best, count = variant.best, int(variant.label)
        efficiency = _efficiency(base, count, best)
        cost = _cost_per_million_tokens(scenario, best)
        data.append(
            _variant_data(variant)
            | {"gpus": count, "efficiency": efficiency, "cost_per_million_tokens": cost}
        )
        shown = "-" if efficiency is None else f"{efficiency:.0%}"
        rows.append(
            [
                variant.label,
                *(_cells(best) if best else _absent()),
                shown,
                "-" if cost is None else f"{cost:.4f}",
            ]
        )
    text_table = table(("GPUs", *_COLUMNS, "efficiency", "cost per M tokens"), rows)
    knee = _knee(data)
    tail = f"\n\nKnee: beyond {knee} GPUs each doubling gains less than half." if knee else ""
    return Answer(
        data={"variants": data, "knee_gpus": knee}, text=text_table + tail, found=base is not None
    )


def _efficiency(base: tuple[int, Plan] | None, count: int, best: Plan | None) -> float | None:
    """Return speed per GPU relative to the smallest number of GPUs that has a plan."""
    if base is None or best is None:
        return None
    ideal = base[1].iteration_s * base[0] / count
    return ideal / best.iteration_s


def _cost_per_million_tokens(scenario: Scenario, best: Plan | None) -> float | None:
    price = scenario.cluster.price_per_gpu_hour
    if price is None or best is None:
        return None
    return price * best.strategy.gpus / 3600 / best.tokens_per_s * 1e6


def _knee(rows: Sequence[dict[str, Any]]) -> int | None:
    """Return the last number of GPUs before a step whose marginal efficiency falls below one half."""
    known = [row for row in rows if row["iteration_s"] is not None]
    for before, after in pairwise(known):
        growth = after["gpus"] / before["gpus"] - 1
        gain = before["iteration_s"] / after["iteration_s"] - 1
        if growth > 0 and gain < growth / 2:
            return int(before["gpus"])
    return None


def answer_fewest(scenario: Scenario) -> Answer:
    """Answer ``--fewest-gpus``."""
    variant = fewest_gpus(scenario)
    if variant is None:
        budget = scenario.gpu_counts[-1]
        return Answer(
            data={"gpus": None, "variants": []},
            text=f"No plan fits on up to {budget} GPUs.",
            found=False,
        )
    found = _variants((variant,), "gpus")
    data = {"gpus": int(variant.label), **found.data}
    return Answer(
        data=data, text=f"{variant.label} GPUs are the fewest.\n\n{found.text}", found=True
    )


_LARGEST = {"global_batch": (1, 1 << 20), "sequence": (256, 1 << 24), "layers": (1, 1 << 14)}
"""What may be enlarged, with its step and the value at which asking ends."""


def _enlarged(scenario: Scenario, key: str, value: int) -> Scenario:
    """Return the scenario with ``key`` at ``value``; more layers than the model has are of its last kind."""
    if key == "layers":
        given = scenario.graph.layers
        layers = (*given, *given[-1:] * value)[:value]
        model = replace(scenario.graph.model, layers=layers)
        return replace(scenario, graph=replace(scenario.graph, model=model, layers=layers))
    values: dict[str, Any] = {key: value}
    return replace(scenario, training=replace(scenario.training, **values))


def answer_largest(scenario: Scenario, key: str) -> Answer:
    """Answer ``--largest``: the largest global batch, sequence or number of layers that fits."""
    start, limit = _LARGEST[key]
    found = largest(lambda value: _enlarged(scenario, key, value), start, limit)
    if found is None:
        return Answer(
            data={key: None, "variants": []}, text=f"Not even {key} {start} fits.", found=False
        )
    value, result = found
    answer = _variants((Variant(label=f"{value}", result=result),), key)
    return Answer(
        data={key: value, **answer.data},
        text=f"{key} {value} is the largest that fits.\n\n{answer.text}",
        found=True,
    )


def answer_lose(scenario: Scenario, text: str) -> Answer:
    """Answer ``--lose node:N``: plan again on what is left, and how much of the placement survives.

    Raises:
        InputError: If the text is no ``node:N`` or nothing is left.
    """
    unit, _, number = text.partition(":")
    sizes = {"node": scenario.cluster.gpus_per_node, "gpu": 1}
    if unit not in sizes or not number.isdecimal():
        raise InputError("must be node:N or gpu:N", key="--lose", value=text, nearest="node:1")
    left = scenario.gpu_counts[-1] - sizes[unit] * int(number)
    if left < 1:
        raise InputError("must leave at least one GPU", key="--lose", value=text, nearest="node:1")
    before, after = plan(scenario, top=1), plan(with_gpus(scenario, left), top=1)
    variants = (
        Variant(label=f"{scenario.gpu_counts[-1]} GPUs", result=before),
        Variant(label=f"{left} GPUs", result=after),
    )
    answer = _variants(variants, "lose")
    share = _surviving(before.plans[0], after.plans[0]) if before.plans and after.plans else None
    words = (
        ""
        if share is None
        else f"\n\n{share:.0%} of the layers keep their pipeline rank and tensor cut."
    )
    return Answer(
        data={**answer.data, "surviving_share": share},
        text=answer.text + words,
        found=bool(after.plans),
    )


def _surviving(before: Plan, after: Plan) -> float:
    """Return the share of layers whose shard (pipeline rank and tensor degree) stays as it is."""
    if before.strategy.tp != after.strategy.tp:
        return 0.0
    ranks = [_rank_of_layers(item) for item in (before, after)]
    same = [one == other for one, other in zip(ranks[0], ranks[1], strict=True)]
    return sum(same) / len(same)


def _rank_of_layers(of: Plan) -> list[int]:
    return [
        index % of.strategy.pp
        for index, chunk in enumerate(of.placement.chunks)
        for _ in range(chunk.layers)
    ]


def _variants(variants: Sequence[Variant], key: str) -> Answer:
    rows = [[v.label, *(_cells(v.best) if v.best else _absent(v.error))] for v in variants]
    return Answer(
        data={"variants": [_variant_data(variant) for variant in variants]},
        text=table((key, *_COLUMNS), rows),
        found=any(variant.best for variant in variants),
    )


def _variant_data(variant: Variant) -> dict[str, Any]:
    best, result = variant.best, variant.result
    return {
        "label": variant.label,
        **({"set": dict(variant.changes)} if variant.changes else {}),
        "error": variant.error,
        "status": str(result.status) if result else None,
        "iteration_s": best.iteration_s if best else None,
        "gap": result.gap if result else None,
        "plan": plan_to_json(best) if best else None,
    }


def _cells(of: Plan) -> list[str]:
    recomputed = _recomputed(of)
    return [
        of.strategy.label() + (" sp" if of.strategy.sequence_parallel else ""),
        f"{of.strategy.micro_batch} x {of.strategy.microbatches}",
        layers_label(of.placement.layer_counts()),
        f"{recomputed} layers" if recomputed else of.strategy.recompute,
        format_seconds(of.iteration_s),
        f"{of.mfu:.1%}",
        format_bytes(of.peak_memory_bytes),
    ]


def _absent(error: str | None = None) -> list[str]:
    return [error or "no plan fits", *[""] * (len(_COLUMNS) - 1)]
