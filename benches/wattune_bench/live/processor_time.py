"""The processor time of what tunes a program, as the system counts it: not by the tuner's own word.

It is that of all processes of the run but the program's, and that of all threads of the program but its first: the
program itself computes in one thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12
"""Places of the two times after the name of the program in /proc/PID/stat (proc_pid_stat(5))."""


class ProcessorTime:
    """Samples of the processor time of a run, whose processes have a word in their environment."""

    def __init__(self, word: str, stamps: Path) -> None:
        self._word, self._stamps = word.encode(), stamps
        self._ours: dict[int, bool] = {os.getpid(): False}
        self._spent_s: dict[str, float] = {}
        self._samples: list[tuple[float, float]] = []

    def sample(self) -> None:
        """Add what has been spent until now; what processes that have ended spent stays in."""
        programs = {int(file.stem) for file in self._stamps.glob("*.stamps")}
        for pid in self._pids():
            own = self._threads(pid) if pid in programs else (f"/proc/{pid}/stat",)
            self._spent_s.update((file, time_s) for file in own if (time_s := _time_s(file)) is not None)
        for pid in programs:
            self._spent_s.pop(f"/proc/{pid}/stat", None)  # a program was not known as one before its first step
        self._samples.append((time.monotonic(), sum(self._spent_s.values())))

    def percent(self, start_s: float, end_s: float) -> float | None:
        """Return the share of one core between two times; None where too few samples lie between them."""
        within = [sample for sample in self._samples if start_s <= sample[0] <= end_s]
        if len(within) < 2:
            return None
        (first_s, before_s), (last_s, after_s) = within[0], within[-1]
        return 100 * (after_s - before_s) / (last_s - first_s)

    def _pids(self) -> Iterator[int]:
        for name in os.listdir("/proc"):
            if name.isdecimal():
                pid = int(name)
                if pid not in self._ours:
                    self._ours[pid] = self._word in _read(f"/proc/{pid}/environ")
                if self._ours[pid]:
                    yield pid

    def _threads(self, pid: int) -> Iterator[str]:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return
        yield from (f"/proc/{pid}/task/{thread}/stat" for thread in threads if int(thread) != pid)


def _time_s(file: str) -> float | None:
    words = _read(file).rpartition(b")")[2].split()
    return (int(words[_USER]) + int(words[_SYSTEM])) * _TICK_S if len(words) > _SYSTEM else None


def _read(file: str) -> bytes:
    """Return a file of the system; nothing where its process has ended or belongs to somebody else."""
    try:
        return Path(file).read_bytes()
    except OSError:
        return b""
