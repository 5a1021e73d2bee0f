"""Tests of the Megatron exporter and reader: the round trip gives the same plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import InputError
from costmodel.spec import LayerSpec, ModelSpec, TrainingSpec
from costmodel.strategy import Strategy
from planner.export import export
from planner.export.megatron import TARGET
from planner.export.target import Launch
from planner.megatron_reader import MegatronRun, read_megatron
from tests.planner.export.export_cases import (
    BLOCK,
    cluster,
    deepseek,
    gpt2,
    gpt_oss,
    launch,
    llama,
    mixtral,
    placement,
    plan,
    qwen2,
)

DENSE = Strategy(dp=4, tp=4, pp=4, micro_batch=2, microbatches=16, zero=1, sequence_parallel=True)
CASES = {
    "dense": launch(llama(), DENSE),
    "no sharding": launch(llama(), replace(DENSE, zero=0, recompute="selective")),
    "full recompute": launch(llama(), replace(DENSE, recompute="full")),
    "two layers of each stage recompute": launch(llama(), DENSE, recomputed=2),
    "short stages recompute whole": launch(llama(14), DENSE, (4, 4, 4, 2), (3, 3, 3, 2)),
    "first and last stage differ": launch(llama(), DENSE, (7, 9, 9, 7)),
    "two unequal stages": launch(llama(), replace(DENSE, pp=2), (17, 15)),
    "layout": launch(llama(), DENSE, (7, 9, 8, 8)),
    "layout with an empty stage": launch(llama(), DENSE, (11, 11, 10, 0)),
    "interleaved": launch(llama(), replace(DENSE, vpp=4, schedule="interleaved")),
    "interleaved layout": launch(
        llama(), replace(DENSE, vpp=2, schedule="interleaved"), (3, 4, 4, 5, 4, 4, 4, 4)
    ),
    "context parallel": launch(llama(), replace(DENSE, cp=2, dp=2, zero_group=2)),
    "fsdp": launch(llama(), Strategy(dp=64, zero=3, microbatches=2)),
    "sharded gradients": launch(llama(), Strategy(dp=64, zero=2, microbatches=2)),
    "optimizer offload": launch(llama(), replace(DENSE, offload_optimizer=0.5)),
    "activation offload": launch(llama(), replace(DENSE, pp=1, offload_activations=0.25)),
    "pipeline before data": launch(llama(), replace(DENSE, placement_order="tp-cp-ep-pp-dp")),
    "learned positions": launch(gpt2(), replace(DENSE, tp=2)),
    "query biases": launch(qwen2(), DENSE),
    "experts": launch(mixtral(), replace(DENSE, ep=4, etp=4)),
    "experts cut no further": launch(mixtral(), replace(DENSE, ep=8)),
    "latent attention": launch(deepseek(), replace(DENSE, ep=4, pp=2), (13, 14)),
    "prediction layers": launch(replace(llama(), mtp_layers=1), DENSE, (9, 8, 8, 7)),
    "sinks and windows": launch(gpt_oss(), replace(DENSE, ep=2)),
    "options": launch(
        llama(),
        DENSE,
        training=TrainingSpec(
            global_batch=128,
            sequence=8192,
            precision="fp8",
            attention="standard",
            options={"gradient_overlap": "on", "gradient_dtype": "bf16"},
        ),
    ),
    "overlaps and a lean optimizer": launch(
        llama(),
        DENSE,
        training=TrainingSpec(
            global_batch=128,
            sequence=4096,
            options={
                "gradient_overlap": "on",
                "gather_overlap": "on",
                "tp_overlap": "on",
                "optimizer": "precision_aware",
            },
        ),
    ),
    "chosen modules recompute": launch(
        llama(),
        replace(DENSE, recompute="selective"),
        training=TrainingSpec(
            global_batch=128, sequence=4096, options={"recompute_modules": "core_attn+layernorm"}
        ),
    ),
    "two layers between kept inputs": launch(
        llama(),
        replace(DENSE, recompute="full"),
        training=TrainingSpec(global_batch=128, sequence=4096, options={"recompute_group": "2"}),
    ),
}


def written(case: Launch, folder: Path) -> tuple[Path, ...]:
    return export(
        case.plan,
        model=case.model,
        cluster=case.cluster,
        training=case.training,
        target_name="megatron",
        directory=folder,
    )


def same(run: MegatronRun, case: Launch) -> None:
    assert run.strategy == case.strategy
    assert run.placement == case.placement
    assert run.training == case.training
    assert replace(run.model, name="", source="") == replace(case.model, name="", source="")


@pytest.mark.parametrize("name", CASES)
def test_a_plan_written_for_megatron_is_read_back_the_same(name: str, tmp_path: Path) -> None:
    flags, *_ = written(CASES[name], tmp_path)
    same(read_megatron(flags), CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_every_file_names_the_version(name: str, tmp_path: Path) -> None:
    for file in written(CASES[name], tmp_path):
        assert TARGET.version in file.read_text()


def test_equal_stages_need_no_layout_flag(tmp_path: Path) -> None:
    flags = written(CASES["dense"], tmp_path)[0].read_text()
    assert "layout" not in flags
    assert "decoder-first" not in flags


def test_the_older_flags_serve_where_only_the_ends_differ(tmp_path: Path) -> None:
    flags = written(CASES["first and last stage differ"], tmp_path)[0].read_text()
    assert "--decoder-first-pipeline-num-layers 7" in flags
    assert "layout" not in flags


def test_uneven_interleaving_needs_the_layout_string(tmp_path: Path) -> None:
    flags = written(CASES["interleaved layout"], tmp_path)[0].read_text()
    assert "--pipeline-model-parallel-layout Et*3|(t*4|)*2,t*5|(t*4|)*3,t*4L" in flags


def test_scripts_are_executable_and_leave_the_layout_string_alone(tmp_path: Path) -> None:
    flags, run, slurm = written(CASES["layout"], tmp_path)
    assert run.stat().st_mode & 0o111
    assert not flags.stat().st_mode & 0o111
    assert "--nproc_per_node 8 --nnodes 8" in run.read_text()
    assert "#SBATCH --nodes=8" in slurm.read_text()
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in run.read_text()


def test_blackwell_and_fsdp_keep_their_connections(tmp_path: Path) -> None:
    blackwell = replace(CASES["dense"], cluster=cluster(architecture="blackwell"))
    for case in (blackwell, CASES["fsdp"]):
        assert "MAX_CONNECTIONS" not in written(case, tmp_path)[1].read_text()


REFUSED = {
    "schedule": launch(llama(), replace(DENSE, schedule="zero_bubble")),
    "placement_order": launch(llama(), replace(DENSE, placement_order="dp-tp-cp-ep-pp")),
    "placement.recomputed": launch(llama(), DENSE, recomputed=(3, 2, 1, 0)),
    "recompute": launch(llama(), replace(DENSE, recompute="selective"), recomputed=2),
    "offload_optimizer": launch(llama(), replace(DENSE, zero=0, offload_optimizer=0.5)),
    "offload_activations": launch(llama(), replace(DENSE, offload_activations=0.25)),
    "model.decoder_start": launch(replace(llama(), decoder_start=16), DENSE),
    "model.vocab": launch(replace(llama(), vocab=0), DENSE),
    "model.final_norm": launch(replace(llama(), final_norm=False), DENSE),
    "model.kinds.block": launch(replace(llama(), kinds=(replace(BLOCK, norms=4),)), DENSE),
    "training.options.adapter": launch(
        llama(),
        DENSE,
        training=TrainingSpec(global_batch=128, sequence=4096, options={"adapter": "lora"}),
    ),
    "training.options.gather_overlap": launch(
        llama(),
        DENSE,
        training=TrainingSpec(global_batch=128, sequence=4096, options={"gather_overlap": "on"}),
    ),
    "training.options.tp_overlap": launch(
        llama(),
        replace(DENSE, sequence_parallel=False),
        training=TrainingSpec(global_batch=128, sequence=4096, options={"tp_overlap": "on"}),
    ),
    "training.options.optimizer": launch(
        llama(),
        replace(DENSE, zero=0),
        training=TrainingSpec(
            global_batch=128, sequence=4096, options={"optimizer": "precision_aware"}
        ),
    ),
    "model.kinds": launch(
        replace(
            llama(),
            kinds=(BLOCK, replace(BLOCK, mlp=replace(BLOCK.mlp, ffn=64) if BLOCK.mlp else None)),
            layers=(0, 1) * 16,
        ),
        DENSE,
    ),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_megatron_cannot_express_is_refused_before_anything_is_written(
    field: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cannot express this plan") as caught:
        written(REFUSED[field], tmp_path / "out")
    assert caught.value.key == field
    assert not (tmp_path / "out").exists()


def test_a_layer_without_attention_is_refused(tmp_path: Path) -> None:
    bare = LayerSpec(name="conv", attention=None, mlp=None)
    model = ModelSpec(name="resnet", hidden=64, kinds=(bare,), layers=(0,) * 4, vocab=10)
    with pytest.raises(InputError, match="must have attention"):
        written(launch(model, DENSE), tmp_path)


def test_device_groups_out_of_node_order_are_refused(tmp_path: Path) -> None:
    placed = replace(placement((8, 8, 8, 8)), device_groups=(1, 1, 0, 0))
    case = replace(launch(llama(), DENSE), plan=plan(DENSE, placed))
    with pytest.raises(InputError, match="order of the nodes"):
        written(case, tmp_path)


def test_an_unknown_target_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    case = CASES["dense"]
    with pytest.raises(InputError, match="nearest: megatron"):
        export(
            case.plan,
            model=case.model,
            cluster=case.cluster,
            training=case.training,
            target_name="magatron",
            directory=tmp_path,
        )
