"""What passing activations and gradients between pipeline neighbours costs.

Part of a transfer holds its sender up (the exposed share), the rest is under way while the sender works on.
"""

from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from costmodel.constants import Constants
from costmodel.events import CommEvent
from costmodel.frameworks import Framework, element_bytes
from costmodel.groups import boundary_levels
from costmodel.lanes import has_lanes, highest, holds, lowest, pick
from costmodel.linear import StageTerm, term
from costmodel.prices import EventPrices
from costmodel.spec import ClusterSpec, TrainingSpec
from costmodel.split import Local, local_sizes
from costmodel.strategy import Strategy

Terms = tuple[StageTerm, ...]


class Boundaries:
    """Prices the boundaries of a model's pipelines.

    Args:
        hidden: Elements of a token between two stages.
        kinds: Layer kinds of the model.
        training: Batch, sequence, precision.
        framework: What it sends, and whether it waits.
        prices: Prices of events.
        constants: Exposed shares and the host's time for a micro-batch.
        cluster: Where the ranks stand.
    """

    def __init__(
        self,
        hidden: int,
        kinds: int,
        training: TrainingSpec,
        framework: Framework,
        prices: EventPrices,
        constants: Constants,
        cluster: ClusterSpec,
    ) -> None:
        self._hidden, self._kinds, self._training = hidden, kinds, training
        self._framework, self._prices, self._constants = framework, prices, constants
        self._cluster = cluster
        self._levels = lru_cache(maxsize=None)(self._levels_of)

    def waits(self, strategy: Strategy) -> tuple[Terms, Terms]:
        """Return what a stage waits in each pass for its neighbours and for the host's bookkeeping.

        A middle stage takes part in one exchange per pass; the first has none behind its backward, the last
        none behind its forward.
        """
        constants, framework = self._constants, self._framework
        share = constants.of("microbatch", framework.microbatch) / strategy.vpp / 2
        overhead = term("overhead", self._kinds, fixed=share)
        if not holds(strategy.pp > 1):
            return (overhead,), (overhead,)
        wait = self._longest(strategy) * self._exposure(strategy) * (strategy.pp > 1)
        forward = term("pp_comm", self._kinds, fixed=wait, last=-wait)
        backward = term("pp_comm", self._kinds, fixed=wait, first=-wait)
        return (overhead, forward), (overhead, backward)

    def transfers(self, strategy: Strategy) -> tuple[float, ...]:
        """Return the seconds that each boundary's data is under way beyond what its sender waits for."""
        if strategy.pp == 1:
            return ()
        under_way = self._under_way(strategy)
        levels = self._levels(strategy.pp, strategy.pipeline_span // strategy.pp)
        by_level = {level: self._hop(strategy, level) * under_way for level in set(levels)}
        return tuple(by_level[level] for level in levels)

    def least_transfer(self, strategy: Strategy) -> float:
        """Return the least of ``transfers`` but the one that wraps around, lane by lane; 0 where there is none."""
        crossed = self._crossed(strategy, slice(-1))
        least = 0.0
        for level in np.flatnonzero(crossed.any(axis=0)).tolist():
            hop = self._hop(strategy, level)
            shorter = pick(least == 0.0, hop, lowest(least, hop))
            least = pick(cast("bool", crossed[:, level]), shorter, least)
        return least * self._under_way(strategy)

    def _longest(self, strategy: Strategy) -> float:
        if not has_lanes(strategy.pp):
            levels = self._levels(strategy.pp, strategy.pipeline_span // strategy.pp)
            return self._hop(strategy, max(levels))
        crossed = self._crossed(strategy, slice(None))
        farthest = (crossed * np.arange(crossed.shape[1])).max(axis=1)
        return self._hop(strategy, cast("int", farthest))

    def _crossed(self, strategy: Strategy, which: slice) -> NDArray[np.bool_]:
        """Return which link levels the chosen boundaries cross, by lane and level."""
        shapes: NDArray[Any] = np.stack([strategy.pp, strategy.pipeline_span], axis=1)
        distinct, lanes = np.unique(shapes, axis=0, return_inverse=True)
        crossed = np.zeros((len(distinct), len(self._cluster.levels)), dtype=np.bool_)
        for row, (pp, span) in enumerate(distinct.tolist()):
            crossed[row, sorted(set(self._levels(pp, span // pp)[which]))] = True
        return np.asarray(crossed[lanes.reshape(-1)])

    def _levels_of(self, pp: int, stride: int) -> tuple[int, ...]:
        return boundary_levels(self._cluster, Strategy(pp=pp, tp=stride))

    def _exposure(self, strategy: Strategy) -> float:
        """Return the share of a transfer that its sender waits for."""
        interleaved = self._constants.of("p2p", "interleaved")
        plain = self._constants.of("p2p", self._framework.p2p)
        return pick(strategy.vpp > 1, interleaved, plain)

    def _under_way(self, strategy: Strategy) -> float:
        return highest(1.0 - self._exposure(strategy), 0.0)

    def _hop(self, strategy: Strategy, level: int) -> float:
        local: Local = local_sizes(self._training, strategy)
        size = local.tokens * self._hidden * element_bytes(self._training)
        splits = strategy.sequence_parallel | self._framework.scatter_gather
        cut = pick(splits, strategy.tp, 1)
        return self._prices.comm(
            CommEvent(
                collective="send_recv", bytes=-(-size // cut), group_size=2, per_node=1, level=level
            )
        )
