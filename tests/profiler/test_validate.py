"""Real two-process runs, for function: collectives, states and kept activations are exactly the predicted ones."""

import json
import sys
from copy import deepcopy
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest
import torch

from costmodel.catalog import model
from costmodel.errors import InputError, UnsupportedError
from costmodel.strategy import Strategy
from profiler.validate.__main__ import read_request
from profiler.validate.job import Job, ModelShape, compute_events
from profiler.validate.launch import optimizer_of
from profiler.validate.predict import predict, predicted_spans
from profiler.validate.ranks import Result, launch
from profiler.validate.report import as_json, as_svg, as_text, prices_of, report
from profiler.validate.scope import check, shape_of
from profiler.validate.zero1 import ShardedModule

GPT = ModelShape(
    hidden=64,
    heads=4,
    kv_heads=4,
    head_dim=16,
    ffn=128,
    gated=False,
    layers=4,
    vocab=128,
    sequence=16,
)
LLAMA = replace(GPT, kv_heads=2, gated=True)
STRATEGIES = {
    "dp2": Strategy(dp=2, microbatches=2),
    "tp2": Strategy(tp=2, microbatches=2),
    "gpipe": Strategy(pp=2, microbatches=4, schedule="gpipe"),
    "1f1b": Strategy(pp=2, microbatches=4),
    "uneven": Strategy(pp=2, microbatches=4),
    "interleaved": Strategy(pp=2, vpp=2, microbatches=4, schedule="interleaved"),
    "zero1": Strategy(dp=2, zero=1, microbatches=2),
    "zero2": Strategy(dp=2, zero=2, microbatches=2),
    "zero3": Strategy(dp=2, zero=3, microbatches=2),
}
PLACEMENTS = {"uneven": (3, 1), "interleaved": (1, 1, 1, 1), "gpipe": (2, 2), "1f1b": (2, 2)}


def _job(name: str, shape: ModelShape) -> Job:
    layers = PLACEMENTS.get(name, (shape.layers,))
    return Job(shape=shape, strategy=STRATEGIES[name], layers=layers, rounds=1)


@cache
def _jobs() -> dict[tuple[str, int], Job]:
    jobs = {(name, 0): _job(name, GPT) for name in STRATEGIES}
    return jobs | {(name, 1): _job(name, LLAMA) for name in ("tp2", "1f1b", "zero1")}


@cache
def _results() -> dict[tuple[str, int], Result]:
    return dict(zip(_jobs(), launch(list(_jobs().values())), strict=True))


@pytest.mark.parametrize("case", _jobs(), ids=str)
def test_every_rank_issues_exactly_the_predicted_collectives(case: tuple[str, int]) -> None:
    for rank in _results()[case]:
        assert rank["issued"] == rank["expected"]
        assert rank["issued"]


@pytest.mark.parametrize("case", _jobs(), ids=str)
def test_states_and_kept_activations_have_the_predicted_bytes(case: tuple[str, int]) -> None:
    job, result = _jobs()[case], _results()[case]
    predicted = predict(job, prices_of(job, result))
    assert [rank["state_bytes"] for rank in result] == list(predicted.state_bytes)
    for rank, saved in zip(result, predicted.saved_bytes, strict=True):
        assert saved in (rank["saved_bytes"], 0)
    assert all(predicted.saved_bytes) == (job.strategy.zero < 2)


@pytest.mark.parametrize("case", _jobs(), ids=str)
def test_every_pass_of_every_micro_batch_is_seen(case: tuple[str, int]) -> None:
    job, result = _jobs()[case], _results()[case]
    spans = [span for rank in result for span in rank["rounds"][0]["spans"] if span["kind"] == "B"]
    assert len(spans) == job.strategy.microbatches * len(job.layers) * job.ranks // job.strategy.pp


def test_the_report_shows_iteration_ranks_stages_and_memory() -> None:
    case = ("1f1b", 0)
    found = report(_jobs()[case], _results()[case])
    text = as_text(found)
    for part in ("iteration", "rank 1 busy", "stage 1 backward", "rank 0 state", "as predicted"):
        assert part in text
    assert json.loads(json.dumps(as_json(found)))["collectives_equal"] is True
    picture = as_svg(
        found, predicted_spans(_jobs()[case], prices_of(_jobs()[case], _results()[case]))
    )
    assert (
        picture.count("<rect") == 2 * 2 * 4 * 2 + 4
    )  # two rows a rank, and the loss of four micro-batches


