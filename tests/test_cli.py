"""The command line as users meet it: options, exit codes, JSON, files, messages."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from planner import cli, objectives
from planner.export import TARGET_NAMES

TINY = """
model: {model_type: llama, hidden_size: 1024, intermediate_size: 2816, num_attention_heads: 8,
  num_key_value_heads: 4, vocab_size: 32000, num_hidden_layers: 4, tie_word_embeddings: false}
cluster: {name: dgx-a100-80gb, gpus: 4}
training: {global_batch: 8, sequence: 1024}
"""

OPTIONS = {
    "plan": "--top --gpus --module --time-limit --gap --objective --deadline-days --min-gpus --json "
    "--report --trace --export --exact --rank",
    "simulate": "--strategy --placement --gpus --module --json --trace --plot --export --exact",
    "whatif": "--memory --set --gpus --fewest-gpus --largest --lose --module --json --report --plot",
    "batch": "--json --csv --report --journal --scheduler",
    "explain": "--strategy --placement --gpus --json",
    "compare": "--systems --gpus --scaling --degrees --rules --token-slices --plot --json",
    "accuracy": "--tier --calibrate --calibration --json --report",
    "calibrate": "--output",
    "catalog": "--json",
    "profile": "--output --strategy --top --budget-s --event-s --ranks --list",
    "validate": "--strategy --placement --rounds --picture --json",
    "import": "",
    "recompose": "--profiles --stages --json",
}
"""Every option of every command: removing or renaming one breaks someone's script."""


PLAN_KEYS = {
    "rank", "strategy", "stages", "iteration_s", "iteration_s_low", "iteration_s_high", "tokens_per_s",
    "mfu", "peak_memory_bytes", "memory_limit_bytes", "time",
}  # fmt: skip
STRATEGY_KEYS = {
    "dp", "tp", "pp", "vpp", "cp", "ep", "zero", "micro_batch", "microbatches", "schedule",
    "sequence_parallel", "recompute",
}  # fmt: skip


class Run(NamedTuple):
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


Shardplan = Callable[..., Run]


