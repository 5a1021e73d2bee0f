"""Published systems as presets: one declaration each of what the system does, with its source.

``search: {system: NAME}`` restricts a scenario to one of them. The survey that ran six of them on the same models is
Nichols et al., "A Survey and Empirical Evaluation of Parallel Deep Learning Frameworks" (arXiv 2111.04949); how it
scaled each system is that system's ``survey``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from costmodel.errors import InputError
from planner.legality import LEGALITY
from planner.sagemaker_knobs import bounds_of_knobs
from planner.scenario import DECISIONS, Bound, Scenario

Partition = Literal["free", "even", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRule:
    """How the survey scaled one system (section 4: batch fixed per GPU unless said otherwise).

    Attributes:
        batch_grows: Whether the global batch grows with the GPUs; otherwise it stays that of one GPU.
        microbatches: Micro-batches of an iteration and replica.
        per_gpu: Whether that number is multiplied by the GPUs.
        mixed_precision: Whether the release had it; without it matmuls ran in fp32, as TF32 where the GPU has that
            (the default of PyTorch 1.7 to 1.11).
    """

    batch_grows: bool = True
    microbatches: int = 1
    per_gpu: bool = False
    mixed_precision: bool = True


def _no_knobs(options: Mapping[str, object]) -> dict[str, Bound]:
    if options:
        key = f"search.system.{next(iter(options))}"
        raise InputError("must not be given: only sagemaker has knobs", key=key)
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One published system.

    Attributes:
        title: Name for people.
        framework: Whose behaviour and legality hold.
        bounds: Decisions it fixes or limits.
        partition: How layers get their stages: free (planned), even counts, or balanced by time alone.
        one_node: Whether it cannot leave the node.
        variant_of: The system of which this is one form; forms are compared only where named.
        warning: What a reader must know before choosing it.
        survey: How the survey ran it.
        knobs: Turns its own configuration into bounds; raises InputError for what it does not know.
        source: Where its rules are written.
    """

    title: str
    framework: str
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    partition: Partition = "free"
    one_node: bool = False
    variant_of: str = ""
    warning: str = ""
    survey: SurveyRule = field(default_factory=SurveyRule)
    knobs: Callable[[Mapping[str, object]], dict[str, Bound]] = _no_knobs
    source: str


def _only(**values: object) -> dict[str, Bound]:
    return {
        name: Bound(allowed=value if isinstance(value, tuple) else (value,))
        for name, value in values.items()
    }


_DENSE = _only(cp=1, ep=1, etp=1)
_DATA = _DENSE | _only(tp=1, pp=1, vpp=1)
_PLAIN = _DENSE | _only(vpp=1, zero=0, sequence_parallel=False)

_ZERO = System(
    title="DeepSpeed ZeRO",
    framework="deepspeed",
    bounds=_DATA | _only(zero=(1, 2, 3)),
    source="Rajbhandari et al., ZeRO, SC 2020 (arXiv 1910.02054); stage 3 sends 1.5 times as much (section 7)",
)
_MEGATRON = System(
    title="Megatron-LM, tensor and data parallel",
    framework="megatron-lm",
    bounds=_PLAIN | _only(pp=1),
    partition="even",
    source="Shoeybi et al., Megatron-LM (arXiv 1909.08053); version 2.3 had no sequence parallelism",
)