PRICES = {
    **dict.fromkeys(("block forward", "block backward"), 1.0),
    **dict.fromkeys(
        ("embedding forward", "embedding backward", "head forward", "head backward"), 0.0
    ),
    **dict.fromkeys(("block step", "embedding step", "head step"), 0.0),
    "send_recv/4096B/2ranks/2pernode/level0": 0.0,
}


@pytest.mark.parametrize(
    ("name", "iteration"), [("1f1b", 4.0 * 5), ("gpipe", 4.0 * 5), ("interleaved", 4.0 * 4.5)]
)
def test_the_prediction_has_the_known_bubble(name: str, iteration: float) -> None:
    job = _job(name, GPT)
    assert predict(job, PRICES).iteration_s == pytest.approx(iteration)


def test_events_of_a_job_are_few_and_cut_by_tensor_parallelism() -> None:
    events = compute_events(LLAMA, Strategy(tp=2))
    assert len(set(events.values())) == 6
    assert events["block forward"].shape == (1, 16, 64, 2, 1, 16, 64, 1)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (Strategy(cp=2), "--strategy.cp: must be 1.*got 2.*nearest: 1"),
        (Strategy(pp=2, recompute="full"), "recompute: must be none.*nearest: none"),
        (
            Strategy(tp=2, sequence_parallel=True),
            "sequence_parallel: must be false.*nearest: False",
        ),
        (Strategy(dp=2, zero=1, offload_optimizer=0.5), "offload_optimizer: must be 0"),
        (Strategy(dp=2, tp=2), "dp: must be 1 beside tp=2.*nearest: dp=1"),
        (Strategy(tp=2, zero=1), "zero: needs data-parallel ranks.*nearest: zero=0, or dp=2"),
        (Strategy(tp=8), r"tp: must divide the model's heads \(4\), got 8.*nearest: 4"),
        (Strategy(pp=2, schedule="zero_bubble"), "schedule: is not launched.*nearest: gpipe"),
        (Strategy(pp=2, vpp=2), "schedule: is interleaved where.*nearest: interleaved"),
        (Strategy(pp=2, schedule="interleaved"), "schedule: is interleaved where.*nearest: 1f1b"),
        (Strategy(pp=4, microbatches=3), "microbatches: must be at least pp.*nearest: 4"),
        (
            Strategy(pp=2, vpp=2, schedule="interleaved", microbatches=5),
            "microbatches: must be a multiple of pp.*nearest: 4",
        ),
    ],
    ids=str,
)
def test_what_is_not_launched_is_refused_with_rule_and_nearest(
    strategy: Strategy, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check(Job(shape=GPT, strategy=strategy, layers=(4,)))


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_launched_passes_the_check(name: str) -> None:
    check(_job(name, LLAMA))


def test_shares_of_zero_1_step_as_the_whole_optimizer_does() -> None:
    plain, gradient = torch.nn.Linear(3, 3), torch.randn(3, 3)
    modules = [deepcopy(plain) for _ in range(2)]
    parts = [ShardedModule(module, 2, rank) for rank, module in enumerate(modules)]
    for module in (plain, *modules):
        module.weight.grad = _filled(module.weight, gradient)
        module.bias.grad = _filled(module.bias, gradient[0])
    optimizer_of(list(plain.parameters())).step()
    halves = []
    for part in parts:
        part.average()  # of one gradient, as if the other rank's were zero
        optimizer_of([part.shard]).step()
        halves.append(part.shard.detach())
    whole = torch.cat([p.detach().flatten() for p in plain.parameters()])
    assert torch.allclose(torch.cat(halves), whole)


def _filled(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient in the place where the parameter's already is."""
    place = torch.empty_like(parameter) if parameter.grad is None else parameter.grad
    return place.copy_(gradient)


@pytest.mark.parametrize("name", ["deepseek-v3", "mixtral-8x7b"])
def test_models_that_are_not_equal_dense_blocks_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="launched"):
        shape_of(model(name), 128)


def test_a_request_of_the_command_line_becomes_a_job(tmp_path: Path) -> None:
    request = {
        "model": asdict(model("llama-3.1-8b")),
        "sequence": 128,
        "strategy": asdict(STRATEGIES["1f1b"]),
        "layers": [16, 16],
        "rounds": 2,
    }
    (tmp_path / "r.json").write_text(json.dumps(request))
    job = read_request(tmp_path / "r.json")
    assert (job.shape.hidden, job.shape.kv_heads, job.shape.gated) == (4096, 8, True)
    assert job.layers == (16, 16)


def test_failing_ranks_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(UnsupportedError, match="ranks failed"):
        launch([_job("1f1b", GPT)])
