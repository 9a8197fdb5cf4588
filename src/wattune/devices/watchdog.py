"""The watchdog: a small process beside each process that sets GPUs, which restores them when that one dies.

It waits on a pipe whose other end only the tuning process holds. When that process dies, however it dies, the kernel
closes the pipe, and the watchdog undoes the journal entries under the same locks and by the same rule as
`wattune restore`. It has a session of its own and ignores the signals of terminals and supervisors, so that a kill of
the whole process group does not reach it. It is nobody's child, so that a program that waits for all its children does
not wait for it.

The process imports this file and the few that it needs, and nothing else of the package (`_STUB`): below 10 MB.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable

from wattune.core.errors import ConfigError, DeviceBusy, WattuneError
from wattune.core.run_folder import has_left, places, remove_left
from wattune.devices.claim import Claim, Damaged, Left
from wattune.devices.entry import KNOBS, Entry
from wattune.devices.journal import Journal, boot_id
from wattune.devices.nvml.undo import Refused, undo_entry

Undo = Callable[[Entry, float], tuple[str, ...]]
"""Undoes an entry that was last written at a Unix time; returns a line about each knob that is not ours any more."""

DONE = b"q"
_BY_HAND = "see `nvidia-smi -q -d CLOCK,POWER` and reset that GPU by hand if it is still set"
_ATTEMPTS_S = 5.0
_AGAIN_S = 0.2
_POLL_S = 0.005
_IGNORED = (1, 2, 3, 10, 12, 13, 14, 15, 20, 21, 22)
"""HUP, INT, QUIT, USR1, USR2, PIPE, ALRM, TERM, TSTP, TTIN, TTOU; importing `signal` takes half a megabyte."""


class Restoration:
    """What came of undoing one entry."""

    __slots__ = ("entry", "error", "left", "name", "user")

    def __init__(
        self,
        name: str,
        entry: Entry | None,
        *,
        left: tuple[str, ...] = (),
        error: Exception | None = None,
        user: int | None = None,
    ) -> None:
        self.name = name
        self.entry = entry
        self.left = left
        """Knobs that somebody else has set since, which were left as they are."""
        self.error = error
        self.user = user
        """The other user whose process left it; None for this one."""

    @property
    def device(self) -> str:
        return self.name if self.entry is None else self.entry.device


def restore_left(journal: Journal, undo: Undo) -> tuple[Restoration, ...]:
    """Undo what dead processes left set. Each entry stands for itself; those of living processes are left alone."""
    outcomes: list[Restoration] = []
    for name in journal.names():
        try:
            claim = journal.claim(name, label=name)
            try:
                outcomes += undo_left(claim, undo)
            finally:
                claim.release()
        except DeviceBusy:
            continue
        except WattuneError as error:
            outcomes.append(Restoration(name, journal.entry(name), error=error))
    return tuple(outcomes)


def undo_left(claim: Claim, undo: Undo) -> list[Restoration]:
    """Undo what the earlier owners of a claimed GPU left."""
    outcomes = [] if claim.problem is None else [_without_journal(claim, claim.problem)]
    for left in claim.left():
        outcome = _undone(claim.uuid, left, undo)
        if outcome is not None:
            outcomes.append(outcome)
    return outcomes


def _undone(name: str, left: Left, undo: Undo) -> Restoration | None:
    """Undo an entry and erase it. Of a damaged one what is intact is undone, and the text is kept."""
    entry = None
    try:
        entry = left.read()
        if entry is None:
            return None
        if entry.boot_id != boot_id():
            left.erase()  # the driver forgot its settings at the reboot
            return None
        kept = undo(entry, left.written_s())
    except Damaged as why:
        return _set_aside(name, left, f"{why}; nothing of it was restored")
    except ValueError as why:
        return _set_aside(name, left, f"{why}; that was not restored")
    except (Refused, WattuneError) as error:
        return Restoration(name, entry, error=error, user=left.user)  # the entry stays for the next attempt
    if entry.damage is not None:
        knobs = ", ".join(KNOBS[knob] for knob in entry.ours)
        what = f"restored by what is intact: {knobs}" if knobs else "nothing of it was restored"
        return _set_aside(name, left, f"{entry.damage}; {what}", kept=kept)
    left.erase()
    return Restoration(name, entry, left=kept, user=left.user)


def _set_aside(name: str, left: Left, why: str, *, kept: tuple[str, ...] = ()) -> Restoration:
    """Keep a damaged entry under another name."""
    error = ConfigError(
        f"the journal entry of {name} is damaged: {why}; it is kept as {left.set_aside()}", hint=_BY_HAND
    )
    return Restoration(name, None, left=kept, error=error, user=left.user)


def _without_journal(claim: Claim, problem: str) -> Restoration:
    """Report that the folder of the last owner's journal cannot be used."""
    error = ConfigError(
        f"the last process that tuned {claim.uuid} died, and its journal cannot be read: {problem}",
        hint=f"{_BY_HAND}; then remove the lock wattune-{claim.uuid}.lock",
    )
    return Restoration(claim.uuid, None, error=error)


