"""The Python face: what a notebook user would guess works, and stays as it is."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import planner
from costmodel.errors import InputError
from planner import Answers, Prediction, Ranking, make_scenario, plan, simulate, whatif
from planner.scenario_file import SCENARIO_KEYS
from planner.source import ALIASES, read_source

ROOT = Path(__file__).parents[1]
MODEL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "num_hidden_layers": 4,
    "tie_word_embeddings": False,
}
QUESTION = {
    "model": MODEL,
    "cluster": {"name": "dgx-a100-80gb", "gpus": 4},
    "training": {"global_batch": 8, "sequence": 1024},
}


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return plan(QUESTION, top=3)


def test_the_face_is_sorted_complete_and_importable() -> None:
    homes = [name for names in planner._HOMES.values() for name in names]
    assert planner.__all__ == sorted(homes)
    assert set(planner.__all__) <= set(dir(planner))
    assert not any(isinstance(getattr(planner, name), ModuleType) for name in planner.__all__)
    with pytest.raises(AttributeError, match="no attribute 'plam'"):
        planner.plam  # noqa: B018


def test_no_module_hides_a_function_of_the_face() -> None:
    modules = {path.stem for path in (ROOT / "planner").iterdir()}
    assert not modules & set(planner.__all__)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, planner; print(sorted(m for m in sys.modules if m.startswith(('planner.', 'costmodel'))))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "[]", run.stderr


def test_file_mapping_keywords_and_scenario_ask_the_same(tmp_path: Path, ranking: Ranking) -> None:
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(QUESTION))
    keywords = make_scenario(
        model=MODEL, cluster="dgx-a100-80gb", gpus=4, global_batch=8, sequence=1024
    )
    for source in (file, str(file), keywords):
        assert plan(source, top=3).best == ranking.best


def test_keywords_change_what_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(QUESTION))
    scenario = make_scenario(file, gpus=2, tp=2, memory="40GiB", precision="fp16")
    assert scenario.cluster.gpus == 2
    assert scenario.bound("tp").allowed == (2,)
    assert scenario.memory_limit_bytes == 40 * 2**30
    assert scenario.training.precision == "fp16"
    assert read_source(file).data == QUESTION


def test_an_inline_cluster_is_taken_whole() -> None:
    cluster = {"name": "p4d", "gpus": 16}
    assert make_scenario(model=MODEL, cluster=cluster).cluster.gpus == 16


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"modle": "x"}, "nearest: model"),
        ({"model": "llama-3.1-9b", "cluster": "dgx-h100"}, "llama-3.1-8b"),
        ({"cluster": "dgx-h100"}, "model"),
        ({"cluster": "dgx-h100", "module": 3}, "torch module"),
    ],
)
def test_wrong_keywords_are_refused_by_name(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_scenario(**settings)


def test_a_finished_scenario_takes_no_changes() -> None:
    with pytest.raises(InputError, match="finished scenario"):
        make_scenario(make_scenario(QUESTION), gpus=2)


def test_every_short_name_is_a_key_of_a_scenario() -> None:
    assert all(path.split(".")[0] in SCENARIO_KEYS for path in ALIASES.values())


def test_a_ranking_is_a_sequence_of_plans(ranking: Ranking) -> None:
    assert [item.rank for item in ranking] == [1, 2, 3]
    assert (len(ranking), ranking[0]) == (3, ranking.best)
    assert "Status: optimal" in str(ranking)


def test_a_ranking_becomes_a_data_frame_json_and_html(ranking: Ranking) -> None:
    frame = ranking.to_dataframe()
    assert list(frame.index) == [1, 2, 3]
    assert frame.loc[1, "iteration_s"] == ranking.best.iteration_s
    assert {"tp", "pp", "micro_batch", "mfu", "peak_memory_bytes"} <= set(frame.columns)
    assert json.loads(ranking.to_json())["plans"][0]["rank"] == 1
    assert ranking._repr_html_().count("<tr>") == 4


def test_html_of_a_hostile_name_runs_nothing() -> None:
    hostile = {**QUESTION, "model": {**MODEL, "name": "<script>alert(1)</script>"}}
    assert "<script>" not in plan(hostile, top=1)._repr_html_()


def test_a_ranking_writes_its_files(ranking: Ranking, tmp_path: Path) -> None:
    written = [
        ranking.report(tmp_path / "r.html"),
        ranking.trace(tmp_path / "t.json", rank=2),
        ranking.plot(tmp_path / "p.svg"),
        *ranking.export("megatron", tmp_path / "launch"),
    ]
    ranking.to_json(tmp_path / "a.json")
    assert all(path.stat().st_size for path in written)
    assert json.loads((tmp_path / "a.json").read_text()) == ranking.to_dict()


def test_no_plan_is_an_answer_that_says_what_would_help() -> None:
    found = plan(QUESTION, gpus=1, sequence=256, memory="1GiB")
    assert len(found) == 0
    assert "No plan exists" in str(found)
    assert found.to_dataframe().empty
    with pytest.raises(LookupError, match="memory: "):
        found.best  # noqa: B018


def test_simulate_takes_text_and_mappings(tmp_path: Path) -> None:
    text = simulate(QUESTION, strategy="pp=2,sequence_parallel=false", placement="3/1")
    same = simulate(QUESTION, strategy={"pp": 2, "sequence_parallel": False}, placement=[3, 1])
    assert isinstance(text, Prediction)
    assert text.plan == same.plan
    assert list(text.to_dataframe()["layers"]) == [3, 1]
    assert text.trace(tmp_path / "t.json").exists()
    assert text.plot(tmp_path / "t.svg").exists()


def test_an_illegal_strategy_names_its_rules() -> None:
    found = simulate(QUESTION, strategy={"tp": 3})
    assert not found.legal
    assert found.to_dataframe().empty
    with pytest.raises(LookupError, match="tp"):
        found.plan  # noqa: B018


def test_whatif_answers_each_kind_of_question(tmp_path: Path) -> None:
    limits = whatif(QUESTION, memory=["8GiB", 16 * 2**30])
    assert isinstance(limits, Answers)
    assert list(limits.to_dataframe()["memory_bytes"]) == [8 * 2**30, 16 * 2**30]
    grid = whatif(QUESTION, vary={"precision": ["bf16", "fp16"], "tp": [1, 2]})
    frame = grid.to_dataframe()
    assert list(frame["precision"]) == ["bf16", "bf16", "fp16", "fp16"]
    assert list(frame["tp"]) == [1, 2, 1, 2]
    scaling = whatif(make_scenario(QUESTION), gpus=[1, 2, 4])
    assert scaling.plot(tmp_path / "g.svg").exists()
    assert scaling.report(tmp_path / "g.html").exists()
    assert "<table>" in scaling._repr_html_()
    assert json.loads(whatif(QUESTION, fewest_gpus=True).to_json())["gpus"] == 1
    assert whatif(QUESTION, lose="gpu:2").to_dict()["variants"][1]["plan"]["gpus"] == 2


def test_whatif_asks_one_question_at_a_time() -> None:
    for asked in ({}, {"memory": "sweep", "gpus": "sweep"}):
        with pytest.raises(InputError, match="exactly one"):
            whatif(QUESTION, **asked)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="file or mapping"):
        whatif(make_scenario(QUESTION), vary={"tp": [1]})
