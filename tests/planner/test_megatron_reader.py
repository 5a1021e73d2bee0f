"""Tests of reading Megatron command lines as people keep them."""

from pathlib import Path

import pytest

from costmodel.errors import InputError, UnsupportedError
from costmodel.spec import AttentionSpec, MlpSpec
from costmodel.strategy import Strategy
from planner.megatron_reader import MegatronRun, read_megatron
from planner.megatron_text import plain_flags, shell_flags, substitute

ARRAYS = r"""#!/bin/bash
# Runs a GPT model; don't use --hidden-size 1 here
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-2}
WORLD_SIZE=$(( $GPUS_PER_NODE * $NUM_NODES ))
TP=4
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
GPT_MODEL_ARGS=(
    --num-layers 30          # not divisible by four
    --hidden-size 4096
    --num-attention-heads 32
    --seq-length 2048
    --max-position-embeddings 2048
    --vocab-size 32000
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 32
    --bf16
    --recompute-granularity full --recompute-method block --recompute-num-layers 2
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size 4
    --pipeline-model-parallel-layout "Et*7|(t*8|)*2,t*7L"
    --sequence-parallel
    --use-distributed-optimizer)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]}
"""

STRINGS = r"""
NNODES=1
GPUS_PER_NODE=4
options=" \
  --num-layers 24 --hidden-size=1024 --num-attention-heads 16 \
  --seq-length 1024 --max-position-embeddings 1024 --fp16 \
  --micro-batch-size 4 --tensor-model-parallel-size $((GPUS_PER_NODE/2)) \
  --tokenizer-type GPT2BPETokenizer --recompute-activations"
python -m torch.distributed.launch --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py $options
"""

YAML = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
TEST_TYPE: regular
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --micro-batch-size: 4
  --global-batch-size: 32
  --seq-length: 1024
  --max-position-embeddings: 1024
  --vocab-size: 51200
  --swiglu: true
  --num-experts: 8
  --moe-router-topk: 2
  --moe-layer-freq: ([0]*2+[1]*10)
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 2
  --num-layers-per-virtual-pipeline-stage: 3
  --sequence-parallel: false
  --use-megatron-fsdp: true
  --data-parallel-sharding-strategy: optim_grads_params
  --bf16: true
