"""A command that runs while GPUs are measured, which a slow driver opens meanwhile; for `measure` and `hold`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from wattune.cli.counted_program import CountedCommand, CountedRun
from wattune.cli.gpus import open_gpus
from wattune.cli.output import print_error, remark
from wattune.config import load_config
from wattune.control.actuator import END_S, Actuator, restored_if_slow
from wattune.core.errors import DeviceError
from wattune.core.measurement import Measurement
from wattune.devices.gpu import play_on_simulated
from wattune.devices.guarded import leaving_by_exception
from wattune.devices.meter import Measured, measured
from wattune.devices.rapl import cpu_energy_j, find_packages, read_packages_j
from wattune.devices.sampler import Sampler
from wattune.process.beside import Opening, failure_text

if TYPE_CHECKING:
    from wattune.control.counted_work import CountedWork
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.reading import Trace
    from wattune.core.setting import Setting
    from wattune.core.workload import Workload
    from wattune.devices.gpu import Gpu

LOST_S = 1.0
"""A GPU whose readings end so much earlier than those of another was lost."""
LOOK_S = 0.5
"""Between two checks for a signal where there is no command."""


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """What a command spent on a GPU."""

    spec: GpuSpec
    cost: Measurement
    trace: Trace
    restarts: int
    """How often its energy counter started again from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCommand:
    """The exit code of a command, what it spent on each GPU, and the CPU's joules."""

    exit_code: int
    started_at: datetime
    gpus: tuple[MeasuredGpu, ...] = ()
    cpu_j: float | None = None
    steps: CountedWork | None = None
    """The work between the first and the last step of the command; None where none were counted."""
    idle_s: float | None = None
    """How long no GPU had worked yet; None where that is unknown."""
    excluded: str | None = None
    """Why times of the command show nothing of the clock of its GPUs, where that is known."""
    from_s: float = 0.0
    """From the start of the command until its GPUs were open: what it did before is not measured."""
    unmeasured: str | None = None
    """Why nothing was measured, in words; None where something was."""

    @property
    def total(self) -> Measurement:
        return Measurement.together(tuple(gpu.cost for gpu in self.gpus))

    @property
    def traces(self) -> tuple[Trace, ...]:
        return tuple(gpu.trace for gpu in self.gpus)

    @property
    def simulated(self) -> bool:
        return bool(self.simulated_gpus)

    @property
    def simulated_gpus(self) -> tuple[str, ...]:
        return tuple(gpu.spec.name for gpu in self.gpus if gpu.spec.simulated)


@dataclass(slots=True, kw_only=True)
class CommandMeter:
    """GPUs that are measured once they are open, and hold a setting if one is given."""

    devices: tuple[str, ...]
    workload: Workload
    interval_s: float
    setting: Setting | None = None
    say: Callable[[str], object] = remark
    """Takes a line about each GPU that was set."""
    until: str = "the command ends"
    gpus: tuple[Gpu, ...] = ()
    """Empty until they are measured."""
    late_s: float = 0.0
    """From the start of the command until they were measured."""
    has_set: bool = False
    """True once a setting may have been applied."""
    _begun_s: float = 0.0
    _started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _cpu_before: tuple[float, ...] | None = None
    _span: Measured | None = None
    _sampler: Sampler | None = None
    _ends: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def opened(self) -> Iterator[tuple[Gpu, ...]]:
        """Open the GPUs and hold the setting until the block ends."""
        with open_gpus(*self.devices, wall_clock=True) as gpus:
            self.has_set = self.setting is not None
            with held(gpus, self.setting), self._ends:
                yield gpus

    def begin(self, gpus: tuple[Gpu, ...]) -> None:
        """Measure them from now on."""
        play_on_simulated(gpus, self.workload)
        self._started_at, self._cpu_before = datetime.now(UTC), read_packages_j(find_packages())
        self._span = self._ends.enter_context(measured(*gpus))
        self._begun_s = time.monotonic()
        self._sampler = self._ends.enter_context(Sampler(gpus, interval_s=self.interval_s))
        self.gpus = gpus

    def announce(self) -> None:
        """Print what was set."""
        for gpu in self.gpus if self.has_set else ():
            kind = "" if gpu.spec.simulated else f" (real, {gpu.spec.uuid})"
            self.say(f"wattune: {gpu.spec.label}{kind} is set to {self.setting} until {self.until}")

    def started(self, run: CountedRun, since_s: float) -> None:
        """Count the steps of a command that was started so long ago."""
        self.late_s = max(since_s - (time.monotonic() - self._begun_s), 0.0)
        run.begin(self.gpus, since_s=since_s)

    def end(self, exit_code: int, run: CountedRun | None = None) -> MeasuredCommand:
        """Return what was measured until now."""
        assert self._span is not None
        assert self._sampler is not None
        try:
            self._ends.close()
            parts = self._span.parts
        except DeviceError as error:
            parts = _until_lost(self._sampler.traces, error)
        packages, traces = find_packages(), self._sampler.traces
        found = tuple(
            MeasuredGpu(gpu.spec, cost, trace, len(restarts))
            for gpu, cost, trace, restarts in zip(self.gpus, parts, traces, self._span.restarts, strict=True)
        )
        return MeasuredCommand(
            exit_code=exit_code,
            started_at=self._started_at,
            gpus=found,
            cpu_j=cpu_energy_j(packages, self._cpu_before, read_packages_j(packages)),
            steps=None if run is None else run.work(self.gpus, traces),
            idle_s=None if run is None or self.late_s else run.idle_s(traces),
            excluded=None if run is None else run.excluded,
            from_s=self.late_s,
        )


