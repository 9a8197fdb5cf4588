"""The files of a folder of measurements, found by their content and not by their names."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wattune.core.csv_input import read_text
from wattune.core.errors import InputError
from wattune.physics.gpu_parts import Floats


def data_files(folder: Path) -> tuple[Path, ...]:
    """List the CSV and JSON files of a folder and of the folders in it, in alphabetical order."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}", hint="give the folder that holds the public measurements")
    found = [file for pattern in ("*.csv", "*/*.csv", "*.json", "*/*.json") for file in folder.glob(pattern)]
    return tuple(sorted(file for file in found if file.is_file()))


def with_columns(files: Sequence[Path], columns: Sequence[str]) -> tuple[Path, ...]:
    """Select the CSV files that have all of these columns."""
    return tuple(file for file in files if file.suffix == ".csv" and set(columns) <= set(_header(file)))


def text_of(file: Path) -> str:
    """Read a file; the error gives the reason where it cannot be read."""
    return read_text(file, hint="check the file and its permissions")


def ascending(points: Sequence[tuple[float, ...]]) -> Floats:
    """(columns, points): sort points by their first coordinate, and average those that share it."""
    places = sorted({point[0] for point in points})
    return np.array([np.mean([point for point in points if point[0] == place], axis=0) for place in places]).T


def _header(file: Path) -> list[str]:
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            return [cell.strip() for cell in next(csv.reader(stream), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        # Files of other kinds are skipped; a file of this kind is read again by its reader, which reports errors.
        return []
