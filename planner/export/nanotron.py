"""nanotron 0.4: its YAML with model, parallelism, batch and optimizer in one file.

nanotron places blocks itself: it walks through them and moves to the next rank once their summed cost has
passed the rank's share (``nanotron/models/base.py``, ``build_model``). A plan that places layers otherwise is
refused, naming what nanotron would do.
"""

from collections.abc import Iterator
from typing import Any

from costmodel.load import write_yaml
from costmodel.spec import AttentionSpec, MlpSpec, ModelSpec
from planner.export.scripts import Program, header, slurm_script, torchrun_script
from planner.export.target import Launch, Refusal, Target, unordered_groups

NAME, VERSION = "nanotron", "nanotron 0.4"
CONFIG_FILE = "nanotron.yaml"
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_ENGINES = {"1f1b": "1f1b", "gpipe": "afab"}


def config(launch: Launch) -> dict[str, Any]:
    """Return the configuration; data, learning rate and checkpoints are placeholders to edit."""
    strategy = launch.strategy
    return {
        "general": {"project": "shardplan", "run": launch.model.name, "seed": 42},
        "checkpoints": {"checkpoints_path": "checkpoints", "checkpoint_interval": 1000},
        "parallelism": {
            "dp": strategy.dp,
            "pp": strategy.pp,
            "tp": strategy.tp,
            "expert_parallel_size": 1,
            "pp_engine": _ENGINES[strategy.schedule],
            "tp_mode": "REDUCE_SCATTER" if strategy.sequence_parallel else "ALL_REDUCE",
            "tp_linear_async_communication": False,
        },
        "model": {
            "model_config": _model(launch),
            "init_method": {"std": 0.02},
            "dtype": _DTYPES[launch.training.precision],
            "make_vocab_size_divisible_by": 1,
        },
        "tokenizer": {"tokenizer_name_or_path": "gpt2"},
        "tokens": {
            "sequence_length": launch.training.sequence,
            "train_steps": 1000,
            "micro_batch_size": strategy.micro_batch,
            "batch_accumulation_per_replica": strategy.microbatches,
        },
        "optimizer": _optimizer(strategy.zero),
        "data": {"dataset": None, "seed": 42, "num_loading_workers": 1},
    }


def _optimizer(zero: int) -> dict[str, Any]:
    return {
        "zero_stage": zero,
        "weight_decay": 0.1,
        "clip_grad": 1.0,
        "accumulate_grad_in_fp32": True,
        "adam_eps": 1e-8,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "torch_adam_is_fused": True,
        "learning_rate_scheduler": {
            "learning_rate": 3e-4,
            "lr_warmup_steps": 100,
            "lr_warmup_style": "linear",
            "lr_decay_style": "cosine",
            "min_decay_lr": 3e-5,
        },
    }


def _model(launch: Launch) -> dict[str, Any]:
    model = launch.model
    attention, mlp = _sublayers(model)
    return {
        "is_llama_config": True,
        "hidden_act": "silu",
        "hidden_size": model.hidden,
        "intermediate_size": mlp.ffn,
        "max_position_embeddings": launch.training.sequence,
        "num_attention_heads": attention.heads,
        "num_hidden_layers": len(model.layers),
        "num_key_value_heads": attention.kv_heads,
        "tie_word_embeddings": model.tied,
        "vocab_size": model.vocab,
    }


