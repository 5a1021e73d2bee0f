"""Prices of kernels against published numbers and the laws they must keep."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.catalog import device
from costmodel.compute import ComputePricer
from costmodel.constants import Constants, fitted, priors
from costmodel.events import ComputeEvent, Direction
from costmodel.frameworks import framework


def seconds(
    op: str,
    *shape: int,
    name: str = "a100-sxm-80gb",
    dtype: str = "bf16",
    style: str = "megatron",
    direction: Direction = "forward",
) -> float:
    pricer = ComputePricer(device(name), framework(style), fitted())
    event = ComputeEvent(op=op, shape=shape, dtype=dtype, direction=direction)
    return pricer.seconds([event])[0]


def test_a_large_matmul_reaches_what_an_a100_is_known_to_reach() -> None:
    """CUTLASS and cuBLAS report 240 to 275 of 312 TFLOP/s for 8192 cubed in 16 bits."""
    assert 230e12 < 2 * 8192**3 / seconds("matmul", 8192, 8192, 8192) < 280e12


def test_an_unpadded_vocabulary_is_slower_than_the_padded_one() -> None:
    """Padding 50257 to 50304 made nanoGPT a quarter faster (karpathy/nanoGPT, February 2023)."""
    assert seconds("matmul", 16384, 50257, 768) > 2 * seconds("matmul", 16384, 50304, 768)


def test_widths_that_miss_whole_tiles_waste_the_rest_of_the_tile() -> None:
    """1024 columns are whole tiles of 108 multiprocessors' waves, 1032 begin another column of tiles."""
    whole, more = (seconds("matmul", 108 * 128, width, 4096) for width in (1024, 1032))
    assert more > 1.1 * whole


def test_one_tile_more_than_the_multiprocessors_costs_a_whole_wave() -> None:
    """108 multiprocessors: 108 tiles are one wave, 109 are two (NVIDIA deep-learning performance guide)."""
    one = seconds("matmul", 128 * 108, 64, 8192)
    two = seconds("matmul", 256 * 108 + 256, 64, 8192)
    assert two > 1.7 * one


def test_grouped_matmuls_cost_more_than_one_matmul_of_the_same_work() -> None:
    assert seconds("grouped_matmul", 8, 512, 4096, 4096) > seconds("matmul", 4096, 4096, 4096)


@pytest.mark.parametrize(
    ("name", "style", "low", "high"),
    [
        ("a100-sxm-80gb", "torchtitan", 130e12, 200e12),  # FlashAttention-2, arXiv 2307.08691
        ("h100-sxm", "megatron", 420e12, 700e12),  # FlashAttention-3, arXiv 2407.08608
    ],
)
def test_causal_flash_attention_runs_at_published_speed(
    name: str, style: str, low: float, high: float
) -> None:
    shape = (1, 16, 16, 16384, 16384, 128, 128, 1, 0)
    flops = 4 * 16 * 16384**2 * 128 / 2
    assert low < flops / seconds("flash_attention", *shape, name=name, style=style) < high


def test_a_window_bounds_the_cost_of_attention() -> None:
    full = seconds("flash_attention", 1, 8, 8, 16384, 16384, 128, 128, 1, 0)
    window = seconds("flash_attention", 1, 8, 8, 16384, 16384, 128, 128, 1, 512)
    assert window < full / 4


def test_a_flash_backward_costs_two_to_four_forwards() -> None:
    shape = (1, 8, 8, 8192, 8192, 128, 128, 1, 0)
    ratio = seconds("flash_attention", *shape, direction="backward") / seconds(
        "flash_attention", *shape
    )
    assert 2 < ratio < 4


def test_unfused_attention_is_slower_where_the_fused_softmax_refuses() -> None:
    taken = seconds("standard_attention", 1, 8, 8, 2048, 2048, 128, 128, 1, 0, dtype="fp16")
    refused = seconds("standard_attention", 1, 9, 9, 2048, 2048, 128, 128, 1, 0, dtype="fp16")
    assert refused > 1.5 * taken


def test_a_norm_moves_its_bytes_at_memory_speed() -> None:
    tokens, width = 16384, 8192
    least = 4 * tokens * width / device("h100-sxm").bandwidth_bytes_per_s
    assert least < seconds("norm", tokens, width, name="h100-sxm") < 4 * least


def test_more_memory_bandwidth_never_slows_any_kernel() -> None:
    slow, style, constants = device("a100-sxm-80gb"), framework("megatron"), fitted()
    fast = replace(slow, bandwidth_bytes_per_s=2 * slow.bandwidth_bytes_per_s)
    events = [
        ComputeEvent(op="matmul", shape=(2048, 4096, 4096), dtype="bf16"),
        ComputeEvent(op="activation", shape=(2048, 8192, 4096), dtype="bf16"),
        ComputeEvent(op="cross_entropy", shape=(2048, 32000), dtype="fp32"),
        ComputeEvent(op="standard_attention", shape=(1, 8, 8, 1024, 1024, 64, 64, 1, 0), dtype="fp16"),
    ]  # fmt: skip
    before = ComputePricer(slow, style, constants).seconds(events)
    after = ComputePricer(fast, style, constants).seconds(events)
    assert all(new <= old for new, old in zip(after, before, strict=True))


def test_lanes_price_each_trial_as_if_it_were_alone() -> None:
    """The fit prices many vectors of constants at once; each lane must equal its own scalar price."""
    base = priors()
    lanes = {name: np.array([value, value * 1.1]) for name, value in base.values.items()}
    events = [
        ComputeEvent(op="matmul", shape=(2048, 4096, 4096), dtype="bf16"),
        ComputeEvent(op="norm", shape=(2048, 4096), dtype="bf16"),
        ComputeEvent(op="flash_attention", shape=(1, 8, 8, 2048, 2048, 128, 128, 1, 0), dtype="bf16"),
        ComputeEvent(op="accumulate", shape=(1 << 20,), dtype="fp32"),
    ]  # fmt: skip
    gpu, style = device("h100-sxm"), framework("nemo")
    both = ComputePricer(gpu, style, Constants(lanes)).seconds(events)  # type: ignore[arg-type]
    raised = Constants({name: value * 1.1 for name, value in base.values.items()})
    for lane, constants in enumerate((base, raised)):
        alone = ComputePricer(gpu, style, constants).seconds(events)
        assert [float(np.asarray(value)[lane]) for value in both] == pytest.approx(alone)
