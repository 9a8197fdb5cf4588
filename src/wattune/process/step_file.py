"""Steps that a hook inside the program's own Python counts in a shared file, read from outside.

    with StepFile.made() as file:
        start the program with file.environment(os.environ)
        file.slots()                   one per process that has counted

The hook is `injected/wattune_hook.py`; its folder goes on PYTHONPATH, so that every Python that the program starts
imports it: workers of torchrun, spawned and forked processes, other virtual environments. Programs that are not Python,
or that run Python with -E, -I or -S, count nothing.

The file belongs to the user who runs the program, so its content may be anything: wattune, which may be root, opens it
only as it makes it, reads pieces of fixed size, and ignores numbers that no program can have counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wattune.core.errors import InputError
from wattune.core.run_folder import RunFolder, places, remove_left
from wattune.process.injected import wattune_hook as injected

FOLDER = Path(injected.__file__).parent
OPTIMIZER, BAR = "optimizer", "progress bar"
_SOURCES = {injected.OPTIMIZER: OPTIMIZER, injected.BAR: BAR}
TRIES = 100
"""To read a slot in a moment in which its process does not write."""
_MOST_STEPS, _MOST_PIDS = 1 << 48, 1 << 32
_READ_SLOTS = 16
"""Slots that are read at once: more than most programs have processes that count."""


@dataclass(frozen=True, slots=True)
class CountedSteps:
    """The steps that one process has counted."""

    pid: int
    source: str
    """optimizer or progress bar"""
    count: int
    time_s: float
    """Of the last step, by the monotonic clock."""
    replaced: int = 0
    """How often another optimizer or bar has taken the place of the one that counts: the unit may have changed."""


@dataclass(frozen=True, slots=True)
class PrintedText:
    """A stream of text of one process."""

    start: int
    """Its place in the file."""
    pid: int
    written: int
    """Bytes so far."""
    time_s: float
    """Of the last write, by the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Written:
    """One write to a stream."""

    time_s: float
    """By the monotonic clock."""
    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class StepFile:
    """The shared file."""

    path: Path
    descriptor: int

    @classmethod
    @contextmanager
    def made(cls, owner: int | None = None) -> Iterator[StepFile]:
        """Make the file until the block ends, or raise an error of one line; `owner` is the user who runs the program.

        Without one it is this user. Files that dead processes left are removed.
        """
        remove_left(places())
        folder, descriptor = _empty_file(owner)
        try:
            yield cls(Path(folder.file_path), descriptor)
        finally:
            os.close(descriptor)
            folder.remove()

    @property
    def place(self) -> str:
        """The path of the file and what tells it from another that is put there: the value of the variable."""
        found = os.fstat(self.descriptor)
        return f"{self.path}:{found.st_dev}:{found.st_ino}"

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program that is to count its steps here."""
        return {**hooked_environment(environment), injected.VARIABLE: self.place}

    @property
    def failure(self) -> str | None:
        """The reason why a process could not count, or None."""
        text = os.pread(self.descriptor, injected.HEAD - 8, 8).rstrip(b"\0")
        return text.decode("utf-8", "replace") or None

    def slots(self) -> tuple[CountedSteps, ...]:
        """Return the counts of all processes, in the order in which they began to count."""
        found: list[CountedSteps] = []
        for start in range(injected.HEAD, injected.RINGS_START, _READ_SLOTS * injected.SLOT):
            for values in self._values(start, min(_READ_SLOTS, (injected.RINGS_START - start) // injected.SLOT)):
                if not values[injected.PROCESS]:
                    return tuple(found)
                if _is_possible(values):
                    found.append(_steps_of(values))
        return tuple(found)

    def texts(self) -> tuple[PrintedText, ...]:
        """Return what processes have printed, each stream by itself, in the order in which they began to print."""
        found = []
        for start in range(injected.RINGS_START, injected.FILE_SIZE, injected.RING):
            values = self._value(start)
            if not values[injected.PROCESS]:
                break
            if _is_possible(values):
                found.append(PrintedText(start, values[injected.PROCESS], values[injected.COUNT], _time_s(values)))
        return tuple(found)

    def want_all_text(self) -> None:
        """Ask processes to copy what they print also where they count steps."""
        os.pwrite(self.descriptor, b"\1", injected.ALL_TEXT)

    def writes_since(self, read: int, text: PrintedText) -> tuple[Written, ...]:
        """Return the writes to a text after so many bytes of its ring; none where the first were overwritten."""
        if not 0 < text.written - read <= injected.TEXT:
            return ()
        ring = os.pread(self.descriptor, injected.TEXT, text.start + injected.SLOT).ljust(injected.TEXT, b"\0")
        # The process may have gone on meanwhile, and be at its next record now.
        now = self._value(text.start)
        if now[injected.PROCESS] != text.pid or now[injected.COUNT] + injected.LONGEST_RECORD - read > injected.TEXT:
            return ()
        start, end = read % injected.TEXT, text.written % injected.TEXT
        return _writes(ring[start:end] if start < end else ring[start:] + ring[:end])

    def _value(self, start: int) -> list[int]:
        return next(self._values(start, 1))

    def _values(self, start: int, count: int) -> Iterator[list[int]]:
        """Yield the numbers of slots, the count and the time of each of the same step. What the file lacks is zero."""
        size = count * injected.SLOT
        data = os.pread(self.descriptor, size, start)
        for _ in range(TRIES):
            again = os.pread(self.descriptor, size, start)
            if again == data:
                break
            data = again
        numbers, width = memoryview(data.ljust(size, b"\0")).cast("Q"), injected.SLOT // 8
        for place in range(0, len(numbers), width):
            yield numbers[place : place + width].tolist()


def _empty_file(owner: int | None) -> tuple[RunFolder, int]:
    """Make the file where there is room for the counts."""
    problems = []
    for place in places():
        try:
            return _file_in(place, owner)
        except OSError as error:
            problems.append(error)
    raise InputError(
        f"cannot write to the folder for temporary files: {problems[-1].strerror}",
        hint="make room there, or name another folder: TMPDIR=FOLDER",
    )


def _file_in(place: str, owner: int | None) -> tuple[RunFolder, int]:
    """Make the file in a folder, with the room of its counts; what is printed takes room as it comes."""
    folder = RunFolder.made(place)
    try:
        descriptor = folder.create(owner=owner)
        try:
            os.posix_fallocate(descriptor, 0, injected.RINGS_START)
            os.truncate(descriptor, injected.FILE_SIZE)
        except OSError:
            os.close(descriptor)
            raise
    except OSError:
        folder.remove()
        raise
    return folder, descriptor


def _is_possible(values: list[int]) -> bool:
    """Return whether a program can have counted so many steps by now."""
    return (
        0 < values[injected.COUNT] < _MOST_STEPS
        and values[injected.PROCESS] < _MOST_PIDS
        and values[injected.TIME_NS] <= time.monotonic_ns()
    )


def _writes(records: bytes) -> tuple[Written, ...]:
    found, place, head = [], 0, injected.RECORD_HEAD
    while place + head <= len(records):
        time_ns = int.from_bytes(records[place : place + 8], "little")
        length = int.from_bytes(records[place + 8 : place + head], "little")
        found.append(Written(time_ns / 1e9, records[place + head : place + head + length]))
        place += head + length
    return tuple(found)


def hooked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which Python loads the hook."""
    others = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": os.pathsep.join([str(FOLDER), *([others] if others else [])])}


