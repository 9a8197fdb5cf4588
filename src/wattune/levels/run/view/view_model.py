"""A program that is tuned while it runs, as plain data: what the live screen and the closing report are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, floor

from wattune.control.power_trace import PowerTrace
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window, since_change
from wattune.levels.run.view.settings import EstimateWithError


class TuningStage(StrEnum):
    """What the tuning is doing."""

    WAITING = "waiting"
    SETTLING = "settling"
    LOOKING = "looking"
    DISABLED = "resigned"
    """Nothing is set any more."""
    OVER = "over"
    """The program has ended."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened, and when: seconds since the tuning began."""

    time_s: float
    text: str


@dataclass(frozen=True, slots=True)
class ObservedCycle:
    """Something that repeats: how often, and what it is thought to be."""

    period_s: float
    error_s: float | None = None
    kind: str = "cycle"


@dataclass(frozen=True, slots=True)
class ObservedPeriod:
    """What is known of the repetition of a program: periodic, aperiodic or not observable."""

    verdict: str
    period_s: float | None = None
    error_s: float | None = None
    phase_s: float | None = None
    """An instant, by the GPU's time, at which a period begins."""
    cycles: tuple[ObservedCycle, ...] = ()

    def marks_s(self, start_s: float, end_s: float) -> tuple[float, ...]:
        """The beginnings of periods from one instant to another; from the end back where no phase is known."""
        if not self.period_s or self.period_s <= 0 or end_s <= start_s:
            return ()
        anchor_s = end_s if self.phase_s is None else self.phase_s
        first, last = ceil((start_s - anchor_s) / self.period_s), floor((end_s - anchor_s) / self.period_s)
        return tuple(anchor_s + place * self.period_s for place in range(first, last + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What tuning did for a run so far, everything that the search spent included; None where it cannot be told."""

    saving: EstimateWithError | None = None
    """Share of the energy that the same work takes at the baseline."""
    slowdown: EstimateWithError | None = None
    """Share of the time that the same work takes at the baseline."""
    confidence: float | None = None
    """How likely the slowdown is within the promise, 0 to 1."""
    held_saving: EstimateWithError | None = None
    """At what was held last: what a longer run tends to."""
    held_slowdown: EstimateWithError | None = None
    evaluations: int = 0
    """Looks at settings other than the baseline that were not for holding."""
    search_s: float = 0.0
    """Until something was held for the first time."""
    search_extra_j: float | None = None
    """What the search spent more than the baseline would have on the same work; below zero it saved."""
    break_even_s: float | None = None
    """From when on the run has spent less than without tuning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """All that people are shown of a run."""

    program: str
    gpu: str
    """The name of the part; the word simulated is added where that is so."""
    simulated: bool
    objective: str
    """As on the command line: energy:5%."""
    slowdown_limit: float | None
    """The slowdown that was promised, 0.05 for 5 %; None where time has no limit of that kind."""
    policy: str = "wattune"
    gpus: int = 1
    """Power and gears are per GPU: the mean of so many."""
    unit: str = "step"
    """What a pace is the time of: a step that the program reports, or a period of its power."""
    stage: TuningStage = TuningStage.WAITING
    why: str | None = None
    """Why it waits, or why it resigned."""
    spent: Measurement = field(default_factory=lambda: Measurement(0.0, 0.0))
    """By all GPUs since the tuning began."""
    figures: RunFigures = field(default_factory=RunFigures)
    windows: tuple[Window, ...] = ()
    order: Order | None = None
    """The one that is being carried out."""
    about_trials: int | None = 5
    """How many trials a search takes, roughly; None where that is not known."""
    trace: PowerTrace = field(default_factory=PowerTrace)
    each: tuple[Reading, ...] = ()
    """What each GPU showed last."""
    period: ObservedPeriod | None = None
    events: tuple[RunEvent, ...] = ()
    cpu_share: float | None = None
    """Share of one core that the tuning takes."""

    @property
    def label(self) -> str:
        """The part or parts in words."""
        several = f"{self.gpus} × " if self.gpus > 1 else ""
        simulated = " (simulated)" if self.simulated and "simulated" not in self.gpu else ""
        return f"{several}{self.gpu}{simulated}"

    @property
    def since_change(self) -> tuple[Window, ...]:
        """The windows since the program last began to do something else."""
        return since_change(self.windows)

    @property
    def held(self) -> Setting | None:
        """What is held now, or was last; None where nothing was yet."""
        if self.order is not None and self.order.purpose is Purpose.HOLD:
            return self.order.setting
        return next((one.setting for one in reversed(self.windows) if one.purpose is Purpose.HOLD), None)


def state_words(view: RunView) -> str:
    """What is going on, in one line: `searching: 3 of about 5`, `holding 1440 MHz`."""
    match view.stage:
        case TuningStage.OVER:
            return "the program has ended"
        case TuningStage.DISABLED:
            return f"not tuning any more: {view.why}" if view.why else "not tuning any more"
        case TuningStage.WAITING:
            return f"waiting: the program is {view.why}" if view.why else "waiting for the program to use the GPU"
        case _:
            return _order_words(view) + (", settling" if view.stage is TuningStage.SETTLING else "")


def _order_words(view: RunView) -> str:
    if view.order is None:
        return "nothing is ordered"
    setting = str(view.order.setting)
    match view.order.purpose:
        case Purpose.BASELINE:
            return f"looking at the baseline ({setting})"
        case Purpose.REFERENCE:
            return f"looking at counters ({setting})"
        case Purpose.HOLD:
            return f"holding {'the ' * (view.order.setting == DRIVER_DEFAULT)}{setting}"
        case Purpose.TRIAL:
            tried = 1 + sum(window.purpose is Purpose.TRIAL for window in view.since_change)
            about = "" if view.about_trials is None or tried > view.about_trials else f" of about {view.about_trials}"
            return f"searching: {tried}{about} ({setting})"
