"""The files of `wattune pipeline`: reading profiles and schedules, writing folders of schedules."""

from __future__ import annotations

import hashlib
from pathlib import Path

from wattune.cli.output import write_text
from wattune.core.errors import InputError
from wattune.levels.kernel.plan_file import read_text
from wattune.levels.kernel.planned import Source
from wattune.levels.kernel.schedule_exchange import FREQS_NAME
from wattune.levels.kernel.stage_profile import StageProfile, parse_stage_profile


def read_profile(path: Path) -> tuple[StageProfile, Source]:
    """Read a stage profile and identify its file."""
    text = read_text(path)
    profile = parse_stage_profile(text, file=str(path))
    return profile, Source(path.name, hashlib.sha256(text.encode()).hexdigest(), profile.simulated)


def read_schedules(path: Path) -> dict[str, str]:
    """Read the schedule files of a folder, or one freqs file and the scheds file beside it, by name."""
    if not path.exists():
        raise InputError(f"there is no {path}", hint="name a folder of freqs_pipeline_NNNNN.py files, or one of them")
    found = _listed(path) if path.is_dir() else [path]
    names = [file for file in found if FREQS_NAME.fullmatch(file.name)]
    if not names:
        raise InputError(
            f"{path} has no freqs_pipeline_NNNNN.py", hint="name such a file, or the folder that holds some"
        )
    halves = [file.with_name(file.name.replace("freqs", "scheds", 1)) for file in names]
    return {file.name: read_text(file) for file in (*names, *(half for half in halves if half.is_file()))}


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}", hint="check its permissions") from None


def write_folder(folder: Path, files: dict[str, str]) -> None:
    """Write the files to a folder; refuse one that has schedules of another frontier.

    A reader takes all files of a folder as one frontier.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}", hint="choose another folder") from None
    others = [file.name for file in _listed(folder) if FREQS_NAME.fullmatch(file.name) and file.name not in files]
    if others:
        raise InputError(
            f"{folder} already has schedules of another frontier, such as {others[0]}",
            hint="choose an empty folder",
        )
    for name, text in files.items():
        write_text(folder / name, text)
