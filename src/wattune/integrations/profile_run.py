"""The listener of one rank that measures a stage profile, and the file that the first rank writes."""

from __future__ import annotations

from pathlib import Path

from wattune.control.actuator import Actuator
from wattune.control.ranks import Ranks
from wattune.control.stamps import Stamps
from wattune.core.errors import InputError
from wattune.core.output_file import write_text
from wattune.devices.gpu import Gpu
from wattune.levels.kernel.online import OnlinePlanning, profiling_settings
from wattune.levels.kernel.schedules import Order, work_graph
from wattune.levels.kernel.stage_profile import parse_stage_profile
from wattune.levels.kernel.stage_profiling import Rows, StageProfiling, merged, profile_csv, remaining, rows_of
from wattune.levels.kernel.tuner import OnlineListener


def profile_listener(
    order: Order,
    *,
    gpu: Gpu,
    actuator: Actuator,
    stamp: Stamps,
    ranks: Ranks,
    rank: int,
    out: Path,
    clocks: int,
) -> OnlineListener:
    """Make the listener of a rank; the first of `ranks` reads what `out` already has and writes it after each clock."""
    planning = OnlinePlanning(
        graph=work_graph(order), spec=gpu.spec, settings=profiling_settings(gpu.spec, clocks), slowdown=0.0
    )
    begun_text = ranks.broadcast(_text_of(out) if ranks.rank == 0 else "")
    begun = parse_stage_profile(begun_text, file=str(out)) if begun_text else None
    rows = rows_of(begun)
    planning = remaining(planning, rows, simulated=gpu.spec.simulated, begun=begun)
    if not planning.settings:
        raise InputError(f"{out} already has all clocks", hint="plan with it, or choose another file")

    def write(new: Rows) -> None:
        if ranks.rank == 0:
            write_text(out, profile_csv(merged(rows, new), simulated=gpu.spec.simulated))

    policy = StageProfiling(planning, write)
    return OnlineListener(planning, gpu=gpu, clocks=actuator, stamp=stamp, ranks=ranks, rank=rank, step=policy.step)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
