"""How a replayed run comes to its power limit: by measuring a few as it starts, or by a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattune.core.job import JobGpu, JobMemory, JobRun
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.core.trial import History
from wattune.levels.job.profile import kin_of
from wattune.response.held_windows import WINDOW_S, windows_to_come
from wattune.response.setting_search import SettingSearch

NOISE = 0.01
"""Standard deviation of a window's time and power, relative."""


class LimitSearch(Protocol):
    """Chooses the limits to measure, and says what the measurements come to; a `Searcher[Setting]`."""

    def propose(self, candidates: Sequence[Setting], history: History[Setting]) -> Setting | None:
        """The limit to measure next, or None where enough is known."""
        ...

    def settled(self, candidates: Sequence[Setting], history: History[Setting]) -> History[Setting]:
        """One trial for each limit that was measured."""
        ...


FindLimit = Callable[[Objective, JobMemory, JobGpu, int], LimitSearch]
"""Who chooses the limits to measure for a batch size, by what is known of the job so far."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """The first moments of a run go through limits, until the one that the objective likes best is known."""

    find: FindLimit
    window_s: float | None = WINDOW_S
    """None: an even share of the first epoch for each limit."""
    noise: float = NOISE
    foreseen: bool = False
    """Whether a batch size's profile is known before its first run, and the run may be called off at no cost: two
    favours that the simulator published with Zeus does it."""


@dataclass(frozen=True, slots=True)
class Ruled:
    """A rule names the limit of a run, by what was known when it was submitted; nothing is measured."""

    setting: Callable[[JobMemory, JobRun], Setting]


Limits = Profiled | Ruled


@dataclass(frozen=True, slots=True)
class EveryLimit:
    """Every limit once, the highest first, as Zeus does it."""

    def propose(self, candidates: Sequence[Setting], history: History[Setting]) -> Setting | None:
        """The highest limit that was not measured."""
        measured = {trial.choice for trial in history}
        return next((choice for choice in sorted(candidates, reverse=True) if choice not in measured), None)

    def settled(self, candidates: Sequence[Setting], history: History[Setting]) -> History[Setting]:
        """What was measured, as it was."""
        del candidates
        return history


def zeus_limits() -> Profiled:
    """The way of the published simulator: the first epoch goes evenly through all limits, without noise."""
    return Profiled(lambda *_: EveryLimit(), window_s=None, noise=0.0, foreseen=True)


def own_limits() -> Profiled:
    """Our way: a few windows where the best limit may be, after what other batch sizes have shown."""
    return Profiled(_setting_search)


def _setting_search(objective: Objective, memory: JobMemory, gpu: JobGpu, batch_size: int) -> SettingSearch:
    kin = kin_of(memory, gpu, batch_size, knobs=("power_limit",))
    horizon = windows_to_come(memory, gpu, batch_size)
    return SettingSearch(objective=objective, kin=kin, max_power_w=gpu.max_power_w, horizon=horizon)