SYSTEMS: Mapping[str, System] = {
    "ddp": System(
        title="PyTorch DistributedDataParallel",
        framework="ddp",
        bounds=_DATA | _only(zero=0),
        source="Li et al., PyTorch Distributed, VLDB 2020 (arXiv 2006.15704): 25 MB buckets beside the backward",
    ),
    "zero": _ZERO,
    "zero-1": replace(_ZERO, title="ZeRO stage 1", bounds=_DATA | _only(zero=1), variant_of="zero"),
    "zero-2": replace(_ZERO, title="ZeRO stage 2", bounds=_DATA | _only(zero=2), variant_of="zero"),
    "zero-3": replace(_ZERO, title="ZeRO stage 3", bounds=_DATA | _only(zero=3), variant_of="zero"),
    "megatron": _MEGATRON,
    "megatron-data": replace(
        _MEGATRON,
        title="Megatron-LM, data parallel only",
        bounds={**_MEGATRON.bounds, **_only(tp=1)},
        variant_of="megatron",
    ),
    "megatron-intra": replace(
        _MEGATRON,
        title="Megatron-LM, tensor parallel only",
        bounds={**_MEGATRON.bounds, **_only(dp=1)},
        variant_of="megatron",
    ),
    "gpipe": System(
        title="TorchGPipe",
        framework="torchgpipe",
        bounds=_PLAIN | _only(dp=1, tp=1, recompute="full"),
        partition="time",
        one_node=True,
        survey=SurveyRule(microbatches=4, per_gpu=True, mixed_precision=False),
        source="Kim et al., torchgpipe (arXiv 2004.09910): one process, checkpointing, torchgpipe.balance by time",
    ),
    "pipedream": System(
        title="PipeDream",
        framework="pipedream",
        bounds=_PLAIN | _only(tp=1, microbatches=1, recompute="none"),
        warning="no flush: gradients are computed with weights that are up to pp - 1 updates old",
        survey=SurveyRule(batch_grows=False, mixed_precision=False),
        source="Narayanan et al., PipeDream, SOSP 2019: weight stashing (section 3.3), replicated stages (3.1)",
    ),
    "sagemaker": System(
        title="SageMaker model parallel library",
        framework="sagemaker",
        bounds=_DENSE | _only(vpp=1, tp=(1, 2, 4, 8), zero=(0, 1)),
        knobs=bounds_of_knobs,
        source="Karakus et al., Amazon SageMaker Model Parallelism (arXiv 2111.05972) and the library's guide",
    ),
    "lbann": System(
        title="LBANN, data parallel",
        framework="ddp",
        bounds=_DATA | _only(zero=0),
        source="Van Essen et al., LBANN, MLHPC 2015; Aluminum's all-reduce beside the backward, priced as DDP's",
    ),
    "distsim": System(
        title="DistSim's search space",
        framework="megatron-lm",
        bounds=_PLAIN | _only(tp=(1, 2, 4, 8, 16), pp=(1, 2, 4, 8, 16), recompute="none"),
        partition="even",
        source="Lu et al., DistSim, CF 2023 (arXiv 2306.08423): synchronous pipelines, equal stages, no sharding",
    ),
}  # fmt: skip
"""Every system by the name that scenarios use."""

MAIN_SYSTEMS: tuple[str, ...] = tuple(
    name for name, system in SYSTEMS.items() if not system.variant_of
)
"""What ``--systems all`` compares."""


def apply_system(scenario: Scenario) -> Scenario:
    """Return the scenario as its system would run it; unchanged where none is named or it is applied already.

    The system decides the framework; a decision may take the values that both the scenario and the system admit.

    Raises:
        InputError: If they have no value of a decision in common.
    """
    system = SYSTEMS.get(scenario.system or "")
    if system is None:
        return scenario
    counts = _gpu_counts(scenario, system)
    preset = dict(system.bounds)
    for name, bound in system.knobs(scenario.system_options).items():
        preset[name] = _common(name, bound, preset.get(name, Bound()), system)
    if max(counts) == 1:
        preset["zero"] = Bound(allowed=(0,))  # one GPU has nothing to shard over
    bounds = {
        name: _common(name, scenario.bound(name), preset.get(name, Bound()), system)
        for name in DECISIONS
        if name in scenario.bounds or name in preset
    }
    legality = LEGALITY[system.framework]
    return replace(
        scenario,
        bounds=bounds,
        training=replace(scenario.training, framework=system.framework),
        gpu_counts=counts,
        uneven_stages=scenario.uneven_stages
        and legality.uneven_stages
        and system.partition != "even",
    )


def _gpu_counts(scenario: Scenario, system: System) -> tuple[int, ...]:
    """Return the counts inside a node for a system that cannot leave it, a whole node where all are larger."""
    if not system.one_node:
        return scenario.gpu_counts
    node = scenario.cluster.gpus_per_node
    return tuple(count for count in scenario.gpu_counts if count <= node) or (node,)


def _common(name: str, asked: Bound, preset: Bound, system: System) -> Bound:
    """Return what both bounds admit."""
    both = Bound(
        allowed=_both_allowed(asked, preset),
        excluded=asked.excluded + preset.excluded,
        minimum=_largest(asked.minimum, preset.minimum),
        maximum=_smallest(asked.maximum, preset.maximum),
    )
    if both.allowed is not None:
        both = replace(both, allowed=tuple(value for value in both.allowed if both.admits(value)))
    if both.allowed == () or _empty(both):
        raise InputError(
            f"must leave a value that {system.title} has",
            key=f"search.{name}",
            value=_words(asked),
            nearest=_words(preset),
        )
    return both


def _both_allowed(asked: Bound, preset: Bound) -> tuple[object, ...] | None:
    if asked.allowed is None or preset.allowed is None:
        return preset.allowed if asked.allowed is None else asked.allowed
    return tuple(value for value in asked.allowed if value in preset.allowed)


def _largest(*limits: float | None) -> float | None:
    return max((limit for limit in limits if limit is not None), default=None)


def _smallest(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _empty(bound: Bound) -> bool:
    low, high = bound.minimum, bound.maximum
    return low is not None and high is not None and low > high


def _words(bound: Bound) -> str:
    if bound.allowed is not None:
        return ", ".join(str(value) for value in bound.allowed) or "nothing"
    return f"{bound.minimum or 0:g} to {'any' if bound.maximum is None else f'{bound.maximum:g}'}"