def measure_program(command: CountedCommand, measuring: CommandMeter) -> MeasuredCommand:
    """Run a command and measure it from when its GPUs are open; it starts without them where a driver is slow."""
    started_at = datetime.now(UTC)
    done = "measured" if measuring.setting is None else "held or measured"

    def prepare(gpus: tuple[Gpu, ...]) -> None:
        measuring.begin(gpus)
        measuring.announce()

    def complain(failure: Exception) -> None:
        remark(f"wattune: the command runs on and is not {done}: {failure_text(failure)}")

    with ExitStack() as stack:
        stack.enter_context(leaving_by_exception())
        opening = Opening(
            measuring.opened, prepare, lambda _pid, since_s, _: measuring.started(run, since_s), say=complain
        )
        stack.enter_context(opening)
        opening.wait(required=load_config().require_gpu)
        with CountedRun.of(command, measuring.gpus) as run:
            run.wait(opening.started)
        if opening.end():
            with restored_if_slow(measuring.gpus if measuring.setting else ()):
                return measuring.end(run.end.exit_code, run)
        if measuring.has_set:
            opening.join(END_S)  # it restores them; where that takes longer, the watchdog does
    why = "its GPU was not open before it ended" if opening.failure is None else failure_text(opening.failure)
    return MeasuredCommand(exit_code=run.end.exit_code, started_at=started_at, unmeasured=f"nothing was {done}: {why}")


def measure_until_signal(measuring: CommandMeter) -> MeasuredCommand:
    """Measure GPUs until Ctrl-C, or until another signal, whose exit code is 128 + n."""
    with measuring.opened() as gpus:
        measuring.begin(gpus)
        try:
            measuring.announce()
            while True:
                time.sleep(LOOK_S)  # a signal that another thread receives does not interrupt a longer wait
        except KeyboardInterrupt:
            return measuring.end(0)
        except SystemExit as end:
            return measuring.end(end.code if isinstance(end.code, int) else 1)


@contextmanager
def held(gpus: Sequence[Gpu], setting: Setting | None) -> Iterator[None]:
    """Set all GPUs, or none and raise; restore them at the end, and print which could not be restored."""
    if setting is None:
        yield
        return
    for gpu in gpus:
        gpu.spec.check(setting)
    actuator = Actuator(gpus)
    try:
        with actuator:
            actuator.put(setting)
            failure = actuator.take_failure()
            if failure is not None:
                raise failure
            yield
    finally:
        for gpu, error in actuator.stuck:
            line = f"{gpu.spec.label} could not be restored: {error}"
            print_error(DeviceError(line, hint="`wattune restore` tries again"), kind="warning")


def _until_lost(traces: tuple[Trace, ...], error: DeviceError) -> tuple[Measurement, ...]:
    """Return the cost of each GPU between its first and last reading, where a GPU was lost during the command."""
    ends = [(trace.readings[0], trace.readings[-1]) for trace in traces if trace.readings]
    if len(ends) < len(traces) or any(reading.energy_j is None for pair in ends for reading in pair):
        raise error
    print_error(DeviceError(f"{error.message}; {_covered(traces)}", hint=error.hint), kind="warning")
    return tuple(Measurement.between(first, last) for first, last in ends)


def _covered(traces: tuple[Trace, ...]) -> str:
    """Return in words what the figures cover, with the numbers of the GPUs that were lost among several."""
    ends_s = [trace.readings[-1].time_s for trace in traces]
    lost = [f"GPU {place}" for place, end_s in enumerate(ends_s) if max(ends_s) - end_s > LOST_S]
    if not lost:
        return "the figures are those until its last reading"
    return f"the figures of {', '.join(lost)} are those until its last reading, and the others were measured on"
