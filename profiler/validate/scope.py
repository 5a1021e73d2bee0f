"""What can be launched: checked before any process starts, each refusal with its rule and the nearest that is launched."""

from collections.abc import Iterator

from costmodel.errors import InputError, UnsupportedError
from costmodel.spec import ModelSpec
from costmodel.strategy import Strategy
from profiler.validate.job import Job, ModelShape

_SCHEDULES = ("gpipe", "1f1b", "interleaved")
_PLAIN = {
    "cp": (1, "must be 1: context parallelism is not launched"),
    "ep": (1, "must be 1: expert parallelism is not launched"),
    "etp": (1, "must be 1: expert parallelism is not launched"),
    "sequence_parallel": (False, "must be false: sequence parallelism is not launched"),
    "recompute": ("none", "must be none: recomputation is not launched"),
    "zero_group": (0, "must be 0: all replicas share the state"),
    "offload_optimizer": (0.0, "must be 0: offloading is not launched"),
    "offload_activations": (0.0, "must be 0: offloading is not launched"),
}
"""Switches that have one value here, and the rule that says so."""


def shape_of(model: ModelSpec, sequence: int) -> ModelShape:
    """Return the shape that stands for ``model``.

    Raises:
        UnsupportedError: If it is no decoder of equal dense blocks.
    """
    kind = model.kinds[0]
    attention, mlp = kind.attention, kind.mlp
    if len(model.kinds) > 1 or attention is None or mlp is None or kind.cross_attention:
        raise UnsupportedError(
            f"{model.name}: only decoders of equal blocks are launched (nearest: llama-3.1-8b)"
        )
    if mlp.experts or attention.latent or not model.vocab:
        raise UnsupportedError(
            f"{model.name}: no experts, latent attention or images are launched (nearest: llama-3.1-8b)"
        )
    return ModelShape(
        hidden=model.hidden,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        ffn=mlp.ffn,
        gated=mlp.gated,
        layers=len(model.layers),
        vocab=model.vocab,
        sequence=sequence,
    )


def check(job: Job) -> None:
    """Refuse what PyTorch's parts are not combined here to run.

    Raises:
        InputError: With the first broken rule and the nearest value that keeps it.
    """
    for error in _broken(job):
        raise error


def _broken(job: Job) -> Iterator[InputError]:
    strategy = job.strategy
    for name, (value, rule) in _PLAIN.items():
        if getattr(strategy, name) != value:
            yield _refused(name, strategy, rule, value)
    yield from _one_degree(strategy)
    yield from _pipeline(strategy)
    yield from _tensor(job.shape, strategy.tp)
    if strategy.zero and strategy.dp == 1:
        rule = "needs data-parallel ranks to shard over"
        yield _refused("zero", strategy, rule, "zero=0, or dp=2")


def _one_degree(strategy: Strategy) -> Iterator[InputError]:
    above = [name for name in ("pp", "tp", "dp") if getattr(strategy, name) > 1]
    if len(above) > 1:
        kept = f"{above[0]}={getattr(strategy, above[0])}"
        rule = f"must be 1 beside {kept}: one of dp, tp and pp above 1 is launched at a time"
        yield _refused(above[1], strategy, rule, f"{above[1]}=1")


def _pipeline(strategy: Strategy) -> Iterator[InputError]:
    """Hold the rules of torch.distributed.pipelining's schedules."""
    pp, microbatches = strategy.pp, strategy.microbatches
    if pp == 1:
        return
    if strategy.schedule not in _SCHEDULES:
        yield _refused("schedule", strategy, "is not launched", _SCHEDULES)
    if (strategy.vpp > 1) != (strategy.schedule == "interleaved"):
        rule = "is interleaved where vpp is above 1, and only there"
        nearest = "interleaved" if strategy.vpp > 1 else "1f1b"
        yield _refused("schedule", strategy, rule, nearest)
    if strategy.schedule == "1f1b" and microbatches < pp:
        yield _refused("microbatches", strategy, "must be at least pp", pp)
    if strategy.schedule == "interleaved" and microbatches % pp:
        rule = "must be a multiple of pp with interleaving"
        yield _refused("microbatches", strategy, rule, max(microbatches // pp, 1) * pp)


def _tensor(shape: ModelShape, tp: int) -> Iterator[InputError]:
    for name in ("heads", "kv_heads", "ffn"):
        size = getattr(shape, name)
        if size % tp:
            nearest = max(n for n in range(1, tp) if not size % n)
            rule = f"must divide the model's {name} ({size})"
            yield InputError(rule, key="--strategy.tp", value=tp, nearest=nearest)


def _refused(name: str, strategy: Strategy, rule: str, nearest: object) -> InputError:
    return InputError(
        rule, key=f"--strategy.{name}", value=getattr(strategy, name), nearest=nearest
    )
