"""Which plans the framework of a scenario launches as they are, and why it does not launch the others."""

from collections.abc import Iterator, Mapping, Sequence

from planner.export import target
from planner.export.target import Launch, Refusal, Target
from planner.plans import Plan
from planner.scenario import Scenario
from planner.systems import apply_system

# The target that launches what a scenario's framework describes; a framework without one is priced only.
OWN_TARGETS: Mapping[str, str] = {
    "megatron": "megatron",
    "nemo": "megatron-bridge",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "hf-trainer": "huggingface-trainer",
    "nanotron": "nanotron",
}
_PLACEMENT = frozenset({"recompute", "placement.recomputed", "placement.layers"})


def own_target(scenario: Scenario) -> Target | None:
    """Return the target of the scenario's framework, None if there is none."""
    name = OWN_TARGETS.get(apply_system(scenario).training.framework)
    return target(name) if name else None


def launch_of(scenario: Scenario, plan: Plan) -> Launch:
    """Return a plan with the question it answers."""
    return Launch(
        plan=plan,
        model=scenario.graph.model,
        cluster=scenario.cluster,
        training=scenario.training,
    )


def launches(scenario: Scenario, plan: Plan) -> bool | None:
    """Return whether the scenario's framework launches a plan as it is, None if nothing is exported for it."""
    own = own_target(scenario)
    return None if own is None else not any(own.refusals(launch_of(scenario, plan)))


def mendable(refusals: Sequence[Refusal]) -> bool:
    """Whether nothing but recomputation and cuts stands in the way: the strategy itself is launched."""
    return all(refusal.field in _PLACEMENT for refusal in refusals)


def obstacles(scenario: Scenario, plans: Sequence[Plan]) -> Iterator[str]:
    """Yield a sentence for each reason for which the scenario's framework does not launch plans as they are."""
    own = own_target(scenario)
    if own is None:
        return
    alike: dict[str, list[tuple[Plan, tuple[Refusal, ...]]]] = {}
    for plan in plans:
        refusals = tuple(own.refusals(launch_of(scenario, plan)))
        if refusals:
            alike.setdefault(refusals[0].rule, []).append((plan, refusals))
    for rule, found in alike.items():
        help_ = f"; --export {own.name}:DIR writes the nearest that it does"
        more = help_ if all(mendable(refusals) for _, refusals in found) else ""
        ranks = _runs([plan.rank for plan, _ in found])
        which, are = ("plan", "it is") if len(found) == 1 else ("plans", "they are")
        yield f"{own.version} does not launch {which} {ranks} as {are}: {rule}{more}"


def _runs(ranks: Sequence[int]) -> str:
    """Return ``1-3, 5`` for 1, 2, 3, 5."""
    starts = [rank for rank in ranks if rank - 1 not in ranks]
    ends = [rank for rank in ranks if rank + 1 not in ranks]
    pairs = zip(starts, ends, strict=True)
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs)
