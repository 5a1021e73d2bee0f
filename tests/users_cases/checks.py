"""What a check of a case holds: each kind is one function of the check's facts."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from costmodel.host_memory import host_memory_bytes
from costmodel.memory import StageMemory, memory_moments, stage_memory
from costmodel.units import GIB
from planner.check import Violation, broken_rules
from planner.columns import columns_of
from planner.host import broken_host
from planner.rules import facts_of
from tests.users_cases.build import (
    Facts,
    Setting,
    peaks,
    plan_of,
    ranks,
    scenario,
    setting,
    verdict_of,
)

STATIC = ("parameters", "gradients", "optimizer")
_SEQUENCES = [1024 * step for step in (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 160)]


def broken(case: Setting) -> tuple[Violation, ...]:
    """Return the rules that a case breaks."""
    return broken_rules(columns_of((case.strategy,)), facts_of(scenario(case)))


def counter(case: Setting, name: str, rank: str = "max") -> float:
    """Return GiB of a counter: allocated, reserved (device), framework_reserved, static or dynamic."""
    moments = memory_moments(case.graph, case.cluster, case.training, case.strategy)
    steps = [stage_memory(moments[-1:], chunks) for chunks in ranks(case)]
    values = [
        _counted(peak, step, name) / GIB for peak, step in zip(peaks(case), steps, strict=True)
    ]
    if rank == "mean":
        return sum(values) / len(values)
    return {"max": max(values), "first": values[0], "last": values[-1]}[rank]


def _counted(peak: StageMemory, step: StageMemory, name: str) -> float:
    static = sum(step.terms.get(term, 0.0) for term in STATIC)
    return {
        "allocated": peak.allocated_bytes,
        "reserved": peak.reserved_bytes,
        "framework_reserved": peak.framework_reserved_bytes,
        "static": static,
        "dynamic": peak.allocated_bytes - static,
    }[name]


def _verdict(facts: Facts) -> None:
    found = verdict_of(setting(facts))
    expected = facts["verdict"]
    assert not (expected == "oom" and found == "fits"), "out of memory is called fits"
    if "miss" in facts:
        assert found == facts["miss"], "the documented miss is no longer what happens"
    else:
        assert found in (expected, *facts.get("accept", ()))


_COUNTERS = {
    "allocated_gib": "allocated",
    "reserved_gib": "framework_reserved",
    "device_gib": "reserved",
    "static_gib": "static",
    "dynamic_gib": "dynamic",
}


def _amount(key: str) -> Callable[[Facts], None]:
    def check(facts: Facts) -> None:
        value = counter(setting(facts), _COUNTERS[key], facts.get("rank", "max"))
        assert value == pytest.approx(facts[key], rel=facts["tol"])

    return check


def _less_than(facts: Facts) -> None:
    other = setting({**facts, **facts["less_than"]})
    name, rank = facts["counter"], facts.get("rank", "max")
    saved = counter(setting(facts), name, rank) - counter(other, name, rank)
    if "at_least_gib" in facts:
        assert saved >= facts["at_least_gib"]
    else:
        assert saved == pytest.approx(facts["by_gib"], rel=facts["tol"])


def _slope(facts: Facts) -> None:
    low, high = facts["from"], facts["to"]
    sizes = [
        counter(setting({**facts, "micro_batch": size}), "framework_reserved")
        for size in (low, high)
    ]
    assert (sizes[1] - sizes[0]) / (high - low) == pytest.approx(
        facts["slope_gib"], rel=facts["tol"]
    )


def _longest(facts: Facts) -> int:
    """Return the longest of a few sequences that is not out of memory."""
    fitting = [s for s in _SEQUENCES if verdict_of(setting({**facts, "sequence": s})) != "oom"]
    return max(fitting, default=0)


def _max_sequence(facts: Facts) -> None:
    assert _longest(facts) == pytest.approx(facts["max_sequence"], rel=facts["tol"])


def _longest_doubling(facts: Facts) -> None:
    longest = facts["longest"]
    assert verdict_of(setting({**facts, "sequence": longest})) != "oom"
    assert verdict_of(setting({**facts, "sequence": 2 * longest})) != "fits"


def _reject(facts: Facts) -> None:
    found = broken(setting(facts))
    names = [violation.rule for violation in found]
    if facts.get("miss") == "legal":
        assert names == []
        return
    assert facts["reject"] in names
    text = next(violation.text for violation in found if violation.rule == facts["reject"])
    assert str(facts.get("nearest", "")) in text


def _legal(facts: Facts) -> None:
    assert broken(setting(facts)) == ()


def _slower(facts: Facts) -> None:
    fast, slow = (
        plan_of(setting(values)).iteration_s / _tokens(values)
        for values in (facts, {**facts, **facts["slower"]})
    )
    assert fast * (1 + facts.get("by", 0.0)) < slow


def _tokens(facts: Facts) -> int:
    training = setting(facts).training
    return training.global_batch * training.sequence


def _order(facts: Facts) -> None:
    times = [plan_of(setting({**facts, **other})).iteration_s for other in facts["order"]]
    assert times == sorted(times, reverse=facts.get("miss") == "reversed")


def _iteration(facts: Facts) -> None:
    expected = facts.get("miss", facts["iteration_s"])
    assert plan_of(setting(facts)).iteration_s == pytest.approx(expected, rel=facts["tol"])


def _iteration_max(facts: Facts) -> None:
    assert plan_of(setting(facts)).iteration_s < facts["iteration_max_s"]


def _throughput(facts: Facts) -> None:
    assert tokens_per_s_gpu(facts) == pytest.approx(facts["tokens_per_s_gpu"], rel=facts["tol"])


def tokens_per_s_gpu(facts: Facts) -> float:
    """Return predicted tokens per second and GPU."""
    case = setting(facts)
    return _tokens(facts) / plan_of(case).iteration_s / case.strategy.gpus


def _mfu(facts: Facts) -> None:
    assert plan_of(setting(facts)).mfu > facts["mfu_min"]


def _host(facts: Facts) -> float:
    case = setting(facts)
    return host_memory_bytes(
        case.graph,
        case.cluster,
        case.training,
        case.strategy,
        loads_checkpoint=bool(facts.get("loads")),
    )


def _host_used(facts: Facts) -> None:
    assert _host(facts) == pytest.approx(facts["host_gb_used"] * 1e9, rel=facts["tol"])


def _host_over(facts: Facts) -> None:
    limit = setting(facts).cluster.host_memory_bytes
    assert (_host(facts) > limit) == facts["host_over"]
    named = broken_host(setting(facts).strategy, scenario(setting(facts)))
    if not facts.get("loads"):
        assert bool(named) == facts["host_over"]


KINDS: Mapping[str, Callable[[Facts], None]] = {
    "verdict": _verdict,
    **{key: _amount(key) for key in _COUNTERS},
    "less_than": _less_than,
    "slope_gib": _slope,
    "max_sequence": _max_sequence,
    "longest": _longest_doubling,
    "reject": _reject,
    "legal": _legal,
    "slower": _slower,
    "order": _order,
    "iteration_s": _iteration,
    "iteration_max_s": _iteration_max,
    "tokens_per_s_gpu": _throughput,
    "mfu_min": _mfu,
    "host_gb_used": _host_used,
    "host_over": _host_over,
}


def kind_of(check: Mapping[str, Any]) -> str:
    """Return what a check holds: its one key that names a kind, or ``code``."""
    named = [key for key in ("code", *KINDS) if key in check]
    assert len(named) == 1, f"{check} holds {named}"
    return named[0]
