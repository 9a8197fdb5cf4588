from __future__ import annotations

from pathlib import Path

import pytest

from wattune.core.errors import DeviceLost, InputError, NotSupported
from wattune.core.gpu_spec import GpuSpec, Sensors
from wattune.core.reading import Count, Reading, Throttle
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.replay import ReplayGpu, read_recording, record

SPEC = GpuSpec(name="NVIDIA A40", uuid="GPU-1", clocks=(), power_limits=None, sensors=Sensors(counter_period_s=0.1))
READINGS = (
    Reading(time_s=0.0, energy_j=1.5, power_w=30.0, throttle=Throttle.IDLE, sm_mhz=210, memory_used_bytes=0),
    Reading(time_s=0.1, energy_j=2.5, throttle=Throttle.NONE, sm_util=0.5),
    Reading(time_s=0.2, throttle=Throttle.POWER_CAP | Throttle.LOCKED),
)
HEAD = '{"recording": 1, "gpu": "A40", "uuid": "GPU-1", "simulated": false}\n'


def test_recorded_readings_are_replayed(tmp_path: Path) -> None:
    record(SPEC, READINGS, tmp_path / "run.jsonl")
    gpu = ReplayGpu.load(tmp_path / "run.jsonl")
    assert gpu.left == 3
    assert tuple(gpu.read() for _ in READINGS) == READINGS
    with pytest.raises(DeviceLost, match="ends after 3 readings"):
        gpu.read()


def test_the_label_names_the_recorded_gpu(tmp_path: Path) -> None:
    record(SPEC, READINGS, tmp_path / "run.jsonl")
    spec = ReplayGpu.load(tmp_path / "run.jsonl").spec
    assert spec.label == "NVIDIA A40 (replayed)"
    assert (spec.uuid, spec.sensors) == (SPEC.uuid, SPEC.sensors)
    assert not spec.simulated


def test_a_count_uses_up_a_reading(tmp_path: Path) -> None:
    record(SPEC, READINGS, tmp_path / "run.jsonl")
    gpu = ReplayGpu.load(tmp_path / "run.jsonl")
    assert gpu.count() == Count(0.0, 1.5)
    assert gpu.read() == READINGS[1]
    with pytest.raises(NotSupported, match=r"no energy counter at 0\.2 s"):
        gpu.count()


def test_nothing_can_be_set(tmp_path: Path) -> None:
    record(SPEC, READINGS, tmp_path / "run.jsonl")
    gpu = ReplayGpu.load(tmp_path / "run.jsonl")
    gpu.apply(DRIVER_DEFAULT)
    gpu.restore()
    with pytest.raises(NotSupported, match="is a recording and cannot be set"):
        gpu.apply(Setting(power_limit_w=200))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no readings"),
        (HEAD, "holds no readings"),
        ('{"time_s": 1}\n{"time_s": 2}\n', "line 1: is not the head of a recording of version 1"),
        (HEAD.replace("1,", "2,", 1) + '{"time_s": 2}\n', "line 1: is not the head of a recording of version 1"),
        ('{"recording": 1}\n{"time_s": 2}\n', "line 1: gpu: is missing"),
        (
            HEAD.replace("}", ', "sensors": {"eye": 1}}') + '{"time_s": 2}\n',
            "line 1: sensors.eye: there is no such field",
        ),
        (HEAD + '{"time_s": 2\n', "line 2: is not JSON"),
        (HEAD + "[1]\n", "line 2: is not a JSON object"),
        (HEAD + '{"power_w": 2}\n', "line 2: time_s: is missing"),
        (HEAD + '{"time_s": NaN}\n', "line 2: time_s: nan is not a finite number"),
        (HEAD + '{"time_s": 1, "power_w": -2}\n', "line 2: power_w: -2 is negative"),
        (HEAD + '{"time_s": 1, "power_w": "2"}\n', "line 2: power_w: '2' is not a finite number"),
        (HEAD + '{"time_s": 1, "sm_mhz": 2.5}\n', "line 2: sm_mhz: 2.5 is not a whole number"),
        (HEAD + '{"time_s": 1, "colour": 2}\n', "line 2: colour: there is no such field"),
        (HEAD + '{"time_s": 1, "throttle": ["tired"]}\n', "line 2: throttle: ['tired'] is not a list of"),
        (HEAD + '{"time_s": 1, "throttle": [[]]}\n', "line 2: throttle"),
        (HEAD + '{"time_s": 2}\n\n{"time_s": 1}\n', "line 4: time_s: goes back in time"),
        (
            HEAD + '{"time_s": 1, "energy_j": 5}\n{"time_s": 2, "energy_j": 4}\n',
            "line 3: energy_j: the counter goes back",
        ),
    ],
)
def test_bad_files_name_file_line_and_field(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_recording(file)
    assert complaint in error.value.message
    assert str(file) in error.value.message
    assert error.value.hint


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        ReplayGpu.load(tmp_path / "none.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        ReplayGpu.load(tmp_path / "binary.jsonl")


def test_a_recording_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*it is a folder"):
        record(SPEC, READINGS, tmp_path)
