"""Shared parts of `wattune run` and `wattune attach`: the sessions of a command, its screen, and its closing lines."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
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
from wattune.cli.run.processor_time import processor_time
from wattune.cli.run.screen import EventLines, RunScreen
from wattune.config import load_config
from wattune.control.process_monitor import CONTAINER_NOTE, ProcessWatch, numbering_of, users_of
from wattune.core.errors import InputError, StoreError
from wattune.core.gpu_spec import KNOBS, can_set
from wattune.core.objective import LeastEnergy, Objective, parse_objective, parse_share
from wattune.devices.gpu import PlaysWorkloads, play_on_simulated
from wattune.levels.run.policies import learn_beforehand, policy_named
from wattune.levels.run.report import RunReport, report_of, stored_run
from wattune.levels.run.session import RunSession
from wattune.levels.run.view.opening import opening_line
from wattune.levels.run.view.result import RunResult, document_without_gpus
from wattune.levels.run.view.settings import setting_rows, table_lines
from wattune.levels.run.view.words import closing_lines, joined, spent_words
from wattune.process.beside import failure_text
from wattune.store.worker import StoreWorker
from wattune.workloads.catalog import make_workload

if TYPE_CHECKING:
    from rich.console import Console

    from wattune.cli.run import TuningOptions
    from wattune.cli.run.program_log import ProgramLog
    from wattune.control.recall import Memory
    from wattune.core.window import RunPolicy
    from wattune.devices.gpu import Gpu
    from wattune.process.held import HeldProcess
    from wattune.process.step_file import StepFollower


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
        self._worker = None if options.no_store else StoreWorker(self._config.store_url)
        self._unread: StoreError | None = None
        """Why earlier runs could not be read, which is printed with the end of this one."""
        self._knobs = knobs_named(options.knobs)
        self._objective = objective_text(options.max_slowdown, options.objective)
        policy_named(options.policy, wanted_objective(options.max_slowdown, options.objective, ()))  # wrong ones raise
        self._workload = make_workload(options.workload)
        self._started_at = datetime.now(UTC)
        self._screen: EventLines | None = None
        self._failed = False
        """True where something of the result could not be shown or written."""
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
        policy = policy_named(self._options.policy, objective)
        notes = learn_beforehand(policy, gpus[0].spec, on_learning=lambda line: remark(f"wattune: {line}"))
        if numbering_of(gpus) == "unknown":
            notes = (*notes, CONTAINER_NOTE)
        notes = (*notes, *_lasting_notes(gpus))
        memory = self._recalled(gpus[0], policy=policy)
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

    def _recalled(self, gpu: Gpu, *, policy: RunPolicy) -> Memory | None:
        """Return what an earlier run of the program measured; None where there was none or the policy uses none."""
        worker = self._worker
        if worker is None or not policy.uses_history:
            return None
        from wattune.control.recall import load_memory

        name, spec = self._name, gpu.spec
        try:
            return worker.call(lambda store: load_memory(store, name, gpu=spec.name, simulated=spec.simulated))
        except StoreError as error:
            self._unread = error
            return None

    def reports(self, *, ended: bool = False) -> tuple[RunReport, ...]:
        cpu = processor_time()
        return tuple(
            report_of(session, program=self._name, objective=self._objective, ended=ended, cpu=cpu)
            for _, session in self.sessions
        )

    def wants_screen(self, *, default: bool) -> bool:
        """Return whether the screen is wanted, by the options or else by default."""
        if self._options.screen is not None:
            return self._options.screen
        return default and not self._options.quiet

    def open_lines(self, *, steps: str) -> None:
        """Print the line about each session that stands before the run; `steps` is how they will be seen."""
        if self._options.quiet:
            return
        for (_, session), report in zip(self.sessions, self.reports(), strict=True):
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
        if not wants_screen and self._options.quiet:
            return nullcontext()
        out = stderr_console()
        self._screen = (
            RunScreen(self.reports, out, log=log, keys=keys) if wants_screen else EventLines(self.reports, out)
        )
        return self._screen

    def finish(self, exit_code: int | None, *, unopened: Exception | None = None) -> int:
        """Print, write and store what the tuning achieved, and return the exit code.

        `exit_code` is None for a program that was attached to, `unopened` why the GPUs could not be opened.
        """
        self._check_screen()
        if not self.sessions:
            self._attempt(partial(self._finish_unopened, exit_code, unopened))
        else:
            self._attempt(partial(self._finish, exit_code))
        return exit_code or (1 if self._failed else 0)

    def _finish(self, exit_code: int | None) -> None:
        results = [
            RunResult.of(
                report,
                gpus=[gpu.spec for gpu in session.gpus],
                tariff=self._config.tariff,
                started_at=self._started_at,
            )
            for (_, session), report in zip(self.sessions, self.reports(ended=True), strict=True)
        ]
        for part in (self._print, self._write, self._store):
            self._attempt(partial(part, results, exit_code))

    def _attempt(self, part: Callable[[], None]) -> None:
        """Carry out a part of the end; where it fails, a line says so, and the exit code where the program has none.

        An output that takes nothing is no failure: what is printed there is lost, as it is while the program runs.
        """
        try:
            part()
        except Exception as error:  # the program has run: nothing that fails here may take the place of its exit code
            remark(f"warning: the result of the tuning cannot be shown: {type(error).__name__}: {error}")
            self._failed = self._failed or not isinstance(error, OSError)

    def _check_screen(self) -> None:
        trouble = None if self._screen is None else self._screen.trouble
        if trouble is not None:
            remark(f"warning: what the tuning did could not be shown while the program ran: {trouble}")
            self._failed = True

    def _print(self, results: Sequence[RunResult], exit_code: int | None) -> None:
        if self._options.as_json:
            print_json(self._document(results, exit_code))
            return
        for result in results:
            print_closing(result, stderr_console())

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
            print_json(head | rest)
        else:
            remark(f"wattune: nothing was measured or set: {why}")

    def _store(self, results: Sequence[RunResult], exit_code: int | None) -> None:
        """Add the runs to the history, unless that is not wanted."""
        if self._worker is None:
            return
        from wattune.store.fallback import keep_runs

        runs = [
            stored_run(session, result.report, started_at=self._started_at, exit_code=exit_code)
            for (_, session), result in zip(self.sessions, results, strict=True)
        ]
        failure = self._unread
        try:
            keep_runs(runs, store_url=self._config.store_url, state_dir=self._config.state_dir)
        except StoreError as error:
            failure = error
        if failure is not None:
            unread = "" if self._unread is None else "; no earlier run was used"
            print_error(StoreError(f"{failure.message}{unread}", hint=failure.hint), kind="warning")

    def _document(self, results: Sequence[RunResult], exit_code: int | None) -> dict[str, Any]:
        """Return one JSON document, also of GPUs that were tuned separately."""
        program = {"command": list(self._command_line), "exit_code": exit_code}
        reports = [result.report for result in results]
        each = [
            {**marked(report.simulated, report.progress.spec.name), **program} | result.document()
            for result, report in zip(results, reports, strict=True)
        ]
        if len(each) == 1:
            return each[0]
        simulated = [report.progress.spec.name for report in reports if report.simulated]
        return {**marked(bool(simulated), *simulated), **program, "each": each}

    def _write(self, results: Sequence[RunResult], exit_code: int | None) -> None:
        """Write the report files."""
        del exit_code
        file = self._options.report_file
        if file is None:
            return
        from wattune.levels.run.view.page import run_file

        made = f"Run of {self._started_at:%Y-%m-%d %H:%M} UTC. {made_line()}"
        pages = [run_file(result, made=made, suffix=file.suffix.lower()) for result in results]
        if not write_each(file, pages):
            self._failed = True
        elif not self._options.as_json:
            several = "" if len(results) == 1 else f", a file per GPU: {file.stem}-0{file.suffix} …"
            remark(f"report written to {file}{several}")


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


def print_closing(result: RunResult, out: Console) -> None:
    """Print what a run achieved: the figures, the settings, and what happened."""

    def say(text: str) -> None:
        # Lines that go to a pipe are not wrapped.
        out.print(shown(text).replace("\n", " "), markup=False, soft_wrap=not out.is_terminal)

    report = result.report
    out.print()
    say(f"wattune: {report.label}: {spent_words(report.spent, result.footprint)}")
    for line in trust_lines(report.simulated, report.progress.spec.name):
        say(line)
    for line in closing_lines(report):
        say(line)
    table = table_lines(setting_rows(report), width=out.width, most=MOST_ROWS)
    if table:
        out.print(joined(table), soft_wrap=True)
    for event in report.progress.events:
        say(f"at {event.time_s:.1f} s: {event.text}")
