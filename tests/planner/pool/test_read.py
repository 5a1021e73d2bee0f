"""Pool files: what is read, and how each fault is told."""

from pathlib import Path

import pytest

from costmodel.errors import InputError
from planner.pool.front import PlannedSize, job_from, sizes_to_plan
from planner.pool.model import BatchMode, GpuGroup, Objective, Request, Spot
from planner.pool.read import read_pool

GROUP = "{name: h100, cluster: dgx-h100, gpus: 64}"


def write(folder: Path, text: str) -> Path:
    path = folder / "pool.yaml"
    path.write_text(text)
    return path


def test_a_whole_pool_file_is_read(tmp_path: Path) -> None:
    text = """
mode: share
objective: cost
gap: 0.02
time_limit: 2min
tick: 15min
groups:
  - name: h100
    cluster: dgx-h100
    gpus: 64
    from: 12
    until: 30d
    price_per_gpu_hour: 2.5
    spot: {discount: 0.6, interruptions_per_node_hour: 1e-3, checkpoint_every: 30min, restart: 6min}
models:
  - plain.yaml
  - {name: big, scenario: sub/big.yaml, tokens: 1e12, deadline: 10d, priority: 3, min_gpus: 16,
     max_gpus: 32, groups: [h100], checkpoints: [0.25, 0.5], restart: 30min}
"""
    pool = read_pool(write(tmp_path, text))
    assert (pool.mode, pool.objective) == (BatchMode.SHARE, Objective.COST)
    assert (pool.gap, pool.time_limit_s, pool.tick_h) == (0.02, 120.0, 0.25)
    spot = Spot(
        discount=0.6, interruptions_per_node_hour=0.001, checkpoint_every_h=0.5, restart_h=0.1
    )
    assert pool.groups == (
        GpuGroup(
            name="h100",
            cluster="dgx-h100",
            gpus=64,
            from_h=12.0,
            until_h=720.0,
            price_per_gpu_hour=2.5,
            spot=spot,
        ),
    )
    plain, big = pool.requests
    assert plain == Request(name="plain", scenario=str(tmp_path / "plain.yaml"), base=str(tmp_path))
    assert (big.tokens, big.deadline_h, big.checkpoints) == (1e12, 240.0, (0.25, 0.5))
    assert (big.min_gpus, big.max_gpus, big.restart_h) == (16, 32, 0.5)


def test_models_without_names_are_told_apart(tmp_path: Path) -> None:
    pool = read_pool(write(tmp_path, "models: [a.yaml, b/a.yaml, {scenario: c.yaml, name: a-2}]"))
    assert [request.name for request in pool.requests] == ["a", "a-3", "a-2"]