@pytest.fixture
def shardplan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shardplan:
    """Return a function that runs the command in this process."""

    def run(*arguments: object) -> Run:
        monkeypatch.setattr("sys.argv", ["shardplan", *(str(item) for item in arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Run(ended.value.code, printed.out, printed.err)

    return run


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Return the file of a scenario that is planned in a moment."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def hopeless(tmp_path: Path) -> Path:
    """Return the file of a scenario that has no plan."""
    path = tmp_path / "hopeless.yaml"
    smaller = TINY.replace("gpus: 4", "gpus: 1").replace("sequence: 1024", "sequence: 256")
    path.write_text(smaller + "limits: {memory: 1GiB}\n")
    return path


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli.cli)
    for name in cli.COMMANDS:
        command = cli.cli.get_command(context, name)
        assert command is not None
        yield name, command


def test_every_command_has_the_options_that_are_written_down() -> None:
    found = {
        name: {
            max(parameter.opts, key=len)
            for parameter in command.params
            if isinstance(parameter, click.Option)
        }
        for name, command in commands()
    }
    assert found == {name: set(text.split()) for name, text in OPTIONS.items()}


def test_every_module_of_commands_is_a_command() -> None:
    folder = Path(str(import_module("planner.commands").__file__)).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "options"}
    assert modules == {cli.MODULES.get(name, name) for name in cli.COMMANDS}


def test_help_lists_every_command_and_shows_examples(shardplan: Shardplan) -> None:
    run = shardplan("--help")
    assert run.code == 0
    assert all(f"\n  {name} " in run.out for name in cli.COMMANDS)
    assert "shardplan plan " in run.out


@pytest.mark.parametrize("name", ["plan", "simulate", "whatif"])
def test_help_of_the_main_commands_shows_examples(name: str, shardplan: Shardplan) -> None:
    run = shardplan(name, "--help")
    assert run.code == 0
    assert f"Examples:\n    shardplan {name} " in run.out


def test_help_names_every_export_target(shardplan: Shardplan) -> None:
    words = re.sub(r"-\s+", "-", shardplan("plan", "--help").out)
    assert all(re.search(rf"[ :]{name}[,.]", words) for name in TARGET_NAMES)


def test_version(shardplan: Shardplan) -> None:
    run = shardplan("--version")
    assert re.fullmatch(r"shardplan, version \d+\.\d+\.\d+\S*\n", run.out)


def test_exit_codes(tiny: Path, hopeless: Path, shardplan: Shardplan) -> None:
    assert shardplan("plan", tiny).code == 0
    assert shardplan("plan", hopeless).code == 1
    assert shardplan("plan", "missing.yaml").code == 2
    assert shardplan("plan", tiny, "--time-limit", "1e-9").code == 3
    assert shardplan("simulate", tiny, "--strategy", "tp=3").code == 1
    assert shardplan("whatif", hopeless, "--memory", "1GiB").code == 1


def test_no_plan_says_what_would_help(hopeless: Path, shardplan: Shardplan) -> None:
    run = shardplan("plan", hopeless)
    assert "No plan exists" in run.out
    assert "What would make it fit:\n  - memory: " in run.out


def test_json_of_plan_holds_the_contract_alone_on_stdout(tiny: Path, shardplan: Shardplan) -> None:
    data = json.loads(shardplan("plan", tiny, "--top", 2, "--json", "-").out)
    assert {"schema", "status", "lower_bound_s", "gap", "plans", "rejected", "search"} <= set(data)
    assert (data["schema"], data["status"]) == (1, "optimal")
    assert {"strategies", "solved", "simulated", "seconds"} <= set(data["search"])
    assert {"reason", "count", "nearest"} <= set(data["rejected"][0])
    assert [item["rank"] for item in data["plans"]] == [1, 2]
    check_plan_keys(data["plans"][0])


def check_plan_keys(plan: dict[str, Any]) -> None:
    """Check one plan against the JSON of DESIGN.md."""
    assert set(plan) >= PLAN_KEYS
    assert set(plan["strategy"]) >= STRATEGY_KEYS
    stage = plan["stages"][0]
    assert {"first_layer", "last_layer", "recomputed_layers", "memory_bytes", "memory"} <= set(
        stage
    )
    assert sum(stage["memory"].values()) == pytest.approx(stage["memory_bytes"], rel=1e-6)
    assert sum(plan["time"].values()) == pytest.approx(plan["iteration_s"], rel=1e-6)


def test_json_of_simulate(tiny: Path, shardplan: Shardplan) -> None:
    legal = json.loads(shardplan("simulate", tiny, "--strategy", "pp=2", "--json", "-").out)
    assert (legal["status"], legal["fits"]) == ("legal", True)
    check_plan_keys(legal)
    illegal = json.loads(shardplan("simulate", tiny, "--strategy", "tp=3", "--json", "-").out)
    assert (illegal["status"], illegal["fits"]) == ("illegal", False)
    assert illegal["rule"] == illegal["rules"][0]["rule"]


def test_json_of_a_memory_sweep(tiny: Path, shardplan: Shardplan) -> None:
    data = json.loads(shardplan("whatif", tiny, "--memory", "sweep", "--json", "-").out)
    steps = data["steps"]
    assert [item["memory_bytes"] for item in steps] == sorted(
        item["memory_bytes"] for item in steps
    )
    times = [item["iteration_s"] for item in steps]
    assert times == sorted(times, reverse=True)
    check_plan_keys(steps[0]["plan"])


def test_same_question_same_answer(tiny: Path, shardplan: Shardplan) -> None:
    first, second = (json.loads(shardplan("plan", tiny, "--json", "-").out) for _ in range(2))
    for data in (first, second):
        del data["search"]["seconds"]
    assert first == second


def test_plan_writes_all_that_is_asked_for(tiny: Path, shardplan: Shardplan) -> None:
    out = tiny.parent / "out"
    run = shardplan(
        "plan", tiny, "--json", out / "a.json", "--report", out / "a.html", "--trace", out / "a.json.gz",
        "--export", f"megatron:{out / 'megatron'}", "--export", f"accelerate:{out / 'accelerate'}",
    )  # fmt: skip
    assert run.code == 0
    best = json.loads((out / "a.json").read_text())["plans"][0]
    events = json.loads(gzip.decompress((out / "a.json.gz").read_bytes()))["traceEvents"]
    end_us = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert end_us == pytest.approx(best["iteration_s"] * 1e6, rel=1e-9)
    assert "Pipeline timeline of plan 1" in (out / "a.html").read_text()
    assert {"megatron.args", "run.sh"} <= {path.name for path in (out / "megatron").iterdir()}
    assert (out / "accelerate" / "accelerate.yaml").exists()
    assert run.err.count("wrote ") == sum(path.is_file() for path in out.rglob("*"))


def test_another_rank_is_traced_on_demand(tiny: Path, shardplan: Shardplan) -> None:
    file = tiny.parent / "t.json"
    shardplan("plan", tiny, "--rank", 2, "--trace", file)
    data = json.loads(shardplan("plan", tiny, "--json", "-").out)
    assert (
        json.loads(file.read_text())["metadata"]["iteration_s"] == data["plans"][1]["iteration_s"]
    )


def test_simulate_and_whatif_draw_pictures(tiny: Path, shardplan: Shardplan) -> None:
    out = tiny.parent / "out"
    shardplan(
        "simulate", tiny, "--strategy", "pp=2", "--plot", out / "s.svg", "--trace", out / "s.json"
    )
    shardplan("simulate", tiny, "--strategy", "pp=2", "--plot", out / "s.png")
    for question in (("--memory", "sweep"), ("--gpus", "1,2,4"), ("--memory", "8GiB,16GiB")):
        run = shardplan(
            "whatif", tiny, *question, "--plot", out / "w.svg", "--report", out / "w.html"
        )
        assert run.code == 0
        assert "<polyline" in (out / "w.svg").read_text()
        assert "What if" in (out / "w.html").read_text()
    assert shardplan("whatif", tiny, "--memory", "sweep", "--plot", out / "w.png").code == 0
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in ("s.png", "w.png"))


