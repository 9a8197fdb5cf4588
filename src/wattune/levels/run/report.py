"""A tuned run as it is shown, printed as JSON and stored: the state of the tuning, and the figures of its windows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from wattune.control.progress_estimator import ProgressSeen
from wattune.control.recall import fingerprint, trials_of
from wattune.control.state import Disabled, LostGpu, Progress, Waiting
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.setting import Setting
from wattune.core.window import Order, Window
from wattune.levels.run.figures import RunFigures, figures_of
from wattune.levels.run.policies import slowdown_limit_of
from wattune.levels.run.summaries import HeldFor, SettingSummary, held_for, turns_of

if TYPE_CHECKING:
    from wattune.levels.run.session import RunSession
    from wattune.store.records import FullRun

KIND = "run"


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds of processor time, in so many seconds."""

    cpu_s: float
    wall_s: float
    of_process: bool = True
    """True for a process that does nothing else, with its start; False for a thread of the program itself."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """A run at one instant. Its figures, which take time, are computed when they are first shown."""

    program: str
    """The command line, or what stands for it."""
    objective: str
    """As on the command line: energy:5%."""
    slowdown_limit: float | None
    """0.05 for 5 %; None where the objective does not limit time that way."""
    progress: Progress
    seen: ProgressSeen = field(default_factory=ProgressSeen)
    policy: str = "wattune"
    gpus: int = 1
    """Power and settings are per GPU: the mean of so many."""
    latest: tuple[Reading, ...] = ()
    """The last reading of each GPU."""
    lost: tuple[LostGpu, ...] = ()
    """GPUs that stopped answering and were left out from then on."""
    cpu: ProcessorTime | None = None
    """What the tuning takes: the whole process of a command, or its thread inside a program."""
    was_set: bool = True
    """False where no setting was ever applied, so that nothing was saved or lost."""
    ended: bool = False
    """True once the program has ended."""

    @cached_property
    def figures(self) -> RunFigures:
        was_set = self.was_set or not self.ended
        return figures_of(self.windows, gpus=self.gpus, slowdown_limit=self.slowdown_limit, was_set=was_set)

    @property
    def simulated(self) -> bool:
        return self.progress.spec.simulated

    @property
    def cpu_share(self) -> float | None:
        """Share of one core that the tuning takes."""
        return None if self.cpu is None else self.cpu.cpu_s / self.cpu.wall_s

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.progress.windows

    @property
    def order(self) -> Order | None:
        return self.progress.order

    @property
    def spent(self) -> Measurement:
        """Time, and energy of all GPUs, since the tuning began; of a lost one until its last reading."""
        lost_j = sum(one.spent.energy_j for one in self.lost)
        return Measurement(self.progress.spent.time_s, self.gpus * self.progress.spent.energy_j + lost_j)

    @property
    def changed_j(self) -> float | None:
        """By how much the energy of all GPUs differs from that of the same work at the baseline; None where unknown."""
        saved = self.figures.saving
        if saved is None or saved.value >= 1:
            return None
        return -self.gpus * self.progress.spent.energy_j * saved.value / (1 - saved.value)

    @property
    def is_measured(self) -> bool:
        """False where the program ended before a GPU was read twice, so that nothing is known of what it spent."""
        return self.spent.time_s > 0

    @property
    def why(self) -> str | None:
        """The reason why nothing is tuned at the moment, or None."""
        state = self.progress.state
        return str(state.why) if isinstance(state, Waiting | Disabled) else None

    @property
    def label(self) -> str:
        """The GPUs in words."""
        name = self.progress.spec.name
        several = f"{self.gpus} × " if self.gpus > 1 else ""
        simulated = " (simulated)" if self.simulated and "simulated" not in name else ""
        return f"{several}{name}{simulated}"

    @property
    def held(self) -> Setting | None:
        """The setting that is held now, or was last; None where none was yet."""
        return self.progress.held

    @property
    def held_for(self) -> tuple[HeldFor, ...]:
        """What was held and for how long, the longest first."""
        return held_for(self.windows)

    @property
    def alternates(self) -> tuple[Setting, ...]:
        """The two settings that are held by turns, the faster first; empty where one is held."""
        return turns_of(self.windows)

    def is_held(self, point: SettingSummary) -> bool:
        """Return whether this is what is held now, or was last."""
        return (point.setting, bool(point.by_phase)) == (self.held, bool(self.progress.held_by_phase))


def report_of(
    session: RunSession, *, program: str, objective: str, ended: bool = False, cpu: ProcessorTime | None = None
) -> RunReport:
    """Report on a session, of a program by its command line; `objective` as on the command line."""
    background = session.background
    if cpu is None and background and background.wall_s:
        cpu = ProcessorTime(background.cpu_s, background.wall_s, False)
    return RunReport(
        program=program,
        objective=objective,
        slowdown_limit=slowdown_limit_of(session.objective),
        progress=session.progress,
        seen=session.watch.seen,
        policy=session.policy.name,
        gpus=len(session.gpus),
        latest=session.loop.readings.latest,
        lost=session.loop.lost,
        cpu=cpu,
        was_set=session.loop.changes > 0,
        ended=ended,
    )


def stored_run(session: RunSession, report: RunReport, *, started_at: datetime, exit_code: int | None) -> FullRun:
    """Return the run as the history stores it: a run of kind `run`, with a trial for each setting that was measured."""
    from wattune.store.fallback import new_run
    from wattune.store.records import FullRun, RunGpu, TrialRecord

    progress, figures, workload = report.progress, report.figures, fingerprint(report.program)
    gpus = [RunGpu.of(gpu.spec, progress.spent) for gpu in session.gpus]
    gpus += [RunGpu.of(one.spec, one.spent) for one in report.lost]
    if not report.is_measured:
        gpus = [replace(gpu, energy_j=None) for gpu in gpus]
    held = report.held_for
    details = {
        "exit_code": exit_code,
        "policy": report.policy,
        "held": held[0].label if held else None,
        "held_for_s": {one.label: one.time_s for one in held},
        "saving_percent": figures.saving and figures.saving.percent,
        "slowdown_percent": figures.slowdown and figures.slowdown.percent,
        "promise_percent": None if report.slowdown_limit is None else 100 * report.slowdown_limit,
        "evaluations": figures.evaluations,
        "workload": workload,
        "events": [event.text for event in progress.events],
    }
    run = new_run(KIND, report.program, started_at=started_at, gpus=gpus, details=details)
    spec = session.gpus[0].spec
    trials = tuple(
        TrialRecord.of(trial, workload=workload, gpu=spec.name, simulated=spec.simulated)
        for trial in trials_of(progress.windows)
    )
    return FullRun(run, trials)
