"""The result of a tuned run: one value, which the terminal, the page and JSON show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from wattune.core.codec import to_json
from wattune.core.gpu_spec import GpuSpec
from wattune.core.tariff import NO_FOOTPRINT, Footprint, Tariff
from wattune.core.window import Window
from wattune.levels.run.figures import RunFigures
from wattune.levels.run.report import RunReport
from wattune.levels.run.summaries import EstimateWithError, phase_summaries


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run, when it began, and what it comes to."""

    report: RunReport
    gpus: tuple[GpuSpec, ...]
    started_at: datetime
    footprint: Footprint | None
    """What the energy comes to; None where nothing was measured."""
    long_run: Footprint | None
    """What the held setting saves in work that takes 1,000 GPU-hours at the baseline; None where that is unknown."""

    @classmethod
    def of(cls, report: RunReport, *, gpus: Sequence[GpuSpec], tariff: Tariff, started_at: datetime) -> RunResult:
        """Compute what a run comes to."""
        spent, footprint = report.spent, None
        if report.is_measured:
            footprint = tariff.footprint(spent.energy_j, started_at=started_at, time_s=spent.time_s)
        long_run = _long_run(report, tariff, started_at)
        return cls(report=report, gpus=tuple(gpus), started_at=started_at, footprint=footprint, long_run=long_run)

    def document(self) -> dict[str, Any]:
        """Return the result as a JSON document, without the program and its end."""
        report = self.report
        return {
            "started_at": self.started_at.isoformat(),
            "policy": report.policy,
            "objective": report.objective,
            "gpus": [{"name": spec.label, "uuid": spec.uuid} for spec in self.gpus],
            "lost": [
                {"index": one.index, "name": one.spec.label, "uuid": one.spec.uuid, "reason": one.why}
                | {"time_s": one.spent.time_s, "energy_j": one.spent.energy_j}
                for one in report.lost
            ],
            "time_s": report.spent.time_s,
            "energy_j": report.spent.energy_j if report.is_measured else None,
            "held": to_json(report.held),
            "held_for": [
                {"setting": to_json(one.setting), "time_s": one.time_s}
                | {"by_phase": {phase.name: to_json(phase.setting) for phase in one.by_phase}}
                for one in report.held_for
            ],
            "held_turns": [to_json(setting) for setting in report.alternates],
            "held_by_phase": {one.name: to_json(one.setting) for one in report.progress.held_by_phase},
            **_figures(report.figures, report.slowdown_limit),
            "control_core_percent": None if report.cpu_share is None else 100 * report.cpu_share,
            "control_cpu_s": None if report.cpu is None else report.cpu.cpu_s,
            "unit": report.seen.unit,
            "step_source": report.seen.source,
            "windows": [_window(window) for window in report.windows],
            "events": [{"time_s": event.time_s, "text": event.text} for event in report.progress.events],
            **(NO_FOOTPRINT if self.footprint is None else asdict(self.footprint)),
        }


def document_without_gpus(*, policy: str, objective: str, started_at: str, why: str) -> dict[str, Any]:
    """Return the same document for a program whose GPUs were not opened."""
    figures = _figures(RunFigures(), None)
    unknown = ("time_s", "energy_j", "held", *figures, "control_core_percent", "control_cpu_s", "unit", "step_source")
    return {
        "started_at": started_at,
        "policy": policy,
        "objective": objective,
        **dict.fromkeys(unknown),
        **dict.fromkeys(("gpus", "lost", "held_for", "held_turns", "windows"), ()),
        "held_by_phase": {},
        "evaluations": 0,
        "events": [{"time_s": 0.0, "text": why}],
        **NO_FOOTPRINT,
    }


def _long_run(report: RunReport, tariff: Tariff, started_at: datetime) -> Footprint | None:
    saving, slower = report.figures.held_saving, report.figures.held_slowdown
    phases = phase_summaries(report.windows)
    base = phases[-1].baseline if phases else None
    if saving is None or slower is None or base is None or base.power is None:
        return None
    return tariff.in_the_long_run(saving.value, base.power.value, started_at=started_at)


def _figures(figures: RunFigures, slowdown_limit: float | None) -> dict[str, Any]:
    return {
        "evaluations": figures.evaluations,
        **_percent("saving", figures.saving),
        **_percent("slowdown", figures.slowdown),
        **_percent("compared_saving", figures.compared_saving),
        **_percent("compared_slowdown", figures.compared_slowdown),
        "compared_s": figures.compared_s,
        **_percent("held_saving", figures.held_saving),
        **_percent("held_slowdown", figures.held_slowdown),
        "promise_percent": None if slowdown_limit is None else 100 * slowdown_limit,
        "confidence": figures.confidence,
        "search_s": figures.search_s,
        "search_extra_j": figures.search_extra_j,
        "break_even_s": figures.break_even_s,
    }


def _percent(name: str, estimate: EstimateWithError | None) -> dict[str, float | None]:
    error = None if estimate is None else estimate.error
    return {
        f"{name}_percent": None if estimate is None else estimate.percent,
        f"{name}_error_percent": None if error is None else 100 * error,
    }


def _window(window: Window) -> dict[str, Any]:
    cost = window.cost
    is_long = cost.time_s > 0
    return {
        "setting": to_json(window.setting),
        "purpose": window.purpose.value,
        "start_s": window.start_s,
        "time_s": cost.time_s,
        "power_w": window.power_w if is_long else None,
        "power_error_w": cost.energy_error_j / cost.time_s if cost.energy_error_j is not None and is_long else None,
        "steps": window.steps,
        "pace_s": window.step_time_s,
        "pace_error_s": window.step_time_error_s,
        "applied": window.held,
        "mean_sm_mhz": window.sm_mhz,
        "sm_util": window.sm_util,
        "mem_util": window.mem_util,
        "counters": dict(window.features),
        "changed": window.changed,
        "phases": [
            {"phase": one.name, "time_s": one.cost.time_s, "energy_j": one.cost.energy_j, "mean_sm_mhz": one.sm_mhz}
            for one in window.phases
        ],
        "by_phase": {one.name: to_json(one.setting) for one in window.by_phase},
    }
