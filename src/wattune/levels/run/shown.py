"""What people are shown of a program that is tuned, made from what its session holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattune.control.state import Disabled, Measuring, Progress, Settling, Waiting
from wattune.core.measurement import Measurement
from wattune.levels.run.policies import slowdown_limit_of
from wattune.levels.run.report import figures_of
from wattune.levels.run.view.view_model import ObservedCycle, ObservedPeriod, RunEvent, RunView, TuningStage
from wattune.signals.period import PeriodAnswer

if TYPE_CHECKING:
    from wattune.levels.run.session import RunSession


def view_of(session: RunSession, *, program: str, objective: str, over: bool = False) -> RunView:
    """The view of a session; `over` once the program has ended."""
    progress, spec = session.progress, session.gpus[0].spec
    count, slowdown_limit = len(session.gpus), slowdown_limit_of(session.objective)
    stage, why = _stage(progress)
    return RunView(
        program=program,
        gpu=spec.name,
        simulated=any(gpu.spec.simulated for gpu in session.gpus),
        objective=objective,
        slowdown_limit=slowdown_limit,
        policy=session.policy.name,
        gpus=count,
        unit=session.watch.unit,
        stage=TuningStage.OVER if over else stage,
        why=why,
        spent=Measurement(progress.spent.time_s, count * progress.spent.energy_j),
        figures=figures_of(progress.windows, gpus=count, slowdown_limit=slowdown_limit),
        windows=progress.windows,
        order=progress.order,
        trace=session.watch.trace,
        each=session.loop.latest,
        period=None if session.watch.marks.total else _period(session.watch.answer),
        events=tuple(RunEvent(event.time_s, event.text) for event in progress.events),
        cpu_share=session.cpu_share,
    )


def _stage(progress: Progress) -> tuple[TuningStage, str | None]:
    match progress.state:
        case Waiting(why=why):
            return TuningStage.WAITING, str(why)
        case Settling():
            return TuningStage.SETTLING, None
        case Measuring():
            return TuningStage.LOOKING, None
        case Disabled(why=reason):
            return TuningStage.DISABLED, reason


def _period(answer: PeriodAnswer | None) -> ObservedPeriod | None:
    if answer is None:
        return None
    cycles = tuple(ObservedCycle(cycle.period_s, cycle.error_s, cycle.kind.value) for cycle in answer.cycles)
    return ObservedPeriod(answer.verdict.value, answer.period_s, answer.error_s, None, cycles)
