"""What a sweep measured: its trials in one view, the line that holds the best setting, and the default for later runs.

A later run is compared with the driver's default as an earlier sweep of the same program measured it. Only a sweep on
the same GPU of the same machine counts, whose cost is of the same unit: a step that was counted alike, or a whole run.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from wattune.control.python_command import command_title
from wattune.core.frontier import History
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement, ratio_error
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.tariff import Footprint, Tariff
from wattune.render.quantity import quantity
from wattune.sweeps.frontier_view import FrontierView, recommended, view_settings
from wattune.sweeps.repeats import merged

if TYPE_CHECKING:
    from wattune.store.records import Run
    from wattune.store.sql_store import Store

STEP, RUN = "step", "run"
"""What the cost of a trial belongs to, where a sweep runs a command."""


@dataclass(frozen=True, slots=True)
class StartUp:
    """The start-up of a command, which is in the cost of each run since no steps were counted."""

    idle_s: float | None
    """How long the GPU had not worked yet, on average; None where that is unknown."""

    def words(self, run_s: float) -> str:
        """Return what is known of its share of a run, and how to leave it out."""
        seen = "how much of a run it is cannot be seen"
        if self.idle_s:
            share = f"{100 * self.idle_s / run_s:.0f} %"
            seen = (
                f"the GPU first worked after {quantity(self.idle_s, 's')} of a run ({share}), and more may be start-up"
            )
        return (
            f"Each run has the start-up of the command in it, since no steps were counted: {seen}. So the figures are "
            "of runs of this length alone; --step-pattern counts the steps that a command prints"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A complete or partial sweep."""

    device: str
    spec: GpuSpec
    workload: str
    knob: str | None
    """None where the settings were named one by one."""
    slowdown: float
    """The slowdown limit of the recommendation."""
    per: str
    """The unit of each trial's cost: an iteration, a step or a run."""
    iterations: int
    """The iterations, or runs of the command, at each setting."""
    history: History[Setting]
    """What was measured, in order; a setting may occur several times."""
    started_at: datetime
    spent: Measurement
    """All that the sweep took on the GPU."""
    counted_by: str | None = None
    """What counted the steps of the command; None where costs are not per step."""
    start_up: StartUp | None = None
    """The start-up in costs per run; None where costs have none."""
    command_line: tuple[str, ...] = ()
    step_options: tuple[str, ...] = ()
    """The options by which its steps were counted."""
    doubt: str | None = None
    """Why the command does not seem to follow the clock of the GPU, so that nothing is recommended."""

    @property
    def view(self) -> FrontierView[Setting]:
        view = view_settings(self.settings, slowdown=self.slowdown, doubt=self.doubt)
        # Within one run nothing shows how far runs scatter, and start-up hides how far steps do.
        is_sure = len(self.history) > len(view.rows) and self.start_up is None
        return replace(view, is_sure=is_sure)

    @property
    def title(self) -> str:
        return command_title(self.workload) if self.command_line else self.workload

    @property
    def start_up_words(self) -> str | None:
        return None if self.start_up is None else self.start_up.words(self.view.reference.cost.time_s)

    @property
    def settings(self) -> History[Setting]:
        """One trial per setting, the mean of its measurements."""
        return merged(self.history)

    @property
    def hold(self) -> str | None:
        """The command line that holds the recommended setting, or None."""
        pick = recommended(self.view)
        if pick is None:
            return None
        usual = self.device == "auto" or self.device.startswith("table:")
        device = () if usual else ("--device", self.device)
        words = ["wattune", "hold", pick.trial.choice.argument, *device, *self.step_options, "--"]
        return f"{shlex.join(words)} {shlex.join(self.command_line) or 'COMMAND'}"

    def saved(self, tariff: Tariff) -> Footprint | None:
        """Return what the recommended setting saves per thousand GPU-hours of the reference, or None."""
        pick, power_w = recommended(self.view), self.view.reference.cost.power_w
        if pick is None or pick.saving_percent is None or power_w is None:
            return None
        return tariff.in_the_long_run(pick.saving_percent / 100, power_w, started_at=self.started_at)


@dataclass(frozen=True, slots=True)
class SweptDefault:
    """The cost of a step or a run at the driver's default, and the sweep that measured it."""

    cost: Measurement
    per: str
    run_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class ComparedCost:
    """By how much a cost differs from that of the driver's default, in percent with 95 % half-widths."""

    time_percent: float
    time_error_percent: float | None
    energy_percent: float
    energy_error_percent: float | None

    @classmethod
    def of(cls, cost: Measurement, default: Measurement) -> ComparedCost:
        time_error = ratio_error(cost.time_s, cost.time_error_s, default.time_s, default.time_error_s)
        energy_error = ratio_error(cost.energy_j, cost.energy_error_j, default.energy_j, default.energy_error_j)
        return cls(
            100 * (cost.time_s / default.time_s - 1),
            None if time_error is None else 100 * time_error,
            100 * (cost.energy_j / default.energy_j - 1),
            None if energy_error is None else 100 * energy_error,
        )


def load_default(store: Store, command: str, *, uuid: str, host: str, counted_by: str | None) -> SweptDefault | None:
    """Return what the latest such sweep measured; `counted_by` is what counted the steps, None for whole runs."""
    for run in store.runs(kind="sweep", name=command):
        if run.name == command and run.host == host and _is_alike(run, uuid, counted_by):
            trials = (record for record in store.run(run.id).trials if record.setting == DRIVER_DEFAULT)
            costs = [one.cost for one in merged(record.trial for record in trials)]
            if costs and costs[0].time_s > 0 and costs[0].energy_j > 0:
                return SweptDefault(costs[0], RUN if counted_by is None else STEP, run.id, run.started_at)
    return None


def _is_alike(run: Run, uuid: str, counted_by: str | None) -> bool:
    details = run.details
    return (
        [gpu.uuid for gpu in run.gpus] == [uuid]
        and details.get("per") == (RUN if counted_by is None else STEP)
        and details.get("counted_by") == counted_by
        and details.get("doubt") is None
    )
