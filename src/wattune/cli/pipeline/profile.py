"""`wattune pipeline profile`: run a training program whose ranks measure the stage profile of their pipeline."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.calling_user import name_root_program
from wattune.cli.child import check_command, grace_option, run_child
from wattune.cli.output import (
    FILE,
    check_writable,
    json_option,
    marked,
    print_error,
    print_json,
    print_line,
    remark,
    trust_lines,
    write_text,
)
from wattune.config import PROFILE_FOLDER
from wattune.core.errors import InputError

if TYPE_CHECKING:
    from wattune.levels.pipeline.profile_parts import ProfilePart
    from wattune.plans.stage_profile import StageProfile

GRACE_S = 10.0
"""Time that the program has to end by itself before --stop ends it."""


@click.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Measure a stage profile while a program trains.",
)
@click.option("--out", type=FILE, required=True, help="The stage profile (CSV); one that was begun is continued.")
@click.option("--clocks", type=click.IntRange(2, 1000), default=8, show_default=True, help="Core clocks to measure.")
@click.option("--stop", is_flag=True, help="End the program when all clocks are measured.")
@grace_option
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND…")
def profile(out: Path, clocks: int, stop: bool, grace_s: float, as_json: bool, command_line: tuple[str, ...]) -> int:
    """Run a training program and collect the stage profile that its ranks measure.

    The program wraps its schedule with `profiled(schedule, gpu)` of wattune.integrations.pipelining, or has the hooks
    for Megatron-LM or DeepSpeed. All ranks train at one clock after another; then the GPUs are restored and training
    goes on, unless --stop is given. The program keeps its input, its output and its exit code.
    """
    from wattune.levels.pipeline.profile_parts import ProfileRequest, write_request

    check_writable(out)
    check_command(command_line)
    name_root_program("its ranks set the clocks")
    with tempfile.TemporaryDirectory(prefix="wattune-profile-") as folder:
        write_request(Path(folder), ProfileRequest(str(out.absolute()), clocks))
        collector = _Collector(Path(folder), out, stop)
        code = run_child(
            command_line,
            environment={**os.environ, PROFILE_FOLDER: folder},
            stdout_to_stderr=as_json,
            on_start=collector.started,
            on_wait=collector.collect,
            grace_s=grace_s,
        ).exit_code
        collector.collect()
    try:
        found = collector.result(code)
    except InputError as error:
        print_error(error)
        return code or 1
    if as_json:
        print_json(found.document(out))
    else:
        _show(found, out)
    return 0 if collector.stopped else code


@dataclass(frozen=True, slots=True)
class _Profiled:
    """A complete profile and what was noticed about it."""

    profile: StageProfile
    part: ProfilePart
    pipelines: int
    waiting_w: float | None
    doubts: tuple[str, ...]

    def document(self, out: Path) -> dict[str, Any]:
        return {
            **marked(self.part.simulated, self.part.gpu),
            "gpu": self.part.gpu,
            "stages": self.profile.stages,
            "pipelines": self.pipelines,
            "instructions": sorted(self.profile.options),
            "clocks_mhz": list(self.part.measured_mhz),
            "waiting_w": self.waiting_w,
            "doubts": list(self.doubts),
            "out": out,
        }


@dataclass(slots=True)
class _Collector:
    """Reads what the ranks write, merges it into the profile, and reports how far they are."""

    folder: Path
    out: Path
    stop: bool
    stopped: bool = False
    _pid: int | None = None
    _parts: tuple[ProfilePart, ...] = ()
    _shown: int | None = None
    """Clocks that were measured when the progress was shown last."""
    _spread: float = 0.0
    _began_s: float = 0.0
    """When the first part was found."""
    _complete_s: float | None = None
    """When all clocks were found to be measured."""
    _refused: InputError | None = None

    def started(self, pid: int) -> None:
        self._pid = pid

    def collect(self) -> None:
        """Merge what is new; an error is kept for the end, since the program must not notice it."""
        from wattune.levels.pipeline.profile_parts import read_parts

        parts = read_parts(self.folder)
        if parts != self._parts and self._refused is None:
            self._parts = parts
            try:
                self._merge(parts)
            except InputError as error:
                self._refused = error
                remark(f"The profile cannot be merged: {error.message}.")
        if self.is_complete and self.stop:
            self._end()

    @property
    def is_complete(self) -> bool:
        from wattune.levels.pipeline.profile_parts import PartState

        return bool(self._parts) and all(part.state is PartState.COMPLETE for part in self._parts)

    def _merge(self, parts: tuple[ProfilePart, ...]) -> None:
        from wattune.levels.pipeline.profile_parts import merged_parts, waiting_power_w
        from wattune.levels.pipeline.stage_profiling import profile_csv

        found = merged_parts(parts)
        self._spread = found.spread
        if found.rows:
            part, waiting_w = parts[0], waiting_power_w(parts)
            write_text(self.out, profile_csv(found.rows, simulated=part.simulated, gpu=part.gpu, waiting_w=waiting_w))
        self._show(min(len(part.measured_mhz) for part in parts), parts[0])

    def _show(self, done: int, part: ProfilePart) -> None:
        """Print what is to be measured, and each time how much of it there is."""
        if self._shown is None:
            self._shown, self._began_s = part.begun, time.monotonic()
            already = f", {part.begun} of them already in {self.out}" if part.begun else ""
            remark(f"profile: {_stages(part.stages)}, {len(part.clocks_mhz)} clocks of {part.gpu}{already}")
        if done > self._shown:
            self._shown = done
            remark(f"profile: {done} of {len(part.clocks_mhz)} clocks measured, {self._left(done, part)}")

    def _left(self, done: int, part: ProfilePart) -> str:
        each_s = (time.monotonic() - self._began_s) / (done - part.begun)
        left = len(part.clocks_mhz) - done
        return f"about {each_s * left:.0f} s left" if left else "complete, the GPUs are restored"

    def _end(self) -> None:
        """Ask the program to end, once it had time to do so by itself."""
        self._complete_s = self._complete_s or time.monotonic()
        if not self.stopped and time.monotonic() - self._complete_s > GRACE_S and self._pid is not None:
            self.stopped = True
            os.kill(self._pid, signal.SIGTERM)

    def result(self, code: int) -> _Profiled:
        """Return the complete profile; raise where there is none."""
        from wattune.cli.pipeline.output import read_profile
        from wattune.levels.pipeline.profile_parts import doubts, waiting_power_w

        if self._refused is not None:
            raise self._refused
        if not self._parts:
            raise InputError(
                f"the program ended with code {code} and measured nothing",
                hint="wrap its schedule with `profiled(schedule, gpu)`, without out= (docs/how-to/plan-a-pipeline.md)",
            )
        if not self.is_complete:
            raise self._incomplete(code)
        profile, _ = read_profile(self.out)
        waiting_w = waiting_power_w(self._parts)
        said = doubts(profile, spread=self._spread, waiting_w=waiting_w)
        return _Profiled(profile, self._parts[0], len(self._parts), waiting_w, said)

    def _incomplete(self, code: int) -> InputError:
        why = next((part.why for part in self._parts if part.why), None)
        done, total = self._shown or 0, len(self._parts[0].clocks_mhz)
        kept = f"; {self.out} has them, and the same command goes on from there" if done else ""
        reason = f": {why}" if why else f": the program ended with code {code}"
        return InputError(
            f"the profile has {done} of {total} clocks{reason}",
            hint=f"train for longer, or give fewer --clocks{kept}" if why is None else f"see its output above{kept}",
        )


def _stages(count: int) -> str:
    return "1 stage" if count == 1 else f"{count} stages"


def _show(found: _Profiled, out: Path) -> None:
    pipelines = f", mean of {found.pipelines} pipelines" if found.pipelines > 1 else ""
    print_line(
        f"{_stages(found.profile.stages)} at {len(found.part.measured_mhz)} clocks of {found.part.gpu}{pipelines}, "
        f"written to {out}"
    )
    for line in trust_lines(found.part.simulated, found.part.gpu):
        print_line(line)
    for text in found.doubts:
        print_line(f"Check this: {text}")
    power = ""
    if found.waiting_w is None:
        power = " --blocking-power W"
        print_line("No rank waited long enough to measure the power of a waiting GPU.")
    copies = f" --dp {found.pipelines}" if found.pipelines > 1 else ""
    print_line(f"Plan with it: wattune pipeline plan --profile {out} --microbatches N{copies}{power} --gpu NAME")
