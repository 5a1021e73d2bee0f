"""Schedules by list scheduling and annealing over modes and order: feasible, fast, without proof."""

import bisect
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from planner.pool.instance import Block, Instance, Mode, Work, completion, is_late, value_of
from planner.pool.model import Objective

# Fitted on the pools of benchmarks/pool.py: more steps gain less there than the same time in the solver.
_STARTS = 40
_STEPS_PER_JOB = 30
_FIRST_TEMPERATURE = 0.01
_LAST_TEMPERATURE = 0.0001
_SLACKEST_TARGET = 1.3


@dataclass(slots=True, kw_only=True)
class Profile:
    """Free nodes of one group over time: ``free[i]`` from ``times[i]`` until the next time."""

    times: list[int]
    free: list[int]
    end: int

    def earliest(self, nodes: int, ticks: int, ready: int) -> int | None:
        """Return the first start at or after ``ready`` with ``nodes`` free for ``ticks``, or None."""
        times, free = self.times, self.free
        first = max(0, bisect.bisect_right(times, ready) - 1)
        start = max(ready, times[0])
        for place in range(first, len(times)):
            if place > first and times[place] - start >= ticks:
                break
            if free[place] < nodes:
                start = times[place + 1] if place + 1 < len(times) else self.end
        return start if start + ticks <= self.end else None

    def reserve(self, nodes: int, start: int, end: int) -> None:
        """Take ``nodes`` from ``start`` to ``end``, which must be free."""
        first, last = self._split(start), self._split(end)
        for place in range(first, last):
            self.free[place] -= nodes

    def _split(self, tick: int) -> int:
        place = bisect.bisect_left(self.times, tick)
        if place == len(self.times) or self.times[place] != tick:
            self.times.insert(place, tick)
            self.free.insert(place, self.free[place - 1])
        return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What the annealing changes: the mode of each piece of each job, and who is placed first."""

    modes: tuple[tuple[Mode, ...], ...]
    order: tuple[int, ...]


Score = tuple[float, float, float]


def schedule(instance: Instance, seed: int = 0) -> tuple[Block, ...] | None:
    """Return a good schedule, the same for the same seed; None if none was found.

    Modes of least energy that meet a random target are placed longest first, the best of many such starts is
    annealed: a step gives one job other modes or another place in the order.
    """
    rng = random.Random(seed)
    starts = [_start(instance, rng, place / _STARTS) for place in range(_STARTS)]
    current = min(starts, key=lambda candidate: _score(instance, decode(instance, candidate)))
    best = _anneal(instance, current, rng)
    blocks = decode(instance, best)
    return None if math.isinf(_score(instance, blocks)[0]) else blocks


def empty_profiles(instance: Instance) -> list[Profile]:
    """Return the free nodes of every group before anything runs."""
    return [
        Profile(times=[first], free=[capacity], end=end)
        for capacity, (first, end) in zip(instance.capacities, instance.windows, strict=True)
    ]


def decode(instance: Instance, candidate: Candidate) -> tuple[Block, ...] | None:
    """Place the jobs in order, each piece as early as it fits; None if one fits nowhere in its window."""
    profiles = empty_profiles(instance)
    blocks: list[Block] = []
    for index in candidate.order:
        placed = _place_job(profiles, instance.works[index], index, candidate.modes[index])
        if placed is None:
            return None
        blocks += placed
    return tuple(blocks)


def _place_job(
    profiles: list[Profile], work: Work, index: int, modes: Sequence[Mode]
) -> list[Block] | None:
    placed: list[Block] = []
    for piece, mode in enumerate(modes):
        before = placed[-1] if placed else None
        block = _place(profiles, mode, before, work, index, piece)
        if block is None:
            return None
        profiles[block.mode.group].reserve(block.mode.nodes, block.start, block.end)
        placed.append(block)
    return placed


def _place(
    profiles: list[Profile], mode: Mode, before: Block | None, work: Work, index: int, piece: int
) -> Block | None:
    ready = before.end if before else 0
    profile, ticks = profiles[mode.group], mode.ticks
    start = profile.earliest(mode.nodes, ticks, ready)
    moves = before is not None and (start != ready or mode.point != before.mode.point)
    if moves:
        ticks += work.restart
        start = profile.earliest(mode.nodes, ticks, ready)
    if start is None:
        return None
    return Block(
        work=index, piece=piece, mode=mode, start=start, end=start + ticks, restarted=moves
    )


def _start(instance: Instance, rng: random.Random, share: float) -> Candidate:
    """Choose modes of least energy within a random target, and place long ones first with some noise."""
    target = _area(instance) * (1 + (_SLACKEST_TARGET - 1) * rng.random())
    modes = tuple(
        tuple(_thrifty(piece, target) for piece in work.pieces) for work in instance.works
    )
    keys = [
        _urgency(instance, work, own, rng, share)
        for work, own in zip(instance.works, modes, strict=True)
    ]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Candidate(modes=modes, order=tuple(order))


def _area(instance: Instance) -> float:
    """Return the ticks that the least energy of all jobs fills, or the longest job needs."""
    energies = (
        min(mode.ticks * mode.nodes for mode in piece)
        for work in instance.works
        for piece in work.pieces
    )
    shortest = max(
        sum(min(mode.ticks for mode in piece) for piece in work.pieces) for work in instance.works
    )
    return max(sum(energies) / sum(instance.capacities), shortest)


def _thrifty(piece: Sequence[Mode], target: float) -> Mode:
    fitting = [mode for mode in piece if mode.ticks <= target]
    if not fitting:
        return min(piece, key=lambda mode: mode.ticks)
    return min(fitting, key=lambda mode: (mode.ticks * mode.nodes, mode.ticks))


def _urgency(
    instance: Instance, work: Work, modes: Sequence[Mode], rng: random.Random, noise: float
) -> float:
    ticks = sum(mode.ticks for mode in modes)
    jitter = 1 + noise * rng.random()
    if instance.objective is Objective.MAKESPAN:
        return -ticks * jitter
    if instance.objective is Objective.WEIGHTED_COMPLETION:
        return ticks * modes[0].nodes * jitter / max(work.weight, 1)
    return (work.deadline or instance.horizon) * jitter


def _score(instance: Instance, blocks: tuple[Block, ...] | None) -> Score:
    """Return what is minimised: the objective, then lateness, then nodes x ticks; infinite if it breaks a rule.

    Less energy at the same objective leaves more room for the next step.
    """
    if blocks is None:
        return (math.inf, math.inf, math.inf)
    ends = completion(blocks, len(instance.works))
    late = sum(
        end - (work.deadline or 0)
        for work, end in zip(instance.works, ends, strict=True)
        if is_late(work, end)
    )
    if instance.objective is Objective.COST and late:
        return (math.inf, late, value_of(instance, blocks))
    energy = sum(block.mode.nodes * (block.end - block.start) for block in blocks)
    return (value_of(instance, blocks), late, energy)


def _anneal(instance: Instance, start: Candidate, rng: random.Random) -> Candidate:
    steps = _STEPS_PER_JOB * len(instance.works)
    current, score = start, _score(instance, decode(instance, start))
    best, best_score = current, score
    for step in range(steps):
        heat = _FIRST_TEMPERATURE * (_LAST_TEMPERATURE / _FIRST_TEMPERATURE) ** (step / steps)
        moved = _move(instance, current, rng)
        moved_score = _score(instance, decode(instance, moved))
        if _accepts(score, moved_score, heat, rng):
            current, score = moved, moved_score
        if score < best_score:
            best, best_score = current, score
    return best


def _accepts(old: Score, new: Score, heat: float, rng: random.Random) -> bool:
    if new <= old:
        return True
    if math.isinf(new[0]):
        return False
    worse = (new[0] - old[0]) / max(old[0], 1.0)
    return rng.random() < math.exp(-worse / heat)


def _move(instance: Instance, candidate: Candidate, rng: random.Random) -> Candidate:
    job = rng.randrange(len(instance.works))
    pieces = instance.works[job].pieces
    if rng.random() < 0.5 and any(len(piece) > 1 for piece in pieces):
        modes = list(candidate.modes)
        modes[job] = _other_modes(pieces, modes[job], rng)
        return Candidate(modes=tuple(modes), order=candidate.order)
    order = list(candidate.order)
    order.insert(rng.randrange(len(order)), order.pop(rng.randrange(len(order))))
    return Candidate(modes=candidate.modes, order=tuple(order))


def _other_modes(
    pieces: Sequence[Sequence[Mode]], modes: Sequence[Mode], rng: random.Random
) -> tuple[Mode, ...]:
    """Give all pieces one mode, or from a random piece on another one."""
    place = rng.randrange(len(pieces[0]))
    cut = rng.randrange(len(pieces)) if rng.random() < 0.5 else 0
    return (*modes[:cut], *(piece[place] for piece in pieces[cut:]))