def own_split(launch: Launch) -> tuple[int, ...]:
    """Return the layers of each rank as nanotron places them.

    Costs are those of ``get_block_compute_costs``: a layer 4 h^2 + 3 h ffn, the head h * vocabulary (padded to a
    multiple of tp), embedding and final norm nothing.
    """
    model, pp = launch.model, launch.strategy.pp
    _, mlp = _sublayers(model)
    layer = 4 * model.hidden**2 + 3 * mlp.ffn * model.hidden
    tp = launch.strategy.tp
    head = -(-model.vocab // tp) * tp * model.hidden
    total = layer * len(model.layers) + head
    counts, rank = [0] * pp, 0
    for number in range(1, len(model.layers) + 1):
        counts[rank] += 1
        if layer * number * pp > total * (rank + 1):
            rank += 1
    return tuple(counts)


def _sublayers(model: ModelSpec) -> tuple[AttentionSpec, MlpSpec]:
    kind = model.kinds[model.layers[0]]
    return kind.attention or AttentionSpec(heads=1, kv_heads=1, head_dim=1), kind.mlp or MlpSpec(
        ffn=1
    )


def refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield models other than Llama's shape and plans that nanotron would place otherwise."""
    yield from _model_refusals(launch.model)
    strategy = launch.strategy
    if strategy.pp > 1 and strategy.schedule not in _ENGINES:
        yield Refusal(
            field="schedule",
            rule="pipelines run 1F1B or all forwards first",
            value=strategy.schedule,
            nearest=tuple(_ENGINES),
        )
    if strategy.zero > 1:
        yield Refusal(
            field="zero", rule="ZeRO ends at stage 1", value=strategy.zero, nearest=(0, 1)
        )
    if launch.training.precision not in _DTYPES:
        yield Refusal(
            field="training.precision",
            rule="no fp8 training",
            value=launch.training.precision,
            nearest=tuple(_DTYPES),
        )
    if strategy.pp > 1 and launch.placement.layer_counts() != own_split(launch):
        yield Refusal(
            field="placement.layers",
            rule="nanotron places layers by its own costs",
            value=launch.placement.label(),
            nearest="/".join(map(str, own_split(launch))),
        )
    yield from unordered_groups(launch)


def _model_refusals(model: ModelSpec) -> Iterator[Refusal]:
    attention, mlp = _sublayers(model)
    kinds = [model.kinds[index] for index in set(model.layers)]
    llama = (
        len(kinds) == 1
        and kinds[0].attention is not None
        and kinds[0].mlp is not None
        and kinds[0].norms == 2
        and kinds[0].cross_attention is None
        and attention.heads * attention.head_dim == model.hidden
        and not (attention.latent or attention.qkv_bias or attention.qk_norm or attention.sinks)
        and attention.window is None
        and attention.causal
        and mlp.gated
        and not (mlp.bias or mlp.experts)
        and model.norm == "rmsnorm"
        and model.vocab > 0
        and not (model.positions or model.mtp_layers or model.patch_inputs)
    )
    if not llama:
        yield Refusal(field="model", rule="its models have Llama's shape", value=model.name)


def files(launch: Launch) -> dict[str, str]:
    """Return configuration and launch scripts by name."""
    head = header(launch, VERSION)
    program = Program(
        command=f'"$NANOTRON_PATH/run_train.py" --config-file "$here/{CONFIG_FILE}" "$@"',
        required={"NANOTRON_PATH": f"folder of {VERSION}"},
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    )
    return {
        CONFIG_FILE: "\n".join(head) + "\n" + write_yaml(config(launch)),
        "run.sh": torchrun_script(launch, head, program),
        "run.slurm.sh": slurm_script(launch, head, program),
    }


TARGET = Target(
    name=NAME,
    version=VERSION,
    exported=frozenset(
        {
            "dp",
            "tp",
            "pp",
            "micro_batch",
            "microbatches",
            "schedule",
            "zero",
            "sequence_parallel",
            "placement.first_layer",
            "placement.layers",
            "placement.device_groups",
        }
    ),
    inexpressible={
        "cp": "this release has no context parallelism",
        "ep": "its models have no experts",
        "etp": "its models have no experts",
        "vpp": "a pipeline rank holds one stage",
        "zero_group": "the optimizer is sharded over all data-parallel ranks",
        "recompute": "this release has no switch for recomputation",
        "offload_optimizer": "no option offloads the optimizer",
        "offload_activations": "no option offloads activations",
        "placement_order": "ranks are ordered tp, dp, pp from the nearest outwards",
        "placement.recomputed": "this release has no switch for recomputation",
    },
    refuse=refusals,
    files=files,
)
