"""A recorded run that can be read like any GPU.

Each `read` or `count` returns the next reading of the recording. A setting would have no effect, so every setting but
the driver's default is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wattune.core.codec import JsonReader, to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import DeviceLost, InputError, NotSupported
from wattune.core.gpu_spec import GpuSpec, Sensors
from wattune.core.output_file import write_text
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting

VERSION = 1


@dataclass(frozen=True, slots=True)
class Recording:
    """A GPU and its readings in the order of their time."""

    gpu: str
    uuid: str
    simulated: bool
    sensors: Sensors = field(default_factory=Sensors)
    readings: tuple[Reading, ...] = ()


def record(spec: GpuSpec, readings: Iterable[Reading], file: Path) -> None:
    """Write the readings of a GPU to a file."""
    head = {
        "recording": VERSION,
        "gpu": spec.name,
        "uuid": spec.uuid,
        "simulated": spec.simulated,
        "sensors": _known(to_json(spec.sensors)),
    }
    lines = [json.dumps(head), *(json.dumps(_known(to_json(reading)), allow_nan=False) for reading in readings)]
    write_text(file, "\n".join(lines) + "\n")


def read_recording(file: Path) -> Recording:
    """Read a recording; an error names the file, the line and the field."""
    lines = read_text(file, hint="give a recording in JSON lines").splitlines()
    places = [(f"{file}, line {number}", text) for number, text in enumerate(lines, 1) if text.strip()]
    if len(places) < 2:
        raise InputError(f"{file} holds no readings", hint="a recording is one line of JSON and a line per reading")
    documents = [_document(source, text) for source, text in places]
    recording = _head(*documents[0])
    readings = [_reading(reader, document) for reader, document in documents[1:]]
    for (reader, _), before, after in zip(documents[2:], readings, readings[1:], strict=False):
        if after.time_s < before.time_s:
            reader.fail("time_s", "goes back in time")
        if before.energy_j is not None and after.energy_j is not None and after.energy_j < before.energy_j:
            reader.fail("energy_j", "the counter goes back")
    return replace(recording, readings=tuple(readings))


def _known(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}


def _document(source: str, text: str) -> tuple[JsonReader, dict[str, Any]]:
    """Return the JSON object of a line, and the reader that names the line in errors."""
    reader = JsonReader(source=source, hint="record the run again, or correct that line", missing_fields="default")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        reader.fail("", "is not JSON")
    if not isinstance(document, dict):
        reader.fail("", "is not a JSON object")
    return reader, document


def _head(reader: JsonReader, document: dict[str, Any]) -> Recording:
    if document.get("recording") != VERSION:
        reader.fail("", f'is not the head of a recording of version {VERSION}: {{"recording": {VERSION}, …}}')
    sensors = reader.read(Sensors, document.pop("sensors", {}), "sensors")
    document.pop("readings", None)
    return replace(replace(reader, unknown_fields="skip").read(Recording, document), sensors=sensors)


def _reading(reader: JsonReader, document: Mapping[str, Any]) -> Reading:
    reading = reader.read(Reading, document)
    for name, value in document.items():
        if name != "temperature_c" and isinstance(value, int | float) and value < 0:
            reader.fail(name, f"{value!r} is negative")
    return reading


class ReplayGpu:
    """A recording, read one reading at a time."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.refresh: Refresh | None = None
        self._next = 0
        self.spec = GpuSpec(
            name=f"{recording.gpu} (replayed)",
            uuid=recording.uuid,
            clocks=(),
            power_limits=None,
            simulated=recording.simulated,
            sensors=recording.sensors,
        )

    @classmethod
    def load(cls, file: Path) -> ReplayGpu:
        return cls(read_recording(file))

    @property
    def left(self) -> int:
        """The number of readings that follow."""
        return len(self._recording.readings) - self._next

    def read(self) -> Reading:
        if not self.left:
            raise DeviceLost(
                f"the recording of {self._recording.gpu} ends after {self._next} readings",
                hint="record a longer run, or ask for fewer readings",
            )
        self._next += 1
        return self._recording.readings[self._next - 1]

    def count(self) -> Count:
        reading = self.read()
        if reading.energy_j is None:
            raise NotSupported(
                f"the recording of {self._recording.gpu} has no energy counter at {reading.time_s:g} s",
                hint="integrate its power instead",
            )
        return Count(reading.time_s, reading.energy_j)

    def apply(self, setting: Setting) -> None:
        if setting != DRIVER_DEFAULT:
            raise NotSupported(
                f"{self.spec.label} is a recording and cannot be set",
                hint="use a simulated or a real GPU to try settings",
            )

    def restore(self) -> None:
        pass
