"""What is logged, printed and stored of a training run, as pure functions of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from wattune.config import load_config
from wattune.core.codec import JsonReader, to_json
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.integrations.training.step_counter import StepsCost
from wattune.levels.run.figures import RunFigures
from wattune.physics.catalog import trust_of
from wattune.render.quantity import counted, duration, quantity
from wattune.store.fallback import keep_run, new_run
from wattune.store.records import FullRun, RunGpu

if TYPE_CHECKING:
    from wattune.levels.run.session import RunSession


def prefix(*, simulated: bool) -> str:
    """Return what the names of logged figures begin with."""
    return "wattune_simulated/" if simulated else "wattune/"


def step_figures(found: StepsCost | None, total: StepsCost) -> dict[str, float]:
    """Return the figures of the latest steps, where they are known, with the energy of all steps until then."""
    if found is None:
        return {}
    each = found.cost / found.steps
    return {
        "step_energy_j": each.energy_j,
        "step_time_s": each.time_s,
        "power_w": found.cost.power_w,
        "total_energy_j": total.cost.energy_j,
    }


def setting_figures(setting: Setting) -> dict[str, float]:
    """Return what is set; nothing of what the driver decides."""
    values = {"sm_mhz": setting.sm_mhz, "mem_mhz": setting.mem_mhz, "power_limit_w": setting.power_limit_w}
    return {name: float(value) for name, value in values.items() if value is not None}


def compared_figures(figures: RunFigures) -> dict[str, float]:
    """Return saving and slowdown, search included; nothing before they were compared."""
    values = {"saving_percent": figures.saving, "slowdown_percent": figures.slowdown}
    return {name: value.percent for name, value in values.items() if value is not None}


def gpu_parts(gpus: Sequence[Gpu], costs: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return what each GPU took, in a form that ranks can exchange."""
    return [to_json(RunGpu.of(gpu.spec, cost)) for gpu, cost in zip(gpus, costs, strict=True)]


def finished(
    name: str,
    parts: Sequence[Sequence[dict[str, Any]]],
    *,
    session: RunSession | None,
    goal: str,
    started_at: datetime,
    steps: StepsCost,
) -> tuple[FullRun, str]:
    """Return the run of a whole job as the history stores it, and the line that sums it up."""
    from wattune.levels.run.report import report_of, stored_run
    from wattune.levels.run.view.words import headline

    reader = JsonReader()
    gpus = [reader.read(RunGpu, part) for own in parts for part in own]
    each = steps.cost / steps.steps if steps.is_certain else None
    details = {"steps": steps.steps, "step_energy_j": None if each is None else each.energy_j}
    words = ""
    full = FullRun(new_run("measure", name, started_at=started_at, gpus=gpus, details=details))
    if session is not None:
        report = report_of(session, program=name, objective=goal, ended=True)
        stored = stored_run(session, report, started_at=started_at, exit_code=0)
        full = FullRun(
            replace(full.run, kind=stored.run.kind, details={**stored.run.details, **details}), stored.trials
        )
        words = f"; {headline(report).removeprefix('simulated: ')}"
    run = full.run
    trust = trust_of(any(gpu.simulated for gpu in gpus), *(gpu.name for gpu in gpus))
    words += "" if trust is None else f"; {trust.words.removeprefix('simulated; ')}"
    took = f"{run.device}: {quantity(run.energy_j, 'J')} in {duration(run.time_s)}, {counted(steps.steps, 'step')}"
    return full, took + ("" if each is None else f" of {quantity(each.energy_j, 'J')}") + words


def keep(full: FullRun) -> None:
    """Add a run to the history."""
    config = load_config()
    keep_run(full, store_url=config.store_url, state_dir=config.state_dir)
