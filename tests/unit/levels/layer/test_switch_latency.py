"""The measured cost of changing clocks: what is tried, what the samples show, and what a simulated GPU gives back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import exp

import pytest

from wattune.core.codec import to_json
from wattune.core.errors import DeviceError, InputError, NotSupported, SettingRefused
from wattune.core.gpu_spec import MEM_CLOCK, SM_CLOCK, GpuSpec
from wattune.core.reading import Throttle
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.layer.switch_latency import (
    KIND,
    UNIFORM_STEPS,
    ClockPolling,
    SwitchLatency,
    latest_switching,
    measure_switching,
)
from wattune.levels.layer.switch_samples import (
    ClockPoll,
    ClockSwitch,
    MissedClock,
    ReachedClock,
    SwitchSamples,
    outcome_of,
    planned_switches,
)
from wattune.levels.layer.switching import SwitchCost
from wattune.physics.catalog import load_model
from wattune.store.fallback import new_run
from wattune.store.records import Run, RunGpu
from wattune.workloads.catalog import make_workload

A4000 = load_model("a4000")
KNOWN = SwitchCost(sm_latency_s=1.0, mem_latency_s=2.0, sm_stall_s=0.1, mem_stall_s=0.2)
DOWN = ClockSwitch(SM_CLOCK, Setting(1400), Setting(700), 700)


def simulated(name: str) -> SimulatedGpu:
    model = load_model(name)
    return SimulatedGpu(model, switching=model.switching)


def measured(gpu: SimulatedGpu, *, repeats: int = 5, clocks_mhz: tuple[int, ...] = ()) -> SwitchLatency:
    gpu.play(UNIFORM_STEPS)
    polling = ClockPolling(wait=gpu.wait, interval_s=0.0002, steps=lambda: gpu.iterations)
    switches = planned_switches(gpu.spec, repeats=repeats, clocks_mhz=clocks_mhz)
    return measure_switching(gpu, switches, polling=polling, load="uniform steps")


# what is tried


@pytest.mark.parametrize("name", ["a100", "a4000", "v100", "h100-nvl", "mi300x"])
def test_every_clock_follows_every_other_once(name: str) -> None:
    switches = planned_switches(load_model(name).spec(), repeats=1)
    for knob in (SM_CLOCK, MEM_CLOCK):
        own = [switch for switch in switches if switch.knob == knob]
        settings = {switch.after for switch in own}
        assert len(own) == len(settings) * (len(settings) - 1)
        assert len({(switch.before, switch.after) for switch in own}) == len(own)
        assert all(one.after == two.before for one, two in pairwise(own))
    for switch in switches:
        load_model(name).spec().check(switch.after)


def test_memory_clocks_are_tried_where_they_can_be_locked() -> None:
    memory = [switch for switch in planned_switches(A4000.spec(), repeats=2) if switch.knob == MEM_CLOCK]
    assert {switch.target_mhz for switch in memory} == {7001, 6501, 5001}  # not the idle states 810 and 405
    assert len({switch.after.sm_mhz for switch in memory}) == 1
    assert all(switch.knob == SM_CLOCK for switch in planned_switches(load_model("a100").spec(), repeats=1))


def test_clocks_that_cannot_be_tried_are_refused() -> None:
    spec = load_model("a100").spec()
    with pytest.raises(SettingRefused, match="no core clock of 1400"):
        planned_switches(spec, repeats=1, clocks_mhz=(1400, 705))
    for clocks_mhz in ((1410,), (1410, 1410), (1410, 1395)):
        with pytest.raises(InputError, match="3 % apart"):
            planned_switches(spec, repeats=1, clocks_mhz=clocks_mhz)
    with pytest.raises(NotSupported, match="core clock"):
        planned_switches(GpuSpec(name="x", uuid="x", clocks=(), power_limits=None), repeats=1)


# what samples show


def samples(*clocks_mhz: int, steps: tuple[float | None, ...] = (), throttle: Throttle | None = None) -> SwitchSamples:
    """Make polls a second apart: two before the request at 1.5 s, whose call takes 0.2 s, and these after it."""
    readings = (1400, 1400, *clocks_mhz)
    counts = steps or (None,) * len(readings)
    polls = tuple(
        ClockPoll(float(second), mhz, throttle, count)
        for second, (mhz, count) in enumerate(zip(readings, counts, strict=True))
    )
    return SwitchSamples(switch=DOWN, requested_s=1.5, returned_s=1.7, polls=polls)


def test_a_latency_is_between_two_polls() -> None:
    found = outcome_of(samples(1400, 1400, 700, 700, 700))
    assert found == ReachedClock(latency_s=2.0, error_s=0.5, call_s=pytest.approx(0.2))


def test_a_clock_that_holds_at_the_first_poll_took_at_most_so_long() -> None:
    found = outcome_of(samples(700, 700, 700))
    assert isinstance(found, ReachedClock)
    assert (found.latency_s, found.error_s) == (0.25, 0.25)


def test_a_clock_must_hold_until_the_end() -> None:
    found = outcome_of(samples(700, 700, 700, 1000, throttle=Throttle.POWER_CAP))
    assert found == MissedClock(held_mhz=1000, throttle=Throttle.POWER_CAP)
    assert isinstance(outcome_of(samples(1400, 1400, 700)), MissedClock)


def test_a_change_that_cannot_be_seen_is_no_sample() -> None:
    there = SwitchSamples(
        switch=DOWN, requested_s=0.5, returned_s=0.6, polls=tuple(ClockPoll(float(n), 700) for n in range(6))
    )
    assert outcome_of(there) is None


def test_a_stall_is_the_time_in_which_steps_are_missing() -> None:
    # 10 steps/s, from 3.5 s on 5 steps/s after a stall of 0.4 s
    found = outcome_of(samples(1400, 1400, 700, 700, 700, steps=(0.0, 10.0, 20.0, 30.0, 35.5, 40.5, 45.5)))
    assert isinstance(found, ReachedClock)
    assert found.stall_s == pytest.approx(0.4)
    assert found.stall_error_s == pytest.approx(0.5)  # twice the rate, half a second of doubt


# a simulated GPU, in virtual time


@pytest.mark.parametrize("name", ["a100", "a4000", "h100"])
def test_the_medians_of_the_catalogue_come_back(name: str) -> None:
    gpu = simulated(name)
    found = measured(gpu)
    knobs = [(found.sm, gpu.model.switching.sm_s, gpu.model.change.sm)]
    if found.mem is not None:
        knobs.append((found.mem, gpu.model.switching.mem_s, gpu.model.change.mem))
    assert len(knobs) == 1 + (name == "a4000")
    for knob, true_s, change in knobs:
        assert knob.reached == knob.tried
        # three standard errors of a median of lognormal waits
        assert knob.median_s == pytest.approx(true_s, rel=exp(3 * 1.25 * change.spread / knob.tried**0.5) - 1)
        assert knob.p95_s > 1.5 * knob.median_s
        assert knob.stall_s == pytest.approx(change.stall_s, abs=2 * knob.stall_error_s + 1e-9)
        assert knob.error_s < 0.005 * knob.median_s + 2e-4


def test_a_clock_above_the_power_limit_is_missed() -> None:
    gpu = simulated("a100")
    gpu.play(make_workload("resnet50"))
    switches = planned_switches(gpu.spec, repeats=1, clocks_mhz=(705, 1005, 1410))
    found = measure_switching(gpu, switches, polling=ClockPolling(wait=gpu.wait), load="resnet50")
    by_clock = {target.mhz: target for target in found.sm.targets}
    assert by_clock[705].reached == by_clock[705].tried == 2
    assert by_clock[1410].reached == 0
    assert by_clock[1410].median_s is None
    assert by_clock[1410].held_mhz is not None
    assert by_clock[1410].held_mhz < 1390
    assert Throttle.POWER_CAP in by_clock[1410].limited_by
    assert found.sm.stall_s is None
    assert not found.idle


def test_an_idle_gpu_is_named_idle() -> None:
    gpu = simulated("a100")
    switches = planned_switches(gpu.spec, repeats=1)
    assert measure_switching(gpu, switches, polling=ClockPolling(wait=gpu.wait), load=None).idle


def test_it_stops_when_the_load_has_ended() -> None:
    gpu = simulated("a100")
    gpu.play(UNIFORM_STEPS)
    answers = iter([False, False, False, True])
    switches = planned_switches(gpu.spec, repeats=1)
    polling = ClockPolling(wait=gpu.wait)
    found = measure_switching(gpu, switches, polling=polling, load=None, is_over=lambda: next(answers))
    assert found.sm.tried == 3


@pytest.mark.parametrize("calls", range(0, 200, 37))
def test_the_gpu_is_restored_whatever_happens(calls: int) -> None:
    gpu = simulated("a4000")
    left = calls

    def wait(seconds: float) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise DeviceError("the GPU is lost", hint="reset it")
        gpu.wait(seconds)

    with pytest.raises(DeviceError):
        measure_switching(gpu, planned_switches(gpu.spec, repeats=1), polling=ClockPolling(wait=wait), load=None)
    assert gpu.setting == DRIVER_DEFAULT


# the history


def stored(found: SwitchLatency, *, age_h: float = 0.0, uuid: str | None = None, simulated: bool = True) -> Run:
    gpu = RunGpu(uuid=uuid or found.uuid, name=found.gpu, simulated=simulated, time_s=1.0)
    started_at = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(hours=age_h)
    return new_run(KIND, "load", started_at=started_at, gpus=[gpu], details=to_json(found))


def test_the_newest_result_of_a_gpu_is_used_and_else_that_of_its_model() -> None:
    found = measured(simulated("a100"), repeats=1)
    other = measured(simulated("a100"), repeats=1, clocks_mhz=(705, 1410))
    spec = load_model("a100").spec()
    cost = latest_switching([stored(other, uuid="GPU-other"), stored(found, age_h=1)], spec, known=KNOWN)
    assert cost is not None
    assert (cost.sm_latency_s, cost.sm_stall_s) == (found.sm.median_s, found.sm.stall_s)
    assert (cost.mem_latency_s, cost.mem_stall_s) == (KNOWN.mem_latency_s, KNOWN.mem_stall_s)
    cost = latest_switching([stored(other, uuid="GPU-other")], spec, known=KNOWN)
    assert cost is not None
    assert cost.sm_latency_s == other.sm.median_s


def test_simulated_and_real_never_stand_for_one_another() -> None:
    found = measured(simulated("a100"), repeats=1)
    spec = load_model("a100").spec()
    assert latest_switching([stored(found, simulated=False)], spec, known=KNOWN) is None
    assert latest_switching([stored(found)], load_model("v100").spec(), known=KNOWN) is None
    assert latest_switching([], spec, known=KNOWN) is None
