"""The cases of `wattune bench pipeline`: profiles of a folder, published figures, and a pipeline that is made up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import sin
from pathlib import Path

import numpy as np

from wattune.benchmarks.datasets import stage_profiles
from wattune.benchmarks.datasets.find import data_files, text_of, with_columns
from wattune.core.errors import InputError
from wattune.levels.kernel.stage_profile import StageProfile, parse_stage_profile

BLOCKING_POWER_W = {"a100": 83.64, "a40": 70.38}
"""Watts of a GPU that waits in NCCL for its neighbour; SOSP'24 artifact of Perseus."""

SHARE_OF_LEAST = 0.38
"""What a GPU that waits draws, as a share of the least power of any instruction: 0.37 and 0.40 on A100 and A40."""

SLOWDOWN = 1.2
"""The straggler of Figure 7 of the paper."""

STRAGGLER_MICROBATCHES = 96


@dataclass(frozen=True, slots=True)
class Published:
    """What the paper's emulation found for one model on one GPU (Table 6 and Figure 7)."""

    saving_percent: Mapping[int, float]
    """Intrinsic saving by number of microbatches."""
    straggler_saving_percent: float
    slowest: float
    """T*/T: the time of least energy as a multiple of the fastest."""


PUBLISHED = {
    ("gpt3175b", "a100"): Published({12: 15.20, 24: 14.19, 48: 13.62, 96: 13.32}, 27.0, 1.15),
    ("gpt3175b", "a40"): Published({12: 11.81, 24: 10.22, 48: 9.34, 96: 8.88}, 23.6, 1.11),
    ("bloom176b", "a100"): Published({12: 10.47, 24: 7.06, 48: 5.23, 96: 4.28}, 29.9, 1.20),
    ("bloom176b", "a40"): Published({12: 6.97, 24: 4.49, 48: 3.12, 96: 2.41}, 21.1, 1.14),
}


@dataclass(frozen=True, slots=True)
class PipelineCase:
    """A profile as text and parsed, the power of a GPU that waits, and what is published about it."""

    name: str
    text: str
    profile: StageProfile
    blocking_power_w: float
    published: Published | None


def find_cases(data: Path) -> tuple[tuple[PipelineCase, ...], tuple[str, ...]]:
    """The profiles of a folder, and a remark for each whose blocking power is not known from a measurement."""
    cases, remarks = [], []
    for file in with_columns(data_files(data), stage_profiles.COLUMNS):
        text = text_of(file)
        name = file.stem.removeprefix("stage_profile_")
        profile = parse_stage_profile(text, file=file.name)
        gpu = _gpu(file.stem)
        if gpu is not None:
            cases.append(PipelineCase(name, text, profile, BLOCKING_POWER_W[gpu], _published(file.stem, gpu)))
            continue
        blocking_power_w = _likely_blocking_power_w(profile)
        known = " or ".join(BLOCKING_POWER_W)
        remarks.append(
            f"{file.name}: its name has no {known}, so a waiting GPU is taken to draw {blocking_power_w:.1f} W, "
            f"{SHARE_OF_LEAST:.0%} of the least power in the file, as on these two."
        )
        cases.append(PipelineCase(name, text, profile, blocking_power_w, None))
    if not cases:
        raise InputError(
            f"{data} has no stage profile",
            hint="it is a CSV file such as stage_profile_MODEL_a100.csv with stage,instruction,frequency,time,energy",
        )
    return tuple(cases), tuple(remarks)


def _gpu(stem: str) -> str | None:
    words = re.split(r"[^a-z0-9]+", stem.lower())
    return next((gpu for gpu in BLOCKING_POWER_W if gpu in words), None)


def _likely_blocking_power_w(profile: StageProfile) -> float:
    """The power of a waiting GPU that nobody has measured, from the least that any row draws."""
    least_w = min(trial.cost.power_w for trials in profile.options.values() for trial in trials)
    return SHARE_OF_LEAST * least_w


def _published(stem: str, gpu: str) -> Published | None:
    plain = re.sub(r"[^a-z0-9]", "", stem.lower())
    return next((own for (model, part), own in PUBLISHED.items() if part == gpu and model in plain), None)


def made_up_profile(profile: StageProfile, *, stages: int, clocks: int) -> str:
    """A profile of so many uneven stages and clocks, drawn through the curves of a measured one."""
    lines = ["stage,instruction,frequency,time,energy"]
    for stage in range(stages):
        share = 1 + 0.06 * sin(2.4 * stage)
        for instruction in ("forward", "backward"):
            trials = profile.options[f"{stage % profile.stages}.{instruction}"]
            rows = sorted((t.choice.setting.sm_mhz or 0, t.cost.time_s, t.cost.energy_j) for t in trials)
            known_mhz, times_s, energies_j = np.array(rows).T
            for mhz in np.linspace(known_mhz[0], known_mhz[-1], clocks).round():
                time_s, energy_j = (share * float(np.interp(mhz, known_mhz, own)) for own in (times_s, energies_j))
                lines.append(f"{stage},{instruction},{mhz:.0f},{time_s!r},{energy_j!r}")
    return "\n".join(lines) + "\n"
