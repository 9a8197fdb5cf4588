"""For how long what is found in a profile is going to be held."""

from __future__ import annotations

from statistics import fmean

from wattune.core.job import JobGpu, JobMemory, Outcome
from wattune.response.setting_search import HORIZON

WINDOW_S = 5.0
"""How long a setting is held to be measured: some fifty refreshes of a power sensor at 10 Hz."""

LOOKS_AGAIN = 3
"""Windows that a run adds to the profile of its batch size, where the search has a use for them."""

_MOST = 5000.0
"""Windows: what saves a twenty-thousandth is not worth another one, however long a job may still go on."""


def windows_to_come(memory: JobMemory, gpu: JobGpu, batch_size: int) -> float:
    """Windows for which a batch size's setting is reckoned to be held: this run, and as many more as there were.

    A run is taken to be as long as those of its batch size were, else as the newest of another.
    """
    done = [run for run in memory.runs if run.gpu.key == gpu.key and run.outcome is Outcome.REACHED and run.cost]
    same = [run for run in done if run.batch_size == batch_size]
    times_s = [run.cost.time_s for run in same or done[-1:] if run.cost is not None]
    if not times_s:
        return HORIZON
    return min(fmean(times_s) / WINDOW_S * (1 + len(same)), _MOST)
