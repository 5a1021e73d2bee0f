"""Arithmetic on prices that are numbers or arrays: one lane per trial of the fit, or one per strategy of the search.

The fit evaluates many trial vectors of constants at once, the search many strategies at once: a price is then an array
with one lane for each. Sums and products work on both; a maximum, a choice or a rounding does not, hence these
functions. Values are typed as numbers throughout: a lane array stands for a number. Every function here gives
the same bits for a number as for a lane, so a strategy priced alone equals the same strategy priced among others.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from functools import reduce
from operator import add
from typing import Any, Generic, TypeVar, cast

import numpy as np

Value = TypeVar("Value", int, float)
Made = TypeVar("Made")


def has_lanes(value: Any) -> bool:
    """Return whether a value is an array of lanes rather than a number."""
    return isinstance(value, np.ndarray)


def highest(left: Value, right: Value) -> Value:
    """Return the larger of two values, lane by lane."""
    if has_lanes(left) or has_lanes(right):
        return cast("Value", np.maximum(left, right))
    return max(left, right)


def lowest(left: Value, right: Value) -> Value:
    """Return the smaller of two values, lane by lane."""
    return -highest(-left, -right)


def highest_of(values: Iterable[float]) -> float:
    """Return the largest of at least one value, lane by lane."""
    return reduce(highest, values)


def total(values: Iterable[float]) -> float:
    """Return the sum from left to right (Python's own sum of numbers compensates, that of arrays does not)."""
    return reduce(add, values, 0.0)


def pick(condition: bool, yes: Value, no: Value) -> Value:
    """Return ``yes`` where a condition holds and ``no`` elsewhere, lane by lane."""
    if has_lanes(condition):
        return cast("Value", np.where(condition, yes, no))
    return yes if condition else no


def choose(condition: bool, yes: Callable[[], float], no: Callable[[], float]) -> float:
    """Return ``pick`` of two values of which only those are computed that a lane needs."""
    if not has_lanes(condition):
        return yes() if condition else no()
    if np.all(condition):
        return yes()
    return pick(condition, yes(), no()) if np.any(condition) else no()


def holds(condition: bool) -> bool:
    """Return whether a condition holds in any lane."""
    return bool(np.any(condition)) if has_lanes(condition) else bool(condition)


def rounded(value: float) -> int:
    """Round to the nearest whole number, halves to even."""
    if has_lanes(value):
        return cast("int", np.rint(value).astype(np.int64))
    return round(value)


def rounded_up(value: float) -> int:
    """Round up to a whole number."""
    if has_lanes(value):
        return cast("int", np.ceil(value).astype(np.int64))
    return math.ceil(value)


def log2(value: float) -> float:
    """Return the logarithm to base 2."""
    return cast("float", np.log2(value)) if has_lanes(value) else float(np.log2(value))


def power(base: float, exponent: int) -> float:
    """Return ``base`` to a positive whole power, by squaring: the C library's own differs in the last bit."""
    result, square = None, base
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        square = square * square if exponent else square
    return 1.0 if result is None else result


def smooth_highest(left: float, right: float) -> float:
    """Return a maximum with a round corner: the 8-norm of two non-negative values.

    At equal values it is 2^(1/8) times either, 9 % above: two resources that are both busy all
    the time never overlap perfectly.
    """
    peak = highest(highest(left, right), 1e-30)
    total = power(left / peak, 8) + power(right / peak, 8)
    return peak * _root(_root(_root(total)))


def _root(value: float) -> float:
    return cast("float", np.sqrt(value)) if has_lanes(value) else math.sqrt(value)


class Memo(Generic[Made]):
    """Values remembered by key; of keys with lanes, which no table can hold, the one of the last owner only."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Made] = {}
        self._last: tuple[object, Made] | None = None

    def recall(self, owner: object, key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        """Return what ``make`` returned for this key, or for lanes for this very owner."""
        if any(map(has_lanes, key)):
            if self._last is None or self._last[0] is not owner:
                self._last = owner, make()
            return self._last[1]
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]
