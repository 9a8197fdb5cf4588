"""Several GPUs of one program on one screen: those that are tuned as one, and those that are tuned each by itself."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from wattune.core.reading import Reading
from wattune.levels.run.view.table import clipped
from wattune.levels.run.view.terminal import news, screen_lines
from wattune.levels.run.view.view_model import RunView, state_words
from wattune.levels.run.view.words import estimate_words
from wattune.render.quantity import quantity

_LEAST = 6
"""Lines from which on a GPU gets a screen of its own below the others'; with less room it gets one line."""
_GAP = "   "


def job_lines(views: Sequence[RunView], *, width: int, height: int) -> tuple[Text, ...]:
    """The whole screen of a program, never wider or higher than that."""
    if len(views) == 1:
        return _with_each(views[0], width=width, height=height)
    room = height // len(views)
    if room < _LEAST:
        head = screen_lines(views[0], width=width, height=1)
        return (*head, *(_one_line(place, view, width) for place, view in enumerate(views)))[:height]
    lines: list[Text] = []
    for place, view in enumerate(views):
        own = screen_lines(view, width=width, height=room - 1)
        lines += [Text(clipped(f"GPU {place}: {view.label}", width), "bold"), *own]
        lines += [Text()] * (room - 1 - len(own))
    return tuple(lines[:height])


def job_news(before: Sequence[RunView] | None, now: Sequence[RunView]) -> tuple[str, ...]:
    """What is worth a line since the last look, where there is no screen; with the GPU where there are several."""
    found: list[str] = []
    for place, view in enumerate(now):
        name = f"GPU {place}: " if len(now) > 1 else ""
        found += [f"{name}{line}" for line in news(None if before is None else before[place], view)]
    return tuple(found)


def each_lines(view: RunView, *, width: int) -> tuple[Text, ...]:
    """What each of several GPUs shows now, as many beside each other as there is room for."""
    if len(view.each) < 2:
        return ()
    words = [_now(place, reading) for place, reading in enumerate(view.each)]
    column = max(map(cell_len, words)) + len(_GAP)
    beside = max((width + len(_GAP)) // column, 1)
    rows = [words[start : start + beside] for start in range(0, len(words), beside)]
    return tuple(Text(clipped("".join(word.ljust(column) for word in row), width), "dim") for row in rows)


def _with_each(view: RunView, *, width: int, height: int) -> tuple[Text, ...]:
    """The screen of GPUs that are tuned as one, with a word on each of them below the promise where there is room."""
    each = each_lines(view, width=width)
    if not each or height < _LEAST + len(each):
        return screen_lines(view, width=width, height=height)
    lines = screen_lines(view, width=width, height=height - len(each))
    return (*lines[:3], *each, *lines[3:])


def _one_line(place: int, view: RunView, width: int) -> Text:
    slower = view.figures.slowdown
    words = f"GPU {place}: {state_words(view)}"
    words += "" if slower is None else f", slowdown {estimate_words(slower)}"
    return Text(clipped(words, width), "bold cyan")


def _now(place: int, reading: Reading) -> str:
    parts = [f"GPU {place}"]
    if reading.power_w is not None:
        parts.append(quantity(reading.power_w, "W"))
    if reading.sm_mhz is not None:
        parts.append(f"{reading.sm_mhz} MHz")
    if reading.temperature_c is not None:
        parts.append(f"{reading.temperature_c:.0f} °C")
    return "  ".join(parts)
