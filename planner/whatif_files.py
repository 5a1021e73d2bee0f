"""The files that a what-if answer fills: report and picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.files import Content
from planner.report.page import render
from planner.report.whatif import whatif_section
from planner.wanted import Wanted
from planner.whatif_curves import picture


def answer_files(
    wanted: Wanted, heading: str, data: Mapping[str, Any], answer: str
) -> dict[Path, Content]:
    """Return the contents asked for of a what-if answer.

    Args:
        wanted: Which files.
        heading: What was asked about, for titles.
        data: The answer's JSON values.
        answer: Their text.

    Raises:
        InputError: If a picture is wanted of an answer that has no curve.
    """
    files: dict[Path, Content] = {wanted.answer: answer} if wanted.answer else {}
    if wanted.report:
        files[wanted.report] = render(f"What if: {heading}", [whatif_section(data)])
    if wanted.plot:
        files[wanted.plot] = picture(wanted.plot.name, heading, data)
    return files
