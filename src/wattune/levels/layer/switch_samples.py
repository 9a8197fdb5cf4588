"""One change of clocks as it is sampled: which changes to try, and the latency and stall that the samples show.

Notation
    t_0         time of the request; a clock is effective once the GPU reads it back
    a, b        last poll without the new clock, and first poll from which on it holds: it took effect in (a, b]
    L           latency: (a + b)/2 − t_0, with an error of (b − a)/2
    n_A, n_B    steps of a uniform load that are done at t_A, before the request, and at t_B, after the change
    r_1, r_2    its steps per second at the old and at the new clock
    s           stall: n_B = n_A + r_1·(t_e − t_A) + r_2·(t_B − t_e − s), where t_e = t_0 + L; its error is
                |r_1/r_2 − 1|·(b − a)/2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from wattune.core.errors import InputError, NotSupported
from wattune.core.gpu_spec import MEM_CLOCK, SM_CLOCK, GpuSpec, nearest
from wattune.core.reading import Throttle
from wattune.core.setting import Setting
from wattune.response.points import LEAST_MEMORY

TOLERANCE = 0.012
"""A clock this close to its target holds: some boards stay a step of 15 MHz below what they are asked for."""

TARGETS, LOWEST = 4, 0.5
"""Core clocks to try unless given, and the lowest as a share of the highest."""

CONFIRMED = 3
"""Polls in a row that must show the new clock."""


@dataclass(frozen=True, slots=True)
class ClockSwitch:
    """A change of the core clock or of the memory clock, from one setting to another."""

    knob: str
    before: Setting
    after: Setting
    target_mhz: int
    """The clock of this knob in `after`."""

    def is_at_target(self, mhz: int | None) -> bool:
        return mhz is not None and abs(mhz - self.target_mhz) <= TOLERANCE * self.target_mhz


class ClockPoll(NamedTuple):
    """The clock of a GPU at a time, what limited it, and how many steps its load has done; None if not known."""

    time_s: float
    mhz: int | None
    throttle: Throttle | None = None
    steps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSamples:
    """One change as it was seen: the call, and the polls before and after it."""

    switch: ClockSwitch
    requested_s: float
    returned_s: float
    polls: tuple[ClockPoll, ...]
    """In the order of time: two before the request, and where the change was seen, two after a rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedClock:
    """A clock that took effect."""

    latency_s: float
    error_s: float
    call_s: float
    """Duration of the call that asked for it."""
    stall_s: float | None = None
    stall_error_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedClock:
    """A clock that did not take effect in time, and the clock that held instead."""

    held_mhz: int | None
    throttle: Throttle


def planned_switches(spec: GpuSpec, *, repeats: int, clocks_mhz: Sequence[int] = ()) -> tuple[ClockSwitch, ...]:
    """Return changes between all pairs of some core clocks and of the useful memory clocks, each from where one ended.

    Without `clocks_mhz`, a few core clocks from the highest to half of it are chosen.
    """
    if not spec.sm_clocks_mhz:
        raise NotSupported(
            f"{spec.label} does not let its core clock be set", hint="choose another GPU; see `wattune devices`"
        )
    core = tuple((mhz, Setting(mhz)) for mhz in _targets(spec, clocks_mhz))
    return _circuit(SM_CLOCK, core) * repeats + _circuit(MEM_CLOCK, _memory_targets(spec)) * repeats


def _memory_targets(spec: GpuSpec) -> tuple[tuple[int, Setting], ...]:
    """Return the useful memory clocks, as settings with the same core clock; none where they cannot be changed."""
    # A simulated GPU whose switching time is not known changes at once, which would be no measurement.
    if not spec.can_lock_mem or (spec.simulated and spec.switching.mem_s is None):
        return ()
    least_mhz = LEAST_MEMORY * spec.mem_clocks_mhz[0]
    memory = {table.mem_mhz: table.sm_mhz for table in spec.clocks if table.mem_mhz and table.mem_mhz >= least_mhz}
    common = set.intersection(*map(set, memory.values()))
    if len(memory) < 2 or not common:
        return ()
    # Far from the power limit, so that only the memory clock moves.
    sm_mhz = max((mhz for mhz in common if mhz <= 0.75 * max(common)), default=min(common))
    return tuple((mem_mhz, Setting(sm_mhz, mem_mhz)) for mem_mhz in memory)


def _targets(spec: GpuSpec, given_mhz: Sequence[int]) -> tuple[int, ...]:
    for mhz in given_mhz:
        spec.check(Setting(mhz))
    if given_mhz:
        found = sorted(set(given_mhz), reverse=True)
    else:
        top, steps = spec.sm_clocks_mhz[-1], range(TARGETS)
        wanted = [round(top * (1 - (1 - LOWEST) * step / (TARGETS - 1))) for step in steps]
        found = sorted({nearest(mhz, spec.sm_clocks_mhz)[-1] for mhz in wanted}, reverse=True)
    if len(found) < 2 or any(low > (1 - 2 * TOLERANCE) * high for high, low in pairwise(found)):
        raise InputError(
            f"changes are between two or more core clocks that are 3 % apart, not {', '.join(map(str, found))} MHz",
            hint="such as --clocks 705,1005,1410",
        )
    return tuple(found)


def _circuit(knob: str, targets: Sequence[tuple[int, Setting]]) -> tuple[ClockSwitch, ...]:
    """Go from every target to every other once, and back to the first: 0 1 0 2 0 3 1 2 1 3 2 3 0."""
    numbers = range(len(targets))
    places = [place for low in numbers for high in numbers[low + 1 :] for place in (low, high)] + [0]
    return tuple(
        ClockSwitch(knob, targets[start][1], targets[end][1], targets[end][0]) for start, end in pairwise(places)
    )


def outcome_of(samples: SwitchSamples) -> ReachedClock | MissedClock | None:
    """Estimate latency and stall; None where the clock was at its target before, so that no change could be seen."""
    switch, polls = samples.switch, samples.polls
    earlier, later = polls[:2], polls[2:]
    if switch.is_at_target(earlier[-1].mhz):
        return None
    holding = len(later)
    while holding and switch.is_at_target(later[holding - 1].mhz):
        holding -= 1
    if len(later) - holding < CONFIRMED:
        return MissedClock(held_mhz=polls[-1].mhz, throttle=polls[-1].throttle or Throttle.NONE)
    first_s = later[holding].time_s
    last_s = later[holding - 1].time_s if holding else samples.requested_s
    effective_s, error_s = (first_s + last_s) / 2, (first_s - last_s) / 2
    stall = _stall(earlier, later[-2:], effective_s)
    return ReachedClock(
        latency_s=effective_s - samples.requested_s,
        error_s=error_s,
        call_s=samples.returned_s - samples.requested_s,
        stall_s=stall and stall[0],
        stall_error_s=stall and stall[1] * error_s,
    )


def _stall(before: Sequence[ClockPoll], after: Sequence[ClockPoll], effective_s: float) -> tuple[float, float] | None:
    """Return the stall, and how much of an error of `effective_s` is in it; None where the load's steps are unknown."""
    old, new = _rate(before), _rate(after)
    start, end = before[-1], after[-1]
    if not old or not new or start.steps is None or end.steps is None:
        return None
    at_new_clock = end.steps - start.steps - old * (effective_s - start.time_s)
    return end.time_s - effective_s - at_new_clock / new, abs(old / new - 1)


def _rate(polls: Sequence[ClockPoll]) -> float | None:
    if len(polls) < 2 or polls[0].steps is None or polls[-1].steps is None:
        return None
    return (polls[-1].steps - polls[0].steps) / (polls[-1].time_s - polls[0].time_s)
