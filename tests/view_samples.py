"""Charts and histories that several tests use, and terminal lines as plain text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from wattune.core.frontier import History, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.render.chart import Axis, Band, Chart, Mark, Note, Point, ReferenceLine, Series, Tone, Way


def plain(lines: Iterable[Text]) -> str:
    """Return lines of a terminal as text without styles and trailing spaces."""
    return "\n".join(line.plain.rstrip() for line in lines)


def styles(line: Text) -> list[str]:
    """Return the styles of a line, in the order of its characters."""
    return [str(line.style), *(str(span.style) for span in line.spans)]


def sweep_history() -> History[Setting]:
    """A driver default and five clocks; the lowest is beaten."""
    costs = {None: (1.0, 300.0), 1410: (0.99, 305.0), 1200: (1.04, 270.0), 1000: (1.2, 230.0), 800: (1.5, 210.0)}
    trials = [Trial(Setting(sm_mhz=mhz), Measurement(*cost)) for mhz, cost in costs.items()]
    return (*trials, Trial(Setting(sm_mhz=400), Measurement(2.9, 280.0, energy_error_j=1.5)))


def everything_chart() -> Chart:
    """A chart that uses every value there is, with names that need escaping."""
    line = tuple(Point(x, y, f"{x} <s>") for x, y in ((0.0, 10.0), (1.0, 12.0), (2.0, None), (3.0, 11.0), (4.0, 14.0)))
    return Chart(
        title="Power & time",
        subtitle="simulated",
        x=Axis(title="time", unit="s"),
        y=Axis(title="power", unit="W", low=0.0),
        series=(
            Series(name="a < b", points=line, mark=Mark.LINE_AND_POINTS, tone=Tone.BLUE),
            Series(name="steps", points=line, mark=Mark.STEPS, tone=Tone.ORANGE, dashed=True),
            Series(name="line", points=line, tone=Tone.GREEN),
            Series(name="points", points=line, mark=Mark.POINTS, tone=Tone.GREY),
        ),
        notes=(Note(1.0, 12.0, "peak", "of the first run"), Note(4.0, 14.0, "end")),
        rules=(ReferenceLine(15.0, "limit 15 W"), ReferenceLine(2.0, "lost", Way.UPRIGHT)),
        bands=(Band(3.0, 4.0, "span"), Band(0.0, 0.01, "a short one")),
    )
