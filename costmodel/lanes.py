"""Arithmetic on prices that are numbers in use and arrays in the fit.

The fit evaluates many trial vectors of constants at once: a price is then an array with one lane per trial. Sums,
products and powers work on both; a maximum does not, hence these few functions. Values are typed ``float``
throughout: a lane array stands for a float.
"""

from typing import Any

import numpy as np


def has_lanes(value: Any) -> bool:
    """Return whether a value is an array of lanes rather than a number."""
    return isinstance(value, np.ndarray)


def highest(left: float, right: float) -> float:
    """Return the larger of two values, lane by lane."""
    if has_lanes(left) or has_lanes(right):
        lanes: float = np.maximum(left, right)
        return lanes
    return max(left, right)


def lowest(left: float, right: float) -> float:
    """Return the smaller of two values, lane by lane."""
    return -highest(-left, -right)


def smooth_highest(left: float, right: float, sharpness: float = 8.0) -> float:
    """Return a maximum with a round corner: the ``sharpness``-norm of two non-negative values.

    At equal values it is 2^(1/sharpness) times either, 9 % above for 8: two resources that are both busy all
    the time never overlap perfectly.
    """
    peak = highest(highest(left, right), 1e-30)
    total = (left / peak) ** sharpness + (right / peak) ** sharpness
    root: float = total ** (1.0 / sharpness)
    return peak * root
