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
    DeviceSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    Precision,
    TrainingSpec,
)
from costmodel.strategy import RECOMPUTES, Recompute, Strategy
from planner.accuracy.hardware import cluster_of, device_name
from planner.accuracy.stack import Row, framework_of, options_of, text_of
from planner.plans import Chunk, Placement

_PRECISIONS: dict[str, Precision] = {
    "fp8": "fp8",
    "mxfp8": "fp8",
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
    graph = _graph_of(row)
    return Run(
        id=name or row.get("id", ""),
        source=row.get("source", "") or "unnamed",
        tier=row.get("tier", "") or "core",
        group=f"{row.get('group', '')}/{row.get('heads', '')}" if row.get("group") else "",
        graph=graph,
        cluster=cluster,
        training=_training(row, framework, cluster.device),
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


def _training(row: Row, framework: str, device: DeviceSpec) -> TrainingSpec:
    precision = row.get("precision", "") or "bf16"
    if precision == "fp32" and "tf32" in device.peak_flops and framework.startswith("megatron"):
        precision = (
            "tf32"  # NVIDIA's containers, in which Megatron runs, turn TF32 on for fp32 matmuls
        )
    if precision not in _PRECISIONS:
        raise UnsupportedError(f"precision {precision} is not modelled")
    options = options_of(row, framework)
    return TrainingSpec(
        global_batch=_integer(row, "global_batch"),
        sequence=_integer(row, "seq"),
        framework=framework,
        precision=_PRECISIONS[precision],
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
    if vpp > 1 and batch // (dp * micro) % pp:
        raise InputError(
            f"interleaving needs micro-batches in multiples of pp {pp}", key="vpp", value=vpp
        )
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
    """Whether experts are not cut by tensor parallelism (expert_tensor_parallel_size 1, recipes since 2025)."""
    recent = any(word in text_of(row) for word in ("megatron-bridge", "moe-modelzoo", "deepep"))
    return recent or _integer(row, "ep", 1) * _integer(row, "tp", 1) > _integer(row, "gpus")


def _zero(row: Row) -> int:
    text = row.get("zero_stage", "") or "0"
    stages = {"0": 0, "1": 1, "2": 2, "3": 3, "fsdp": 3}
    if text not in stages:
        raise InputError("must be 0, 1, 2, 3 or fsdp", key="zero_stage", value=text)
    return stages[text]


def _recompute(row: Row) -> Recompute:
    text = row.get("recompute", "") or "none"
    found = next((name for name in RECOMPUTES if name == text), None)
    if found is None:
        raise InputError("must be none, selective or full", key="recompute", value=text)
    return found


def _chunks(row: Row, pp: int, framework: str) -> int:
    """Return the chunks of a pipeline rank; a NeMo recipe that does not say interleaves one layer per chunk."""
    if row.get("vpp") or pp == 1:
        return _integer(row, "vpp", 1) if pp > 1 else 1
    layers = _integer(row, "layers")
    return layers // pp if framework == "nemo" and layers % pp == 0 else 1


def _graph_of(row: Row) -> ModelGraph:
    notes = text_of(row)
    heads, hidden, layers = (_integer(row, key) for key in ("heads", "hidden", "layers"))
    experts = _integer(row, "moe_experts", 1)
    gated = row.get("ffn_kind", "gelu") == "swiglu" or "geglu" in notes
    width = _number(r"head_dim (\d+)", notes) or max(1, hidden // heads)
    attention = AttentionSpec(
        heads=heads,
        kv_heads=_integer(row, "kv_heads", heads),
        head_dim=width,
        qkv_bias=not gated,
        out_bias=not gated,
        causal="bert" not in row.get("model", "").lower(),
        **_latent(notes),  # type: ignore[arg-type]
    )
    ffn = _integer(row, "ffn", 4 * hidden)
    dense = LayerSpec(
        name="dense",
        attention=attention,
        mlp=MlpSpec(ffn=_dense_width(notes) or ffn, gated=gated, bias=not gated),
    )
    kinds: tuple[LayerSpec, ...] = (dense,)
    order = (0,) * layers
    if experts > 1:
        routed = MlpSpec(
            ffn=_number(r"moe_ffn=(\d+)", notes) or ffn,
            gated=gated,
            experts=experts,
            topk=_integer(row, "moe_topk", 1),
            shared_ffn=_number(r"shared expert ffn=(\d+)", notes),
        )
        lead = min(layers, _dense_layers(notes))
        kinds = (LayerSpec(name="moe", attention=attention, mlp=routed), dense)
        order = (1,) * lead + (0,) * (layers - lead)
    return _built(
        ModelSpec(
            name=row.get("model", "") or "model",
            hidden=hidden,
            kinds=kinds,
            layers=order,
            vocab=_number(r"vocab \d+ padded to (\d+)", notes) or _integer(row, "vocab", 50304),
            tied=row.get("tied_embeddings") == "1",
            norm="rmsnorm" if gated else "layernorm",
            positions=0 if gated else _integer(row, "seq"),
        )
    )


@lru_cache(maxsize=4096)
def _built(model: ModelSpec) -> ModelGraph:
    return build_graph(model)


def _number(pattern: str, text: str) -> int:
    """Return the number that a pattern finds, 0 if it finds none."""
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def _latent(notes: str) -> dict[str, int]:
    """Return the widths of MLA as far as they are stated, DeepSeek-V3's where not; nothing without MLA."""
    if not re.search(r"\bmla\b", notes):
        return {}
    stated = _number(r"kv_lora\w*[ =](\d+)", notes) > 0
    return {
        "q_lora_rank": _number(r"q_lora\w*[ =](\d+)", notes) if stated else 1536,
        "kv_lora_rank": _number(r"kv_lora\w*[ =](\d+)", notes) or 512,
        "qk_nope_head_dim": _number(r"nope[ =](\d+)", notes) or 128,
        "qk_rope_head_dim": _number(r"rope[ =](\d+)", notes) or 64,
        "v_head_dim": _number(r"\bv[ =](\d+)", notes) or 128,
    }


def _dense_width(notes: str) -> int:
    return _number(r"layers? dense ffn (\d+)", notes)


def _dense_layers(notes: str) -> int:
    """Return how many leading layers of a mixture of experts are dense."""
    if "first layer dense" in notes:
        return 1
    return _number(r"first (\d+) layers? dense", notes) or _number(r"(\d+) dense layer", notes)


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