def following_environment(environment: Mapping[str, str], library: Path) -> dict[str, str]:
    """Return the environment in which optimizer steps wait for a simulated GPU, whose library this is."""
    return {**hooked_environment(environment), injected.FOLLOW: str(library)}


UNFOLLOWED = (
    "the GPU is simulated and the program does not follow its clock, so its times show nothing: "
    "make it follow with `wattune simulate --follow`"
)


def unfollowing_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs that do not follow the simulated GPUs that they run beside."""
    return {**environment, injected.FOLLOW: injected.NOT_FOLLOWING}


def is_unfollowed(environment: Mapping[str, str]) -> bool:
    """Return whether programs of this environment are known not to follow their simulated GPUs."""
    return environment.get(injected.FOLLOW) == injected.NOT_FOLLOWING


def is_followed(environment: Mapping[str, str]) -> bool:
    """Return whether optimizer steps of programs of this environment follow their simulated GPUs."""
    return environment.get(injected.FOLLOW, injected.NOT_FOLLOWING) != injected.NOT_FOLLOWING


def _steps_of(values: list[int]) -> CountedSteps:
    return CountedSteps(
        pid=values[injected.PROCESS],
        source=_SOURCES.get(values[injected.SOURCE], BAR),
        count=values[injected.COUNT],
        time_s=_time_s(values),
        replaced=values[injected.REPLACED],
    )


@dataclass(frozen=True, slots=True)
class NewSteps:
    """Steps since the last look, and how long ago the last of them ended."""

    count: int
    age_s: float


class StepFollower:
    """The steps of one program out of the counts of its processes.

    One process stands for all: ranks of a job step together. Optimizers come before progress bars. Another process is
    followed once the first has ended, or has been silent while others went on.
    """

    def __init__(self, file: StepFile) -> None:
        self._file = file
        self._followed: CountedSteps | None = None
        self._failure: str | None = None
        self.source: str | None = None
        """What is counted; None before the first step."""
        self.unit_changed = False
        """True where what counts as a step may have changed since this was last set to False."""

    def take(self) -> NewSteps | None:
        """Return the steps since the last call; None where there were none."""
        slots = self._file.slots()
        before, now = self._followed, self._chosen(slots)
        if now is None:
            return None
        self._followed = now
        same = before is not None and (before.pid, before.source) == (now.pid, now.source)
        if before is None or not same or before.replaced != now.replaced:
            self.unit_changed = self.unit_changed or before is not None
            self.source = now.source
            return NewSteps(now.count if before is None else 1, _age_s(now))
        return NewSteps(now.count - before.count, _age_s(now)) if now.count > before.count else None

    def failure(self) -> str | None:
        """Return the reason why a process could not count, once."""
        now = self._file.failure
        if now == self._failure:
            return None
        self._failure = now
        return now

    def _chosen(self, slots: tuple[CountedSteps, ...]) -> CountedSteps | None:
        optimizers = [one for one in slots if one.source == OPTIMIZER]
        candidates = optimizers or list(slots)
        if not candidates:
            return None
        own = next((one for one in candidates if self._follows(one)), None)
        newest = max(candidates, key=lambda one: one.time_s)
        if own is None or (newest.time_s > own.time_s and is_gone(own.pid)) or _is_silent(own, newest):
            return next(one for one in candidates if one.time_s >= newest.time_s - _TOGETHER_S)
        return own

    def _follows(self, one: CountedSteps) -> bool:
        return self._followed is not None and (one.pid, one.source) == (self._followed.pid, self._followed.source)


_TOGETHER_S = 1.0
"""Processes whose last steps are no further apart count together."""
SILENT_S = 60.0
"""A process that has not stepped for so long while another did is not followed any more."""


def _time_s(values: list[int]) -> float:
    return values[injected.TIME_NS] / 1e9


def _is_silent(own: CountedSteps, newest: CountedSteps) -> bool:
    return newest.time_s - own.time_s > SILENT_S


def is_gone(pid: int) -> bool:
    """Return whether a process has ended."""
    return not os.path.exists(f"/proc/{pid}")


def _age_s(steps: CountedSteps) -> float:
    return max(time.monotonic() - steps.time_s, 0.0)
