"""Measured runs: rows of a CSV file become model, cluster, training, strategy and placement.

The columns are described in scenarios/measured/README.md. A row that cannot be turned into a run says why; it is
never dropped silently.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from costmodel.errors import InputError, ShardplanError, UnsupportedError
from costmodel.graph import ModelGraph, build_graph
from costmodel.spec import (
    AttentionSpec,
    ClusterSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    TrainingSpec,
)
from costmodel.strategy import Strategy
from planner.accuracy.hardware import cluster_of, device_name
from planner.accuracy.stack import Row, framework_of, options_of, text_of
from planner.plan import Chunk, Placement

_PRECISIONS = {
    "mxfp8": "fp8",
    "fp8": "fp8",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
    "tf32": "tf32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured configuration.

    Attributes:
        id, source, tier, group: As the file says; ``group`` is split by heads.
        graph, cluster, training, strategy, placement: What was run.
        iteration_s: Measured seconds, None where not stated.
        allocated_bytes, reserved_bytes: Measured peaks, None where not stated.
        out_of_memory: Whether the run ran out of memory.
        row: The row itself.
    """

    id: str
    source: str
    tier: str
    group: str
    graph: ModelGraph
    cluster: ClusterSpec
    training: TrainingSpec
    strategy: Strategy
    placement: Placement
    iteration_s: float | None
    allocated_bytes: float | None
    reserved_bytes: float | None
    out_of_memory: bool
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A row that describes no run the model knows, and why."""

    id: str
    source: str
    tier: str
    reason: str


def read_rows(paths: Iterable[str | Path]) -> list[dict[str, str]]:
    """Return the rows of CSV files.

    Raises:
        InputError: If a file cannot be read or has no header with ``gpus`` and ``layers``.
    """
    rows: list[dict[str, str]] = []
    for path in paths:
        try:
            with Path(path).open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file)
                found = [{k: (v or "").strip() for k, v in row.items() if k} for row in reader]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"cannot be read: {error}", file=str(path)) from error
        missing = [
            name for name in ("gpus", "layers", "hidden") if name not in (reader.fieldnames or ())
        ]
        if missing:
            raise InputError(f"must have the columns {', '.join(missing)}", file=str(path))
        rows += found
    return rows


def read_runs(rows: Sequence[Row], tier: str = "all") -> tuple[list[Run], list[Unread]]:
    """Return the runs of ``tier`` ("core", "extra" or "all") and the rows that are none."""
    runs: list[Run] = []
    unread: list[Unread] = []
    for number, row in enumerate(rows):
        name = row.get("id") or f"row {number + 1}"
        if tier != "all" and (row.get("tier") or "core") != tier:
            continue
        try:
            runs.append(run_of(row, name))
        except ShardplanError as error:
            reason = str(error)
            unread.append(
                Unread(
                    id=name, source=row.get("source", ""), tier=row.get("tier", ""), reason=reason
                )
            )
    return runs, unread


def run_of(row: Row, name: str = "") -> Run:
    """Return the run that a row describes.

    Raises:
        ShardplanError: If a value is missing, contradicts another, or is beyond the model.
    """
    framework = framework_of(row)
    strategy = _strategy(row, framework)
    gpus = _integer(row, "gpus")
    per_node = _integer(row, "gpus_per_node", 8)
    device = device_name(row.get("gpu_type", ""), per_node)
    cluster = cluster_of(
        device, gpus, per_node, row.get("intra_node_link", ""), row.get("inter_node_link", "")
    )
    graph = _graph(_model_key(row))
    return Run(
        id=name or row.get("id", ""),
        source=row.get("source", "") or "unnamed",
        tier=row.get("tier", "") or "core",
        group=f"{row.get('group', '')}/{row.get('heads', '')}" if row.get("group") else "",
        graph=graph,
        cluster=cluster,
        training=_training(row, framework),
        strategy=strategy,
        placement=default_placement(len(graph.layers), strategy, _modules(row)),
        iteration_s=_optional(row, "iteration_s"),
        allocated_bytes=_gib(row, "allocated_gib"),
        reserved_bytes=_gib(row, "reserved_gib"),
        out_of_memory=row.get("oom", "") == "1",
        row=row,
    )


def _optional(row: Row, key: str) -> float | None:
    text = row.get(key, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise InputError("must be a number", key=key, value=text) from error
    if not 0 < value < 1e12:
        raise InputError("must be positive and finite", key=key, value=text)
    return value


def _gib(row: Row, key: str) -> float | None:
    value = _optional(row, key)
    return None if value is None else value * 2.0**30


def _integer(row: Row, key: str, default: int | None = None) -> int:
    value = _optional(row, key)
    if value is None:
        if default is None:
            raise InputError("is not stated", key=key)
        return default
    if value != int(value):
        raise InputError("must be a whole number", key=key, value=row[key])
    return int(value)


def _training(row: Row, framework: str) -> TrainingSpec:
    precision = row.get("precision", "") or "bf16"
    if precision not in _PRECISIONS:
        raise UnsupportedError(f"precision {precision} is not modelled")
    options = options_of(row, framework)
    return TrainingSpec(
        global_batch=_integer(row, "global_batch"),
        sequence=_integer(row, "seq"),
        framework=framework,
        precision=_PRECISIONS[precision],  # type: ignore[arg-type]
        attention="standard" if row.get("attention") == "standard" else "flash",
        options=options,
    )


def _strategy(row: Row, framework: str) -> Strategy:
    tp, pp, cp = (_integer(row, key, 1) for key in ("tp", "pp", "cp"))
    gpus, micro = _integer(row, "gpus"), _integer(row, "micro_batch")
    dp = _integer(row, "dp", max(1, gpus // (tp * pp * cp)))
    if tp * pp * cp * dp != gpus:
        raise InputError(
            f"tp {tp} x cp {cp} x pp {pp} x dp {dp} must be the number of GPUs",
            key="gpus",
            value=gpus,
        )
    batch = _integer(row, "global_batch")
    if batch % (dp * micro):
        raise InputError(
            f"must be a multiple of dp {dp} x micro_batch {micro}", key="global_batch", value=batch
        )
    vpp = _chunks(row, pp, framework)
    moe = _integer(row, "moe_experts", 1) > 1
    return Strategy(
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=_integer(row, "ep", 1),
        etp=tp if moe and not _splits_experts(row) else 1,
        vpp=vpp,
        micro_batch=micro,
        microbatches=batch // (dp * micro),
        schedule="interleaved" if vpp > 1 else "1f1b",
        zero=_zero(row),
        sequence_parallel=row.get("seq_parallel") == "1" and tp > 1,
        recompute=_recompute(row),
    )


def _splits_experts(row: Row) -> bool:
    """Whether experts are not cut by tensor parallelism (expert_tensor_parallel_size 1)."""
    return "megatron-bridge" in text_of(row) or _integer(row, "ep", 1) * _integer(
        row, "tp", 1
    ) > _integer(row, "gpus")


def _zero(row: Row) -> int:
    text = row.get("zero_stage", "") or "0"
    stages = {"0": 0, "1": 1, "2": 2, "3": 3, "fsdp": 3}
    if text not in stages:
        raise InputError("must be 0, 1, 2, 3 or fsdp", key="zero_stage", value=text)
    return stages[text]


def _recompute(row: Row) -> str:
    text = row.get("recompute", "") or "none"
    if text not in ("none", "selective", "full"):
        raise InputError("must be none, selective or full", key="recompute", value=text)
    return text


def _chunks(row: Row, pp: int, framework: str) -> int:
    """Return the chunks of a pipeline rank; a NeMo recipe that does not say interleaves one layer per chunk."""
    if row.get("vpp") or pp == 1:
        return _integer(row, "vpp", 1) if pp > 1 else 1
    layers = _integer(row, "layers")
    return layers // pp if framework == "nemo" and layers % pp == 0 else 1


def _model_key(row: Row) -> tuple[object, ...]:
    notes = text_of(row)
    heads = _integer(row, "heads")
    hidden = _integer(row, "hidden")
    width = re.search(r"head_dim (\d+)", notes)
    return (
        row.get("model", "") or "model",
        _integer(row, "layers"),
        hidden,
        heads,
        _integer(row, "kv_heads", heads),
        int(width[1]) if width else max(1, hidden // heads),
        _integer(row, "ffn", 4 * hidden),
        row.get("ffn_kind", "gelu") == "swiglu" or "geglu" in notes,
        _integer(row, "vocab", 50304),
        row.get("tied_embeddings") == "1",
        _integer(row, "moe_experts", 1),
        _integer(row, "moe_topk", 1),
        _integer(row, "seq"),
        _latent(notes),
        _shared(notes),
        _expert_width(notes),
        _dense_layers(notes),
        _window(notes),
        "bert" in row.get("model", "").lower(),
    )


def _latent(notes: str) -> tuple[int, ...]:
    """Return q_lora, kv_lora, nope, rope and v widths of MLA, () without it."""
    words = {
        "q": r"q_lora\w*[ =](\d+)",
        "kv": r"kv_lora\w*[ =](\d+)",
        "nope": r"nope[ =](\d+)",
        "rope": r"\brope[ =](\d+)|qk_rope[ =](\d+)",
        "v": r"\bv[ =](\d+)",
    }
    found = {key: re.search(pattern, notes) for key, pattern in words.items()}
    if found["kv"] is None:
        return (0, 512, 128, 64, 128) if re.search(r"\bmla\b", notes) else ()
    usual = {"q": 0, "kv": 512, "nope": 128, "rope": 64, "v": 128}
    return tuple(
        int(next(group for group in match.groups() if group)) if match else usual[key]
        for key, match in found.items()
    )


def _shared(notes: str) -> int:
    match = re.search(r"shared expert ffn=(\d+)", notes)
    return int(match[1]) if match else 0


def _dense_layers(notes: str) -> tuple[int, int]:
    """Return how many leading layers are dense, and their MLP width (0: that of the column)."""
    match = re.search(r"first (\d+) layers dense ffn (\d+)", notes)
    if match:
        return int(match[1]), int(match[2])
    if match := re.search(r"(\d+) dense layer", notes):
        return int(match[1]), 0
    return (1, 0) if "first layer dense" in notes else (0, 0)


def _window(notes: str) -> int:
    match = re.search(r"sliding window (\d+)", notes)
    return int(match[1]) if match else 0


def _expert_width(notes: str) -> int:
    match = re.search(r"moe_ffn=(\d+)", notes)
    return int(match[1]) if match else 0


@lru_cache(maxsize=4096)
def _graph(key: tuple[object, ...]) -> ModelGraph:
    return build_graph(_model(*key))  # type: ignore[arg-type]


def _model(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    width: int,
    ffn: int,
    gated: bool,
    vocab: int,
    tied: bool,
    experts: int,
    topk: int,
    sequence: int,
    latent: tuple[int, ...],
    shared: int,
    expert_width: int,
    dense: tuple[int, int],
    window: int,
    bidirectional: bool,
) -> ModelSpec:
    mla = dict(
        zip(
            ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
            latent,
            strict=False,
        )
    )
    attention = AttentionSpec(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        qkv_bias=not gated,
        out_bias=not gated,
        causal=not bidirectional,
        **mla,
    )
    mlp = MlpSpec(ffn=ffn, gated=gated, bias=not gated)
    block = LayerSpec(name="dense", attention=attention, mlp=mlp)
    kinds, order = (block,), (0,) * layers
    if experts > 1:
        first, dense_ffn = dense
        routed = MlpSpec(
            ffn=expert_width or ffn, gated=gated, experts=experts, topk=topk, shared_ffn=shared
        )
        moe = LayerSpec(name="moe", attention=attention, mlp=routed)
        lead = LayerSpec(
            name="dense", attention=attention, mlp=MlpSpec(ffn=dense_ffn or ffn, gated=gated)
        )
        kinds, order = (
            ((lead, moe), (0,) * first + (1,) * (layers - first)) if first else ((moe,), order)
        )
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=kinds,
        layers=order,
        vocab=vocab,
        tied=tied,
        norm="rmsnorm" if gated else "layernorm",
        positions=0 if gated else sequence,
    )


def _modules(row: Row) -> tuple[int, ...]:
    """Return the modules of each stage where the row lists them (embedding and head count as one each)."""
    match = re.search(r"modules per stage ([\d/]+)", text_of(row))
    return tuple(int(part) for part in match[1].split("/")) if match else ()


def default_placement(layers: int, strategy: Strategy, modules: Sequence[int] = ()) -> Placement:
    """Return where frameworks put the layers when nobody says otherwise.

    Even where the layers divide; with two (or one) layers fewer than divide, embedding and loss (or loss alone)
    count as layers; else full stages and a short last one.
    """
    stages = strategy.pp * strategy.vpp
    counts = _even(layers, stages)
    if len(modules) == stages and sum(modules) == layers + 2:
        counts = list(modules)
        counts[0] -= 1
        counts[-1] -= 1
    recompute = strategy.recompute == "full"
    chunks, start = [], 0
    for count in counts:
        chunks.append(Chunk(first_layer=start, layers=count, recomputed=count if recompute else 0))
        start += count
    return Placement(chunks=tuple(chunks))


def _even(layers: int, stages: int) -> list[int]:
    for embedding, loss in ((0, 0), (1, 1), (0, 1)):
        whole, rest = divmod(layers + embedding + loss, stages)
        if not rest and whole > (embedding and loss and stages == 1):
            counts = [whole] * stages
            counts[0] -= embedding
            counts[-1] -= loss
            return counts
    size = -(-layers // stages)
    counts = [max(0, min(size, layers - size * stage)) for stage in range(stages)]
    return (
        counts
        if all(counts)
        else [layers * (s + 1) // stages - layers * s // stages for s in range(stages)]
    )
