"""ZeRO-1: a module's optimizer state spread over the data-parallel ranks (Rajbhandari et al. 2020, arXiv 1910.02054, section 5.1).

Parameters and gradients of a module lie in one flat buffer each, as in Megatron's distributed optimizer. After the
last micro-batch a reduce-scatter leaves each rank the sum of its share of the gradients, the optimizer steps on that share
of the parameters alone, and an all-gather gives every rank the whole module back.
"""

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


class ShardedModule:
    """One module's flat buffers and the share of them that one rank updates.

    Args:
        module: Its parameters become views of the flat buffer.
        ranks: Over how many ranks the state is spread.
        rank: Which share is this rank's.
    """

    def __init__(self, module: nn.Module, ranks: int, rank: int) -> None:
        parameters = list(module.parameters())
        share = -(-sum(p.numel() for p in parameters) // ranks)
        self._ranks = ranks
        self._values, self._gradients = torch.zeros(ranks * share), torch.zeros(ranks * share)
        start = 0
        for parameter in parameters:
            part = slice(start, start := start + parameter.numel())
            _move(parameter, self._values[part], self._gradients[part])
        own = slice(rank * share, (rank + 1) * share)
        self.shard = nn.Parameter(self._values[own])
        self.shard.grad = self._gradients[own]

    def reduce(self) -> None:
        """Sum this rank's share of the gradients over all ranks."""
        dist.reduce_scatter_tensor(self._own_gradient(), self._gradients)

    def average(self) -> None:
        """Turn the sum into the mean that data parallelism steps on."""
        self._own_gradient().div_(self._ranks)

    def gather(self) -> None:
        """Fetch the shares that the other ranks have updated."""
        dist.all_gather_into_tensor(self._values, self.shard.detach())

    def clear(self) -> None:
        """Set the whole gradient to zero."""
        self._gradients.zero_()

    def _own_gradient(self) -> "Tensor":
        gradient = self.shard.grad
        if gradient is None:
            raise RuntimeError("the optimizer dropped the gradient's view")
        return gradient


def _move(parameter: nn.Parameter, value: "Tensor", gradient: "Tensor") -> None:
    """Make a parameter and its gradient views of flat buffers, its value kept."""
    value.copy_(parameter.detach().flatten())
    parameter.data = value.view_as(parameter)
    parameter.grad = gradient.view_as(parameter)
