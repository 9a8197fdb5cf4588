"""What a forked child must not do with what its parent holds: a GPU, its lock, its journal, its watchdog.

A child has copies of all of them, and only the parent's are in use. So each holder registers here, and is disarmed in
every child right after the fork.
"""

from __future__ import annotations

import itertools
import os
import weakref
from typing import NoReturn, Protocol

from wattune.core.errors import DeviceError


class Disarmable(Protocol):
    """Something that only the process that made it may use."""

    def disarm(self) -> None:
        """Let go of what belongs to the parent, without a call to the driver and without changing a file."""


_ARMED: weakref.WeakValueDictionary[int, Disarmable] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


def disarm_in_children(holder: Disarmable) -> None:
    """Call `disarm` of a holder in every child that this process forks, as long as the holder exists."""
    _ARMED[next(_NUMBERS)] = holder


def refuse_in_child(label: str, owner: int) -> NoReturn:
    """Raise the error of a GPU that is used in a forked child."""
    raise DeviceError(
        f"{label} was opened by process {owner}, and this is a forked child of it",
        hint="open the GPU in the child itself: with open_gpu(...)",
    )


def _disarm_all() -> None:
    for _, holder in sorted(_ARMED.items(), reverse=True):  # the last one first, as blocks end
        holder.disarm()
    _ARMED.clear()


os.register_at_fork(after_in_child=_disarm_all)
