"""What is known of a pipeline that is planned while it trains, and what its ranks tell each other of an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattune.core.frontier import Frontier
from wattune.core.setting import Setting
from wattune.core.trial import Trial
from wattune.levels.kernel.planner import PipelinePlan
from wattune.levels.kernel.stage_profile import StageChoice

Plans = Frontier[PipelinePlan[StageChoice]]


@dataclass(frozen=True, slots=True)
class RankReading:
    """What one rank saw of one iteration."""

    pipeline: int
    """Which of several equal pipelines, where data parallelism makes them."""
    rank: int
    busy_s: float
    """Time of its instructions, waiting left out."""
    trials: tuple[tuple[str, Trial[Setting]], ...] = ()
    """While profiling: each kind of its instructions at the setting that holds, once enough was seen."""
    waiting_w: float | None = None
    """While profiling: what its GPU draws while it waits."""


Readings = Sequence[RankReading]


@dataclass(frozen=True, slots=True)
class Profiling:
    """All ranks run everything at the setting at `place`."""

    place: int = 0
    trials: tuple[tuple[str, Trial[Setting]], ...] = ()
    waiting_w: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Holding:
    """Each pipeline plays one plan."""

    plans: Plans
    profile: Mapping[str, Sequence[Trial[StageChoice]]]
    """What the plans were made from: every kind of instruction at every clock, by its curve."""
    waiting_w: float
    """What a GPU draws while it waits."""
    held: tuple[PipelinePlan[StageChoice], ...]
    """For each pipeline what it plays, its durations as planned for ranks that are not slowed down."""
    slowdowns: tuple[tuple[float, ...], ...]
    """For each pipeline and rank what is believed."""
    last: tuple[tuple[float, ...], ...]
    """And what the last iteration said."""


Progress = Profiling | Holding
