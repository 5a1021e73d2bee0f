"""Values of the time model's physical constants.

Meanings and priors stand in costmodel.priors. ``fitted.json`` beside this file holds the values that ``python -m
planner.accuracy.refit`` found; a constant missing there keeps its prior. Constants of a kind of device are looked up by
device name first, then by architecture, then as ``other``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from costmodel.errors import InputError
from costmodel.priors import CONSTANTS, Constant
from costmodel.spec import DeviceSpec

BY_NAME: Mapping[str, Constant] = {constant.name: constant for constant in CONSTANTS}


@dataclass(frozen=True, slots=True, eq=False)
class Constants:
    """Values of all constants; a name without an entry raises ``KeyError`` (a mistake in the code).

    In the fit a value may be an array, one lane per trial vector of constants: everything that prices uses
    operations that work on both.
    """

    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def of(self, stem: str, key: str) -> float:
        """Return ``stem.key``, or ``stem.other`` where that is not known."""
        return self.values.get(f"{stem}.{key}", self.values[f"{stem}.other"])

    def of_device(self, stem: str, device: DeviceSpec) -> float:
        """Return the constant of a device: by name, else architecture, else ``other``."""
        by_architecture = f"{stem}.{device.architecture}"
        fallback = self.values.get(by_architecture, self.values[f"{stem}.other"])
        return self.values.get(f"{stem}.{device.name}", fallback)

    def replaced(self, changes: Mapping[str, float]) -> "Constants":
        """Return the same constants with some values changed.

        Raises:
            InputError: If a name is not a constant.
        """
        for name in changes:
            if name not in BY_NAME:
                raise InputError("must name a constant", key=name, nearest=_alike(name))
        return Constants({**self.values, **changes})


def priors() -> Constants:
    """Return every constant at its prior."""
    return Constants({constant.name: constant.prior for constant in CONSTANTS})


@lru_cache(maxsize=1)
def fitted() -> Constants:
    """Return the shipped constants: the fit where there is one, else the prior."""
    text = resources.files("costmodel").joinpath("fitted.json").read_text(encoding="utf-8")
    values = json.loads(text)["values"]
    return priors().replaced({name: values[name] for name in values if name in BY_NAME})


def _alike(name: str) -> tuple[str, ...]:
    stem = name.split(".", maxsplit=1)[0]
    return tuple(key for key in BY_NAME if key.startswith(f"{stem}."))[:5]
