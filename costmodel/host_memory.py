"""Host memory of a node: offloaded optimizer state, gradients, weights and activations.

DeepSpeed keeps, for an offloaded optimizer, 12 bytes of state and an fp32 gradient per parameter in pinned buffers (ZeRO-
Offload, Ren et al. 2021, arXiv 2101.06840, section 4); Megatron's hybrid optimizer duplicates the pinned copies.
"""

from costmodel.graph import ModelGraph
from costmodel.memory_behaviour import memory_behaviour
from costmodel.memory_options import is_on
from costmodel.spec import ClusterSpec, TrainingSpec
from costmodel.strategy import Strategy

# 220 GB a node were measured where 16 bytes of 100e9 parameters over 8 nodes are 200 GB (DeepSpeed issue 912).
PINNED = 1.1
# 816 GB were measured where 12 bytes of 30.5e9 parameters are 366 GB (slime issue 1851).
PINNED_TWICE = 2.2
_GRADIENT = 4.0
_LOAD = 4.0


def host_memory_bytes(
    graph: ModelGraph,
    cluster: ClusterSpec,
    training: TrainingSpec,
    strategy: Strategy,
    *,
    loads_checkpoint: bool = False,
) -> float:
    """Return bytes of host memory that a node needs.

    Args:
        graph: The model.
        cluster: Nodes; the replicas of all nodes share the offloaded state.
        training: Framework and its options; ``offload_parameters: on`` moves the weights as well.
        strategy: Its offloaded shares.
        loads_checkpoint: Whether each node first reads the weights in fp32.

    Raises:
        InputError: If the framework or one of its options is unknown.
    """
    behaviour = memory_behaviour(training)
    nodes = max(1, strategy.gpus // cluster.gpus_per_node)
    copies = 1.0 if strategy.zero else strategy.dp * strategy.cp
    state = strategy.offload_optimizer * behaviour.state
    if behaviour.offloads_gradients:
        state = (state + strategy.offload_optimizer * _GRADIENT) * PINNED
    else:
        state *= PINNED_TWICE
    weights = behaviour.frozen * PINNED if is_on(training, "offload_parameters") else 0.0
    load = _LOAD * graph.parameters if loads_checkpoint else 0.0
    return (state + weights) * graph.parameters * copies / nodes + load
