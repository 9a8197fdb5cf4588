"""The searchers that choose batch sizes, by name."""

from __future__ import annotations

import difflib

from wattune.core.errors import InputError
from wattune.levels.job.policy_protocol import JobSearcher

SEARCHERS = ("wattune", "zeus")


def searcher_named(name: str) -> JobSearcher:
    """The searcher that tables call so: `wattune`, ours, or `zeus`, as published."""
    if name == "wattune":
        from wattune.levels.job.policy import LawSearcher

        return LawSearcher()
    if name == "zeus":
        from wattune.levels.job.zeus import ZeusSearcher

        return ZeusSearcher()
    near = difflib.get_close_matches(name, SEARCHERS, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"there is no searcher {name!r}", hint=f"{guess}choose {' or '.join(SEARCHERS)}")
