"""Shared parts of `wattune run` and `wattune attach`: the sessions of a command, its screen, and its closing lines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from wattune.api import phase_policy
from wattune.cli.output import (
    check_report,
    made_line,
    marked,
    print_error,
    print_json,
    remark,
    shown,
    stderr_console,
    trust_lines,
    write_each,
)
from wattune.cli.run.gpu_opening import failure_text
from wattune.cli.run.processor_time import processor_time
from wattune.cli.run.screen import EventLines, RunScreen
from wattune.config import load_config
from wattune.control.process_monitor import CONTAINER_NOTE, ProcessWatch, numbering_of, users_of
from wattune.core.codec import to_json
from wattune.core.errors import InputError, StoreError
from wattune.core.gpu_spec import KNOBS, can_set
from wattune.core.objective import LeastEnergy, Objective, parse_objective, parse_share
from wattune.devices.gpu import PlaysWorkloads, play_on_simulated
from wattune.levels.run.policies import policy_named, trained_policy
from wattune.levels.run.report import RunReport, glimpse_of, report_of, stored_run
from wattune.levels.run.session import RunSession
from wattune.levels.run.view.opening import opening_line
from wattune.levels.run.view.words import closing_lines, joined, setting_rows, table_lines
from wattune.render.quantity import duration, footprint_words, quantity
from wattune.store.worker import StoreWorker
from wattune.workloads.catalog import make_workload

if TYPE_CHECKING:
    from rich.console import Console

    from wattune.cli.run import TuningOptions
    from wattune.cli.run.program_log import ProgramLog
    from wattune.config import Config
    from wattune.control.process_monitor import HeldProcess
    from wattune.control.recall import Memory
    from wattune.control.step_file import StepFollower
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.measurement import Measurement
    from wattune.core.tariff import Footprint
    from wattune.core.window import RunPolicy, Window
    from wattune.devices.gpu import Gpu
    from wattune.levels.run.figures import EstimateWithError


DEFAULT_SLOWDOWN = "5%"
LATE_S = 0.5
"""A GPU that is open so much after the start of the program is measured from then on only."""
MOST_ROWS = 12
"""Rows of the closing table."""


def wanted_objective(slowdown: str | None, objective: str | None, gpus: Sequence[Gpu]) -> Objective:
    """Parse the objective of a command line; time is weighed by the highest power limit of one GPU.

    Without GPUs this only checks the text.
    """
    if objective is not None:
        from wattune.levels.job.gpus import highest_limit_w

        return parse_objective(objective, max_power_w=max(map(highest_limit_w, gpus), default=1.0))
    try:
        return LeastEnergy(parse_share(DEFAULT_SLOWDOWN if slowdown is None else slowdown))
    except ValueError:
        raise InputError(f"{slowdown!r} is no slowdown", hint="write a share such as 5% or 0.05") from None


def objective_text(slowdown: str | None, objective: str | None) -> str:
    """Return the objective as it would be written on a command line."""
    if slowdown is not None and objective is not None:
        raise click.UsageError("--max-slowdown and --objective cannot be used together")
    return objective or f"energy:{DEFAULT_SLOWDOWN if slowdown is None else slowdown}"


def knobs_named(names: str | None) -> frozenset[str]:
    """Parse a list of knobs such as `sm-clock,power-limit`; without a list, all of them."""
    known = {name.replace("_", "-"): name for name in KNOBS}
    asked = list(known) if names is None else [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in known]
    if unknown or not asked:
        raise InputError(
            f"there is no knob {unknown[0] if unknown else names!r}", hint=f"choose from {', '.join(known)}"
        )
    return frozenset(known[name] for name in asked)


class TunedProgram:
    """A program that is tuned by a command: its sessions, its screen, and its results."""

    def __init__(self, options: TuningOptions, command_line: Sequence[str], name: str | None = None) -> None:
        """`name` stands for the command line where that is unknown."""
        if options.quiet and options.screen:
            raise click.UsageError("--quiet and --screen cannot be used together")
        check_report(options.report_file, suffixes=(".html", ".svg"))
        self._options, self._command_line = options, tuple(command_line)
        self._name = name or shlex.join(command_line)
        self._config = load_config()
        self._tariff = self._config.tariff
        self._worker = None if options.no_store else StoreWorker(self._config.store_url)
        self._knobs = knobs_named(options.knobs)
        self._objective = objective_text(options.max_slowdown, options.objective)
        policy_named(options.policy, wanted_objective(options.max_slowdown, options.objective, ()))  # wrong ones raise
        self._workload = make_workload(options.workload)
        self._started_at = datetime.now(UTC)
        self.sessions: list[tuple[ProcessWatch, RunSession]] = []
        """One for all GPUs, or one for each."""

    def open(
        self,
        gpus: Sequence[Gpu],
        *,
        per_gpu: bool = False,
        process: HeldProcess | None = None,
        hook: StepFollower | None = None,
    ) -> None:
        """Make the sessions on these GPUs, and play the workload on simulated ones."""
        objective = wanted_objective(self._options.max_slowdown, self._options.objective, gpus)
        sessions = []
        for group in [(gpu,) for gpu in gpus] if per_gpu else [tuple(gpus)]:
            simulated = any(isinstance(gpu, PlaysWorkloads) for gpu in group)
            numbered = numbering_of(group)
            program = ProcessWatch(users_of(group), simulated=simulated, process=process, numbered=numbered)
            sessions.append((program, self._session(group, objective, program, hook)))
        self.sessions = sessions
        play_on_simulated(gpus, self._workload)
        self._started_at = datetime.now(UTC)

    def begin(self, pid: int, late_s: float, stack: ExitStack) -> None:
        """Begin to tune a program that was started so long ago, until the stack is closed."""
        for program, session in self.sessions:
            program.pid = pid
            if late_s >= LATE_S:
                session.loop.progress = session.progress.noted(
                    f"the driver is slow: the GPU was open {late_s:.1f} s after the program had started, "
                    "and is measured from then on"
                )
            stack.enter_context(session)

    def step(self, count: int, *, age_s: float) -> None:
        """Count steps of the program once its GPUs are open."""
        if self.sessions:
            self.sessions[0][1].step(count, age_s=age_s)

    def phase(self, name: str, *, age_s: float) -> None:
        """Note that a phase of a step began, once the GPUs are open."""
        if self.sessions:
            self.sessions[0][1].phase(name, age_s=age_s)

    def note(self, text: str) -> None:
        """Note an event after the end of the program."""
        for _, session in self.sessions[:1]:
            session.loop.progress = session.progress.noted(text)

    @property
    def plays_workloads(self) -> bool:
        """True where a GPU is known to be simulated in this process."""
        return any(isinstance(gpu, PlaysWorkloads) for _, session in self.sessions for gpu in session.gpus)

    def _session(
        self, gpus: Sequence[Gpu], objective: Objective, program: ProcessWatch, hook: StepFollower | None
    ) -> RunSession:
        policy, notes = trained_policy(
            self._options.policy,
            objective,
            gpus[0].spec,
            on_learning=lambda line: remark(f"wattune: {line}"),
        )
        if numbering_of(gpus) == "unknown":
            notes = (*notes, CONTAINER_NOTE)
        notes = (*notes, *_lasting_notes(gpus))
        memory = _recalled(self._name, gpus[0], policy=policy, worker=self._worker)
        per_phase = phase_policy(policy, objective, gpus)
        return RunSession(
            gpus,
            objective=objective,
            policy=per_phase or policy,
            knobs=self._knobs,
            program=program,
            memory=memory,
            notes=notes,
            phase_players=None if per_phase is None else partial(per_phase.player, spec=gpus[0].spec),
            hook=hook,
        )

    def reports(self, *, ended: bool = False) -> tuple[RunReport, ...]:
        cpu = processor_time()
        return tuple(
            replace(report_of(session, program=self._name, objective=self._objective, ended=ended), cpu=cpu)
            for _, session in self.sessions
        )

    def glimpses(self) -> tuple[RunReport, ...]:
        """Return the reports without figures, which take time."""
        return tuple(glimpse_of(session, program=self._name, objective=self._objective) for _, session in self.sessions)

    def wants_screen(self, *, default: bool) -> bool:
        """Return whether the screen is wanted, by the options or else by default."""
        if self._options.screen is not None:
            return self._options.screen
        return default and not self._options.quiet

    def open_lines(self, *, steps: str) -> None:
        """Print the line about each session that stands before the run; `steps` is how they will be seen."""
        if self._options.quiet:
            return
        for (_, session), report in zip(self.sessions, self.glimpses(), strict=True):
            line = opening_line(
                report,
                tunes=session.policy.tunes,
                may_set=_may_set(session.gpus),
                can_set=can_set(report.progress.spec),
                steps=steps,
            )
            remark(f"wattune: {line}")

    def shown(self, *, wants_screen: bool, keys: str, log: ProgramLog | None = None) -> AbstractContextManager[object]:
        """Show on standard error what the tuning does, until the block ends, as far as that is wanted."""
        if wants_screen:
            return RunScreen(self.reports, stderr_console(), log=log, keys=keys)
        return nullcontext() if self._options.quiet else EventLines(self.glimpses, stderr_console())

    def finish(self, exit_code: int | None, *, unopened: Exception | None = None) -> int:
        """Print, write and store what the tuning achieved, and return the exit code.

        `exit_code` is None for a program that was attached to, `unopened` why the GPUs could not be opened.
        """
        written = True
        try:
            if not self.sessions:
                self._finish_unopened(exit_code, unopened)
                return exit_code or 0
            reports = self.reports(ended=True)
            if self._options.as_json:
                print_json(self._document(reports, exit_code))
            else:
                for report in reports:
                    print_closing(report, stderr_console(), self._footprint(report))
            written = self._write(reports)
            if self._worker is not None:
                self._store(self._config, reports, exit_code)
        except Exception as error:  # the program has run: nothing that fails here may take the place of its exit code
            remark(f"warning: the result of the tuning cannot be shown: {type(error).__name__}: {error}")
        return exit_code or (0 if written else 1)

    def _finish_unopened(self, exit_code: int | None, error: Exception | None) -> None:
        """Print that nothing was measured, since the GPUs were not open before the program ended."""
        why = "its GPU was not open before it ended" if error is None else failure_text(error)
        if self._options.as_json:
            head = {**marked(False), "command": list(self._command_line), "exit_code": exit_code}
            rest = document_without_gpus(
                policy=self._options.policy,
                objective=self._objective,
                started_at=self._started_at.isoformat(),
                why=why,
            )
            print_json(head | rest | _footprint_fields(None))
        else:
            remark(f"wattune: nothing was measured or set: {why}")

    def _store(self, config: Config, reports: tuple[RunReport, ...], exit_code: int | None) -> None:
        """Add the runs to the history; a store that fails must not hide the figures or the exit code."""
        from wattune.store.fallback import keep_runs

        runs = [
            stored_run(session, report, started_at=self._started_at, exit_code=exit_code)
            for (_, session), report in zip(self.sessions, reports, strict=True)
        ]
        try:
            keep_runs(runs, store_url=config.store_url, state_dir=config.state_dir)
        except StoreError as error:
            print_error(error, kind="warning")

    def _document(self, reports: tuple[RunReport, ...], exit_code: int | None) -> dict[str, Any]:
        """Return one JSON document, also of GPUs that were tuned separately."""
        started_at = self._started_at.isoformat()
        each = [
            {
                **marked(report.simulated, report.progress.spec.name),
                "command": list(self._command_line),
                "exit_code": exit_code,
            }
            | document(report, [gpu.spec for gpu in session.gpus], started_at=started_at)
            | _footprint_fields(self._footprint(report))
            for (_, session), report in zip(self.sessions, reports, strict=True)
        ]
        if len(each) == 1:
            return each[0]
        simulated = [report.progress.spec.name for report in reports if report.simulated]
        command = list(self._command_line)
        return {**marked(bool(simulated), *simulated), "command": command, "exit_code": exit_code, "each": each}

    def _footprint(self, report: RunReport) -> Footprint | None:
        """Return what the run comes to; None where nothing was measured."""
        if not report.is_measured:
            return None
        spent = report.spent
        return self._tariff.footprint(spent.energy_j, started_at=self._started_at, time_s=spent.time_s)

    def _write(self, reports: tuple[RunReport, ...]) -> bool:
        """Write the report files and return False where that failed: the program keeps its exit code."""
        file = self._options.report_file
        if file is None:
            return True
        from wattune.levels.run.view.page import run_file

        made = f"Run of {self._started_at:%Y-%m-%d %H:%M} UTC. {made_line()}"
        tariff, started_at = self._tariff, self._started_at
        suffix = file.suffix.lower()
        pages = [run_file(report, made=made, suffix=suffix, tariff=tariff, started_at=started_at) for report in reports]
        written = write_each(file, pages)
        if written and not self._options.as_json:
            several = "" if len(reports) == 1 else f", a file per GPU: {file.stem}-0{file.suffix} …"
            remark(f"report written to {file}{several}")
        return written


def _may_set(gpus: Sequence[Gpu]) -> bool:
    """Return whether this process may set these GPUs; nothing is set to find out."""
    from wattune.devices.nvml.library import may_set

    return all(isinstance(gpu, PlaysWorkloads) for gpu in gpus) or may_set()


def _lasting_notes(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return a note about each GPU that forgets its settings: they end with the last program that uses it."""
    from wattune.devices.nvml.open import forgetful

    return tuple(
        f"{gpu.spec.label} is not in persistence mode: limits and clocks that were set on it before are lost whenever "
        f"no program uses it (`nvidia-smi -pm 1` keeps them)"
        for gpu in gpus
        if not isinstance(gpu, PlaysWorkloads) and forgetful(gpu.spec.uuid)
    )


