"""Settle, measure, hold: carry out the windows that a policy orders, as a pure function of what is observed.

    progress = controller.start()
    for each observation:   set progress.setting on the GPUs, and
                            progress = controller.step(progress, observation)

A setting is applied, given time to settle, read back, and measured until its step time is known well enough or its time
is up; the window goes to the policy, which orders the next. What the GPUs refuse, or do not hold, is removed from what
the policy may choose.

A level uses it by writing a `RunPolicy`: trials are orders with a `precision`, holding is an order without one, and a
search that has ended orders the same setting again. `control.loop` connects it to GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.control.ranks import error_text
from wattune.control.recall import Memory, known_phase, unexplained_change
from wattune.control.state import (
    LEAST_S,
    NOTHING,
    Condition,
    Disabled,
    Observation,
    OpenWindow,
    Progress,
    StepCount,
    StepTime,
    Waiting,
    between,
    until_of,
)
from wattune.control.window_state import Measuring, Settling
from wattune.control.window_totals import Tally, disagreement
from wattune.core.errors import DeviceBusy, DeviceError, DeviceLost, NoPermission, NotSupported, PlanError
from wattune.core.gpu_spec import KNOBS, GpuSpec, can_set, limited_to, without
from wattune.core.measurement import Measurement
from wattune.core.reading import CountedReading, Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, RunPolicy, Window, by_phase_words, since_change, steps_s
from wattune.signals.change import PERIOD, Change

SETTLE_S = 1.0
"""From a new clock to the window, where the order leaves it open: clocks settle within 0.1 s, power and data loaders a
little later."""
PATIENCE = 3.0
"""A clock that does not hold after so many times the settling time is given up."""
GROWTH = (1.25, 2.0)
"""By how much a window grows between two estimates of its step time, at least and at most: an estimate is costly."""
NEW_S = 10.0
"""The first window of a held setting that was never measured is as short as a trial: a clock below a knee may be far
slower than its neighbours, and the slack of the slowdown limit is soon used up."""
_SAME_S = 1e-6
"""Times that differ by less are equal."""
MOST_REFUSED = 3
"""Tuning is disabled after so many refused settings."""


@dataclass(frozen=True, slots=True)
class WindowController:
    """A policy for one GPU model, and what it may set."""

    policy: RunPolicy
    spec: GpuSpec
    settle_s: float = SETTLE_S
    memory: Memory | None = None
    """Measurements of an earlier run of the program."""

    def start(self) -> Progress:
        return Progress(self.spec)

    def step(self, progress: Progress, observation: Observation) -> Progress:
        """Return the progress after one more observation."""
        progress = progress.noted(*observation.remarks)
        observation = _with_steps(observation)
        if observation.readings:
            first = progress.first or observation.readings[0]
            done = [one for one in observation.readings if _is_stepped(one, observation)]
            stepped = done[-1] if done else progress.stepped
            progress = replace(progress, first=first, last=observation.readings[-1], stepped=stepped)
        state = progress.state
        if isinstance(state, Disabled):
            return progress
        if observation.condition is not Condition.WORKING:
            return self._interrupted(progress, observation.condition)
        match state:
            case Waiting():
                return self._next(progress) if observation.readings else progress
            case Settling():
                return self._settled(progress, state, observation)
            case Measuring(choice=order, window=window):
                return self._measured(progress, order, window, observation)

    def failed(self, progress: Progress, error: Exception) -> Progress:
        """Return the progress after the present setting was refused."""
        setting = progress.setting
        lasting = isinstance(error, NoPermission | DeviceBusy | DeviceLost)
        if progress.by_phase and isinstance(error, DeviceError | PlanError) and not lasting:
            return self.one_setting(progress, error_text(error))
        if lasting or not isinstance(error, DeviceError) or setting == DRIVER_DEFAULT:
            return self.disabled(progress, error_text(error))
        noted = progress.noted(f"{setting} was refused and is not tried again: {error_text(error)}")
        if isinstance(error, NotSupported):
            knobs = frozenset(name for name in KNOBS if name not in setting.knobs)
            return self._next(_dropped(noted, setting, limited_to(noted.spec, knobs)))
        return self._next(_dropped(noted, setting, without(noted.spec, setting)))

    def one_setting(self, progress: Progress, why: str) -> Progress:
        """Return the progress where settings are not held per phase any more; the unfinished window is lost."""
        noted = progress.noted(f"one setting is held instead of one per phase: {why}")
        return self._next(replace(noted, one_setting=why, unmeasured=_unmeasured(noted)))

    def disabled(self, progress: Progress, why: str) -> Progress:
        """Return the progress with tuning disabled for good."""
        noted = progress.noted(f"tuning ended, the GPU is as it was found: {why}")
        return replace(noted, state=Disabled(why))

    def is_due(self, progress: Progress, now_s: float, steps: StepCount | None = None) -> bool:
        """Return whether the present state may be over, so that the next reading should be as exact as can be.

        No window begins or ends while a step is overdue: if the program ends, what came after its steps is no part of
        them.
        """
        if steps is not None and steps.stalls_at(now_s):
            return False
        match progress.state:
            case Settling(choice=order, since=since):
                return now_s - since.exact_s >= self._settle_s(order)
            case Measuring(choice=order, window=window):
                age_s, until = now_s - window.tally.first.exact_s - window.tally.paused_s, until_of(order)
                return age_s >= max(until.least_s, min(window.again_s, until.most_s))
            case _:
                return False

    def restarted(self, progress: Progress, why: str | None, *, early_steps: int | None = None) -> Progress:
        """Return the progress where the unit of work is another from now on: begin again with a baseline.

        `early_steps` is given at the first step that is seen of a program: how many it had done already. What passed
        before them is no part of its steps.
        """
        noted = progress if why is None else progress.noted(why)
        is_first = early_steps is not None
        if all(window.purpose is Purpose.BASELINE for window in noted.windows):
            noted = replace(noted, early_steps=early_steps or 0)
        if noted.windows and not noted.windows[-1].changed:
            last, now_s = noted.windows[-1], noted.time_s
            noted = replace(
                noted,
                windows=(*noted.windows[:-1], replace(last, changed=True)),
                changes=(*noted.changes, Change(time_s=now_s, since_s=now_s, samples=1, shifts={})),
            )
        if isinstance(noted.state, Settling | Measuring):
            return self._next(replace(noted, unmeasured=NOTHING if is_first else _unmeasured(noted)))
        return noted

    def closed(self, progress: Progress, step_time: StepTime | None) -> Progress:
        """Return the progress at the end of the program: an unfinished window counts as far as its last step.

        One that is too short to measure anything counts with what passed since the last. A window that ended after the
        last step ends with that instead.
        """
        before, stepped = progress.reopened, progress.stepped
        if before and before.last and stepped and stepped.exact_s < before.last.exact_s:
            return self.closed(replace(before, events=progress.events, last=progress.last, stepped=stepped), None)
        match progress.state:
            case Measuring(choice=order, window=OpenWindow(stepped=None, since=Reading() as since)) if progress.stepped:
                # The last step ended while the setting settled.
                return _unfinished(replace(progress, unmeasured=NOTHING), order, Tally(since, progress.stepped), since)
            case Measuring(choice=order, window=window):
                tally = window.stepped or window.tally
                if tally.time_s >= LEAST_S:
                    ended = replace(window, tally=tally, step_time=step_time or window.step_time)
                    return _with_window(progress, order, ended)
                return _unfinished(progress, order, tally, window.since)
            case Settling(choice=order, since=since):
                return _unfinished(progress, order, Tally(since, progress.stepped or progress.last), since)
            case _:
                return progress

    def _settle_s(self, order: Order) -> float:
        return self.settle_s if order.settle_s is None else order.settle_s

    def _interrupted(self, progress: Progress, why: Condition) -> Progress:
        """Wait until the program works again; an unfinished window is lost."""
        if isinstance(progress.state, Waiting) and progress.state.why is why:
            return progress
        expected = why is Condition.UNUSED and not progress.windows
        noted = progress if expected else progress.noted(f"the program is {why}")
        return replace(noted, state=Waiting(why), unmeasured=_unmeasured(progress))

    def _next(self, progress: Progress) -> Progress:
        """Begin the next order of the policy."""
        if not can_set(progress.spec) or len(progress.refused) >= MOST_REFUSED:
            return self.disabled(progress, "nothing that was asked for could be set")
        windows, remark = self._recalled(progress)
        progress = progress if remark is None else progress.noted(remark)
        order = _measured_soon(self.policy.step(windows, progress.spec), since_change(progress.windows))
        progress, order = _announced(progress, order)
        if order.setting in progress.refused:
            return self.disabled(progress, f"{self.policy.name} insists on {order.setting}, which was refused")
        assert progress.last is not None
        before = progress.windows[-1] if progress.windows else None
        same = before is not None and (before.setting, before.by_phase) == (order.setting, order.by_phase)
        if same and not progress.unmeasured.time_s:
            return replace(progress, state=Measuring(order, _opened(progress.last, progress.last, progress)))
        return replace(progress, state=Settling(order, progress.last))

    def _recalled(self, progress: Progress) -> tuple[tuple[Window, ...], str | None]:
        """Return the windows for the policy, with earlier ones that it may use, and a remark about those."""
        windows = progress.windows
        if not self.policy.uses_history:
            return windows, None
        if progress.changes:
            phase, earlier = since_change(windows), known_phase(windows, progress.changes[-1])
            if earlier is None:
                return windows, None
            return earlier.recalled(phase), "what was found before the program changed is used again"
        if self.memory is None:
            return windows, None
        recalled = self.memory.recalled(windows)
        if len(recalled) == len(windows):
            return windows, None
        return recalled, "the program behaves as in an earlier run, whose settings are used again"

    def _settled(self, progress: Progress, state: Settling[Order, Reading], observation: Observation) -> Progress:
        readings = observation.readings
        if not readings or _stalls(observation):
            return progress
        setting = _agreeing(state.choice, readings[-1])
        settle_s = self._settle_s(state.choice)
        age_s = readings[-1].exact_s - state.since.exact_s
        against = disagreement(setting, readings[-1])
        if against is None and age_s >= settle_s:
            begun = Measuring(state.choice, _opened(readings[-1], state.since, progress, observation.steps))
            return replace(progress, state=begun, unmeasured=_unmeasured(progress))
        if against is not None and age_s >= PATIENCE * max(settle_s, self.settle_s):
            if state.choice.by_phase:
                return self.one_setting(progress, against)
            noted = progress.noted(f"not applied, and not tried again: {against}")
            return self._next(_dropped(noted, setting, without(noted.spec, setting)))
        return progress

    def _measured(self, progress: Progress, order: Order, window: OpenWindow, observation: Observation) -> Progress:
        tally, stepped = window.tally, window.stepped
        if _is_stepped(tally.last or tally.first, observation):
            stepped = tally
        for reading in observation.readings:
            tally = tally.add(reading, _agreeing(order, reading))
            stepped = tally if _is_stepped(reading, observation) else stepped
        window = replace(window, tally=tally, stepped=stepped)
        if observation.change is None and _stalls(observation):
            return replace(progress, state=Measuring(order, window))
        if observation.step_time is not None or progress.wants_step_time:
            window = replace(
                window,
                step_time=observation.step_time or window.step_time,
                features=observation.features or window.features,
                phases=observation.phases or window.phases,
                again_s=_again_s(order, observation.step_time, window.age_s),
            )
        if observation.change is not None and progress.first is not None:
            change = observation.change.since_start(progress.first.exact_s)
            return self._changed(progress, order, window, change, "")
        error = None if window.step_time is None else window.step_time.relative_error
        if not window.again_s or not until_of(order).is_over(time_s=window.age_s, error=error):
            return replace(progress, state=Measuring(order, window))
        before = replace(progress, state=Measuring(order, window), reopened=None)
        ended = replace(_with_window(progress, order, window), reopened=before)
        if window.step_time is not None and window.step_time.source != PERIOD:
            missed = unexplained_change(ended.windows, self.spec)
            if missed is not None:
                return self._changed(progress, order, window, missed, ", unexplained by clock changes")
        return self._next(ended)

    def _changed(self, progress: Progress, order: Order, window: OpenWindow, change: Change, how: str) -> Progress:
        """End the window in which the program began to do something else, and begin the next order."""
        noted = progress.noted(f"the program does something else{how}: {change.words}")
        changed = replace(noted, changes=(*noted.changes, change))
        return self._next(_with_window(changed, order, window, changed=True))


def _with_steps(observation: Observation) -> Observation:
    """Note the steps that were done by each reading."""
    if observation.steps is None:
        return observation
    counted = [
        replace(one, steps=observation.steps.at(one.exact_s)) if isinstance(one, CountedReading) else one
        for one in observation.readings
    ]
    return replace(observation, readings=tuple(counted))


def _stalls(observation: Observation) -> bool:
    """Return whether a step is overdue at the last reading."""
    readings, steps = observation.readings, observation.steps
    return bool(readings) and steps is not None and steps.stalls_at(readings[-1].exact_s)


def _is_stepped(reading: Reading, observation: Observation) -> bool:
    """Return whether the program has ended a step at or after a reading."""
    return observation.steps is not None and reading.exact_s <= observation.steps.time_s


def _opened(first: Reading, since: Reading, progress: Progress, steps: StepCount | None = None) -> OpenWindow:
    """Begin a window at a reading; steps take as long as at present, or as in the last window."""
    step_s = None if steps is None else steps.step_s
    if step_s is None and progress.windows:
        step_s = progress.windows[-1].step_time_s
    return OpenWindow(Tally.begun(first, step_s=step_s), since)


def _steps_of(progress: Progress, measured: OpenWindow) -> float | None:
    """Return the steps in a window and while its setting settled; None where they are unknown or something paused."""
    tally, since = measured.tally, measured.since
    last = tally.last or tally.first
    if since is None or since.steps is None or last.steps is None or tally.paused_s:
        return None
    is_whole = abs(progress.unmeasured.time_s - (tally.first.exact_s - since.exact_s)) < _SAME_S
    return last.steps - since.steps if is_whole else None


def _announced(progress: Progress, order: Order) -> tuple[Progress, Order]:
    """Note what a policy remarks, and whether settings per phase begin; drop these where they are given up."""
    if progress.one_setting is not None:
        order = replace(order, by_phase=())
    begins = order.by_phase and order.by_phase != (progress.windows[-1].by_phase if progress.windows else ())
    held = (f"held per phase: {by_phase_words(order.by_phase)}",) if begins else ()
    return progress.noted(*filter(None, (order.remark, *held))), order


def _agreeing(order: Order, reading: Reading) -> Setting:
    """Return the setting of an order that a reading agrees with, or else its first."""
    settings = order.settings
    return next((one for one in settings if disagreement(one, reading) is None), settings[0])


def _measured_soon(order: Order, phase: tuple[Window, ...]) -> Order:
    """Shorten an order that holds a setting which was never measured."""
    timed = [window for window in phase if window.step_time_s is not None]
    if (
        order.purpose is not Purpose.HOLD
        or order.by_phase
        or not timed
        or any(window.setting == order.setting for window in timed)
    ):
        return order
    new_s = max(NEW_S, steps_s(phase))
    return replace(order, least_s=min(order.least_s, new_s), most_s=min(order.most_s, new_s))


def _again_s(order: Order, step_time: StepTime | None, age_s: float) -> float:
    """Return the age at which the step time will be precise enough: its error falls with the age to the 1.5."""
    least, most = GROWTH
    error = None if step_time is None else step_time.relative_error
    if error is None or order.precision is None:
        return most * age_s
    return age_s * min(max(float((error / order.precision) ** (2 / 3)), least), most)


def _with_window(progress: Progress, order: Order, measured: OpenWindow, *, changed: bool = False) -> Progress:
    tally, step_time = measured.tally, measured.step_time
    assert progress.first is not None
    settling, early_steps = progress.unmeasured, progress.early_steps
    if early_steps and step_time is not None:
        early_s, early_steps = early_steps * step_time.step_time_s, 0
        settling += Measurement(early_s, early_s * tally.cost.power_w)
    window = Window(
        setting=order.setting,
        purpose=order.purpose,
        start_s=tally.first.exact_s - progress.first.exact_s,
        cost=tally.cost,
        settling=settling,
        step_time_s=None if step_time is None else step_time.step_time_s,
        step_time_error_s=None if step_time is None else step_time.error_s,
        source=None if step_time is None else step_time.source,
        held=tally.held,
        sm_mhz=tally.sm_mhz.mean,
        sm_util=tally.sm_utils.mean,
        mem_util=tally.mem_utils.mean,
        sm_util_error=tally.sm_utils.error,
        mem_util_error=tally.mem_utils.error,
        features=measured.features,
        changed=changed,
        phases=measured.phases,
        by_phase=order.by_phase,
        steps=_steps_of(progress, measured),
        delayed=0.0 if step_time is None else step_time.delayed,
    )
    return replace(progress, windows=(*progress.windows, window), unmeasured=NOTHING, early_steps=early_steps)


def _unfinished(progress: Progress, order: Order, tally: Tally, since: Reading | None) -> Progress:
    """Add what passed since the last window as one in which nothing was measured."""
    passed = progress.unmeasured + Measurement(tally.time_s, tally.cost.energy_j)
    if not passed.time_s:
        return progress
    empty = OpenWindow(Tally(tally.last or tally.first), since)
    return _with_window(replace(progress, unmeasured=passed), order, empty)


def _dropped(progress: Progress, setting: Setting, spec: GpuSpec) -> Progress:
    """Remove a setting, and charge what it took to the next window."""
    return replace(progress, spec=spec, refused=(*progress.refused, setting), unmeasured=_unmeasured(progress))


def _unmeasured(progress: Progress) -> Measurement:
    """Return what has passed since the last window."""
    match progress.state:
        case Settling(since=first) if progress.last is not None:
            return progress.unmeasured + between(first, progress.last)
        case Measuring(window=window):
            cost = window.tally.cost
            return progress.unmeasured + Measurement(cost.time_s, cost.energy_j)
        case _:
            return progress.unmeasured
