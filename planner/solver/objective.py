"""What is minimised: the iteration, an upper bound of every row and so a lower bound of the simulation."""

from planner.solver.variables import PlacementVariables


def minimise_iteration(variables: PlacementVariables) -> None:
    """Minimise O; the cutoff is the upper end of its domain."""
    variables.model.minimize(variables.iteration)
