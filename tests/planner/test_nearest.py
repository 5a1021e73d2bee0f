"""What is written where a framework has no words for a plan's own recomputation."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest

from costmodel.errors import InputError
from costmodel.simulator import iteration_ns
from planner.answer_json import result_to_json
from planner.answer_text import result_to_text
from planner.api_results import Ranking
from planner.coefficients import Arrangement, Coefficients, coefficients
from planner.deliver import draw, plan_files
from planner.export import TARGET_NAMES, target
from planner.launching import OWN_TARGETS, launches
from planner.nearest import launchable, nearest_plan
from planner.plans import Placement, Plan, SearchResult
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.search import plan
from planner.simulation import arrangement_of
from planner.uniform_search import best_uniform
from planner.wanted import Wanted
from tests.builders import make_scenario

MEMORY = "3.4GiB"


@cache
def scenario(framework: str = "megatron") -> Scenario:
    return make_scenario(
        layers=6, gpus=2, memory=MEMORY, framework=framework, search={"pp": 2, "vpp": 1}
    )


@cache
def result(framework: str = "megatron") -> SearchResult:
    return plan(scenario(framework), top=12)


def differing(framework: str = "megatron") -> Plan:
    """The first plan whose stages recompute different numbers of layers."""
    return next(
        item
        for item in result(framework).plans
        if len({chunk.recomputed for chunk in item.placement.chunks}) > 1
    )


def test_megatron_gets_one_number_for_all_stages_that_fits() -> None:
    asked = differing()
    launch = launchable(target("megatron"), scenario(), asked, exact=False)
    chunks = launch.plan.placement.chunks
    number = max(chunk.recomputed for chunk in chunks)
    assert all(chunk.recomputed == min(number, chunk.layers) for chunk in chunks)
    assert launch.plan.fits
    assert launch.plan.rank == asked.rank
    assert replace(launch.plan.strategy, recompute="none") == replace(
        asked.strategy, recompute="none"
    )
    assert launch.plan.iteration_s >= asked.iteration_s
    assert f"does not launch plan {asked.rank}" in launch.notice
    assert not any(target("megatron").refusals(launch))


def test_the_nearest_plan_is_simulated_as_any_other() -> None:
    found = nearest_plan(target("megatron"), scenario(), differing())
    assert found is not None
    assert draw(scenario(), found).timeline.iteration_ns == round(found.iteration_s * 1e9)


def test_torchtitan_gets_all_layers_or_none() -> None:
    asked = differing("torchtitan")
    launch = launchable(target("torchtitan"), scenario("torchtitan"), asked, exact=False)
    assert launch.recomputes_all or not any(launch.recomputed)
    assert "one choice for all layers" in launch.notice


def test_exact_files_are_refused_and_nothing_else_is_mended() -> None:
    with pytest.raises(InputError, match="same number of layers"):
        launchable(target("megatron"), scenario(), differing(), exact=True)
    with pytest.raises(InputError, match="accelerate"):
        launchable(target("accelerate"), scenario(), differing(), exact=False)


def test_what_does_not_fit_is_refused_as_before() -> None:
    tight = replace(scenario("torchtitan"), memory_limit_bytes=1.0)
    with pytest.raises(InputError, match="one choice for all layers"):
        launchable(target("torchtitan"), tight, differing("torchtitan"), exact=False)


def test_the_notice_stands_in_the_files_and_names_a_faster_listed_plan() -> None:
    asked = differing()
    drawn, wanted = draw(scenario(), asked), Wanted(exports=(("megatron", Path("x")),))
    faster = replace(asked, rank=7, iteration_s=asked.iteration_s / 2, placement=_plain(asked))
    delivery = plan_files(wanted, scenario(), drawn, (asked, faster))
    (notice,) = delivery.notices
    assert notice.endswith("--rank 7")
    flags = delivery.files[Path("x/megatron.args")]
    assert f"# {notice.split('; plan 7')[0]}" in str(flags)
    assert not plan_files(wanted, scenario(), draw(scenario(), faster)).notices


def _plain(asked: Plan) -> Placement:
    chunks = tuple(replace(chunk, recomputed=0) for chunk in asked.placement.chunks)
    return replace(asked.placement, chunks=chunks)


def test_answers_mark_the_plans_that_are_not_launched_as_they_are() -> None:
    data = result_to_json(result(), scenario())
    text = result_to_text(result(), scenario())
    marked = [
        line.split()[0].rstrip("*").rstrip("=") for line in text.splitlines() if _marked(line)
    ]
    assert marked == [str(item["rank"]) for item in data["plans"] if not item["launches"]]
    assert "* Megatron-LM core 0.16 to 0.20 does not launch plan" in text
    assert "--export megatron:DIR writes the nearest" in text


def _marked(line: str) -> bool:
    return bool(line) and line[0].isdigit() and line.split()[0].endswith("*")


def test_a_framework_without_files_says_nothing_of_launching() -> None:
    asked = scenario("ddp")
    assert launches(asked, differing()) is None
    assert "does not launch" not in result_to_text(result(), asked)


def test_every_framework_with_files_names_a_target() -> None:
    assert set(OWN_TARGETS.values()) <= set(TARGET_NAMES)


@cache
def _given() -> Coefficients:
    cost = make_pricer(scenario()).cost(differing().strategy)
    return coefficients(cost, scenario().memory_limit_bytes)


def _arrangements() -> Iterator[Arrangement]:
    layers = len(_given().layer_kinds)
    for cut, number in product(range(1, layers), range(layers + 1)):
        cuts = (0, cut, layers)
        yield Arrangement(cuts, tuple(min(number, b - a) for a, b in pairwise(cuts)))


def test_the_fastest_uniform_placement_is_that_of_all_placements() -> None:
    given, cuts = _given(), arrangement_of(differing().placement).cuts
    found = best_uniform(given, cuts, lambda _: True)
    fitting = [item for item in _arrangements() if given.fits(item)]
    assert found is not None
    assert found[0] == min(iteration_ns(given.work(item)) for item in fitting)


def test_numbers_that_are_not_accepted_are_not_placed() -> None:
    given, cuts = _given(), arrangement_of(differing().placement).cuts
    everything = best_uniform(
        given,
        cuts,
        lambda item: item.recomputed == tuple(stop - start for start, stop in pairwise(item.cuts)),
    )
    assert everything is not None
    assert sum(everything[1].recomputed) == len(given.layer_kinds)
    assert best_uniform(given, cuts, lambda _: False) is None


def test_python_warns_of_the_nearest_plan_and_refuses_on_request(tmp_path: Path) -> None:
    ranking, rank = Ranking(scenario=scenario(), result=result()), differing().rank
    with pytest.warns(UserWarning, match="does not launch"):
        paths = ranking.export("megatron", tmp_path, rank=rank)
    assert tmp_path / "megatron.args" in paths
    with pytest.raises(InputError, match="same number of layers"):
        ranking.export("megatron", tmp_path, rank=rank, exact=True)
