"""The measured cost of changing clocks on a GPU: the median and the spread of latencies and stalls.

The target matters more than the clock before (LATEST, arXiv 2502.20075), so each target has figures of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from wattune.core.codec import JsonReader
from wattune.core.gpu_spec import MEM_CLOCK, SM_CLOCK, GpuSpec
from wattune.core.reading import Throttle
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Workload
from wattune.devices.gpu import Gpu
from wattune.levels.layer.switch_samples import (
    CONFIRMED,
    ClockPoll,
    ClockSwitch,
    MissedClock,
    ReachedClock,
    SwitchSamples,
    outcome_of,
)
from wattune.levels.layer.switching import SwitchCost
from wattune.store.records import Run

KIND = "switch-latency"
"""The kind of the runs in the history."""

UNIFORM_STEPS = Workload(name="uniform steps", phases=(Phase(name="step", flops=1e8, launches=10),))
"""Short equal kernels, from whose count a stall can be computed; they draw so little that every clock can hold."""

FINEST = 0.005
"""Polls are at least this share of the time since the request apart."""

REST_S = 0.05
"""Time in which the rate of a load is measured before and after a change; longer than any known stall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLatency:
    """Latencies of the changes to one clock."""

    mhz: int
    tried: int
    reached: int
    median_s: float | None
    p95_s: float | None
    held_mhz: int | None
    """The clock that held instead, where the target was missed."""
    limited_by: Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobLatency:
    """Latencies and stalls of all changes of one clock; None for what was not measured."""

    tried: int
    reached: int
    median_s: float | None
    p95_s: float | None
    error_s: float | None
    """Of one latency: half the time between two polls."""
    call_s: float | None
    stall_s: float | None
    stall_error_s: float | None
    targets: tuple[TargetLatency, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLatency:
    """The measured cost of changing clocks on a GPU."""

    gpu: str
    uuid: str
    simulated: bool
    load: str | None
    """The command or workload that ran meanwhile."""
    idle: bool
    """Whether the GPU was idle during most polls."""
    sm: KnobLatency
    mem: KnobLatency | None
    """None where the memory clock cannot be set."""

    def cost(self, known: SwitchCost) -> SwitchCost:
        """Return the cost by these medians; what was not measured stays as `known`."""
        sm, mem = self.sm, self.mem or _knob(())
        return replace(
            known,
            sm_latency_s=_or(sm.median_s, known.sm_latency_s),
            sm_stall_s=_or(sm.stall_s, known.sm_stall_s),
            mem_latency_s=_or(mem.median_s, known.mem_latency_s),
            mem_stall_s=_or(mem.stall_s, known.mem_stall_s),
        )


def _or(measured: float | None, known: float) -> float:
    return known if measured is None else measured


def latest_switching(runs: Iterable[Run], spec: GpuSpec, *, known: SwitchCost) -> SwitchCost | None:
    """Return the newest measured cost for this GPU, else for one of its model; None if there is none.

    `runs` are those of `KIND`, newest first. Simulated and real GPUs never stand for one another.
    """
    reader = JsonReader(unknown_fields="skip")
    same_model: SwitchCost | None = None
    for run in runs:
        for gpu in run.gpus:
            if run.kind == KIND and (gpu.name, gpu.simulated) == (spec.name, spec.simulated):
                found = reader.read(SwitchLatency, run.details).cost(known)
                if gpu.uuid == spec.uuid:
                    return found
                same_model = same_model or found
    return same_model


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockPolling:
    """How a GPU is polled: how time passes, how often, for how long, and where the steps of its load are counted."""

    wait: Callable[[float], None]
    interval_s: float = 0.001
    limit_s: float = 2.0
    """A clock that is not effective by then is missed; published latencies end at half a second."""
    steps: Callable[[], float] | None = None
    """Steps that a uniform load has done until now."""


def measure_switching(
    gpu: Gpu,
    switches: Sequence[ClockSwitch],
    *,
    polling: ClockPolling,
    load: str | None,
    is_over: Callable[[], bool] = lambda: False,
) -> SwitchLatency:
    """Make the changes in order, sample each, and restore the GPU; stop early once `is_over` returns true."""
    seen: list[SwitchSamples] = []
    try:
        for switch in switches:
            if not seen or switch.before != seen[-1].switch.after:
                _settle(gpu, switch.before, polling)
            if is_over():
                break
            seen.append(_sampled(gpu, switch, polling))
    finally:
        gpu.restore()
    return summed_up(gpu.spec, seen, load=load)


def _settle(gpu: Gpu, setting: Setting, polling: ClockPolling) -> None:
    """Apply a setting to start from, and wait for its clocks."""
    gpu.apply(setting)
    for knob, mhz in ((SM_CLOCK, setting.sm_mhz), (MEM_CLOCK, setting.mem_mhz)):
        if mhz is not None:
            _await(gpu, ClockSwitch(knob, setting, setting, mhz), polling)


def _sampled(gpu: Gpu, switch: ClockSwitch, polling: ClockPolling) -> SwitchSamples:
    polls = [_poll(gpu, switch, polling)]
    polling.wait(REST_S)
    polls.append(_poll(gpu, switch, polling))
    requested_s = gpu.count().time_s
    gpu.apply(switch.after)
    returned_s = gpu.count().time_s
    polls += _await(gpu, switch, polling)
    if switch.is_at_target(polls[-1].mhz):
        for _ in range(2):
            polling.wait(REST_S)
            polls.append(_poll(gpu, switch, polling))
    return SwitchSamples(switch=switch, requested_s=requested_s, returned_s=returned_s, polls=tuple(polls))


def _await(gpu: Gpu, switch: ClockSwitch, polling: ClockPolling) -> list[ClockPoll]:
    """Poll until the target holds or the time limit has passed."""
    polls = [_poll(gpu, switch, polling)]
    while (elapsed_s := polls[-1].time_s - polls[0].time_s) < polling.limit_s:
        if len(polls) >= CONFIRMED and all(switch.is_at_target(poll.mhz) for poll in polls[-CONFIRMED:]):
            break
        polling.wait(max(polling.interval_s, FINEST * elapsed_s))
        polls.append(_poll(gpu, switch, polling))
    return polls


def _poll(gpu: Gpu, switch: ClockSwitch, polling: ClockPolling) -> ClockPoll:
    reading = gpu.read()
    mhz = reading.sm_mhz if switch.knob == SM_CLOCK else reading.mem_mhz
    return ClockPoll(reading.time_s, mhz, reading.throttle, polling.steps() if polling.steps else None)


def summed_up(spec: GpuSpec, seen: Sequence[SwitchSamples], *, load: str | None) -> SwitchLatency:
    """Sum up the samples of all changes."""
    found = [(samples.switch, outcome) for samples in seen if (outcome := outcome_of(samples)) is not None]
    idle = [bool(poll.throttle and Throttle.IDLE in poll.throttle) for samples in seen for poll in samples.polls]
    sm, mem = (
        _knob([(switch, outcome) for switch, outcome in found if switch.knob == knob]) for knob in (SM_CLOCK, MEM_CLOCK)
    )
    return SwitchLatency(
        gpu=spec.name,
        uuid=spec.uuid,
        simulated=spec.simulated,
        load=load,
        idle=sum(idle) > len(idle) / 2,
        sm=sm,
        mem=mem if mem.tried else None,
    )


def _knob(found: Sequence[tuple[ClockSwitch, ReachedClock | MissedClock]]) -> KnobLatency:
    targets_mhz = sorted({switch.target_mhz for switch, _ in found})
    reached = _reached(outcome for _, outcome in found)
    latencies_s = [one.latency_s for one in reached]
    stall_s = _median(one.stall_s for one in reached)
    return KnobLatency(
        tried=len(found),
        reached=len(reached),
        median_s=_median(latencies_s),
        p95_s=_p95(latencies_s),
        error_s=_median(one.error_s for one in reached),
        call_s=_median(one.call_s for one in reached),
        stall_s=None if stall_s is None else max(stall_s, 0.0),
        stall_error_s=_median(one.stall_error_s for one in reached),
        targets=tuple(_target(mhz, [one for switch, one in found if switch.target_mhz == mhz]) for mhz in targets_mhz),
    )


def _target(mhz: int, outcomes: Sequence[ReachedClock | MissedClock]) -> TargetLatency:
    latencies_s = [one.latency_s for one in _reached(outcomes)]
    missed = [one for one in outcomes if isinstance(one, MissedClock)]
    return TargetLatency(
        mhz=mhz,
        tried=len(outcomes),
        reached=len(latencies_s),
        median_s=_median(latencies_s),
        p95_s=_p95(latencies_s),
        held_mhz=missed[-1].held_mhz if missed else None,
        limited_by=missed[-1].throttle if missed else Throttle.NONE,
    )


def _reached(outcomes: Iterable[ReachedClock | MissedClock]) -> list[ReachedClock]:
    return [one for one in outcomes if isinstance(one, ReachedClock)]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _p95(values: Sequence[float]) -> float | None:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0] if values else None
