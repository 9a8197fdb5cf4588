"""Play a plan of layers: at the start of which layer, and how long after it, each setting must be requested.

Notation
    t       planned start of a layer in its step, T the length of the step
    L       latency of a change: the request for a segment that begins at t is due at t − L, modulo T
    D       least dwell: no two requests are closer together

The layers form a ring: the request for the first segment of a step may be due in the last layers of the step before.
A request that is due less than D after the one before waits for the rest of D. Where the next one is due by then, its
segment would be over before its clock holds, and it is dropped.

The passes of a step are its forward layers, its backward layers and whatever follows (all-reduce, optimizer). A program
repeats passes (gradient accumulation) and breaks steps off (exceptions): a step may begin again at its first layer at
any time, and a pass at its first layer wherever another one has ended.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from wattune.control.stamps import Stamp
from wattune.core.errors import DeviceError, PlanError
from wattune.core.gpu_spec import GpuSpec, labelled
from wattune.core.setting import Setting
from wattune.levels.layer.switching import SwitchCost
from wattune.plans.plan import Plan

_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Request:
    """A setting to request, so many seconds after the layer begins at whose start it is returned."""

    setting: Setting
    after_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFor:
    """The GPU model and the batch size that a plan was made for; None where that is not known."""

    gpu: str | None = None
    batch_size: int | None = None

    def check(self, *, gpu: str | None = None, batch_size: int | None = None) -> None:
        """Raise an error unless both are the same, where both are known."""
        if self.gpu is not None and gpu is not None and labelled(self.gpu, True) != labelled(gpu, True):
            raise PlanError(f"the plan was made for {self.gpu}, and this GPU is {gpu}", hint="plan for this GPU")
        if None not in (self.batch_size, batch_size) and self.batch_size != batch_size:
            raise PlanError(
                f"the plan was made for a batch size of {self.batch_size}, and this one is {batch_size}",
                hint="plan for the batch size that is really used",
            )


@dataclass(frozen=True, slots=True)
class LayerProgram:
    """The layers of a step, and the requests due after the start of each."""

    names: tuple[str, ...]
    """The layers whose starts are heard, in order."""
    requests: tuple[tuple[Request, ...], ...]
    """Per layer."""
    held: tuple[Setting, ...]
    """Per layer, the setting requested last when it begins."""
    passes: tuple[int, ...]
    """The place at which each pass begins."""
    dwell_s: float

    @classmethod
    def of(
        cls, plan: Plan, *, switching: SwitchCost, spec: GpuSpec, heard: Collection[str] | None = None
    ) -> LayerProgram:
        """Make the program of a plan; raise where it has no predicted times or the GPU lacks one of the settings.

        `heard` are the layers whose starts will be reported, all by default.
        """
        names = tuple(operation.name for operation in plan.graph.operations)
        settings = tuple(choice.setting for choice in plan.choices)
        if not plan.durations_s:
            raise PlanError(
                "the plan has no predicted times, so no request can be made ahead of time",
                hint="make it from costs of layers, with plan_layers",
            )
        _check_settings(settings, spec)
        places = [place for place, name in enumerate(names) if heard is None or name in heard]
        if not places:
            raise PlanError("no layer of the plan is in this model", hint="plan for the model that is trained")
        starts_s = tuple(accumulate(plan.durations_s, initial=0.0))
        dues = due_times(settings, starts_s, switching=switching)
        own = tuple(names[place] for place in places)
        requests = _by_layer(dues, [starts_s[place] for place in places], starts_s[-1])
        return cls(own, requests, _held(requests, settings[0]), _pass_starts(own), _dwell_s(settings, switching))

    def shortened(self) -> LayerProgram:
        """Return the program with only the layers that have requests, and the first of each pass."""
        kept = [place for place, own in enumerate(self.requests) if own or place in self.passes]
        names = tuple(self.names[place] for place in kept)
        requests = tuple(self.requests[place] for place in kept)
        held = tuple(self.held[place] for place in kept)
        return LayerProgram(names, requests, held, _pass_starts(names), self.dwell_s)

    def check(self, names: Sequence[str]) -> None:
        """Raise an error that names the first difference unless these are the layers of a step, in this order."""
        for place in range(max(len(names), len(self.names))):
            runs = names[place] if place < len(names) else None
            planned = self.names[place] if place < len(self.names) else None
            if runs != planned:
                raise _differs(runs, planned)


@dataclass(frozen=True, slots=True)
class LayerPlayer:
    """A program, played over and over, at one of its layers."""

    program: LayerProgram
    place: int | None = None
    """Of the layer that runs; None before the first one."""
    requested: Setting | None = None
    """The last request; None before the first one."""

    def begin(self, name: str) -> tuple[LayerPlayer, tuple[Request, ...]]:
        """Return the player at this layer and the requests to make; raise where the plan has another layer here."""
        program, names = self.program, self.program.names
        expected = 0 if self.place is None or self.place + 1 == len(names) else self.place + 1
        place = expected if names[expected] == name else self._other(name, expected)
        wanted = program.requests[place]
        if self.requested is None or place != expected:
            wanted = self._caught_up(place)
        if not wanted:
            return LayerPlayer(program, place, self.requested), ()
        new: list[Request] = []
        for request in wanted:
            if request.setting != (new[-1].setting if new else self.requested):
                new.append(request)
        return LayerPlayer(program, place, wanted[-1].setting), tuple(new)

    def _caught_up(self, place: int) -> tuple[Request, ...]:
        """Return the requests of a layer after what those of layers that did not run would have led to."""
        wanted = self.program.requests[place]
        is_soon = bool(wanted) and wanted[0].after_s <= self.program.dwell_s
        return wanted if is_soon else (Request(self.program.held[place]), *wanted)

    def _other(self, name: str, expected: int) -> int:
        """Return the place of a layer with which a step or a pass begins again; raise for any other layer."""
        names, passes = self.program.names, self.program.passes
        if names[0] == name:
            return 0
        has_ended = self.place is not None and (expected == 0 or expected in passes)
        for place in passes:
            if has_ended and names[place] == name:
                return place
        raise _differs(name, names[expected])


class RequestGate:
    """Lets requests through once the GPU has reached their layer, their time has come and the dwell is over.

    The times of a plan are predictions, so the dwell is checked again in the time that really passes. It is called from
    the thread that sets clocks, one request after another.
    """

    def __init__(self, dwell_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._dwell_s = dwell_s
        self._now_s = now_s
        self._passed_s: float | None = None

    def reached(self, stamp: Stamp, after_s: float) -> Callable[[], bool]:
        """Return a function that is true once a setting may be applied, `after_s` after the stamp has passed."""
        stamped_s: float | None = None

        def is_reached() -> bool:
            nonlocal stamped_s
            now_s = self._now_s()
            if stamped_s is None:
                if not stamp.passed():
                    return False
                stamped_s = now_s
            too_early = self._passed_s is not None and now_s - self._passed_s < self._dwell_s
            if too_early or now_s - stamped_s < after_s:
                return False
            self._passed_s = now_s
            return True

        return is_reached


def due_times(
    settings: Sequence[Setting], starts_s: Sequence[float], *, switching: SwitchCost
) -> tuple[tuple[float, Setting], ...]:
    """Return when each setting is due, as seconds into the step, ascending; `starts_s` ends with the step's length."""
    before = (settings[-1], *settings[:-1])
    changes = [place for place, setting in enumerate(settings) if setting != before[place]]
    if not changes:
        return ()
    step_s = starts_s[-1]
    dues = [
        (starts_s[place] - switching.change_s(before[place], settings[place]), settings[place]) for place in changes
    ]
    return tuple(
        sorted((due_s % step_s, setting) for due_s, setting in _spaced(dues, step_s, _dwell_s(settings, switching)))
    )