def test_the_size_of_a_node_comes_from_the_catalog_unless_written(tmp_path: Path) -> None:
    path = write(tmp_path, "models: [a.yaml]\ngroups: [{name: g, cluster: c, gpus: 64}]")
    assert read_pool(path, lambda _: 4).groups[0].gpus_per_node == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models: []", "models: must be a list of at least one model"),
        ("model: [a.yaml]", "model: is not a key here (nearest: models"),
        ("models: [a.yaml]\nmode: shared", "mode: must be one of the known words, got 'shared' (nearest: share"),
        ("models: [a.yaml]\nmode: share", "groups: is required"),
        ("models: [a.yaml]\ngap: 2", "gap: must be a share below 1, got 2 (nearest: 0.02)"),
        ("models: [a.yaml]\ntick: 0", "tick: must be longer than nothing, got 0 (nearest: 1min)"),
        ("models: [{scenario: a.yaml, tokens: many}]", "models[0].tokens: must be a number, got 'many'"),
        ("models: [{scenario: a.yaml, deadline: 3w}]", "models[0].deadline: must be a duration, got '3w'"),
        ("models: [{scenario: a.yaml, deadline: -3}]", "models[0].deadline: must not be negative"),
        ("models: [{name: a}]", "models[0].scenario: is missing"),
        ("models: [7]", "models[0]: must be a mapping, got 7"),
        ("models: [{scenario: a.yaml, priorty: 2}]", "models[0].priorty: is not a key here (nearest: priority)"),
        ("models: [{scenario: a.yaml, priority: 0}]", "models[0].priority: must lie in 1..10000000, got 0 (nearest: 1)"),
        ("models: [{scenario: a.yaml, min_gpus: 8, max_gpus: 4}]", "models[0].max_gpus: must be at least min_gpus (8), got 4 (nearest: 8)"),
        ("models: [{scenario: a.yaml, checkpoints: [0.5, 0.2]}]", "models[0].checkpoints: must rise between 0 and 1, got [0.5, 0.2] (nearest: [0.2, 0.5])"),
        ("models: [{name: a, scenario: a.yaml}, {name: a, scenario: b.yaml}]", "models[1].name: must be unique, as models[0] has it too, got 'a' (nearest: a-2)"),
        (f"groups: [{GROUP}]\nmodels: [{{scenario: a.yaml, groups: [h200]}}]", "models[0].groups[0]: must be the name of a group, got 'h200' (nearest: h100)"),
        (f"groups: [{GROUP}]\nmodels: [{{scenario: a.yaml, min_gpus: 128}}]", "models[0].min_gpus: must be at most the GPUs of its largest group, got 128 (nearest: 64)"),
        ("groups: [{name: g, cluster: c, gpus: 12}]\nmodels: [a.yaml]", "groups[0].gpus: must be a multiple of gpus_per_node (8), got 12 (nearest: 8)"),
        ("groups: [{name: g, cluster: c, gpus: 8, until: 2, from: 3}]\nmodels: [a.yaml]", "groups[0].until: must be after from (3 h), got 2"),
        ("groups: [{name: g, cluster: c, gpus: 8, spot: {discount: 1.5, interruptions_per_node_hour: 0}}]\nmodels: [a.yaml]", "groups[0].spot.discount: must be a share below 1, got 1.5 (nearest: 0.015)"),
        ("groups: [{name: g, cluster: c, gpus: 8, spot: {discount: 0.5}}]\nmodels: [a.yaml]", "groups[0].spot.interruptions_per_node_hour: is missing"),
    ],
)  # fmt: skip
def test_each_fault_names_file_key_value_rule_and_nearest(
    tmp_path: Path, text: str, told: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_pool(path)
    assert str(caught.value).startswith(f"{path}: {told}")


def test_a_missing_pool_file_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_pool(tmp_path / "absent.yaml")


def test_sizes_are_whole_nodes_doubled_up_to_the_limit() -> None:
    group = GpuGroup(name="g", cluster="c", gpus=96)
    request = Request(name="a", scenario="a.yaml")
    assert sizes_to_plan(request, group) == (8, 16, 32, 64, 96)
    ranged = Request(name="a", scenario="a.yaml", min_gpus=12, max_gpus=40)
    assert sizes_to_plan(ranged, group) == (16, 32, 40)
    assert sizes_to_plan(Request(name="a", scenario="a.yaml", min_gpus=97), group) == ()


def test_a_front_keeps_only_what_more_gpus_make_faster_and_offers_spot() -> None:
    spot = Spot(
        discount=0.5, interruptions_per_node_hour=0.1, checkpoint_every_h=1.0, restart_h=0.5
    )
    group = GpuGroup(name="g", cluster="c", gpus=64, price_per_gpu_hour=2.0, spot=spot)
    rates = {8: 1000.0, 16: 1900.0, 32: 1800.0, 64: 4000.0}
    sizes = [
        PlannedSize(group="g", gpus=n, iteration_s=1.0, tokens_per_s=rate, plan=f"dp{n}")
        for n, rate in rates.items()
    ]
    job = job_from(Request(name="a", scenario="a.yaml"), 3.6e7, [group], sizes)
    on_demand = [point for point in job.front if not point.spot]
    assert [point.gpus for point in on_demand] == [8, 16, 64]
    assert on_demand[0].hours == pytest.approx(10.0)
    assert on_demand[0].cost == pytest.approx(8 * 10.0 * 2.0)
    interrupted = [point for point in job.front if point.spot]
    assert interrupted[0].hours == pytest.approx(10.0 / 0.9)
    assert interrupted[0].cost == pytest.approx(8 * 10.0 / 0.9)


def test_spot_nodes_taken_back_faster_than_they_restart_never_finish() -> None:
    spot = Spot(discount=0.9, interruptions_per_node_hour=1.0)
    assert spot.stretched_hours(10.0, 2) is None
