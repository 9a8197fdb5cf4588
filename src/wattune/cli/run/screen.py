"""What people see of a program that is tuned while it runs: a live screen or lines, and what came of it.

with RunScreen(lambda: (view_of(session, ...),), stderr_console()):
    ...
print_closing(view_of(session, ..., over=True), stderr_console())
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.text import Text

from wattune.cli.run_tables import one_line
from wattune.levels.run.view.several import job_lines, job_news
from wattune.levels.run.view.table import setting_rows, table_lines
from wattune.levels.run.view.view_model import RunView
from wattune.levels.run.view.words import closing_lines
from wattune.render.quantity import duration, quantity

if TYPE_CHECKING:
    from rich.console import Console

REFRESH_S = 0.5
MOST_POINTS = 12
"""Rows of the closing table."""


class RunScreen:
    """`with RunScreen(look, out):` shows what `look` gives until the block ends: a view for each tuning.

    On a terminal the whole screen is drawn anew twice a second; elsewhere there is a line for whatever happens.
    """

    def __init__(self, look: Callable[[], tuple[RunView, ...]], out: Console) -> None:
        self._look, self._out = look, out
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wattune-screen", daemon=True)
        self.trouble: str | None = None
        """Why nothing was shown any more, where that is so."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            if self._out.is_terminal:
                self._live()
            else:
                self._lines()
        except Exception as error:  # what is tuned must not suffer from a screen that cannot be drawn
            self.trouble = f"{type(error).__name__}: {error}"

    def _live(self) -> None:
        from rich.live import Live

        with Live(console=self._out, screen=True, auto_refresh=False) as live:
            while True:
                live.update(screen(*self._look(), width=self._out.width, height=self._out.height), refresh=True)
                if self._ended.wait(REFRESH_S):
                    return

    def _lines(self) -> None:
        before: tuple[RunView, ...] | None = None
        while True:
            ended = self._ended.wait(0 if before is None else REFRESH_S)
            now = self._look()
            simulated = any(view.simulated for view in now)
            for line in job_news(before, now):
                self._out.print(f"wattune{' (simulated)' * simulated}: {line}", markup=False, soft_wrap=True)
            before = now
            if ended:
                return


def screen(*views: RunView, width: int, height: int) -> Text:
    """The whole screen as a function of what was seen."""
    return _picture(job_lines(views, width=width, height=height))


def print_closing(view: RunView, out: Console) -> None:
    """Nothing; what came of a run is on the screen: the figures, the gears, and what happened."""

    def say(text: str) -> None:
        # Whoever reads lines from a pipe wants them whole.
        out.print(one_line(text), markup=False, soft_wrap=not out.is_terminal)

    out.print()
    say(f"wattune: {view.label}: {quantity(view.spent.energy_j, 'J')} in {duration(view.spent.time_s)}")
    for line in closing_lines(view):
        say(line)
    table = table_lines(setting_rows(view), width=out.width, most=MOST_POINTS)
    if table:
        out.print(_picture(table), soft_wrap=True)
    for event in view.events:
        say(f"at {event.time_s:.1f} s: {event.text}")


def _picture(lines: tuple[Text, ...]) -> Text:
    return Text("\n", no_wrap=True, overflow="crop").join(lines)
