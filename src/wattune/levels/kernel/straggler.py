"""What a pipeline does while another, slower one makes it wait (Perseus, SOSP'24).

Notation: T' the time that the straggler takes, T* the time of least energy. All pipelines synchronise after an
iteration, so being done before T' gains nothing: T_opt = min(T', T*), and what is left until T' is waited at blocking
power. The frontier ends at T*, so T_opt is `frontier.within(T')`: a new straggler needs no new solve.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattune.core.errors import Infeasible
from wattune.core.trial import Trial
from wattune.levels.kernel.planned import PlannedPipeline, StagePlan


@dataclass(frozen=True, slots=True)
class StragglerAnswer:
    """The plan for a straggler, and what an iteration spends with it and at default, the wait at its end included."""

    straggler_time_s: float
    trial: Trial[StagePlan]
    wait_s: float
    """From the end of the plan to the straggler's."""
    energy_j: float
    default_energy_j: float

    @property
    def saving_percent(self) -> float:
        """How much less energy than at default settings."""
        return 100 * (1 - self.energy_j / self.default_energy_j)


def answer_straggler(planned: PlannedPipeline, straggler_time_s: float) -> StragglerAnswer:
    """What to do while a straggler takes `straggler_time_s`; one as fast as everybody else is no straggler."""
    default, fastest_s = planned.default.cost, planned.frontier.fastest.cost.time_s
    if not straggler_time_s >= fastest_s:
        raise Infeasible(
            f"a straggler of {straggler_time_s:g} s is faster than the fastest plan",
            hint=f"that takes {fastest_s:g} s",
        )
    trial = planned.frontier.within(straggler_time_s)
    wait_s = straggler_time_s - trial.cost.time_s
    return StragglerAnswer(
        straggler_time_s,
        trial,
        wait_s,
        trial.cost.energy_j + planned.waiting_w * wait_s,
        default.energy_j + planned.waiting_w * max(straggler_time_s - default.time_s, 0.0),
    )


def answer_slowdown(planned: PlannedPipeline, factor: float) -> StragglerAnswer:
    """What to do while a straggler takes `factor` times as long as the pipeline at default settings."""
    if not factor >= 1:
        raise Infeasible(f"a straggler is slower than the others, not {factor:g} times as slow", hint="try 1.2")
    fastest_s = planned.frontier.fastest.cost.time_s
    return answer_straggler(planned, max(factor * planned.default.cost.time_s, fastest_s))