def _dwell_s(settings: Sequence[Setting], switching: SwitchCost) -> float:
    return switching.dwell_s(changes_memory=len({setting.mem_mhz for setting in settings}) > 1)


def _spaced(dues: list[tuple[float, Setting]], step_s: float, dwell_s: float) -> list[tuple[float, Setting]]:
    """Delay requests that come less than `dwell_s` after the one before; drop those whose segment is over by then."""
    # A long latency may put a request before that of the segment before it; those in the order of segments count.
    gaps_s = [dues[place][0] - (dues[place - 1][0] - (0 if place else step_s)) for place in range(len(dues))]
    first = max(range(len(dues)), key=lambda place: gaps_s[place])
    ring = [*dues[first:], *((due_s + step_s, setting) for due_s, setting in dues[:first])]
    kept: list[tuple[float, Setting]] = []
    for place, (due_s, setting) in enumerate(ring):
        at_s = max(due_s, kept[-1][0] + dwell_s) if kept else due_s
        if place + 1 == len(ring) or at_s < ring[place + 1][0]:
            kept.append((at_s, setting))
    while len(kept) > 1 and kept[-1][0] + dwell_s > kept[0][0] + step_s * (1 + _CLOSE):
        kept.pop()
    return kept


def _by_layer(
    dues: Sequence[tuple[float, Setting]], starts_s: Sequence[float], step_s: float
) -> tuple[tuple[Request, ...], ...]:
    """Give each due time to the last layer that begins before it, or to the last one of the step before."""
    requests: list[list[Request]] = [[] for _ in starts_s]
    wrapped = sum(due_s < starts_s[0] for due_s, _ in dues)
    for due_s, setting in [*dues[wrapped:], *((due_s + step_s, setting) for due_s, setting in dues[:wrapped])]:
        place = bisect_right(starts_s, due_s) - 1
        requests[place].append(Request(setting, due_s - starts_s[place]))
    return tuple(map(tuple, requests))


def _held(requests: tuple[tuple[Request, ...], ...], only: Setting) -> tuple[Setting, ...]:
    """Return for each layer the setting requested last before it begins; `only` where nothing ever changes."""
    last = next((own[-1].setting for own in reversed(requests) if own), only)
    held = []
    for own in requests:
        held.append(last)
        last = own[-1].setting if own else last
    return tuple(held)


def _pass_starts(names: Sequence[str]) -> tuple[int, ...]:
    kinds = [name.partition("/")[0] for name in names]
    return tuple(place for place, kind in enumerate(kinds) if place == 0 or kind != kinds[place - 1])


def _check_settings(settings: Collection[Setting], spec: GpuSpec) -> None:
    for setting in dict.fromkeys(settings):
        try:
            spec.check(setting)
        except DeviceError as error:
            raise PlanError(f"the plan is for another GPU: {error}", hint=error.hint) from error


def _differs(runs: str | None, planned: str | None) -> PlanError:
    hint = "plan for this model with these inputs: trace_layers lists its layers"
    if planned is None:
        return PlanError(f"the model runs {runs!r} after the last layer of the plan", hint=hint)
    if runs is None:
        return PlanError(f"the plan has {planned!r} and the model runs no such layer", hint=hint)
    return PlanError(f"the model runs {runs!r} where the plan has {planned!r}", hint=hint)
