"""What is said, written and kept when the tuning of a program ends."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import print_json, stderr_console, write_text
from wattune.core.codec import to_json
from wattune.core.errors import InputError, StoreError
from wattune.levels.run.shown import view_of

if TYPE_CHECKING:
    from wattune.config import Config
    from wattune.control.recall import Memory
    from wattune.core.window import RunPolicy, Window
    from wattune.devices.gpu import Gpu
    from wattune.levels.run.session import RunSession
    from wattune.levels.run.view.settings import EstimateWithError
    from wattune.levels.run.view.view_model import RunView


@dataclass(frozen=True, slots=True)
class Closing:
    """A program that was tuned and has ended."""

    name: str
    """The command line, or what stands for it."""
    started_at: datetime
    exit_code: int | None
    """None where it is not ours to know."""
    session: RunSession
    objective: str
    """As on a command line: energy:5%."""

    @property
    def view(self) -> RunView:
        """What people are shown of it."""
        return view_of(self.session, program=self.name, objective=self.objective, over=True)


def finish(closings: tuple[Closing, ...], *, as_json: bool, report_file: Path | None, config: Config | None) -> int:
    """The exit code, after everything was said, written and, with a configuration, kept.

    There is a closing for each GPU where these were tuned each by itself.
    """
    code, written = closings[0].exit_code or 0, True
    try:
        if config is not None:
            for closing in closings:
                keep(closing, config)
        if as_json:
            print_json(document(closings[0]) if len(closings) == 1 else several(closings))
        else:
            for closing in closings:
                _show(closing)
        for place, closing in _places(report_file, closings):
            written = _write(place, closing) and written
    except Exception as error:  # the program has run: nothing that fails here may take the place of its exit code
        click.echo(f"warning: what came of the tuning cannot be shown: {type(error).__name__}: {error}", err=True)
    return code if written else code or 1


def _places(file: Path | None, closings: tuple[Closing, ...]) -> list[tuple[Path, Closing]]:
    """Where the report of each closing goes: to the file, or of several to `FILE-0.html`, `FILE-1.html` …"""
    if file is None:
        return []
    if len(closings) == 1:
        return [(file, closings[0])]
    return [(file.with_stem(f"{file.stem}-{place}"), closing) for place, closing in enumerate(closings)]


def several(closings: tuple[Closing, ...]) -> dict[str, Any]:
    """GPUs that were tuned each by itself as one JSON document."""
    documents = [document(closing) for closing in closings]
    return {
        "simulated": any(one["simulated"] for one in documents),
        "command": closings[0].name,
        "exit_code": closings[0].exit_code,
        "each": documents,
    }


def _show(closing: Closing) -> None:
    from wattune.cli.run.screen import print_closing

    print_closing(closing.view, stderr_console())


def document(closing: Closing) -> dict[str, Any]:
    """The closing as a JSON document."""
    view, session = closing.view, closing.session
    figures = view.figures
    return {
        "simulated": view.simulated,
        "command": closing.name,
        "exit_code": closing.exit_code,
        "started_at": closing.started_at.isoformat(),
        "policy": view.policy,
        "objective": view.objective,
        "gpus": [{"name": gpu.spec.label, "uuid": gpu.spec.uuid} for gpu in session.gpus],
        "time_s": view.spent.time_s,
        "energy_j": view.spent.energy_j,
        "held": to_json(view.held),
        "evaluations": figures.evaluations,
        "saving_percent": _percent(figures.saving),
        "saving_error_percent": _percent_error(figures.saving),
        "slowdown_percent": _percent(figures.slowdown),
        "slowdown_error_percent": _percent_error(figures.slowdown),
        "held_saving_percent": _percent(figures.held_saving),
        "held_slowdown_percent": _percent(figures.held_slowdown),
        "promise_percent": None if view.slowdown_limit is None else 100 * view.slowdown_limit,
        "confidence": figures.confidence,
        "search_s": figures.search_s,
        "search_extra_j": figures.search_extra_j,
        "break_even_s": figures.break_even_s,
        "control_core_percent": None if view.cpu_share is None else 100 * view.cpu_share,
        "unit": view.unit,
        "windows": [_window(window) for window in view.windows],
        "events": [{"time_s": event.time_s, "text": event.text} for event in view.events],
    }


def recall(command_line: str, gpu: Gpu, *, policy: RunPolicy, config: Config | None) -> Memory | None:
    """Return what an earlier run of a program measured; None where there was none or the policy does not use it."""
    if config is None or not policy.uses_history:
        return None
    from wattune.control.recall import remembered
    from wattune.store.sql_store import open_store

    try:
        store = open_store(config.store_url)
        return remembered(store, command_line, gpu=gpu.spec.name, simulated=gpu.spec.simulated)
    except StoreError as error:
        click.echo(f"warning: {error.message}; no earlier run is remembered\nhint: {error.hint}", err=True)
        return None


def watching(*sessions: RunSession, program: str, objective: str, wanted: bool) -> AbstractContextManager[object]:
    """A stretch in which people see what the tuning does, on standard error, where that is wanted."""
    if not wanted:
        return nullcontext()
    from wattune.cli.run.screen import RunScreen

    def look() -> tuple[RunView, ...]:
        return tuple(view_of(session, program=program, objective=objective) for session in sessions)

    return RunScreen(look, stderr_console())


def _write(file: Path, closing: Closing) -> bool:
    """Whether the report is in its file; where not, it is said, since the program has run and keeps its code."""
    from wattune.levels.run.view.page import run_file

    made = closing.started_at.astimezone().strftime("%Y-%m-%d %H:%M")
    try:
        write_text(file, run_file(closing.view, made=made, suffix=file.suffix))
    except InputError as error:
        click.echo(f"error: {error.message}\nhint: {error.hint}", err=True)
        return False
    return True


def _percent(estimate: EstimateWithError | None) -> float | None:
    return None if estimate is None else 100 * estimate.value


def _percent_error(estimate: EstimateWithError | None) -> float | None:
    return None if estimate is None or estimate.error is None else 100 * estimate.error


def _window(window: Window) -> dict[str, Any]:
    return {
        "setting": to_json(window.setting),
        "purpose": window.purpose.value,
        "start_s": window.start_s,
        "time_s": window.cost.time_s,
        "power_w": window.power_w,
        "pace_s": window.step_time_s,
        "pace_error_s": window.step_time_error_s,
        "applied": window.held,
        "mean_sm_mhz": window.sm_mhz,
        "sm_util": window.sm_util,
        "mem_util": window.mem_util,
        "counters": dict(window.features),
        "changed": window.changed,
    }


def keep(closing: Closing, config: Config) -> None:
    """Nothing; the run is in the history, or a line on standard error says why not."""
    from wattune.levels.run.history import full_run
    from wattune.store.fallback import keep_run

    try:
        full = full_run(closing.session, name=closing.name, started_at=closing.started_at, exit_code=closing.exit_code)
        keep_run(full, store_url=config.store_url, state_dir=config.state_dir)
    except StoreError as error:
        # The program has run; a store that fails must not hide its figures or its exit code.
        click.echo(f"warning: {error.message}\nhint: {error.hint}", err=True)