def test_a_refused_export_prints_the_answer_and_writes_nothing(
    tiny: Path, shardplan: Shardplan
) -> None:
    out = tiny.parent / "out"
    text = ("simulate", tiny, "--strategy", "pp=2,tp=2")
    run = shardplan(*text, "--trace", out / "t.json", "--export", f"deepspeed:{out / 'ds'}")
    assert (run.code, "iteration" in run.out) == (2, True)
    assert "cannot express this plan" in run.err
    assert not out.exists()


def test_without_a_plan_there_is_a_report_but_nothing_to_launch(
    hopeless: Path, shardplan: Shardplan
) -> None:
    out = hopeless.parent / "out"
    run = shardplan(
        "plan", hopeless, "--report", out / "r.html", "--trace", out / "t.json", "--export", f"megatron:{out}"
    )  # fmt: skip
    assert (run.code, "no trace and no launch files" in run.err) == (1, True)
    assert [path.name for path in out.iterdir()] == ["r.html"]


def test_fewest_gpus_from_plan_and_whatif_agree(
    tiny: Path, hopeless: Path, shardplan: Shardplan
) -> None:
    planned = json.loads(shardplan("plan", tiny, "--min-gpus", "--json", "-").out)
    asked = json.loads(shardplan("whatif", tiny, "--fewest-gpus", "--json", "-").out)
    assert {item["gpus"] for item in planned["plans"]} == {asked["gpus"]}
    assert shardplan("plan", hopeless, "--min-gpus").code == 1


def test_a_torch_module_stands_for_the_model(tmp_path: Path, shardplan: Shardplan) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("cluster: {name: dgx-a100-80gb, gpus: 2}\ntraining: {global_batch: 16}\n")
    assert shardplan("plan", file).code == 2
    module = ("--module", "tests.planner.networks:vgg16")
    run = shardplan("plan", file, *module, "--top", 1)
    assert (run.code, run.out.split(" ")[0]) == (0, "vgg16")
    assert shardplan("simulate", file, *module, "--strategy", "dp=2").code == 0
    assert shardplan("whatif", file, *module, "--gpus", "1,2").code == 0


