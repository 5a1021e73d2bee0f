"""Megatron-Bridge: Hydra overrides of a recipe, and a script that starts the recipe with them.

Bridge configures Megatron-core through the dataclasses that Megatron-LM's flags are made from, so every
override follows from the flag of planner.export.megatron; what Megatron cannot express, Bridge cannot either.
"""

from collections.abc import Iterator, Mapping

from planner.export import megatron
from planner.export.megatron_model import Line
from planner.export.scripts import Program, header, torchrun_script
from planner.export.target import Launch, Refusal, Target

NAME, VERSION = "megatron-bridge", "Megatron-Bridge 0.6"
OVERRIDES_FILE = "overrides.txt"

# What Megatron-LM reads from one flag and Bridge from one or several keys; ``{}`` is the flag's value.
KEYS: Mapping[str, tuple[str, ...]] = {
    "--seq-length": ("model.seq_length={}", "dataset.seq_length={}"),
    "--global-batch-size": ("train.global_batch_size={}",),
    "--micro-batch-size": ("train.micro_batch_size={}",),
    "--tensor-model-parallel-size": ("model.tensor_model_parallel_size={}",),
    "--pipeline-model-parallel-size": ("model.pipeline_model_parallel_size={}",),
    "--context-parallel-size": ("model.context_parallel_size={}",),
    "--expert-model-parallel-size": ("model.expert_model_parallel_size={}",),
    "--expert-tensor-parallel-size": ("model.expert_tensor_parallel_size={}",),
    "--sequence-parallel": ("model.sequence_parallel=true",),
    "--num-virtual-stages-per-pipeline-rank": ("model.virtual_pipeline_model_parallel_size={}",),
    "--decoder-first-pipeline-num-layers": ("model.num_layers_in_first_pipeline_stage={}",),
    "--decoder-last-pipeline-num-layers": ("model.num_layers_in_last_pipeline_stage={}",),
    "--pipeline-model-parallel-layout": ('model.pipeline_model_parallel_layout="{}"',),
    "--recompute-granularity": ("model.recompute_granularity={}",),
    "--recompute-method": ("model.recompute_method={}",),
    "--recompute-num-layers": ("model.recompute_num_layers={}",),
    "--recompute-modules": ("model.recompute_modules=[{}]",),
    "--use-distributed-optimizer": (
        "ddp.use_distributed_optimizer=true",
        "optimizer.use_distributed_optimizer=true",
    ),
    "--use-megatron-fsdp": ("ddp.use_megatron_fsdp=true", "dist.use_megatron_fsdp=true"),
    "--data-parallel-sharding-strategy": ("ddp.data_parallel_sharding_strategy={}",),
    "--ckpt-format": ("checkpoint.ckpt_format={}",),
    "--no-gradient-accumulation-fusion": ("model.gradient_accumulation_fusion=false",),
    "--num-distributed-optimizer-instances": ("ddp.num_distributed_optimizer_instances={}",),
    "--use-precision-aware-optimizer": ("optimizer.use_precision_aware_optimizer=true",),
    "--optimizer-cpu-offload": ("optimizer.optimizer_cpu_offload=true",),
    "--optimizer-offload-fraction": ("optimizer.optimizer_offload_fraction={}",),
    "--cpu-offloading-num-layers": (
        "model.cpu_offloading=true",
        "model.cpu_offloading_num_layers={}",
    ),
    "--use-tp-pp-dp-mapping": ("dist.use_tp_pp_dp_mapping=true",),
    "--overlap-grad-reduce": ("ddp.overlap_grad_reduce=true",),
    "--overlap-param-gather": ("ddp.overlap_param_gather=true",),
    "--tp-comm-overlap": ("comm_overlap.tp_comm_overlap=true",),
    "--grad-reduce-in-bf16": ("ddp.grad_reduce_in_fp32=false",),
}


def overrides(launch: Launch) -> Iterator[str]:
    """Yield the overrides in Hydra's syntax; the recipe brings the model and its precision."""
    for flag, *values in run_lines(launch):
        for key in KEYS[flag]:
            yield key.format(",".join(values))


def run_lines(launch: Launch) -> list[Line]:
    """Return Megatron's flags for strategy, placement and batch; a recipe holds the rest."""
    training = launch.training
    return [
        ("--seq-length", str(training.sequence)),
        ("--global-batch-size", str(launch.strategy.global_batch)),
        *megatron.parallel_lines(launch),
    ]


def refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield what Megatron refuses, and optimizer types, which a recipe holds as objects and not as text."""
    yield from megatron.parallel_refusals(launch)
    if launch.training.options.get("optimizer") == "precision_aware":
        yield Refusal(
            field="training.options.optimizer",
            rule="types of moments and gradients are set in the recipe's code",
            value="precision_aware",
        )


def files(launch: Launch) -> dict[str, str]:
    """Return overrides and launch script by name."""
    head = header(launch, VERSION)
    program = Program(
        command='"$BRIDGE_PATH/scripts/training/run_recipe.py" --recipe "$RECIPE" "${overrides[@]}" "$@"',
        required={
            "BRIDGE_PATH": f"folder of {VERSION}",
            "RECIPE": f"recipe of {launch.model.name}, for example llama3_70b_pretrain_config",
        },
        environment=megatron.environment(launch),
        body=(f"mapfile -t overrides < <(grep -v '^#' \"$here/{OVERRIDES_FILE}\")",),
    )
    note = f"# the recipe must train {launch.model.name} in {launch.training.precision}"
    return {
        OVERRIDES_FILE: "\n".join([*head, *overrides(launch)]) + "\n",
        "run.sh": torchrun_script(launch, [*head, note], program),
    }


TARGET = Target(
    name=NAME,
    version=VERSION,
    exported=megatron.TARGET.exported,
    inexpressible=megatron.TARGET.inexpressible,
    refuse=refusals,
    files=files,
)
