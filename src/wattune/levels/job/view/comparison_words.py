"""What the runs of a job saved, in words for the terminal and the page."""

from __future__ import annotations

from wattune.levels.job.view.comparison import Share
from wattune.levels.job.view.view_model import JobView, counted_in
from wattune.render.quantity import UNKNOWN, counted, percent


def share_words(share: Share | None) -> str:
    """Format a share with its error, such as `−12.1 ± 0.6 %`."""
    if share is None:
        return UNKNOWN
    places = 2 if share.error_percent < 0.1 else 1
    number = percent(share.percent, places=places).removesuffix("%").rstrip()
    return f"{number} ± {share.error_percent:.{places}f} %"


def comparison_words(view: JobView) -> str:
    """Return one sentence: what was saved, or why that is unknown."""
    found = view.comparison
    if isinstance(found, str):
        return f"saving unknown: {found}"
    what, _ = counted_in(view.job.objective)
    of = f"of {counted(found.recurrences, 'recurrence')}"
    shares = [f"time {share_words(view.time_share)}", f"energy {share_words(view.energy_share)}"]
    if what not in ("energy", "time"):
        shares.append(f"{what} {share_words(view.objective_share)}")
    return f"the {found.unit}s {of}, learning included, against the same work by default: {', '.join(shares)}"
