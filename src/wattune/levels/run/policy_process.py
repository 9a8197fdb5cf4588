"""A user's policy in a process of its own: whatever its code does, the program and its exit code are unaffected.

`HostedPolicy` is the policy as a session sees it. Its process loads the module, makes the policy and answers one
request after the other: windows and the spec of the GPU go there pickled, an order comes back as JSON, so that no code
of the user runs here. A process that ends (`os._exit`, a crash) or takes too long ends the tuning with an error. It
has a session of its own, since Ctrl-C is meant for the program, and ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from wattune.core.codec import JsonReader
from wattune.core.errors import InputError, PlanError, WattuneError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.objective import Objective
from wattune.core.window import Order, Window
from wattune.levels.run.own_policy import FLAGS, GUIDE, OwnPolicy, error_words, load_policy

LOAD_S = 60.0
"""The longest time for importing a policy, with all the libraries that it uses, and making it; and for its first order,
for which it may learn."""
DECIDE_S = 10.0
"""The longest time for any other order. The GPU is not read meanwhile, so that policies should be much faster."""
_END_S = 1.0
_MOST_BYTES = 1 << 20
"""The longest answer; an order has a few hundred bytes."""
_STUB = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from wattune.levels.run.policy_process import serve; serve(int(sys.argv[1]))"
)


class HostedPolicy:
    """A `RunPolicy` whose code runs in another process."""

    def __init__(self, name: str, objective: Objective) -> None:
        """Start the process and make the policy; InputError where that is impossible."""
        self.name = name
        self._asking = False
        try:
            self._process, self._connection = _started()
        except OSError as error:
            raise InputError(
                f"the policy {name} cannot be loaded: no process can be started for it ({error.strerror})",
                hint="free memory or processes",
            ) from None
        self._end = weakref.finalize(self, _end, self._process, self._connection, os.getpid())
        try:
            flags = self._ask((name, objective), limit_s=LOAD_S)
        except PlanError as error:
            raise InputError(f"{error.message} while it was loaded", hint=error.hint) from None
        self.tunes, self.uses_history, self.needs_counters = (bool(flags[flag]) for flag in FLAGS)

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        answer = self._ask((windows, spec), limit_s=DECIDE_S if windows else LOAD_S)
        try:
            return JsonReader(unknown_fields="skip", missing_fields="default").read(Order, answer)
        except InputError as error:
            raise PlanError(f"{self.name} returned an order that cannot be read: {error.message}", hint=GUIDE) from None

    def close(self) -> None:
        """End the process, unless a thread still waits for an order, which would take that for a failure."""
        if not self._asking:
            self._end()

    def _ask(self, request: tuple[object, object], *, limit_s: float) -> Mapping[str, Any]:
        """Send a request and return the answer; PlanError where none comes, and what the policy raised."""
        self._asking = True
        try:
            self._connection.send(request)
            if not self._connection.poll(limit_s):
                raise BlockingIOError
            answer: dict[str, Any] = json.loads(self._connection.recv_bytes(_MOST_BYTES))
        except BlockingIOError:
            self._end()
            raise PlanError(f"the policy {self.name} did not answer within {limit_s:g} s", hint=GUIDE) from None
        except (EOFError, OSError, ValueError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
            self._end()
            how = _exit_words(self._process.returncode)
            raise PlanError(f"the process of the policy {self.name} ended{how}", hint=GUIDE) from None
        finally:
            self._asking = False
        if "error" in answer:
            kind = InputError if answer["is_input"] else PlanError
            raise kind(answer["error"], hint=answer["hint"])
        return answer


def _started() -> tuple[subprocess.Popen[bytes], Connection]:
    """Start the process, and return it with the connection to it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # for a process that is stopped half-way
            ours.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", int(DECIDE_S), 0))
        output = 2 if _is_open(2) else subprocess.DEVNULL  # what a policy prints is not the program's output
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", _STUB, str(theirs.fileno()), json.dumps(sys.path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        return process, Connection(ours.detach())


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes], connection: Connection, owner: int) -> None:
    """End the process, unless this is a forked child of the one that started it."""
    if os.getpid() != owner:
        return
    connection.close()
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)


def _exit_words(code: int | None) -> str:
    return "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"


def serve(descriptor: int) -> None:
    """Answer the requests that come over a connection until it is closed: first for the policy, then for orders."""
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    requests: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    Thread(target=_receive, args=(connection, requests), daemon=True).start()
    made: list[OwnPolicy] = []

    def make() -> dict[str, Any]:
        made.append(load_policy(*requests.get()))
        return {flag: getattr(made[0], flag) for flag in FLAGS}

    with suppress(OSError):  # the owner is gone
        connection.send_bytes(_answer(make))
        while made:
            connection.send_bytes(_answer(lambda: asdict(made[0].step(*requests.get()))))


def _receive(connection: Connection, requests: queue.SimpleQueue[tuple[Any, Any]]) -> None:
    """Pass the requests on; end the process with its owner, even while the policy computes."""
    try:
        while True:
            requests.put(connection.recv())
    finally:
        os._exit(1)


def _answer(act: Callable[[], dict[str, Any]]) -> bytes:
    try:
        return json.dumps(act(), allow_nan=False, default=_number).encode()
    except BaseException as error:  # a policy may call sys.exit
        hint = error.hint if isinstance(error, WattuneError) else None
        words = error.message if isinstance(error, WattuneError) else f"the policy raised {error_words(error)}"
        return json.dumps({"error": words, "hint": hint, "is_input": isinstance(error, InputError)}).encode()


def _number(value: Any) -> Any:
    """Convert a number of NumPy to a plain one."""
    if not hasattr(value, "item"):
        raise TypeError(f"a {type(value).__name__} is in the place of a number")
    return value.item()
