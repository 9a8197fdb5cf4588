"""Standard output and standard error of the command, which may be full, closed, or without a reader.

Whether wattune can print must not decide whether a program starts, what its exit code is, or whether its run is stored.
So standard error never fails: what it does not take is dropped. Standard output fails as ever until a program has been
started; from then on what it does not take is dropped too, and the command reports that at its end.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any, TextIO

from wattune.core.errors import WattuneError


class _Descriptor(io.RawIOBase):
    """A descriptor that takes all or, where it is `forgiving`, loses what it cannot take."""

    def __init__(self, number: int, *, forgiving: bool) -> None:
        self._number, self.forgiving = number, forgiving
        self.failure: OSError | None = None
        """The first error of a write."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            try:
                left = left[os.write(self._number, left) :]
            except BlockingIOError:  # another process has set the pipe so
                select.select([], [self._number], [])
            except OSError as error:
                self.failure = self.failure or error
                if not self.forgiving:
                    raise
                break
        return size


def prepare_streams() -> None:
    """Let this process print as described above; a descriptor that is closed becomes that of /dev/null.

    Otherwise the next file that is opened, a database perhaps, would take the place of standard error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = _text(1, sys.stdout, forgiving=False)
    sys.stderr = _text(2, sys.stderr, forgiving=True)


def _text(number: int, before: TextIO | None, *, forgiving: bool) -> TextIO:
    encoding, errors = ("utf-8", "replace") if before is None else (before.encoding, before.errors)
    raw = _Descriptor(number, forgiving=forgiving)
    return io.TextIOWrapper(raw, encoding, errors, line_buffering=forgiving or raw.isatty())  # type: ignore[type-var]


def forgive_output() -> None:
    """From now on a standard output that cannot be written fails nothing: a program runs."""
    raw = _output()
    if raw is not None:
        raw.forgiving = True


def output_failure() -> WattuneError | None:
    """Write what is left for standard output; return why it did not take all, and None where a reader has gone."""
    raw = _output()
    if raw is None:
        return None
    raw.forgiving = True
    sys.stdout.flush()
    if raw.failure is None or isinstance(raw.failure, BrokenPipeError):
        return None
    return WattuneError(
        f"cannot write to standard output: {raw.failure.strerror}", hint="what is missing there was not written"
    )


def _output() -> _Descriptor | None:
    """Return the descriptor of standard output; None where this process has not prepared its streams."""
    raw = getattr(sys.stdout, "buffer", None)
    return raw if isinstance(raw, _Descriptor) else None
