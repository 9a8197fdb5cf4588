"""A recorded run behind the protocol of every GPU.

Each look, `read` or `count`, gives the next reading of the recording. What happened cannot be changed any more, so
nothing can be set: a setting that had no effect must not look like one that had.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

from wattune.core.errors import DeviceLost, InputError, NotSupported
from wattune.core.gpu_spec import GpuSpec, Sensors
from wattune.core.reading import Count, Reading, Throttle
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting

VERSION = 1

_WHOLE = ("sm_mhz", "mem_mhz", "memory_used_bytes")
_NUMBERS = tuple(field.name for field in fields(Reading) if field.name not in (*_WHOLE, "throttle"))
_THROTTLES = {word: reason for reason in Throttle for word in reason.words}


@dataclass(frozen=True, slots=True)
class Recording:
    """A GPU and what it told over time, in order."""

    gpu: str
    uuid: str
    simulated: bool
    sensors: Sensors
    readings: tuple[Reading, ...]


def record(spec: GpuSpec, readings: Iterable[Reading], file: Path) -> None:
    """Nothing; the file now holds the readings of that GPU."""
    head = {
        "recording": VERSION,
        "gpu": spec.name,
        "uuid": spec.uuid,
        "simulated": spec.simulated,
        "sensors": {name: value for name, value in asdict(spec.sensors).items() if value is not None},
    }
    lines = [json.dumps(head), *(json.dumps(_written(reading), allow_nan=False) for reading in readings)]
    try:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", hint="choose a file that can be written") from None


def read_recording(file: Path) -> Recording:
    """The recording in a file, or an error that names the file, the line and the field."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read {file}: {reason}", hint="give a recording in JSON lines") from None
    entries = [_Line(str(file), number, text) for number, text in enumerate(lines, 1) if text.strip()]
    if len(entries) < 2:
        raise InputError(f"{file} holds no readings", hint="a recording is one line of JSON and a line per reading")
    readings = tuple(entry.reading() for entry in entries[1:])
    for (before, after), entry in zip(pairwise(readings), entries[2:], strict=True):
        entry.check_order(before, after)
    return entries[0].head(readings)


def _written(reading: Reading) -> dict[str, Any]:
    known = {field.name: getattr(reading, field.name) for field in fields(Reading)}
    if reading.throttle is not None:
        known["throttle"] = list(reading.throttle.words)
    return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file, and errors that say which."""

    file: str
    place: int
    text: str

    def wrong(self, problem: str) -> InputError:
        return InputError(f"{self.file}, line {self.place}: {problem}", hint="record the run again, or mend that line")

    def document(self) -> dict[str, Any]:
        try:
            document = json.loads(self.text)
        except ValueError:
            raise self.wrong("is not JSON") from None
        if not isinstance(document, dict):
            raise self.wrong("is not a JSON object")
        return document

    def head(self, readings: tuple[Reading, ...]) -> Recording:
        document = self.document()
        if document.get("recording") != VERSION:
            raise self.wrong(f'is not the head of a recording of version {VERSION}: {{"recording": {VERSION}, …}}')
        gpu, uuid, simulated = document.get("gpu"), document.get("uuid"), document.get("simulated")
        if not (isinstance(gpu, str) and isinstance(uuid, str) and isinstance(simulated, bool)):
            raise self.wrong("lacks gpu, uuid or simulated")
        return Recording(gpu, uuid, simulated, self.sensors(document.get("sensors", {})), readings)

    def sensors(self, document: Any) -> Sensors:
        if not isinstance(document, dict) or not set(document) <= {field.name for field in fields(Sensors)}:
            raise self.wrong("field sensors: is not an object of known sensors")
        return Sensors(**{name: self.number(name, value) for name, value in document.items()})

    def reading(self) -> Reading:
        document = self.document()
        known: dict[str, Any] = {}
        for name, value in document.items():
            if name == "throttle":
                known[name] = self.throttle(value)
            elif name in _WHOLE:
                known[name] = self.whole(name, value)
            elif name in _NUMBERS:
                known[name] = self.number(name, value)
            else:
                raise self.wrong(f"field {name}: a reading has no such field")
        if "time_s" not in known:
            raise self.wrong("field time_s: is missing")
        return Reading(**known)

    def number(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self.wrong(f"field {name}: {value!r} is not a finite number")
        if value < 0 and name != "temperature_c":
            raise self.wrong(f"field {name}: {value!r} is negative")
        return float(value)

    def whole(self, name: str, value: Any) -> int:
        number = self.number(name, value)
        if number != int(number):
            raise self.wrong(f"field {name}: {value!r} is not a whole number")
        return int(number)

    def throttle(self, value: Any) -> Throttle:
        if not isinstance(value, list) or not all(isinstance(word, str) and word in _THROTTLES for word in value):
            raise self.wrong(f"field throttle: {value!r} is not a list of {', '.join(_THROTTLES)}")
        reasons = Throttle.NONE
        for word in value:
            reasons |= _THROTTLES[word]
        return reasons

    def check_order(self, before: Reading, after: Reading) -> None:
        if after.time_s < before.time_s:
            raise self.wrong("field time_s: goes back in time")
        if before.energy_j is not None and after.energy_j is not None and after.energy_j < before.energy_j:
            raise self.wrong("field energy_j: the counter goes back")


class ReplayGpu:
    """A recording, played one reading at a time."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.refresh: Refresh | None = None
        self._next = 0
        self._spec = GpuSpec(
            name=f"{recording.gpu} (replayed)",
            uuid=recording.uuid,
            clocks=(),
            power_limits=None,
            simulated=recording.simulated,
            sensors=recording.sensors,
        )

    @classmethod
    def load(cls, file: Path) -> ReplayGpu:
        """The GPU that a recording shows."""
        return cls(read_recording(file))

    @property
    def spec(self) -> GpuSpec:
        """The recorded GPU, on which nothing may be set any more."""
        return self._spec

    @property
    def left(self) -> int:
        """How many readings are still to come."""
        return len(self._recording.readings) - self._next

    def read(self) -> Reading:
        """The next reading."""
        if not self.left:
            raise DeviceLost(
                f"the recording of {self._recording.gpu} ends after {self._next} readings",
                hint="record a longer run, or ask for fewer readings",
            )
        self._next += 1
        return self._recording.readings[self._next - 1]

    def count(self) -> Count:
        """The counter of the next reading."""
        reading = self.read()
        if reading.energy_j is None:
            raise NotSupported(
                f"the recording of {self._recording.gpu} has no energy counter at {reading.time_s:g} s",
                hint="integrate its power instead",
            )
        return Count(reading.time_s, reading.energy_j)

    def apply(self, setting: Setting) -> None:
        """Nothing where nothing is asked for; anything else is refused."""
        if setting != DRIVER_DEFAULT:
            raise NotSupported(
                f"{self._spec.label} is a recording and cannot be set",
                hint="use a simulated or a real GPU to try settings",
            )

    def restore(self) -> None:
        """Nothing; nothing was changed."""
