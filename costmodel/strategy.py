"""A strategy: the degrees and switches of one way to train a model in parallel."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

from costmodel.lanes import highest, pick

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "no_flush"]
Recompute = Literal["none", "selective", "full"]

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
RECOMPUTES: tuple[Recompute, ...] = get_args(Recompute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Degrees and switches; which layers go where is the placement's business.

    In the search one Strategy may stand for many: every field but ``schedule`` and ``placement_order`` is then an
    array with a lane for each (costmodel.lanes).

    Attributes:
        dp: Data-parallel replicas.
        tp: Tensor-parallel ranks of a layer.
        pp: Pipeline stages.
        cp: Context-parallel ranks of a sequence.
        ep: Expert-parallel ranks; they are taken from the data- and context-parallel ranks
            (Megatron rule 1), so they do not multiply the number of GPUs.
        etp: Tensor-parallel ranks of an expert.
        vpp: Chunks of layers per pipeline rank (interleaving).
        micro_batch: Sequences in one micro-batch.
        microbatches: Micro-batches per iteration and replica.
        schedule: Order of forwards and backwards.
        zero: Sharding over the data-parallel ranks: 0 none, 1 optimizer, 2 and gradients, 3 and parameters.
        zero_group: Ranks that one copy of the sharded state is spread over; 0 means all of ``dp * cp``.
        sequence_parallel: Whether norms and residuals are split over the tensor-parallel ranks.
        recompute: Which activations the backward pass recomputes in layers that do not recompute fully
            (``full`` means every layer of every stage).
        offload_optimizer: Share of the optimizer state kept in host memory.
        offload_activations: Share of kept activations moved to host memory.
        placement_order: Degrees from the nearest ranks outwards.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    vpp: int = 1
    micro_batch: int = 1
    microbatches: int = 1
    schedule: Schedule = "1f1b"
    zero: int = 0
    zero_group: int = 0
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    offload_optimizer: float = 0.0
    offload_activations: float = 0.0
    placement_order: str = "tp-cp-ep-dp-pp"

    @property
    def gpus(self) -> int:
        """Number of GPUs the strategy uses."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def global_batch(self) -> int:
        """Sequences per iteration."""
        return self.dp * self.micro_batch * self.microbatches

    @property
    def expert_dp(self) -> int:
        """Replicas of one expert: dp * tp * cp / (ep * etp)."""
        return highest(1, self.dp * self.tp * self.cp // (self.ep * self.etp))

    @property
    def sharding_ranks(self) -> int:
        """Ranks that one copy of the ZeRO-sharded state is spread over."""
        return pick(self.zero_group > 0, self.zero_group, self.dp * self.cp)

    @property
    def pipelined(self) -> bool:
        """Whether there is more than one pipeline rank."""
        return self.pp > 1

    @property
    def interleaves(self) -> bool:
        """Whether a rank holds several chunks."""
        return self.vpp > 1

    @property
    def pipeline_span(self) -> int:
        """Consecutive ranks that one pipeline lies in: the degrees up to ``pp`` in the placement order."""
        span = 1
        for name in self.placement_order.split("-"):
            span = span * (getattr(self, name) if name != "ep" else 1)
            if name == "pp":
                break
        return span

    @property
    def sharded_stage(self) -> int:
        """ZeRO stage where it moves data with every micro-batch (2 and 3), 0 otherwise."""
        return pick(self.zero >= 2, self.zero, 0)

    @property
    def sharded_dp(self) -> int:
        """Data-parallel ranks where ZeRO moves data between them with every micro-batch, 1 otherwise."""
        return pick(self.zero >= 2, self.dp, 1)

    def label(self) -> str:
        """Return the short form people write: ``tp8 pp4 dp2``; degrees of one are left out."""
        degrees = [
            f"{name}{getattr(self, name)}"
            for name in ("tp", "cp", "ep", "pp", "vpp", "dp")
            if getattr(self, name) > 1
        ]
        return " ".join(degrees) or "dp1"


FIELD_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Strategy))
