"""The journal entry of a GPU: what was found on it, and what this program set since.

An entry is a short text, so that the watchdog can read it without a JSON parser:

    wattune-journal 2
    uuid GPU-7eed76e4-c678-5189-87c9-7386ef62d977
    device nvml:GPU-7eed76e4-c678-5189-87c9-7386ef62d977
    pid 4711
    boot 0f8fad5b-d9cb-469f-a165-70867728950e
    found power_limit 300000
    ours power_limit 200000 150000
    ours sm_clock 1005
    end

Limits are in milliwatts and clocks in megahertz, as NVML has them. A knob has more than one value of ours where the
process may have died between the two. Blanks fill the text up to a fixed size: a new value is written over the old one,
which needs no further room on the disk.

The watchdog imports this file. So it imports little, and not `typing` or `dataclasses`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FORM = "wattune-journal 2"
SIZE = 1024
MOST_VALUES = 8
"""Values of one knob that may hold after settings that failed half way; older ones are forgotten."""

_MOST = 100_000_000

KNOBS = {
    "power_limit": "power limit",
    "sm_clock": "core clock",
    "mem_clock": "memory clock",
    "app_sm_clock": "applications core clock",
    "app_mem_clock": "applications memory clock",
}
"""The knobs of an entry and their names for people. `app_…` are the clocks of GPUs that cannot lock them."""


class Entry:
    """What was found on a GPU, and the values that a process has set or was about to set."""

    __slots__ = ("boot_id", "device", "found", "ours", "pid", "uuid")

    def __init__(
        self,
        uuid: str,
        device: str,
        *,
        pid: int,
        boot_id: str,
        found: Mapping[str, int],
        ours: Mapping[str, Sequence[int]],
    ) -> None:
        self.uuid = uuid
        self.device = device
        self.pid = pid
        self.boot_id = boot_id
        self.found = dict(found)
        self.ours = {knob: tuple(values) for knob, values in ours.items()}


def text_of(entry: Entry) -> bytes:
    """Return the text of an entry, of fixed size."""
    lines = [FORM, f"uuid {entry.uuid}", f"device {entry.device}", f"pid {entry.pid}", f"boot {entry.boot_id or '-'}"]
    lines += [f"found {knob} {value}" for knob, value in sorted(entry.found.items())]
    lines += [f"ours {knob} {' '.join(map(str, values))}" for knob, values in sorted(entry.ours.items())]
    text = ("\n".join([*lines, "end"]) + "\n").encode("ascii")
    if len(text) > SIZE:
        raise ValueError(f"an entry of {len(text)} bytes is too long")
    return text.ljust(SIZE)


def parse(text: bytes) -> Entry:
    """Return the entry of a text; ValueError with what is wrong with it."""
    if len(text) != SIZE:
        raise ValueError(f"it has {len(text)} bytes in place of {SIZE}")
    lines = text.decode("ascii").rstrip(" ").split("\n")
    if lines[0] != FORM or lines[-2:] != ["end", ""] or len(lines) < 7:
        raise ValueError("it is not a whole entry")
    heads = [_value(line, name) for line, name in zip(lines[1:5], ("uuid", "device", "pid", "boot"), strict=True)]
    found: dict[str, int] = {}
    ours: dict[str, tuple[int, ...]] = {}
    for line in lines[5:-2]:
        kind, knob, *values = line.split(" ")
        numbers = tuple(_number(value) for value in values)
        if knob not in KNOBS or not 1 <= len(numbers) <= MOST_VALUES:
            raise ValueError(f"there is no line {line[:40]!r}")
        if kind == "found" and knob not in found and len(numbers) == 1:
            found[knob] = numbers[0]
        elif kind == "ours" and knob not in ours:
            ours[knob] = numbers
        else:
            raise ValueError(f"there is no line {line[:40]!r}")
    boot_id = "" if heads[3] == "-" else heads[3]
    return Entry(heads[0], heads[1], pid=_number(heads[2]), boot_id=boot_id, found=found, ours=ours)


def _value(line: str, name: str) -> str:
    head, _, value = line.partition(" ")
    if head != name or not 0 < len(value) <= 200 or not value.isprintable():
        raise ValueError(f"it has no {name}")
    return value


def _number(text: str) -> int:
    if not (text.isdigit() and len(text) <= 9 and 0 < int(text) < _MOST):
        raise ValueError(f"{text[:20]!r} is not a number in range")
    return int(text)


def file_name(uuid: str) -> str:
    """Return the name of a GPU's files, without their endings."""
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == "-") else "_" for sign in uuid)[:120]


UNDO, DONE, FOREIGN = "undo", "done", "foreign"


def judge(ours: Sequence[int], found: int | None, now: int | None) -> str:
    """Decide about a knob that can be read: undo it, it is as found already, or somebody else has set it since."""
    if now is None:
        return UNDO
    if now == found:
        return DONE
    return UNDO if now in ours else FOREIGN


def judge_lock(ours: Sequence[int], now_mhz: int | None) -> str:
    """Decide about a lock, which cannot be read, from the clock: above our lock, our lock does not hold any more.

    A lower clock has many reasons (idle, power limit, heat), so that it is undone.
    """
    return FOREIGN if now_mhz is not None and now_mhz > max(ours) else UNDO