def _recalled(command_line: str, gpu: Gpu, *, policy: RunPolicy, worker: StoreWorker | None) -> Memory | None:
    """Return what an earlier run of a program measured; None where there was none or the policy does not use it."""
    if worker is None or not policy.uses_history:
        return None
    from wattune.control.recall import load_memory

    try:
        return worker.call(
            lambda store: load_memory(store, command_line, gpu=gpu.spec.name, simulated=gpu.spec.simulated)
        )
    except StoreError as error:
        print_error(StoreError(f"{error.message}; no earlier run is used", hint=error.hint), kind="warning")
        return None


def _footprint_fields(footprint: Footprint | None) -> dict[str, Any]:
    from wattune.core.tariff import Footprint

    return dict.fromkeys(field.name for field in fields(Footprint)) if footprint is None else asdict(footprint)


def print_closing(report: RunReport, out: Console, footprint: Footprint | None) -> None:
    """Print what a run achieved: the figures, the settings, and what happened."""

    def say(text: str) -> None:
        # Lines that go to a pipe are not wrapped.
        out.print(shown(text).replace("\n", " "), markup=False, soft_wrap=not out.is_terminal)

    out.print()
    spent = "nothing was measured, since the program ended before the GPU was read twice"
    if footprint is not None:
        energy_j, time_s = report.spent.energy_j, report.spent.time_s
        spent = f"{quantity(energy_j, 'J')} ({footprint_words(footprint)}) in {duration(time_s)}"
    say(f"wattune: {report.label}: {spent}")
    for line in trust_lines(report.simulated, report.progress.spec.name):
        say(line)
    for line in closing_lines(report):
        say(line)
    table = table_lines(setting_rows(report), width=out.width, most=MOST_ROWS)
    if table:
        out.print(joined(table), soft_wrap=True)
    for event in report.progress.events:
        say(f"at {event.time_s:.1f} s: {event.text}")


