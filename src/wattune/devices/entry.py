"""The journal entry of a GPU: what was found on it, and what this program set since.

An entry is a short text, so that the watchdog can read it without a JSON parser:

    wattune-journal 3
    uuid GPU-7eed76e4-c678-5189-87c9-7386ef62d977 0b6d3c8e
    device nvml:GPU-7eed76e4-c678-5189-87c9-7386ef62d977 91d3f0aa
    pid 4711 5f0e6f5d
    boot 0f8fad5b-d9cb-469f-a165-70867728950e 2b1d9c07
    found power_limit 300000 c4a1be53
    ours power_limit 200000 150000 7712ab90
    ours sm_clock 1005 e30f5d16
    end 4d8e02b1

Limits are in milliwatts and clocks in megahertz, as NVML has them. A knob has more than one value of ours where the
process may have died between the two. Blanks fill the text up to a fixed size: a new value is written over the old one,
which needs no further room on the disk.

Each line ends with a checksum of itself and of the GPU and the boot that it is about; that of the last line is of all
lines. So a line that is missing, altered or of another GPU is noticed, and the others still count.

The watchdog imports this file. So it imports little, and not `typing` or `dataclasses`.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Mapping, Sequence

_NAME = "wattune-journal"
FORM = f"{_NAME} 3"
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

_LOCKS = ("sm_clock", "mem_clock")
"""Knobs that are given back without a value that was found."""
_TOGETHER = ("app_sm_clock", "app_mem_clock")


class Entry:
    """What was found on a GPU, and the values that a process has set or was about to set."""

    __slots__ = ("boot_id", "damage", "device", "found", "ours", "pid", "uuid")

    def __init__(
        self,
        uuid: str,
        device: str,
        *,
        pid: int | None,
        boot_id: str,
        found: Mapping[str, int],
        ours: Mapping[str, Sequence[int]],
        damage: str | None = None,
    ) -> None:
        self.uuid = uuid
        self.device = device
        self.pid = pid
        """None where its line is damaged."""
        self.boot_id = boot_id
        self.found = dict(found)
        self.ours = {knob: tuple(values) for knob, values in ours.items()}
        self.damage = damage
        """What is wrong with the text that this was read from: only knobs whose lines are all intact are here then."""


def text_of(entry: Entry) -> bytes:
    """Return the text of an entry, of fixed size."""
    boot = entry.boot_id or "-"
    lines = [f"uuid {entry.uuid}", f"device {entry.device}", f"pid {entry.pid}", f"boot {boot}"]
    lines += [f"found {knob} {value}" for knob, value in sorted(entry.found.items())]
    lines += [f"ours {knob} {' '.join(map(str, values))}" for knob, values in sorted(entry.ours.items())]
    whole = "\n".join([FORM, *(f"{line} {_sum(line, entry.uuid, boot)}" for line in lines), "end"])
    text = f"{whole} {_sum(whole, entry.uuid, boot)}\n".encode("ascii")
    if len(text) > SIZE:
        raise ValueError(f"an entry of {len(text)} bytes is too long")
    return text.ljust(SIZE)


def parse(text: bytes) -> Entry:
    """Return the entry of a text, without what is damaged; ValueError where nothing of it can be used."""
    whole = text.decode("ascii", "replace")
    lines = whole.split("\n")
    heads = {head: _value(lines, head) for head in ("uuid", "boot", "device", "pid")}
    uuid, boot, device = heads["uuid"], heads["boot"], heads["device"]
    intact = [line[:-9] for line in lines if line[-9:] == f" {_sum(line[:-9], uuid or '', boot or '')}"]
    if uuid is None or boot is None or device is None or not {f"uuid {uuid}", f"device {device}"} <= {*intact}:
        if lines[0].startswith(_NAME) and lines[0] != FORM:
            raise ValueError("another version of wattune wrote it, or its first line was altered")
        raise ValueError("the line of its GPU, device or boot is missing or was altered")
    found, ours = _knobs(intact)
    last = whole.rstrip(" ")[:-10]
    is_whole = len(text) == SIZE and whole.rstrip(" ")[-10:] == f" {_sum(last, uuid, boot)}\n"
    return Entry(
        uuid,
        device,
        pid=_number(heads["pid"]) if heads["pid"] and f"pid {heads['pid']}" in intact else None,
        boot_id="" if boot == "-" else boot,
        found=found,
        ours=ours if is_whole else _certain(found, ours),
        damage=None if is_whole else "a line is missing or was altered",
    )


def _knobs(lines: Sequence[str]) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Return what was found and what is ours by the intact lines; ValueError for a line that no entry has."""
    found: dict[str, int] = {}
    ours: dict[str, tuple[int, ...]] = {}
    for line in lines:
        kind, knob, *values = [*line.split(" "), ""]
        if kind not in ("found", "ours"):
            continue
        numbers = tuple(_number(value) for value in values[:-1])
        if knob not in KNOBS or not 1 <= len(numbers) <= (1 if kind == "found" else MOST_VALUES):
            raise ValueError(f"there is no line {line[:40]!r}")
        if kind == "found":
            found[knob] = numbers[0]
        else:
            ours[knob] = numbers
    return found, ours


def _certain(found: Mapping[str, int], ours: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the knobs that can be given back although other lines are damaged."""
    certain = {knob for knob in ours if knob in _LOCKS or knob in found}
    if not certain.issuperset(_TOGETHER):
        certain -= set(_TOGETHER)
    return {knob: values for knob, values in ours.items() if knob in certain}


def _sum(line: str, uuid: str, boot: str) -> str:
    return f"{crc32(f'{FORM} {uuid} {boot} {line}'.encode()):08x}"


def _value(lines: Sequence[str], name: str) -> str | None:
    """Return the value of the line with a name, without its checksum."""
    for line in lines:
        head, _, value = line[:-9].partition(" ")
        if head == name and 0 < len(value) <= 200 and value.isprintable():
            return value
    return None


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


ROUNDED_MHZ = 7
"""Drivers round a clock to one of theirs, which lie 15 MHz apart on most GPUs."""


def judge_lock(ours: Sequence[int], now_mhz: int | None) -> str:
    """Decide about a lock, which cannot be read, from the clock: above our lock, our lock does not hold any more.

    A lower clock has many reasons (idle, power limit, heat), so that it is undone.
    """
    return FOREIGN if now_mhz is not None and now_mhz > max(ours) + ROUNDED_MHZ else UNDO
