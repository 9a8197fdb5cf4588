"""The screen of a tuned run with the last lines of its program and the keys."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Sequence

from rich.text import Text

from wattune.levels.run.report import RunReport
from wattune.levels.run.view.terminal import job_lines
from wattune.levels.run.view.words import clipped

LEAST, MOST = 3, 12
"""Lines of the program on the screen."""
KEPT = 200
LONGEST = 4000
"""Characters of a line that are kept."""
_TOKENS = re.compile("\x1b\\[A|[^\r\n\x1b]+|\x1b|\r|\n")
_ESCAPES = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|.?)")


class LastLines:
    """The last lines of an output, as a terminal would show them: progress bars overwrite themselves."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._done: deque[str] = deque(maxlen=KEPT)
        self._line, self._returned = "", False

    def feed(self, data: bytes) -> None:
        for token in _TOKENS.findall(self._decoder.decode(data)):
            match token:
                case "\n":
                    self._done.append(self._line)
                    self._line, self._returned = "", False
                case "\r":
                    self._returned = True
                case "\x1b[A":  # up a line, as nested bars do
                    self._line, self._returned = self._done.pop() if self._done else "", True
                case text:
                    self._line = (text if self._returned else self._line + text)[-LONGEST:]
                    self._returned = False

    def last(self, count: int) -> tuple[str, ...]:
        """Return so many lines, without control characters."""
        lines = [*self._done, *([self._line] if self._line else [])]
        return tuple(_ESCAPES.sub("", line).expandtabs() for line in lines[-count:]) if count > 0 else ()


def screen_with_pane(
    reports: Sequence[RunReport], *, output: LastLines | None, keys: str, width: int, height: int
) -> tuple[Text, ...]:
    """Lay out the runs, below them the program's last lines where they are known, and the keys in the last line."""
    rows = 0 if output is None else min(max(height // 4, LEAST), MOST)
    room = max(height - rows - (output is not None) - 1, 1)
    lines = [*job_lines(reports, width=width, height=room)]
    lines += [Text()] * (room - len(lines))
    if output is not None:
        lines.append(Text(clipped("── output of the program ".ljust(width, "─"), width), "dim"))
        shown = [Text(clipped(line, width)) for line in output.last(rows)]
        lines += [*shown, *[Text()] * (rows - len(shown))]
    lines.append(Text(clipped(keys, width), "dim"))
    return tuple(lines[-height:]) if height < len(lines) else tuple(lines)
