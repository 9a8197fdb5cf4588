"""Lines out of a stream of bytes that comes in pieces."""

from __future__ import annotations

import re

LONGEST_LINE = 1 << 16
"""Bytes of a line that are looked at: a program that prints no line end must not fill our memory."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class LineBuffer:
    """Takes bytes as they come, and gives whole lines; what has no end yet waits for it.

    A carriage return ends a line too, since progress bars write over their line and never end it.
    """

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> tuple[str, ...]:
        """The lines that these bytes complete."""
        *lines, self._partial = re.split(rb"[\r\n]", self._partial + data)
        self._partial = self._partial[-LONGEST_LINE:]
        return tuple(plain(line) for line in lines if line)

    def rest(self) -> tuple[str, ...]:
        """What is left where no more bytes come: a last line without an end, if any."""
        partial, self._partial = self._partial, b""
        return (plain(partial),) if partial else ()


def plain(line: bytes) -> str:
    """The text of a line, without the codes that colour it."""
    return _COLOUR.sub("", line.decode("utf-8", "replace"))