"""

BASE = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
    "--max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 "
)


def read(text: str, folder: Path, name: str, gpus: int | None = None) -> MegatronRun:
    file = folder / name
    file.write_text(text)
    return read_megatron(file, gpus)


def test_arrays_variables_and_layout_of_a_script_are_read(tmp_path: Path) -> None:
    run = read(ARRAYS, tmp_path, "train.sh")
    assert run.strategy == Strategy(
        dp=1, tp=4, pp=4, micro_batch=1, microbatches=32, zero=1, sequence_parallel=True
    )
    assert run.placement.layer_counts() == (7, 8, 8, 7)
    assert [chunk.recomputed for chunk in run.placement.chunks] == [2, 2, 2, 2]
    assert run.model.hidden == 4096
    assert run.model.positions == 2048
    assert run.training.global_batch == 32


def test_a_quoted_string_of_options_is_read(tmp_path: Path) -> None:
    run = read(STRINGS, tmp_path, "run.sh")
    assert (run.strategy.tp, run.strategy.dp, run.strategy.micro_batch) == (2, 2, 4)
    assert run.strategy.recompute == "selective"
    assert run.training.precision == "fp16"
    assert run.model.vocab == 50257
    assert run.training.global_batch == 8


def test_a_functional_test_is_read(tmp_path: Path) -> None:
    run = read(YAML, tmp_path, "model_config.yaml", gpus=8)
    assert (run.strategy.vpp, run.strategy.schedule, run.strategy.zero) == (2, "interleaved", 3)
    assert (run.strategy.etp, run.strategy.ep) == (2, 1)
    assert not run.strategy.sequence_parallel
    assert run.model.layers == (0, 0, *(1,) * 10)
    assert run.model.kinds[1].mlp == MlpSpec(
        ffn=1344, bias=True, experts=8, topk=2, router_bias=True
    )


def test_default_widths_are_megatrons(tmp_path: Path) -> None:
    plain = read(BASE, tmp_path, "a.args", gpus=2).model.kinds[0]
    assert plain.mlp == MlpSpec(ffn=4096, gated=False, bias=True)
    assert plain.attention == AttentionSpec(
        heads=16, kv_heads=16, head_dim=64, qkv_bias=True, out_bias=True
    )
    gated = read(BASE + "--swiglu --disable-bias-linear", tmp_path, "b.args", gpus=2)
    assert gated.model.kinds[0].mlp == MlpSpec(ffn=2688)


@pytest.mark.parametrize(
    ("extra", "counts"),
    [
        (
            "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1",
            (1, 3, 3, 1),
        ),
        ("--decoder-last-pipeline-num-layers 2", (2, 2, 2, 2)),
        ("--num-virtual-stages-per-pipeline-rank 2", (1,) * 8),
        ("--pipeline-model-parallel-layout Et|t*3|t*3|tL", (1, 3, 3, 1)),
    ],
)
def test_every_way_to_split_layers_is_read(
    extra: str, counts: tuple[int, ...], tmp_path: Path
) -> None:
    text = f"{BASE} --pipeline-model-parallel-size 4 {extra}"
    assert read(text, tmp_path, "x.args", gpus=4).placement.layer_counts() == counts


def test_ends_that_count_as_layers_shorten_their_stages(tmp_path: Path) -> None:
    text = BASE.replace("--num-layers 8", "--num-layers 6") + (
        "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split "
        "--account-for-loss-in-pipeline-split"
    )
    assert read(text, tmp_path, "x.args", gpus=4).placement.layer_counts() == (1, 2, 2, 1)


def test_the_last_of_two_different_values_counts_and_is_told(tmp_path: Path) -> None:
    run = read(BASE + "--bf16 --micro-batch-size 2", tmp_path, "x.args", gpus=1)
    assert run.strategy.micro_batch == 2
    assert run.warnings == ("--micro-batch-size occurs with different values",)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("--hidden-size 8", "--num-layers: must be given"),
        (BASE.replace("--vocab-size 50257", ""), "--vocab-size: must be given"),
        (BASE.replace("--hidden-size 1024", "--hidden-size wide"), "must be a whole number"),
        (BASE + "--tensor-model-parallel-size 3", "gpus: must be a multiple of tp"),
        (BASE + "--global-batch-size 7", "must be a multiple of micro batch"),
        (BASE + "--pipeline-model-parallel-size 8 --num-layers 9", "must divide over 8"),
        (BASE + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tL", "8 dec"),
        (BASE + "--num-experts 4 --moe-layer-freq [1,2]", "must be a period or a list"),
        (BASE + "--window-size wide", "must be two whole numbers"),
        (BASE + "--swiglu --num-layers", "must have a value"),
        ("--data 'open", "cannot be split"),
    ],
)
def test_what_makes_no_sense_is_refused_with_flag_and_rule(
    text: str, rule: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=rule):
        read(text, tmp_path, "x.args", gpus=8)


def test_an_unknown_world_size_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gpus: must be given"):
        read(BASE, tmp_path, "x.args")


def test_an_unset_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"variable that the file does not set.*\$LAYERS"):
        read("#!/bin/sh\nrun --num-layers $LAYERS --hidden-size 8", tmp_path, "x", gpus=1)


def test_variables_from_outside_win(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(ARRAYS)
    assert read_megatron(file, variables={"NUM_NODES": "4"}).strategy.dp == 2


def test_a_layout_with_the_loss_elsewhere_is_beyond_the_model(tmp_path: Path) -> None:
    text = BASE + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout |Et*8L"
    with pytest.raises(UnsupportedError, match="embedding must stand"):
        read(text, tmp_path, "x.args", gpus=2)


def test_slurm_directives_give_the_world_size(tmp_path: Path) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=h100:4\nsrun {BASE}"
    assert read(text, tmp_path, "x.sbatch").strategy.gpus == 8


def test_sums_are_evaluated_and_other_commands_left_alone() -> None:
    assert substitute("$((2*(N+1) - 7/2))", {"N": "3"}) == "5"
    assert substitute("$((1/0))", {}) == "$((1/0))"
    assert shell_flags("x --a $(nproc) --b c").values == {"--a": ("$(nproc)",), "--b": ("c",)}


def test_flags_with_equals_signs_and_lists_are_split() -> None:
    flags = plain_flags("--a=1 --modules core_attn mlp --b")
    assert flags.values == {"--a": ("1",), "--modules": ("core_attn", "mlp"), "--b": ()}


@pytest.mark.parametrize("text", ["", "#", "'", '"', "$(", "--", "a=(", "${", "\\", "--x $((("])
def test_broken_shell_never_breaks_the_reader(text: str) -> None:
    shell_flags(text)
