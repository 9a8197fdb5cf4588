"""The live screen of `wattune run`: a full screen on a terminal, lines elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from wattune.levels.run.report import RunReport
from wattune.levels.run.view.table import joined
from wattune.levels.run.view.terminal import job_lines, job_news

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

REFRESH_S = 0.5


class RunScreen:
    """`with RunScreen(reports, out):` shows the runs that `reports` returns until the block ends.

    On a terminal the whole screen is redrawn twice a second; elsewhere there is a line for whatever happens.
    """

    def __init__(self, reports: Callable[[], tuple[RunReport, ...]], out: Console) -> None:
        self._reports, self._out = reports, out
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wattune-screen", daemon=True)
        self.trouble: str | None = None
        """Why nothing is shown any more, if so."""

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
        except Exception as error:  # a screen that cannot be drawn must not end the tuning
            self.trouble = f"{type(error).__name__}: {error}"

    def _live(self) -> None:
        from rich.live import Live

        with Live(console=self._out, screen=True, auto_refresh=False) as live:
            while True:
                live.update(screen(*self._reports(), width=self._out.width, height=self._out.height), refresh=True)
                if self._ended.wait(REFRESH_S):
                    return

    def _lines(self) -> None:
        before: tuple[RunReport, ...] | None = None
        while True:
            ended = self._ended.wait(0 if before is None else REFRESH_S)
            now = self._reports()
            simulated = any(report.simulated for report in now)
            for line in job_news(before, now):
                self._out.print(f"wattune{' (simulated)' * simulated}: {line}", markup=False, soft_wrap=True)
            before = now
            if ended:
                return


def screen(*reports: RunReport, width: int, height: int) -> Text:
    """Draw the whole screen as a function of the runs."""
    return joined(job_lines(reports, width=width, height=height))