def document(report: RunReport, gpus: Sequence[GpuSpec], *, started_at: str) -> dict[str, Any]:
    """Return the result of a run as a JSON document, without the program and its end."""
    figures = report.figures
    return {
        "started_at": started_at,
        "policy": report.policy,
        "objective": report.objective,
        "gpus": [{"name": spec.label, "uuid": spec.uuid} for spec in gpus],
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
        "evaluations": figures.evaluations,
        "saving_percent": figures.saving and figures.saving.percent,
        "saving_error_percent": _percent_error(figures.saving),
        "slowdown_percent": figures.slowdown and figures.slowdown.percent,
        "slowdown_error_percent": _percent_error(figures.slowdown),
        "compared_saving_percent": figures.compared_saving and figures.compared_saving.percent,
        "compared_saving_error_percent": _percent_error(figures.compared_saving),
        "compared_slowdown_percent": figures.compared_slowdown and figures.compared_slowdown.percent,
        "compared_slowdown_error_percent": _percent_error(figures.compared_slowdown),
        "compared_s": figures.compared_s,
        "held_saving_percent": figures.held_saving and figures.held_saving.percent,
        "held_saving_error_percent": _percent_error(figures.held_saving),
        "held_slowdown_percent": figures.held_slowdown and figures.held_slowdown.percent,
        "held_slowdown_error_percent": _percent_error(figures.held_slowdown),
        "promise_percent": None if report.slowdown_limit is None else 100 * report.slowdown_limit,
        "confidence": figures.confidence,
        "search_s": figures.search_s,
        "search_extra_j": figures.search_extra_j,
        "break_even_s": figures.break_even_s,
        "control_core_percent": None if report.cpu_share is None else 100 * report.cpu_share,
        "control_cpu_s": None if report.cpu is None else report.cpu.cpu_s,
        "unit": report.unit,
        "step_source": report.step_source,
        "windows": [_window(window) for window in report.windows],
        "events": [{"time_s": event.time_s, "text": event.text} for event in report.progress.events],
    }


