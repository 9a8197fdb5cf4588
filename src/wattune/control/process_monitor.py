"""The condition of a program on its GPUs, from outside: whether it uses them, is alone on them, and follows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from wattune.control.state import Condition
from wattune.devices.gpu import Gpu, PlaysWorkloads, RunsWorkloads
from wattune.process.held import HeldProcess, all_stopped, descendants
from wattune.process.step_file import is_unfollowed


class MonitoredProgram(Protocol):
    """A program that is tuned."""

    def condition(self) -> Condition:
        """Return what the program is doing."""

    def used(self) -> frozenset[int] | None:
        """Return the indices of the GPUs that it uses; None where unknown."""

    def keep(self, gpus: Sequence[Gpu]) -> None:
        """Judge it by these GPUs alone from now on; indices count in these."""


@dataclass(frozen=True, slots=True)
class Itself:
    """The current process, which uses all of its GPUs."""

    def condition(self) -> Condition:
        return Condition.WORKING

    def used(self) -> frozenset[int] | None:
        return None

    def keep(self, gpus: Sequence[Gpu]) -> None:
        pass


Numbering = Literal["here", "unknown"]
"""Whether a driver numbers processes as this process sees them. In a container that is unknown: drivers report the
numbers of the host."""

INITIAL_NAMESPACE = "pid:[4026531836]"
"""The namespace of processes that a machine starts with (PROC_PID_INIT_INO in linux/proc_ns.h)."""

CONTAINER_NOTE = (
    "this is a container, in which drivers report processes by the numbers of the host: the program counts as the only "
    "user of its GPUs unless the driver lists it by its number here"
)


def numbering_of(gpus: Sequence[Gpu], *, namespace: Path = Path("/proc/self/ns/pid")) -> Numbering:
    """Return how the driver of these GPUs numbers processes; emulated drivers do it as this process sees them."""
    try:
        is_initial = os.readlink(namespace) == INITIAL_NAMESPACE
    except OSError:
        return "here"
    return "here" if is_initial or all(gpu.spec.simulated for gpu in gpus) else "unknown"


SEARCH_EVERY = 30
"""Checks of a program after which its processes are searched again in any case."""

Users = Callable[[], tuple[frozenset[int], ...] | None]
"""The processes on each GPU; None where unknown."""


class ProcessWatch:
    """A program by its process ID, with all processes that it started."""

    def __init__(
        self,
        users: Users,
        *,
        simulated: bool = False,
        pid: int | None = None,
        process: HeldProcess | None = None,
        numbered: Numbering = "here",
    ) -> None:
        """`simulated` GPUs run in this process, so that the program does not appear on them.

        A program that this process did not start is given as `process`: its id alone could become that of another.
        """
        self._users, self._simulated, self._process, self._numbered = users, simulated, process, numbered
        self.pid = pid if process is None else process.pid
        """None until the program has started."""
        self._family: frozenset[int] = frozenset()
        self._others: frozenset[int] = frozenset()
        self._checks = 0

    def condition(self) -> Condition:
        if self.pid is None or (self._process is not None and not self._process.runs):
            return Condition.UNUSED
        users = None if self._simulated else self._users()
        everyone = frozenset[int]().union(*users or ())
        family = self._family_among(everyone)
        if all_stopped({self.pid}) or all_stopped(everyone & family):
            return Condition.STOPPED
        return Condition.WORKING if self._simulated else use_of(family, users, numbered=self._numbered)

    def used(self) -> frozenset[int] | None:
        users = None if self._simulated or self.pid is None else self._users()
        if users is None:
            return None
        family = self._family_among(frozenset().union(*users)) | {os.getpid()}
        return frozenset(place for place, one in enumerate(users) if one & family) or None

    def keep(self, gpus: Sequence[Gpu]) -> None:
        self._users = users_of(gpus)

    def _family_among(self, everyone: frozenset[int]) -> frozenset[int]:
        """Return the IDs of the program's processes, as far as they are on GPUs.

        The search goes through all processes of the machine, which is slow where there are many. So it runs only when a
        new process is on a GPU, and regularly, since IDs are reused.
        """
        assert self.pid is not None
        self._checks += 1
        if everyone - self._family - self._others or self._checks % SEARCH_EVERY == 1:
            self._family = descendants(self.pid)
            self._others = everyone - self._family
        return self._family


def use_of(
    family: frozenset[int], users: tuple[frozenset[int], ...] | None, *, numbered: Numbering = "here"
) -> Condition:
    """Return how a family of processes uses its GPUs, given the processes on each.

    Where the numbering is unknown and the driver lists none of the family, its use is unknown, and the program is taken
    to work on its GPUs. The same holds if no number belongs to a process here.
    """
    if users is None:
        return Condition.WORKING
    everyone = frozenset().union(*users)
    mine = family | {os.getpid()}
    if everyone and not any(os.path.exists(f"/proc/{pid}") for pid in everyone):
        return Condition.WORKING
    if not everyone & mine:
        return Condition.WORKING if everyone and numbered == "unknown" else Condition.UNUSED
    shared = any(one & mine and one - mine for one in users)
    return Condition.SHARED if shared else Condition.WORKING


def users_of(gpus: Sequence[Gpu]) -> Users:
    """Return a function that lists the processes on these GPUs; None where one of them cannot list them."""
    uuids = tuple(gpu.spec.uuid for gpu in gpus)

    def ask() -> tuple[frozenset[int], ...] | None:
        from wattune.devices.nvml.open import process_ids

        found = tuple(process_ids(uuid) for uuid in uuids)
        known = tuple(one for one in found if one is not None)
        return known if len(known) == len(found) else None

    return ask


def is_beside_unfollowed(gpus: Sequence[Gpu]) -> bool:
    """Return whether this program does not follow its GPUs, which a library simulates for it."""
    served = any(gpu.spec.simulated and not isinstance(gpu, PlaysWorkloads | RunsWorkloads) for gpu in gpus)
    return served and is_unfollowed(os.environ)
