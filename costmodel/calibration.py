"""Calibrations: constants of the model fitted to a user's own runs, kept in a YAML file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costmodel.constants import BY_NAME
from costmodel.errors import InputError
from costmodel.fields import as_fields
from costmodel.load import read_data, write_yaml
from costmodel.units import parse_number

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a calibration made of one constant.

    Attributes:
        name: The constant.
        before, after: Its value.
        deviation: Standard deviation of the logarithm of ``after``.
    """

    name: str
    before: float
    after: float
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Constants fitted to runs.

    Attributes:
        changes: What each constant became, those that moved most first.
        runs: Number of runs it was fitted to.
        error_before, error_after: Median absolute error over those runs.
        refused: Runs that were not used, by name, with the reason.
    """

    changes: tuple[Change, ...]
    runs: int
    error_before: float
    error_after: float
    refused: Mapping[str, str]

    @property
    def values(self) -> dict[str, float]:
        """The fitted constants by name."""
        return {change.name: change.after for change in self.changes}


def write_calibration(calibration: Calibration) -> str:
    """Return the calibration file's text."""
    return write_yaml(
        {
            "calibration": FORMAT,
            "runs": calibration.runs,
            "median_error_before": calibration.error_before,
            "median_error_after": calibration.error_after,
            "constants": {change.name: change.after for change in calibration.changes},
        }
    )


def read_calibration(path: Path) -> dict[str, float]:
    """Return the constants of a calibration file by name.

    Raises:
        InputError: If the file cannot be read, is of another format, or names what is no constant.
    """
    fields = as_fields(read_data(path), str(path))
    if fields.values.get("calibration") != FORMAT:
        raise InputError(
            "must be a calibration file of this format",
            file=str(path),
            key="calibration",
            value=fields.values.get("calibration"),
            nearest=FORMAT,
        )
    constants = fields.child("constants")
    return {
        name: _value(name, value, constants.key(name)) for name, value in constants.values.items()
    }


def _value(name: str, value: object, key: str) -> float:
    if name not in BY_NAME:
        raise InputError("must name a constant of the model", key=key, nearest=sorted(BY_NAME)[:5])
    number = parse_number(value, key)
    if number <= 0:
        raise InputError("must be positive", key=key, value=value)
    return number
