"""The page in a headless browser: sorting, zooming, the theme, and names that try to run."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.planner.report.pages import HOSTILE, whole_page

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium"),
]


def dumped(folder: Path, page: str, script: str = "") -> str:
    """Return the page's markup after its scripts and ``script`` ran."""
    if script:
        page = re.sub(r'<meta http-equiv="[^>]*>', "", page)
        page = page.replace("</body>", f"<script>{script}</script></body>")
    file = folder / "page.html"
    file.write_text(page)
    command = [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1200,900",
    ]
    run = subprocess.run(
        [*command, f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def order(page: str) -> list[str]:
    table = page[page.index("Fastest first") :]
    body = table[table.index("<tbody>") : table.index("</tbody>")]
    return re.findall(r"(?<=>)tp\d", body)


def click_on(column: int, times: int = 1) -> str:
    return f"for (let i = 0; i < {times}; i += 1) document.querySelectorAll('.sortable th button')[{column}].click();"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", ["tp2", "tp4", "tp8"]),
        (click_on(7), ["tp2", "tp4", "tp8"]),
        (click_on(7, 2), ["tp8", "tp4", "tp2"]),
        (click_on(9), ["tp8", "tp4", "tp2"]),
        (click_on(1, 2), ["tp8", "tp4", "tp2"]),
    ],
    ids=["as ranked", "iteration rising", "iteration falling", "tokens rising", "word falling"],
)
def test_a_click_on_a_heading_sorts(tmp_path: Path, script: str, expected: list[str]) -> None:
    page = dumped(tmp_path, whole_page(), script)
    assert order(page) == expected
    if script:
        assert ("ascending" if expected[0] == "tp2" or "[9]" in script else "descending") in page


@pytest.mark.parametrize(
    ("script", "share"),
    [
        ("", 1.0),
        ("document.querySelector('[data-action=in]').click();", 0.5),
        ("const b = document.querySelector('[data-action=in]'); b.click(); b.click();", 0.25),
        (
            "for (const a of ['in', 'in', 'whole']) document.querySelector(`[data-action=${a}]`).click();",
            1.0,
        ),
        (
            "document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: '+'}));",
            0.5,
        ),
        (
            "document.querySelector('canvas').dispatchEvent(new WheelEvent('wheel', {deltaY: -1}));",
            0.8,
        ),
    ],
    ids=["whole", "in", "in twice", "back", "key", "wheel"],
)
def test_the_timeline_zooms(tmp_path: Path, script: str, share: float) -> None:
    page = dumped(tmp_path, whole_page(), script)
    shown = re.search(r'data-span="(\d+)"', page)
    whole = re.search(r'"iteration":(\d+)', page)
    assert shown
    assert whole
    assert int(shown[1]) == pytest.approx(share * int(whole[1]), rel=0.01)


def test_the_timeline_is_painted_and_tells_what_is_under_the_pointer(tmp_path: Path) -> None:
    script = """
    const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
    const point = {clientX: box.left + 90, clientY: box.top + 15};
    canvas.dispatchEvent(new PointerEvent("pointermove", point));
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    document.body.dataset.colours = new Set(new Uint32Array(pixels.buffer)).size;
    """
    page = dumped(tmp_path, whole_page(), script)
    assert "stage 0: forward of micro-batch 0, from 0.000 µs, 1.000 ms" in page
    colours = re.search(r'data-colours="(\d+)"', page)
    assert colours
    assert int(colours[1]) > 10


def test_the_button_turns_light_to_dark_and_back(tmp_path: Path) -> None:
    once = dumped(tmp_path, whole_page(), "document.getElementById('theme').click();")
    assert 'data-theme="dark"' in once
    twice = "const t = document.getElementById('theme'); t.click(); t.click();"
    assert 'data-theme="light"' in dumped(tmp_path, whole_page(), twice)


def test_a_hostile_name_runs_neither_with_nor_without_the_policy(tmp_path: Path) -> None:
    for script in ("", "document.body.dataset.alive = 1;"):
        page = dumped(tmp_path, whole_page(HOSTILE), script)
        assert "data-hacked" not in page.split("<body")[0]
        assert "data-span" in page
        assert ("data-alive" in page) == bool(script)
