"""The parts of README and docs that are printed by the project itself; run as a module it writes them anew."""

import json
import re
from pathlib import Path

from planner.answer_text import result_to_text
from planner.scenario_file import load_scenario
from planner.search import plan

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SCENARIO = "scenarios/examples/llama-3.1-70b-64xh100.yaml"
TOP = 3
MIXED = ROOT / "docs" / "mixed-clusters.md"
MIXED_SCENARIO = "scenarios/examples/mixed-32xa100-32xv100.yaml"


def renewed(text: str) -> str:
    """Return the README with its printed parts as they would be printed now."""
    return _between(_between(text, "output", _output(SCENARIO)), "figures", _figures())


def renewed_mixed(text: str) -> str:
    """Return the page on mixed clusters with its answer as it would be printed now."""
    return _between(text, "output", _output(MIXED_SCENARIO))


def without_durations(text: str) -> str:
    """Return the text without how long the search took, which no two machines share."""
    return re.sub(r"simulated in [\d.,]+ m?s\.", "simulated.", text)


def _between(text: str, name: str, part: str) -> str:
    start, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, rest = text.split(start)
    _, after = rest.split(end, 1)
    return f"{before}{start}{part}{end}{after}"


def _output(path: str) -> str:
    scenario = load_scenario(ROOT / path)
    answer = result_to_text(plan(scenario, top=TOP), scenario)
    return f"```\n$ shardplan plan {path} --top {TOP}\n{answer}```\n"


def _figures() -> str:
    file = ROOT / "scenarios" / "measured" / "golden.json"
    statistics = json.loads(file.read_text())["statistics"]
    kinds = {"core": "dense language models, 16 bits, data-centre GPUs", "extra": "everything else"}
    rows = [
        f"| {kind} | {item['time_median']:.1%} | {item['time_p90']:.0%} | {item['reserved_median']:.1%} "
        f"| {1 - item['pairs_wrong']:.0%} |\n"
        for kind, item in ((kinds[tier], statistics[tier]) for tier in kinds)
    ]
    head = "| runs | median error of time | 9 of 10 below | median error of reserved memory | pairs ordered right |\n"
    return f"{head}|---|---|---|---|---|\n{''.join(rows)}"


if __name__ == "__main__":
    README.write_text(renewed(README.read_text()))
    MIXED.write_text(renewed_mixed(MIXED.read_text()))