_UNKNOWN = (
    *("time_s", "energy_j", "held", "saving_percent", "saving_error_percent", "slowdown_percent"),
    *("slowdown_error_percent", "compared_saving_percent", "compared_saving_error_percent"),
    *("compared_slowdown_percent", "compared_slowdown_error_percent", "compared_s"),
    *("held_saving_percent", "held_saving_error_percent", "held_slowdown_percent", "held_slowdown_error_percent"),
    *("promise_percent", "confidence", "search_s", "search_extra_j", "break_even_s"),
    *("control_core_percent", "control_cpu_s", "unit", "step_source"),
)


def document_without_gpus(*, policy: str, objective: str, started_at: str, why: str) -> dict[str, Any]:
    """Return the same document for a program whose GPUs were not opened."""
    return {
        "started_at": started_at,
        "policy": policy,
        "objective": objective,
        **dict.fromkeys(_UNKNOWN),
        **dict.fromkeys(("gpus", "lost", "held_for", "held_turns", "windows"), ()),
        "held_by_phase": {},
        "evaluations": 0,
        "events": [{"time_s": 0.0, "text": why}],
    }


def _percent_error(estimate: EstimateWithError | None) -> float | None:
    return None if estimate is None or estimate.error is None else 100 * estimate.error


def _power_error_w(cost: Measurement) -> float | None:
    return cost.energy_error_j / cost.time_s if cost.energy_error_j is not None and cost.time_s > 0 else None


def _window(window: Window) -> dict[str, Any]:
    return {
        "setting": to_json(window.setting),
        "purpose": window.purpose.value,
        "start_s": window.start_s,
        "time_s": window.cost.time_s,
        "power_w": window.power_w if window.cost.time_s > 0 else None,
        "power_error_w": _power_error_w(window.cost),
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
