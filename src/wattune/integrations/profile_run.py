"""The listener of one rank that measures a stage profile, and where the first rank of a pipeline writes it.

It goes to a CSV file or, where `wattune pipeline profile` runs the program, to a part that the command reads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from wattune.config import load_config
from wattune.control.actuator import Actuator
from wattune.control.ranks import Ranks
from wattune.control.stamps import Stamps
from wattune.core.errors import InputError
from wattune.core.output_file import write_text
from wattune.devices.gpu import Gpu, PlaysWorkloads
from wattune.levels.pipeline.online import OnlinePlanning, PlanDisabled, PlanProfiled, Progress, profiling_settings
from wattune.levels.pipeline.profile_parts import PartState, ProfilePart, read_request, write_part
from wattune.levels.pipeline.stage_profiling import Rows, StageProfiling, merged, profile_csv, remaining, rows_of
from wattune.levels.pipeline.tuner import OnlineListener
from wattune.plans.schedules import Order, work_graph
from wattune.plans.stage_profile import parse_stage_profile

CLOCKS = 5
"""Clocks of a profile that neither the program nor the command gives a number for."""


@dataclass(frozen=True, slots=True)
class ProfileTarget:
    """Where a profile goes: the file that may have been begun, how many clocks, and how to write what there is."""

    begun: Path
    clocks: int
    write: Callable[[ProfilePart], None]


def profile_target(out: Path | str | None, clocks: int | None) -> ProfileTarget:
    """Return the file of the program, or where the command that runs it waits."""
    if out is not None:
        path = Path(out)
        return ProfileTarget(path, clocks or CLOCKS, lambda part: _write_rows(path, part))
    folder = load_config().profile_folder
    if folder is None:
        raise InputError(
            "the profile has no file to go to",
            hint="start the program with `wattune pipeline profile --out FILE -- COMMAND`, or pass out=FILE",
        )
    request = read_request(folder)
    return ProfileTarget(Path(request.out), clocks or request.clocks, lambda part: write_part(folder, part))


def profile_listener(
    order: Order,
    *,
    gpu: Gpu,
    actuator: Actuator,
    stamp: Stamps,
    ranks: Ranks,
    rank: int,
    target: ProfileTarget,
) -> OnlineListener:
    """Make the listener of a rank; the first of `ranks` reads what there is already and writes after each clock."""
    graph, spec = work_graph(order), gpu.spec
    wanted = OnlinePlanning(graph=graph, spec=spec, settings=profiling_settings(spec, target.clocks), slowdown=0.0)
    begun_text = ranks.broadcast(_text_of(target.begun) if ranks.rank == 0 else "")
    begun = parse_stage_profile(begun_text, file=str(target.begun)) if begun_text else None
    rows = rows_of(begun)
    planning = remaining(wanted, rows, simulated=spec.simulated, begun=begun)
    writer = _Writer(
        ProfilePart(
            gpu=spec.label,
            simulated=spec.simulated,
            stages=len({operation.kind.partition(".")[0] for operation in graph.operations}),
            clocks_mhz=tuple(setting.sm_mhz for setting in wanted.settings if setting.sm_mhz is not None),
            profile=begun_text,
            begun=len(wanted.settings) - len(planning.settings),
        ),
        rows,
        StageProfiling(planning),
        target.write,
    )
    listener = OnlineListener(
        planning if planning.settings else wanted,
        gpu=gpu,
        clocks=actuator,
        stamp=stamp,
        ranks=ranks,
        rank=rank,
        wait=gpu.wait if isinstance(gpu, PlaysWorkloads) else time.sleep,
        step=writer.profiling.step,
        on_progress=writer.report if ranks.rank == 0 else None,
    )
    if not planning.settings:
        listener.progress = PlanProfiled((), None)
        if ranks.rank == 0:
            logging.getLogger("wattune").warning("%s already has all clocks; nothing is measured", target.begun)
    if ranks.rank == 0:
        writer.report(listener.progress)
    return listener


class _Writer:
    """Writes what a pipeline has measured whenever there is more of it."""

    def __init__(
        self, part: ProfilePart, rows: Rows, profiling: StageProfiling, write: Callable[[ProfilePart], None]
    ) -> None:
        self.profiling = profiling
        self._part, self._rows, self._write = part, rows, write

    def report(self, progress: Progress) -> None:
        new = self.profiling.rows(progress)
        text, part = self._part.profile, self._part
        if new:
            waiting_w = progress.waiting_w if isinstance(progress, PlanProfiled) else None
            rows = merged(self._rows, new)
            text = profile_csv(rows, simulated=part.simulated, gpu=part.gpu, waiting_w=waiting_w)
        self._part = replace(part, profile=text)
        match progress:
            case PlanProfiled():
                self._part = replace(self._part, state=PartState.COMPLETE, waiting_w=progress.waiting_w)
            case PlanDisabled():
                self._part = replace(self._part, state=PartState.DISABLED, why=progress.why)
            case _:
                pass
        self._write(self._part)


def _write_rows(path: Path, part: ProfilePart) -> None:
    if part.profile:
        write_text(path, part.profile)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
