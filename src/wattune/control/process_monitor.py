"""What a program is doing, from outside: whether it runs, uses the GPUs, and is alone on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattune.control.state import Condition
from wattune.devices.gpu import Gpu


class MonitoredProgram(Protocol):
    """A program that is tuned."""

    def condition(self) -> Condition:
        """What it is doing."""
        ...

    def used(self) -> frozenset[int] | None:
        """Which of its GPUs it uses, by their places; None where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Itself:
    """The program is the process that we are in, which uses the GPUs that it named."""

    def condition(self) -> Condition:
        """Working."""
        return Condition.WORKING

    def used(self) -> frozenset[int] | None:
        """All that it named, whichever they are."""
        return None


LOOKS = 30
"""Looks at a program after which its processes are searched for anew, in any case."""

Users = Callable[[], tuple[frozenset[int], ...] | None]
"""The processes on each GPU; None where that is not told."""


class ProcessWatch:
    """A program by its process number; whatever it started belongs to it."""

    def __init__(self, users: Users, *, played: bool = False, pid: int | None = None) -> None:
        """`played` GPUs are simulated in this process: the program only lends them its time."""
        self._users, self._played = users, played
        self.pid = pid
        """None until the program has begun."""
        self._family: frozenset[int] = frozenset()
        self._others: frozenset[int] = frozenset()
        self._looks = 0

    def condition(self) -> Condition:
        """What the program is doing."""
        if self.pid is None:
            return Condition.UNUSED
        users = None if self._played else self._users()
        everyone = frozenset[int]().union(*users or ())
        family = self._family_among(everyone)
        if _all_stopped({self.pid}) or _all_stopped(everyone & family):
            return Condition.STOPPED
        return Condition.WORKING if self._played else use_of(family, users)

    def used(self) -> frozenset[int] | None:
        """Which of the GPUs it uses; None where that is not told."""
        users = None if self._played or self.pid is None else self._users()
        if users is None:
            return None
        family = self._family_among(frozenset().union(*users)) | {os.getpid()}
        return frozenset(place for place, one in enumerate(users) if one & family) or None

    @property
    def runs(self) -> bool:
        """Whether there is such a process still."""
        import psutil

        try:
            return self.pid is not None and psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def _family_among(self, everyone: frozenset[int]) -> frozenset[int]:
        """The numbers of the program's processes, as far as they are on GPUs.

        To find them all processes of the machine are gone through, which takes long where there are many: so that is
        done where somebody new is on a GPU, and now and then, since numbers are used again.
        """
        assert self.pid is not None
        self._looks += 1
        if everyone - self._family - self._others or self._looks % LOOKS == 1:
            self._family = _descendants(self.pid)
            self._others = everyone - self._family
        return self._family


def _descendants(pid: int) -> frozenset[int]:
    """The numbers of a process and of all that it started."""
    import psutil

    try:
        return frozenset({pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))})
    except psutil.Error:
        return frozenset({pid})


def _all_stopped(pids: Collection[int]) -> bool:
    """Whether there are such processes and a signal stopped each of them."""
    return bool(pids) and all(map(_is_stopped, pids))


def _is_stopped(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def use_of(family: frozenset[int], users: tuple[frozenset[int], ...] | None) -> Condition:
    """What a family of processes does with its GPUs, by who is on each.

    Numbers that are no process here come from another space of numbers, as in a container: then nothing is known, and
    whoever started the program on these GPUs is believed.
    """
    if users is None:
        return Condition.WORKING
    everyone = frozenset().union(*users)
    mine = family | {os.getpid()}
    if everyone and not any(_exists(pid) for pid in everyone):
        return Condition.WORKING
    if not everyone & mine:
        return Condition.UNUSED
    shared = any(one & mine and one - mine for one in users)
    return Condition.SHARED if shared else Condition.WORKING


def users_of(gpus: Sequence[Gpu]) -> Users:
    """Who is on these GPUs, asked each time; None where one of them is no NVIDIA GPU or does not tell."""
    uuids = tuple(gpu.spec.uuid for gpu in gpus)

    def ask() -> tuple[frozenset[int], ...] | None:
        from wattune.devices.nvml.open import process_ids

        found = tuple(process_ids(uuid) for uuid in uuids)
        told = tuple(one for one in found if one is not None)
        return told if len(told) == len(found) else None

    return ask


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