def test_interrupted_it_leaves_nothing(
    tiny: Path, shardplan: Shardplan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(objectives, "plan_for", interrupted)
    run = shardplan("plan", tiny, "--report", tiny.parent / "r.html", "--json", "-")
    assert run == Run(130, "", "\nshardplan: interrupted\n")
    assert [path.name for path in tiny.parent.iterdir()] == ["tiny.yaml"]


BAD = {
    "unknown command": ("frobnicate",),
    "no scenario": ("plan",),
    "no gpus": ("plan", "TINY", "--gpus", "0"),
    "no top": ("plan", "TINY", "--top", "0"),
    "gap above one": ("plan", "TINY", "--gap", "2"),
    "no time": ("plan", "TINY", "--time-limit", "0"),
    "rank beyond the list": ("plan", "TINY", "--top", "2", "--rank", "5"),
    "export without folder": ("plan", "TINY", "--export", "megatron"),
    "export to nowhere known": ("plan", "TINY", "--export", "megatorn:x"),
    "report is a folder": ("plan", "TINY", "--report", "FOLDER"),
    "trace below a file": ("plan", "TINY", "--trace", "TINY/t.json"),
    "one file twice": ("plan", "TINY", "--json", "FOLDER/x", "--report", "FOLDER/x"),
    "module without function": ("plan", "TINY", "--module", "json"),
    "module unknown": ("plan", "TINY", "--module", "no.such:thing"),
    "module builder fails": ("plan", "TINY", "--module", "json:loads"),
    "deadline without objective": ("plan", "TINY", "--deadline-days", "3"),
    "objective without deadline": ("plan", "TINY", "--objective", "gpus"),
    "two choices of gpus": ("plan", "TINY", "--min-gpus", "--objective", "cost"),
    "no strategy": ("simulate", "TINY"),
    "strategy without value": ("simulate", "TINY", "--strategy", "tp"),
    "strategy with a word": ("simulate", "TINY", "--strategy", "tp=two"),
    "strategy of zero": ("simulate", "TINY", "--strategy", "pp=0"),
    "strategy with a bad order": ("simulate", "TINY", "--strategy", "placement_order=tp-dp"),
    "placement of too many": ("simulate", "TINY", "--strategy", "pp=2", "--placement", "4/4"),
    "placement of words": ("simulate", "TINY", "--strategy", "pp=2", "--placement", "a/b"),
    "picture of no kind": ("simulate", "TINY", "--strategy", "pp=2", "--plot", "FOLDER/x.pdf"),
    "no question": ("whatif", "TINY"),
    "two questions": ("whatif", "TINY", "--memory", "sweep", "--gpus", "sweep"),
    "memory of no size": ("whatif", "TINY", "--memory", "lots"),
    "memory of nothing": ("whatif", "TINY", "--memory", "8GiB,0"),
    "set without values": ("whatif", "TINY", "--set", "sequence"),
    "set of an unknown key": ("whatif", "TINY", "--set", "sequnce=1"),
    "set of no YAML": ("whatif", "TINY", "--set", "precision=["),
    "gpus of a word": ("whatif", "TINY", "--gpus", "2,many"),
    "lose all": ("whatif", "TINY", "--lose", "gpu:4"),
    "lose what": ("whatif", "TINY", "--lose", "rack:1"),
    "picture without curve": ("whatif", "TINY", "--set", "tp=1", "--plot", "FOLDER/x.svg"),
    "pool that is none": ("batch", "TINY"),
    "report of a batch is a folder": (
        "batch",
        "scenarios/pools/ten-models.yaml",
        "--report",
        "FOLDER",
    ),
    "unknown system": ("compare", "TINY", "--systems", "megatorn"),
    "more gpus than there are": ("compare", "TINY", "--gpus", "999"),
    "unknown part of the catalog": ("catalog", "models", "lamma"),
    "no runs": ("accuracy",),
    "runs that are none": ("accuracy", "TINY"),
    "calibration of nothing": ("calibrate", "TINY", "-o", "FOLDER/cal.yaml"),
    "table is a folder": ("profile", "TINY", "-o", "FOLDER", "--list"),
    "log of no collective": ("import", "nccl-tests", "TINY", "-o", "FOLDER/t.json"),
    "trace that is none": ("import", "kineto", "TINY", "-o", "FOLDER/t.json"),
    "no recorded plans": ("recompose", "FOLDER"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_use_is_refused_with_one_clear_message(
    name: str, tiny: Path, shardplan: Shardplan
) -> None:
    folder = tiny.parent / "folder"
    folder.mkdir()
    words = (word.replace("TINY", str(tiny)).replace("FOLDER", str(folder)) for word in BAD[name])
    run = shardplan(*words)
    assert run.code == 2
    assert "Traceback" not in run.err
    last = run.err.strip().splitlines()[-1]
    assert last.startswith(("shardplan: ", "Error: "))
    assert not list(folder.iterdir())
