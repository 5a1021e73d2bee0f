"""Which files are wanted beside a printed answer.

Requests are checked before the search, contents are made after it (planner.deliver), and only then is anything
written: all of it, or nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import InputError
from planner.export import target
from planner.files import check_writable
from planner.plot import check_picture_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The files asked for.

    Attributes:
        answer: For JSON; None where it goes to stdout or is not wanted.
        report, trace, plot: HTML page, Chrome trace, SVG or PNG of the timeline.
        exports: Targets with the folder of each.
        exact: Whether launch files have to express the plan itself, not the nearest that the target can.
    """

    answer: Path | None = None
    report: Path | None = None
    trace: Path | None = None
    plot: Path | None = None
    exports: tuple[tuple[str, Path], ...] = ()
    exact: bool = False

    def check(self) -> None:
        """Check everything that can be known before the search.

        Raises:
            InputError: If a path cannot be written or is asked for twice, or a target or an ending is unknown.
        """
        paths = [path for path in (self.answer, self.report, self.trace, self.plot) if path]
        for path in paths:
            check_writable(path)
        folders = [folder for _, folder in self.exports]
        doubled = next((p for p in (*paths, *folders) if [*paths, *folders].count(p) > 1), None)
        if doubled:
            raise InputError("is asked for twice", file=str(doubled))
        for name, folder in self.exports:
            target(name)
            check_writable(folder / name)
        if self.plot:
            check_picture_name(self.plot.name)

    @property
    def plan_needed(self) -> bool:
        """Whether something is wanted that only a plan can fill."""
        return bool(self.trace or self.plot or self.exports)


def parse_export(text: str) -> tuple[str, Path]:
    """Read ``TARGET:DIR``.

    Raises:
        InputError: If it is none, or there is no such target.
    """
    name, colon, folder = text.partition(":")
    if not colon or not folder:
        raise InputError(
            "must be TARGET:DIR", key="--export", value=text, nearest="megatron:launch"
        )
    target(name)
    return name, Path(folder)
