"""What `wattune run` and `wattune attach` show while a program runs: a screen, or lines on standard error."""

from __future__ import annotations

import os
import termios
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from wattune.cli.keyboard import Keys, keyboard
from wattune.cli.run.program_log import ProgramLog
from wattune.levels.run.report import RunReport
from wattune.levels.run.view.opening import Key, event_lines_of, numbered
from wattune.levels.run.view.pane import LastLines, screen_with_pane
from wattune.levels.run.view.terminal import job_news
from wattune.levels.run.view.words import joined

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

REFRESH_S = 0.5
KEYS_S = 0.1
"""Between two looks at the keyboard."""
DRAWN_S = 1.0
"""Longest time in which a picture is drawn, unless the terminal is blocked."""
LEAVE, ENTER = b"\x1b[?1049l\x1b[?25h", b"\x1b[?1049h\x1b[?25l\x1b[2J"
"""Leave and enter the alternate screen of a terminal, which has no cursor."""
RUN_KEYS = "q: leave the screen (program runs on)  Ctrl-C: end program"
ATTACH_KEYS = "q: leave the screen (tuning goes on)  Ctrl-C: end tuning"

Reports = Callable[[], tuple[RunReport, ...]]


class EventLines:
    """`with EventLines(reports, out):` prints a short line for each event until the block ends."""

    def __init__(self, reports: Reports, out: Console) -> None:
        self._reports, self._out = reports, out
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="wattune-lines", daemon=True)
        self._events: list[int] = []
        self._said: list[set[Key]] = []
        self.trouble: str | None = None
        """The reason why nothing is shown any more, or None."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _guarded(self) -> None:
        try:
            self._run()
        except (OSError, termios.error):
            pass  # the terminal has gone, or takes nothing
        except Exception as error:  # a screen that cannot be drawn must not end the tuning
            self.trouble = f"{type(error).__name__}: {error}"

    def _run(self) -> None:
        while True:
            ended = self._ended.wait(REFRESH_S)
            self._print_new()
            if ended:
                return

    def _print_new(self) -> None:
        reports = self._reports()
        self._events = self._events or [0] * len(reports)
        self._said = self._said or [set() for _ in reports]
        each = [
            event_lines_of(report, events=events, said=said)
            for report, events, said in zip(reports, self._events, self._said, strict=True)
        ]
        self._events = [len(report.progress.events) for report in reports]
        self._print(numbered(each), reports)

    def _print(self, lines: tuple[str, ...], reports: tuple[RunReport, ...]) -> None:
        simulated = any(report.simulated for report in reports)
        for line in lines:
            self._out.print(f"wattune{' (simulated)' * simulated}: {line}", markup=False, soft_wrap=True)


class RunScreen(EventLines):
    """`with RunScreen(reports, out):` shows the runs that `reports` returns until the block ends.

    On a terminal the whole screen is redrawn twice a second, until the key q; elsewhere there is a line for whatever
    happens. Once the screen is left, the terminal gets all that the program has written to its log, and what it writes
    from then on.
    """

    def __init__(self, reports: Reports, out: Console, *, log: ProgramLog | None = None, keys: str = RUN_KEYS) -> None:
        super().__init__(reports, out)
        self._log, self._keys = log, keys
        self._drawing = threading.Lock()
        self._keyboard: Keys | None = None
        self._is_suspended = False

    def suspend(self) -> None:
        """Give the terminal back, before Ctrl-Z stops this process; the screen returns in the foreground."""
        if self._keyboard is None or self._is_suspended:
            return
        got = self._drawing.acquire(timeout=DRAWN_S)
        try:
            self._is_suspended = True
            self._keyboard.release()
            os.write(terminal_descriptor(), LEAVE)
        except (OSError, termios.error):
            pass  # the terminal has gone
        finally:
            if got:
                self._drawing.release()

    def _resume(self, keys: Keys) -> None:
        keys.take()
        os.write(terminal_descriptor(), ENTER)
        self._is_suspended = False

    def _run(self) -> None:
        if not self._out.is_terminal:
            self._all_lines()
            return
        try:
            ended = self._live()
        finally:
            self._copy()
        while not ended:
            ended = self._ended.wait(REFRESH_S if self._log is None else KEYS_S)
            self._copy()
            self._print_new()
        if self._log is not None:
            self._log.end_line(terminal_descriptor())

    def _copy(self) -> None:
        if self._log is not None:
            self._log.copy_to(terminal_descriptor())

    def _live(self) -> bool:
        """Draw until the program ends or q is pressed; return whether it has ended."""
        from rich.live import Live

        out = self._out
        with (
            keyboard() as keys,
            Live(console=out, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
        ):
            self._keyboard = keys
            while True:
                if self._log is not None:
                    self._log.follow()
                lines = None if self._log is None else self._log.last_lines
                reports = self._reports()
                if not reports:  # the GPUs are being opened
                    if self._ended.wait(KEYS_S):
                        return True
                    continue
                self._events = [len(report.progress.events) for report in reports]
                with self._drawing:
                    if self._is_suspended and keys.is_in_foreground:
                        self._resume(keys)
                    if not self._is_suspended:
                        picture = screen(*reports, width=out.width, height=out.height, output=lines, keys=self._keys)
                        live.update(picture, refresh=True)
                for _ in range(round(REFRESH_S / KEYS_S)):
                    if self._ended.wait(KEYS_S):
                        return True
                    if "q" in keys(0.0).lower():
                        return False

    def _all_lines(self) -> None:
        before: tuple[RunReport, ...] | None = None
        while True:
            ended = self._ended.wait(0 if before is None else REFRESH_S)
            now = self._reports()
            self._print(job_news(before or None, now), now)
            before = now
            if ended:
                return


def terminal_descriptor() -> int:
    """Return the standard error or standard output of this process, whichever is a terminal."""
    return 2 if os.isatty(2) else 1


def screen(*reports: RunReport, width: int, height: int, output: LastLines | None = None, keys: str = RUN_KEYS) -> Text:
    """Draw the whole screen as a function of the runs and the program's last lines."""
    return joined(screen_with_pane(reports, output=output, keys=keys, width=width, height=height))
