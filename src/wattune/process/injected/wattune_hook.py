"""Count the steps of a Python program from inside, for `wattune run`.

`sitecustomize.py` beside it loads it at the start of every Python. It imports nothing of wattune and nothing but the
standard library, works with Python 3.7 and newer, starts no thread and prints nothing. What fails here is written to
the shared file and never reaches the program.

Optimizer steps of PyTorch come from its own global hook, once the program has imported torch. Where there is no
optimizer, the items of tqdm bars count. Of several optimizers one counts: the first that stepped, until another has
stepped `TAKES_OVER` times without it. Of nested bars the innermost counts.

What the program prints through sys.stdout and sys.stderr is copied, after it was written: wattune searches it for steps
that are only printed. Nothing stands between the program and its terminal, pipe or file. Once this process counts
steps it copies no more, unless the first byte of the file asks for all text.

Under `wattune simulate --follow` each step that counts also waits until the simulated GPU has done an iteration.

The file has a head, slots of 64 bytes and rings of text. A slot has process, source, count, time of the last count in
ns of the monotonic clock, and how often the counted optimizer or bar was replaced by another. A ring begins with such a
slot too: its source is the stream, its count the bytes that were ever written to the ring. They are records of a time
in ns (8 bytes), a length (4 bytes) and so many bytes of UTF-8.

The file is written by calls and not through a map: a process that touches the map of a file that was cut short is
killed. A program may outlive wattune and keep the variable, so only the file whose inode the variable names is written,
and only by its owner.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False  # `typing` would make every start of Python slower
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

HEAD, SLOT, SLOTS = 256, 64, 1000
"""More slots than the GPUs of any machine."""
RINGS_START = HEAD + SLOTS * SLOT
RING, RINGS = 1 << 16, 64
TEXT = RING - SLOT
FILE_SIZE = RINGS_START + RINGS * RING
MOST_TEXT = 4096
"""Characters of one write that are copied, from its end."""
RECORD_HEAD = 12
LONGEST_RECORD = RECORD_HEAD + 4 * MOST_TEXT
ALL_TEXT = 0
"""The place of the byte that asks for all text, set before the program starts."""
BUSY_S = 0.002
"""Longest wait of a thread for another that prints; then its text is not copied."""
PROCESS, SOURCE, COUNT, TIME_NS, REPLACED = range(5)
OPTIMIZER, BAR = 1, 2
TAKES_OVER = 64
LOCK_TRIES = 200
WRITE_NS = 10_000_000
"""Steps that follow sooner than this on the last that was written are written with the next one, or at the end."""
AT_ONCE = 1000
"""So many steps of a process are all written at once: one that ends by os._exit or a signal writes no more."""
VARIABLE = "WATTUNE_STEP_FILE"
"""Its value is PATH:DEVICE:INODE."""
FOLLOW, NODE = "WATTUNE_FOLLOW", "WATTUNE_NODE"
NOT_FOLLOWING = "none"
"""The value of FOLLOW where programs do not follow the simulated GPU that they run beside."""
NEVER_NS, SLICE_NS = (1 << 63) - 1, 20_000_000


class SharedFile:
    """The file that wattune reads, written in place."""

    def __init__(self, path: str, device: int, inode: int, descriptor: int = -1) -> None:
        self.path, self.device, self.inode, self.descriptor = path, device, inode, descriptor

    @classmethod
    def named(cls, value: str) -> SharedFile:
        """Return the file that a value of the variable names."""
        path, device, inode = value.rsplit(":", 2)
        return cls(path, int(device), int(inode))

    def is_open(self) -> bool:
        """Return whether it is open still: a program may close all descriptors, and open its own at their numbers."""
        try:
            found = os.fstat(self.descriptor)
        except (OSError, OverflowError):  # OverflowError: -1, in some versions
            return False
        return found.st_ino == self.inode and found.st_dev == self.device

    def open(self) -> None:
        """Open it unless it is open; OSError where the name leads to another file, or to that of another user."""
        if self.is_open():
            return
        # Without O_NONBLOCK a pipe that somebody has put there would block the program.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self.descriptor = os.open(self.path, flags)
        found = os.fstat(self.descriptor)
        if not (
            self.is_open() and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
        ):
            os.close(self.descriptor)
            self.descriptor = -1
            raise OSError("the file of steps was replaced")

    def close(self) -> None:
        if self.is_open():
            os.close(self.descriptor)
        self.descriptor = -1

    def read(self, start: int, size: int) -> bytes:
        """Read a piece of it; the file is open."""
        data = os.pread(self.descriptor, size, start)
        if len(data) < size:
            raise OSError("the file of steps was cut short")
        return data

    def write(self, data: Any, start: int) -> None:
        self.open()
        os.pwrite(self.descriptor, data, start)


class Slot:
    """Numbers of this process, kept here and written to their place in the file."""

    def __init__(self, file: SharedFile, start: int, numbers: memoryview) -> None:
        self.file, self.start, self.numbers, self.due_ns = file, start, numbers, 0

    def count(self, more: int, now_ns: int) -> None:
        numbers = self.numbers
        numbers[COUNT] += more
        numbers[TIME_NS] = now_ns
        if now_ns >= self.due_ns or numbers[COUNT] <= AT_ONCE:
            self.due_ns = now_ns + WRITE_NS
            self.write()

    def write(self) -> None:
        self.file.write(self.numbers, self.start)


class Steps:
    """The counts of this process, and the slot that they go to."""

    def __init__(self, file: SharedFile | None, follower: Follower | None = None) -> None:
        """Without a file nothing is counted."""
        from time import monotonic_ns

        self.file, self.now_ns, self.follower = file, monotonic_ns, follower
        self.rings: list[OutputRing] = []
        self.forget()

    def forked(self) -> None:
        """Begin again in a child, with slots of its own; what its parent locks would be locked for it as well."""
        if self.file is not None:
            self.file.close()
        self.forget()

    def forget(self) -> None:
        self.slots: dict[int, Slot] = {}
        self.failed = False
        self.optimizer: int | None = None
        self.other: int | None = None
        self.others = 0
        self.bars, self.innermost, self.shallow = 0, 1, 0
        self.iterated: set[int] = set()
        for ring in self.rings:
            ring.forget()
        if self.follower is not None:
            self.follower.handle = None

    def count(self, source: int, more: int = 1) -> None:
        slot = self.slots.get(source)
        if slot is None:
            if self.failed or self.file is None or _loads_data():
                return
            slot = self.slots[source] = self.claimed(self.file, source, range(HEAD, RINGS_START, SLOT))
        slot.count(more, self.now_ns())

    def claimed(self, file: SharedFile, source: int, starts: range) -> Slot:
        """Take a free slot or ring, or that of a process that has ended."""
        import fcntl

        file.open()
        self.lock(file)
        try:
            for start in starts:
                numbers = memoryview(bytearray(file.read(start, SLOT))).cast("Q")
                again = numbers[PROCESS] == os.getpid() and numbers[SOURCE] == source  # of the program before an exec
                if again or not numbers[PROCESS] or not os.path.exists(f"/proc/{numbers[PROCESS]}"):
                    numbers[REPLACED] = numbers[REPLACED] + 1 if again else 0
                    numbers[COUNT] = numbers[TIME_NS] = 0
                    numbers[SOURCE], numbers[PROCESS] = source, os.getpid()
                    slot = Slot(file, start, numbers)
                    slot.write()
                    return slot
        finally:
            fcntl.flock(file.descriptor, fcntl.LOCK_UN)
        raise OSError("too many processes count steps")

    def end(self) -> None:
        """Write the last steps of this process."""
        try:
            for slot in self.slots.values():
                slot.write()
        except Exception:
            pass  # the program ends, whatever has become of the file

    def lock(self, file: SharedFile) -> None:
        """Lock the file; give up soon, since another process may have been stopped meanwhile."""
        import fcntl
        import time

        for _ in range(LOCK_TRIES):
            try:
                return fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.001)
        raise OSError("the file of steps is locked")

    def fail(self, error: Exception) -> None:
        """Stop counting, and leave the reason in the head of the file."""
        self.failed, self.slots = True, {}
        self.note(error)

    def note(self, error: Exception) -> None:
        if self.file is None:
            return
        try:
            text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[: HEAD - 9]
            self.file.write(text.ljust(HEAD - 8, b"\0"), 8)
        except Exception:
            pass

    def optimizer_stepped(self, optimizer: object) -> None:
        if self.failed:
            return
        try:
            key = id(optimizer)
            if key != self.optimizer and not self.replaces(key):
                return
            self.others = 0
            if self.follower is not None:
                self.follower.wait()
            self.count(OPTIMIZER)
        except Exception as error:
            self.fail(error)

    def replaces(self, key: int) -> bool:
        """Return whether another optimizer counts from now on."""
        if self.optimizer is None:
            self.optimizer = key
            return True
        if not self.others:
            self.other = key
        if key != self.other:
            return False
        self.others += 1
        if self.others < TAKES_OVER:
            return False
        self.optimizer = key
        if OPTIMIZER in self.slots:
            self.slots[OPTIMIZER].numbers[REPLACED] += 1
        return True

    def bar_moved(self, depth: int, more: int = 1) -> None:
        if self.failed:
            return
        try:
            if depth < self.innermost:
                self.shallow += 1
                if self.shallow < TAKES_OVER:
                    return
                if BAR in self.slots:
                    self.slots[BAR].numbers[REPLACED] += 1
            self.innermost, self.shallow = depth, 0
            self.count(BAR, more)
        except Exception as error:
            self.fail(error)


class OutputRing:
    """The last text of one stream, in the file."""

    def __init__(self, steps: Steps, number: int) -> None:
        self.steps, self.number = steps, number
        self.forget()
        steps.rings.append(self)

    def forget(self) -> None:
        from _thread import allocate_lock, get_ident

        self.lock, self.thread = allocate_lock(), get_ident
        self.owner: int | None = None
        """The thread that has the lock: a signal handler must not wait for what it interrupts."""
        self.slot: Slot | None = None
        self.wants_all = True
        self.written, self.failed = 0, False

    def copy(self, data: bytes) -> None:
        """Add a record; none where another thread is adding one for long, or a signal interrupts one."""
        lock, thread = self.lock, self.thread()
        if not lock.acquire(False) and (self.owner == thread or not lock.acquire(timeout=BUSY_S)):
            return
        self.owner = thread
        try:
            slot = self.slot or self.claimed()
            if slot is None:
                return
            now_ns = self.steps.now_ns()
            # Both numbers in one: this runs at every write of the program.
            record = (now_ns | len(data) << 64).to_bytes(RECORD_HEAD, "little") + data
            start, more = self.written % TEXT, len(record)
            file = slot.file
            file.open()
            os.pwrite(file.descriptor, record[: TEXT - start], slot.start + SLOT + start)
            if start + more > TEXT:
                os.pwrite(file.descriptor, record[TEXT - start :], slot.start + SLOT)
            self.written += more
            slot.numbers[TIME_NS] = now_ns
            slot.numbers[COUNT] = self.written
            os.pwrite(file.descriptor, slot.numbers, slot.start)
        finally:
            self.owner = None
            lock.release()

    def claimed(self) -> Slot | None:
        """Take a ring; read whether all text is wanted."""
        file = self.steps.file
        if file is not None:
            self.slot = self.steps.claimed(file, self.number, range(RINGS_START, FILE_SIZE, RING))
            self.wants_all = file.read(ALL_TEXT, 1) != b"\0"
        return self.slot


class Tap:
    """Copies what is written to a text stream into a ring, after it was written."""

    def __init__(self, steps: Steps, stream: Any, number: int) -> None:
        self.ring, self.pass_on = OutputRing(steps, number), stream.write
        stream.write = self.write

    def write(self, text: str) -> int:
        written: int = self.pass_on(text)
        ring = self.ring
        # Once steps are counted, text is searched only where all of it is asked for.
        if not ring.failed and (ring.wants_all or not ring.steps.slots):
            try:
                ring.copy(text[-MOST_TEXT:].encode("utf-8", "replace"))
            except Exception as error:
                ring.failed = True
                ring.steps.note(error)
        return written


class Follower:
    """Waits for the iterations of a simulated GPU, one after each step of the program.

    A step takes as long as an iteration does at the clock that holds, or as its own work where that takes longer.
    """

    def __init__(self, library: str, node: str) -> None:
        self.library, self.node = library, node
        self.handle: Any = None
        self.done = 0.0

    def open(self) -> None:
        import ctypes
        import time

        self.c, self.sleep = ctypes.CDLL(self.library), time.sleep
        self.c.wattuneNodeOpen.restype, self.c.wattuneNodeOpen.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        self.c.wattuneNodeDevices.argtypes = self.c.wattuneNodeIsVirtual.argtypes = [ctypes.c_void_p]
        self.c.wattuneIterations.restype = ctypes.c_double
        self.c.wattuneIterations.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.c.wattuneUntilNs.restype = ctypes.c_int64
        self.c.wattuneUntilNs.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_double]
        self.c.wattuneAdvance.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self.handle = self.c.wattuneNodeOpen(os.fsencode(self.node))
        if not self.handle:
            raise OSError("there is no node of simulated GPUs")
        self.device = int(os.environ.get("LOCAL_RANK", "0")) % self.c.wattuneNodeDevices(self.handle)
        self.virtual = bool(self.c.wattuneNodeIsVirtual(self.handle))
        self.done = self.c.wattuneIterations(self.handle, self.device)

    def wait(self) -> None:
        if self.handle is None:
            self.open()
        self.done = max(self.done + 1, self.c.wattuneIterations(self.handle, self.device))
        while True:
            left_ns = self.c.wattuneUntilNs(self.handle, self.device, self.done)
            if left_ns <= 0 or left_ns >= NEVER_NS:
                return
            if self.virtual:
                self.c.wattuneAdvance(self.handle, left_ns)
            else:
                # In slices, because another process may change the clock meanwhile.
                self.sleep(min(left_ns, SLICE_NS) / 1e9)


def _loads_data() -> bool:
    """Return whether this process is a worker of a DataLoader, whose steps are none of the training."""
    return getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None) is not None


def _hook_torch(steps: Steps, module: ModuleType) -> None:
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        raise ImportError("this version of torch has no hook for optimizer steps")

    def stepped(optimizer: object, *_: object) -> None:
        steps.optimizer_stepped(optimizer)

    stepped.__dict__["_torchdynamo_disable"] = True  # a compiled step calls it as it is
    register(stepped)


def _hook_tqdm(steps: Steps, module: ModuleType) -> None:
    bar = module.tqdm
    iterate, update = bar.__iter__, bar.update

    def iterate_(self: Any) -> Iterator[Any]:
        steps.bars += 1
        depth = steps.bars
        steps.iterated.add(id(self))
        try:
            for item in iterate(self):
                yield item
                steps.bar_moved(depth)
        finally:
            steps.bars = max(steps.bars - 1, 0)
            steps.iterated.discard(id(self))

    def update_(self: Any, n: Any = 1) -> Any:
        # Bars that are iterated call this themselves; bars of bytes are downloads.
        if n and n > 0 and id(self) not in steps.iterated and getattr(self, "unit", "it") != "B":
            steps.bar_moved(steps.bars + 1, int(n) or 1)
        return update(self, n)

    iterate_.__doc__, update_.__doc__ = iterate.__doc__, update.__doc__
    bar.__iter__, bar.update = iterate_, update_


HOOKS: dict[str, Callable[[Steps, ModuleType], None]] = {"torch.optim.optimizer": _hook_torch, "tqdm.std": _hook_tqdm}


class _Finder:
    """Hooks modules when the program imports them; it imports none by itself."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.left = steps, dict(HOOKS)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.left:
            return None
        hook = self.left.pop(name)
        try:
            spec = self.others_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                self.follow(name, spec.loader, hook)
            return spec
        except Exception as error:
            self.steps.fail(error)
            return None

    def others_spec(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    return spec
        return None

    def follow(self, name: str, loader: Any, hook: Callable[[Steps, ModuleType], None]) -> None:
        """Call the hook once the loader has run the module; the loader itself stays what it is."""
        if isinstance(loader, type):
            return  # one for all modules of its kind, such as frozen ones
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            run(module)
            try:
                if module.__name__ == name:
                    hook(self.steps, module)
            except Exception as error:
                self.steps.fail(error)

        loader.exec_module = exec_module


def start() -> None:
    """Hook what this process imports, and copy what it prints."""
    value, library, node = (os.environ.get(name) for name in (VARIABLE, FOLLOW, NODE))
    file = _found(value) if value else None
    follower = Follower(library, node) if library and library != NOT_FOLLOWING and node else None
    if file is None and follower is None:
        return
    steps = Steps(file, follower)
    try:
        _attach(steps)
    except Exception as error:
        steps.fail(error)


def _found(value: str) -> SharedFile | None:
    """Return the file of a value; None where `wattune run` has ended, or where it is not for this process."""
    try:
        file = SharedFile.named(value)
        file.open()
        file.close()  # most processes neither count nor print
    except (OSError, ValueError):
        return None
    return file


def _attach(steps: Steps) -> None:
    sys.meta_path.insert(0, _Finder(steps))
    if steps.file is not None:
        import atexit

        atexit.register(steps.end)
        for number, stream in ((1, sys.stdout), (2, sys.stderr)):
            if type(stream).__name__ == "TextIOWrapper":
                Tap(steps, stream, number)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=steps.forked)
