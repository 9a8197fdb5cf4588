"""What the pipelines of a program leave for `wattune pipeline profile`, and the profile that follows from all of them.

The command makes a folder with a request. In each pipeline (one per data and tensor rank) the first rank writes a part
there, again after every clock. The command reads the parts, checks that they agree and takes the mean of each row.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from wattune.core.codec import JsonReader, to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.output_file import write_text
from wattune.core.setting import Setting
from wattune.levels.pipeline.stage_profiling import Rows, rows_of
from wattune.plans.stage_profile import StageProfile, parse_stage_profile

REQUEST = "request.json"
_PART = "pipeline-*.json"


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What the command asks the ranks of its program for."""

    out: str
    """The profile, which may have been begun."""
    clocks: int


class PartState(Enum):
    """How far a pipeline is."""

    MEASURING = "measuring"
    COMPLETE = "complete"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class ProfilePart:
    """What one pipeline has measured so far, with what the file had before."""

    gpu: str
    simulated: bool
    stages: int
    clocks_mhz: tuple[int, ...]
    """All clocks that the profile is to have, highest first."""
    profile: str
    """The rows as CSV; empty where there are none yet."""
    begun: int = 0
    """The number of these clocks that the file had before."""
    state: PartState = PartState.MEASURING
    why: str | None = None
    """Why nothing is measured any more."""
    waiting_w: float | None = None
    """Power of a GPU that waits, once all clocks are measured."""

    @property
    def rows(self) -> Rows:
        if not self.profile:
            return {}
        return rows_of(parse_stage_profile(self.profile, file="what the ranks measured"))

    @property
    def measured_mhz(self) -> tuple[int, ...]:
        """The wanted clocks that every instruction has been measured at."""
        have = [{trial.choice.sm_mhz for trial in trials} for trials in self.rows.values()]
        return tuple(mhz for mhz in self.clocks_mhz if have and all(mhz in own for own in have))


def write_request(folder: Path, request: ProfileRequest) -> None:
    """Leave the request for the ranks."""
    (folder / REQUEST).write_text(json.dumps(to_json(request)), encoding="utf-8")


def read_request(folder: Path) -> ProfileRequest:
    """Read the request of the command."""
    file = folder / REQUEST
    text = read_text(file, hint="WATTUNE_PROFILE_FOLDER is set by `wattune pipeline profile` while it runs")
    return JsonReader(source=str(file)).read(ProfileRequest, json.loads(text))


def write_part(folder: Path, part: ProfilePart) -> None:
    """Write the part of the pipeline whose first rank is this process."""
    write_text(folder / _PART.replace("*", f"{socket.gethostname()}-{os.getpid()}"), json.dumps(to_json(part)))


def read_parts(folder: Path) -> tuple[ProfilePart, ...]:
    """Read the parts of all pipelines."""
    return tuple(
        JsonReader(source=file.name).read(ProfilePart, json.loads(file.read_text(encoding="utf-8")))
        for file in sorted(folder.glob(_PART))
    )


def waiting_power_w(parts: Sequence[ProfilePart]) -> float | None:
    """Return the mean power of a waiting GPU, or what the file had before; None where it was never measured."""
    measured = [part.waiting_w for part in parts if part.waiting_w is not None]
    if measured:
        return fmean(measured)
    texts = (part.profile for part in parts if part.profile)
    return next((parse_stage_profile(text, file="what the ranks measured").waiting_w for text in texts), None)


@dataclass(frozen=True, slots=True)
class MergedProfile:
    """The rows of all pipelines as one."""

    rows: Rows
    spread: float
    """Largest distance of a time from the mean over the pipelines, as a share of it."""


def merged_parts(parts: Sequence[ProfilePart]) -> MergedProfile:
    """Take the mean of each row over the pipelines; leave out clocks that one of them has not measured yet."""
    _check_alike(parts)
    all_rows = [part.rows for part in parts]
    found: dict[str, tuple[Trial[Setting], ...]] = {}
    spread = 0.0
    for kind in all_rows[0]:
        costs = [{trial.choice: trial.cost for trial in rows.get(kind, ())} for rows in all_rows]
        trials = []
        for setting in (setting for setting in costs[0] if all(setting in own for own in costs)):
            own = [by_setting[setting] for by_setting in costs]
            time_s, energy_j = fmean(cost.time_s for cost in own), fmean(cost.energy_j for cost in own)
            spread = max(spread, *(abs(cost.time_s / time_s - 1) for cost in own))
            trials.append(Trial(setting, Measurement(time_s, energy_j)))
        if trials:
            found[kind] = tuple(trials)
    return MergedProfile(found, spread)


def _check_alike(parts: Sequence[ProfilePart]) -> None:
    """Refuse parts of pipelines that cannot have one profile."""
    first = parts[0]
    for part in parts[1:]:
        for what, one, two in (
            ("GPUs", first.gpu, part.gpu),
            ("numbers of stages", str(first.stages), str(part.stages)),
            ("clocks", str(first.clocks_mhz), str(part.clocks_mhz)),
        ):
            if one != two:
                raise InputError(
                    f"the pipelines of this program have different {what}: {one} and {two}",
                    hint="profile one of them alone, with out= of `profiled`",
                )


def doubts(profile: StageProfile, *, spread: float, waiting_w: float | None) -> tuple[str, ...]:
    """Say what looks wrong in a profile: each a sentence, none where nothing does."""
    found = []
    for kind, trials in profile.options.items():
        ordered = sorted(trials, key=lambda trial: -(trial.choice.setting.sm_mhz or 0))
        for fast, slow in pairwise(ordered):
            if slow.cost.time_s < fast.cost.time_s * (1 - NOISE):
                found.append(
                    f"{kind} takes {1e3 * slow.cost.time_s:.2f} ms at {slow.choice} and "
                    f"{1e3 * fast.cost.time_s:.2f} ms at {fast.choice}, a higher clock."
                )
    if spread > NOISE:
        found.append(f"The pipelines differ by up to {100 * spread:.0f} % in the time of an instruction.")
    least_w = min(trial.cost.power_w for trials in profile.options.values() for trial in trials)
    if waiting_w is not None and waiting_w > least_w:
        found.append(
            f"A waiting GPU draws {waiting_w:.1f} W, more than the {least_w:.1f} W of an instruction; "
            "`pipeline plan` refuses that as blocking power."
        )
    return tuple(found)


NOISE = 0.1
"""Share by which times may contradict each other before it is worth a remark."""
