"""The smallest conflict is what enumeration over all sets of rules finds."""

import itertools
import random

import numpy as np

from planner.solver.infeasible import (
    Mask,
    conflict_with_assumptions,
    fewest_relaxations,
    smallest_conflict,
)


def random_rules(rng: random.Random) -> dict[str, Mask]:
    candidates, rules = rng.randint(1, 12), rng.randint(1, 6)
    return {
        f"rule{at}": np.array([rng.random() < 0.6 for _ in range(candidates)])
        for at in range(rules)
    }


def conflicts(rules: dict[str, Mask], names: tuple[str, ...]) -> bool:
    return not np.logical_and.reduce([rules[name] for name in names]).any()


def test_the_smallest_conflict_is_the_smallest_of_all_conflicting_sets() -> None:
    rng = random.Random(1)
    for _ in range(60):
        rules = random_rules(rng)
        sizes = range(1, len(rules) + 1)
        sets = (s for size in sizes for s in itertools.combinations(rules, size))
        smallest = next((names for names in sets if conflicts(rules, names)), ())
        found = smallest_conflict(rules)
        assert len(found) == len(smallest)
        assert not found or conflicts(rules, found)
        core = conflict_with_assumptions(rules)
        assert bool(core) == bool(smallest)
        assert not core or conflicts(rules, core)


def test_dropping_the_fewest_rules_admits_the_named_candidate() -> None:
    rng = random.Random(2)
    for _ in range(60):
        rules = random_rules(rng)
        found = fewest_relaxations(rules)
        assert found is not None
        kept = [mask for name, mask in rules.items() if name not in found.rules]
        assert all(mask[found.candidate] for mask in kept)
        assert len(found.rules) == int(np.sum([~mask for mask in rules.values()], axis=0).min())


def test_rules_that_agree_do_not_conflict() -> None:
    rules = {"a": np.array([True, False]), "b": np.array([True, True])}
    assert smallest_conflict(rules) == ()
    assert conflict_with_assumptions(rules) == ()
    assert fewest_relaxations({"a": np.array([], dtype=np.bool_)}) is None
