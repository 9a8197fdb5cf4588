"""Fewer, longer phases: a few hundred operations become some dozens of phases that take and spend nearly the same.

Joining a compute-bound with a memory-bound operation would let one hide behind the other, so only operations of like
intensity within one stretch of the network are joined. Their order inside the stretch is given up.
"""

from __future__ import annotations

from bisect import bisect
from functools import reduce
from itertools import groupby

from wattune.core.workload import Phase, Pipe

# Operations per byte between kinds: element-wise work, and convolutions below, around and above the ridges of today's
# parts (15 to 100 in practice).
_INTENSITIES = (10.0, 50.0, 150.0)


def merged(phases: tuple[Phase, ...], stretches: int) -> tuple[Phase, ...]:
    """The same totals in fewer phases: each pass in at most `stretches` stretches, in each a phase per kind."""
    if stretches < 1:
        raise ValueError(f"a pass has at least one stretch, not {stretches}")
    result: list[Phase] = []
    for _, part in groupby(phases, key=_pass):
        for stretch in _cut(list(part), stretches):
            result += _by_kind(stretch)
    return tuple(result)


def joined(first: Phase, second: Phase) -> Phase:
    """Two phases of one pipe as one, named after the first."""
    return Phase(
        name=first.name,
        flops=first.flops + second.flops,
        pipe=first.pipe,
        dram_bytes=first.dram_bytes + second.dram_bytes,
        launches=first.launches + second.launches,
        host_stall_s=first.host_stall_s + second.host_stall_s,
    )


def _cut(phases: list[Phase], stretches: int) -> list[list[Phase]]:
    """Contiguous stretches of about equal traffic."""
    total = sum(phase.dram_bytes for phase in phases)
    if not total:
        return [phases]
    cuts: list[list[Phase]] = [[] for _ in range(stretches)]
    before = 0.0
    for phase in phases:
        middle = (before + phase.dram_bytes / 2) / total
        cuts[min(int(middle * stretches), stretches - 1)].append(phase)
        before += phase.dram_bytes
    return [cut for cut in cuts if cut]


def _by_kind(stretch: list[Phase]) -> list[Phase]:
    kinds: dict[tuple[Pipe, int], list[Phase]] = {}
    for phase in stretch:
        kinds.setdefault(_kind(phase), []).append(phase)
    return [reduce(joined, alike) for alike in kinds.values()]


def _pass(phase: Phase) -> str:
    """Forward, backward or optimizer: what a phase's name begins with."""
    return phase.name.split("/", 1)[0]


def _kind(phase: Phase) -> tuple[Pipe, int]:
    intensity = phase.flops / phase.dram_bytes if phase.dram_bytes else float("inf")
    return phase.pipe, bisect(_INTENSITIES, intensity)
