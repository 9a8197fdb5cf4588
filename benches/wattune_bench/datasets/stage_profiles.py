"""Stage profiles of Perseus: time and energy of each pipeline stage's forward and backward pass by locked clock.

Source: ml-energy/zeus, artifact of the SOSP 2024 paper, `stage_profile_MODEL_GPU.csv`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wattune.core.csv_input import parse_csv
from wattune.physics.gpu_parts import Floats
from wattune_bench.datasets.find import ascending, text_of

COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
SOURCE = "ml-energy/zeus, artifact of the SOSP 2024 paper"


@dataclass(frozen=True, slots=True, eq=False)
class StageSweep:
    """One operation of one stage at every clock, ascending."""

    stage: str
    instruction: str
    sm_mhz: Floats
    time_s: Floats
    energy_j: Floats


def read_stage_profile(file: Path) -> tuple[StageSweep, ...]:
    """Read every operation of the profile."""
    points: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for row in parse_csv(text_of(file), file=str(file), required=COLUMNS):
        sweep = points.setdefault((row.text("stage"), row.text("instruction")), [])
        sweep.append((row.positive("frequency"), row.positive("time"), row.positive("energy")))
    return tuple(StageSweep(*key, *ascending(sweep)) for key, sweep in sorted(points.items()))
