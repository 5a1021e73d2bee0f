"""Whether what a strategy keeps in host memory fits the nodes."""

from costmodel.host_memory import host_memory_bytes
from costmodel.strategy import Strategy
from costmodel.units import format_bytes
from planner.check import Violation
from planner.scenario import Scenario


def broken_host(strategy: Strategy, scenario: Scenario) -> tuple[Violation, ...]:
    """Return the violation of the nodes' host memory; none where it is not known."""
    limit = scenario.cluster.host_memory_bytes
    need = host_memory_bytes(scenario.graph, scenario.cluster, scenario.training, strategy)
    if not limit or need <= limit:
        return ()
    text = (
        f"A node needs {format_bytes(need)} of host memory and has {format_bytes(limit)}. "
        "Nearest: a smaller offload_optimizer, or more nodes."
    )
    return (Violation(rule="host_ram", text=text),)
