"""Opening GPUs with the user's own settings filled in: what `wattune.open_gpu` and the commands call."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from wattune.config import Config, load_config
from wattune.devices import open as opening
from wattune.devices.gpu import Gpu


def surroundings(config: Config) -> opening.Surroundings:
    """What opening a GPU needs to know, taken from the settings."""
    return opening.Surroundings(config.state_dir, config.visible_gpus)


def open_gpu(name: str | None = None) -> AbstractContextManager[Gpu]:
    """One GPU by name (`auto`, `nvml:0`, `sim:a100`, …), given back as it was found when the block ends."""
    config = load_config()
    return opening.open_gpu(name or config.device, surroundings(config))


def open_gpus(*names: str, wall_clock: bool = False) -> AbstractContextManager[tuple[Gpu, ...]]:
    """Several GPUs by name; `auto` and `nvml` stand for all visible ones.

    With `wall_clock` simulated GPUs live in wall time; else their time passes when work is run on them.
    """
    config = load_config()
    around = replace(surroundings(config), wall_clock=wall_clock)
    return opening.open_gpus(names or (config.device,), around)