class Watchdog:
    """The watchdog of this process, as its owner sees it."""

    def __init__(self, journal: Journal, library: Callable[[], str]) -> None:
        """`library` returns the path of the NVML library that this process uses."""
        self._journal = journal
        self._library = library
        self._pipe = -1

    def start(self) -> str | None:
        """Start the process unless it runs; return why it cannot be started."""
        if self._runs():
            return None
        self.forget()
        waiting, pipe = os.pipe()
        try:
            failure = self._launch(waiting)
        except OSError as error:
            failure = error.strerror or str(error)
        finally:
            os.close(waiting)
        if failure is None:
            self._pipe = pipe
        else:
            os.close(pipe)
        return failure

    def _runs(self) -> bool:
        """Return whether somebody still reads the pipe."""
        import select

        if self._pipe < 0:
            return False
        poll = select.poll()
        poll.register(self._pipe, 0)  # errors are always reported
        return not poll.poll(0)

    def _launch(self, waiting: int) -> str | None:
        import subprocess

        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        folders = (os.path.abspath(self._journal.folder), os.path.abspath(self._journal.lock_folder))
        arguments = (*folders, self._library(), str(os.getpid()), *places())
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _STUB, package, *arguments],
            stdin=waiting,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            check=False,
        )
        return f"it ended with code {done.returncode}" if done.returncode else None

    def stop(self) -> None:
        """End the process; if an entry is left, it makes a last attempt first."""
        if self._pipe >= 0:
            try:
                if not any(entry is not None and entry.pid == os.getpid() for entry in self._entries()):
                    os.write(self._pipe, DONE)
            except OSError:
                pass  # the watchdog was killed
        self.forget()

    def forget(self) -> None:
        """Close our end of the pipe: in a forked child, whose parent goes on."""
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe = -1

    def _entries(self) -> list[Entry | None]:
        try:
            return [self._journal.entry(name) for name in self._journal.left()]
        except WattuneError:
            return []


_STUB = """
import sys
package = type(sys)("wattune")
package.__path__ = [sys.argv[1]]
sys.modules["wattune"] = package
from wattune.devices.watchdog import main
main(*sys.argv[2:])
"""


def main(folder: str, lock_folder: str, library: str, owner: str, *run_folders: str) -> None:
    """Wait for the death of the owner, restore and remove what it left, and end."""
    import _signal  # type: ignore[import-not-found]

    for number in _IGNORED:
        _signal.signal(number, _signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    try:
        if not os.read(0, 1):
            try:
                _restore_after(int(owner), Journal(folder, lock_folder), library)
            finally:
                _remove_after(int(owner), run_folders)
    finally:
        os._exit(0)


def _restore_after(owner: int, journal: Journal, path: str) -> None:
    """Restore until no entry of the owner is left, or it does not work out."""
    library, end_s = ctypes.CDLL(path), time.monotonic() + _ATTEMPTS_S
    while library.nvmlInit_v2():
        if time.monotonic() >= end_s:
            return
        time.sleep(_AGAIN_S)

    def undo(entry: Entry, since_s: float) -> tuple[str, ...]:
        return undo_entry(library, entry, since_s=since_s)

    while True:
        outcomes = restore_left(journal, undo)
        mine = [entry for entry in map(journal.entry, journal.left()) if entry is not None and entry.pid == owner]
        if not mine or time.monotonic() >= end_s:
            break
        # Without an outcome, the kernel has not closed the files of the owner yet, or a restorer is at work.
        time.sleep(_AGAIN_S if any(outcome.entry for outcome in outcomes) else _POLL_S)
    library.nvmlShutdown()


def _remove_after(owner: int, run_folders: tuple[str, ...]) -> None:
    """Remove the folder of the owner's run, once the kernel has closed its files."""
    end_s = time.monotonic() + _ATTEMPTS_S
    while has_left(run_folders, owner):
        remove_left(run_folders)
        if time.monotonic() >= end_s:
            break
        time.sleep(_POLL_S)
