from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core.codec import JsonReader, from_json, to_json
from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits, Sensors
from wattune.core.job import Job, JobGpu, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading, Throttle
from wattune.core.setting import Setting

SPEC = GpuSpec(
    name="A100",
    uuid="GPU-0",
    clocks=(ClockTable(1593, (210, 1410)), ClockTable(None, ())),
    power_limits=PowerLimits(100.0, 400.0, 400.0),
    sensors=Sensors(0.1, None, 0.025),
)
GPU = JobGpu(name="A100", simulated=True, max_power_w=400.0)
RUN = JobRun(
    id="a",
    order=0,
    recurrence=0,
    batch_size=32,
    gpu=GPU,
    submitted_at=datetime(2025, 3, 1, tzinfo=UTC),
    outcome=Outcome.OUT_OF_MEMORY,
    metrics=(0.5, None),
    cost=Measurement(1.0, 2.0),
    setting=Setting(1410),
)
PROFILE = Profile(gpu=GPU, batch_size=32, trials=(Trial(Setting(power_limit_w=250.0), Measurement(1.0, 2.0)),))
JOB = Job(name="nightly", batch_sizes=(16, 32), default_batch_size=16, target=0.7, max_epochs=3)
READING = Reading(time_s=1.5, throttle=Throttle.POWER_CAP | Throttle.THERMAL, sm_mhz=1410)


@pytest.mark.parametrize("value", [SPEC, RUN, PROFILE, JOB, READING, Trial(3.0, Measurement(1.0, 2.0))])
def test_values_survive_a_round_trip(value):
    kind = Trial[float] if isinstance(value, Trial) else type(value)
    assert from_json(kind, to_json(value)) == value


finite = st.floats(min_value=0, max_value=1e9)


@given(
    st.builds(Setting, *[st.none() | st.integers(1, 10**6)] * 2, st.none() | st.floats(0, 1e6)),
    st.builds(Measurement, finite, finite, st.none() | finite, st.none() | finite),
)
def test_settings_and_costs_survive_side_by_side(setting, cost):
    document = to_json(setting) | to_json(cost)
    reader = JsonReader(unknown_fields="skip")
    assert (reader.read(Setting, document), reader.read(Measurement, document)) == (setting, cost)


def test_json_forms_are_plain():
    assert to_json(Setting(1410)) == {"sm_mhz": 1410, "mem_mhz": None, "power_limit_w": None}
    assert to_json(READING)["throttle"] == ["power cap", "thermal"]
    assert to_json(RUN)["outcome"] == "out_of_memory"
    assert type(to_json(RUN)["outcome"]) is str
    assert to_json(RUN)["submitted_at"] == "2025-03-01T00:00:00+00:00"
    with pytest.raises(TypeError, match="a complex has no JSON form"):
        to_json({"number": 1j})


@dataclass(frozen=True)
class Several:
    runs: tuple[JobRun, ...]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sm_mhz": "fast"}, r"runs[1].setting.sm_mhz: 'fast' is not a finite number"),
        ({"sm_mhz": True}, r"runs[1].setting.sm_mhz: True is not a finite number"),
        ({"sm_mhz": 1410.5}, r"runs[1].setting.sm_mhz: 1410.5 is not a whole number"),
        ({"power_limit_w": float("nan")}, r"runs[1].setting.power_limit_w: nan is not a finite number"),
        ({"power_limit_w": 10**400}, "is not a finite number"),
        (
            {"voltage": 3},
            r"runs[1].setting.voltage: there is no such field; the fields are sm_mhz, mem_mhz, power_limit_w",
        ),
    ],
)
def test_errors_name_the_place(change, message):
    document = to_json(Several((RUN, RUN)))
    document["runs"][1]["setting"] |= change
    with pytest.raises(InputError) as caught:
        from_json(Several, document)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outcome": "lucky"}, "outcome: 'lucky' is none of running, reached"),
        ({"outcome": []}, "outcome: [] is none of"),
        ({"submitted_at": "noon"}, "submitted_at: 'noon' is not a time"),
        ({"metrics": 3}, "metrics: 3 is not a list"),
        ({"metrics": [0.5, "x"]}, "metrics[1]: 'x' is not a finite number"),
        ({"gpu": None}, "gpu: None is not an object"),
        ({"id": 7}, "id: 7 is not a text"),
        ({"exploring": 1}, "exploring: 1 is not true or false"),
        ({"cost": {**to_json(RUN.cost), "time_s": -1.0}}, "cost: a measurement is finite and not negative"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(change, message):
    with pytest.raises(InputError) as caught:
        JsonReader(source="runs.jsonl, line 3", hint="record it again").read(JobRun, to_json(RUN) | change)
    assert caught.value.message.startswith(f"runs.jsonl, line 3: {message}")
    assert caught.value.hint == "record it again"


def test_a_missing_field_is_refused_unless_defaults_are_wanted():
    with pytest.raises(InputError, match=r"^mem_mhz: is missing$"):
        from_json(Setting, {"sm_mhz": 1410, "power_limit_w": None})
    assert JsonReader(missing_fields="default").read(Setting, {"sm_mhz": 1410.0}) == Setting(1410)
    with pytest.raises(InputError, match=r"^energy_j: is missing$"):
        JsonReader(missing_fields="default").read(Measurement, {"time_s": 1.0})


def test_a_flag_is_a_list_of_known_words():
    reader = JsonReader(missing_fields="default")
    assert reader.read(Reading, {"time_s": 0, "throttle": []}).throttle is Throttle.NONE
    for wrong in (["tired"], "thermal", [3]):
        with pytest.raises(InputError, match=r"throttle: .* is not a list of idle, power cap"):
            reader.read(Reading, {"time_s": 0, "throttle": wrong})
