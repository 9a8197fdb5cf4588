"""The loop around a controller: read the GPUs, let the controller decide, and apply its setting.

`tick` does what is due and returns at once; a thread (`control.background`) calls it every few hundredths of a
second, or a test that lets virtual time pass. Errors never reach the program that is tuned: they become events.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from wattune.control.actuator import Actuator
from wattune.control.controller import WindowController
from wattune.control.phase_hold import PhaseHold, PhasePlayers
from wattune.control.process_monitor import MonitoredProgram
from wattune.control.program_gpus import ProgramGpus
from wattune.control.progress_estimator import ProgressEstimator
from wattune.control.ranks import error_text
from wattune.control.stamps import Stamp
from wattune.control.state import (
    Condition,
    Disabled,
    Evidence,
    LostGpu,
    Observation,
    Progress,
    Waiting,
)
from wattune.control.window_state import Settling
from wattune.core.errors import DeviceError, DeviceLost
from wattune.core.setting import DRIVER_DEFAULT
from wattune.devices.gpu import Gpu
from wattune.signals.readings import Activity

DECIDE_S = 0.5
"""Between two decisions: short beside any window."""
CHECK_S = 1.0
"""Between two checks of what the program is doing, which cost more than a reading."""
COUNTED_S = 0.2
"""Between two readings where steps are counted: then power is not searched for a period."""
EDGE_PATIENCE_S = 0.3
"""A window ends after this long at a time that is known less well, where no move of the counter was seen closely."""
PATIENCE_S = 0.25
"""A reading that takes longer is not made at the end of a program, and a tick that is inside one is not waited for."""
BLIND_S = 10.0
"""Tuning is disabled after this long without a reading."""


class ControlLoop:
    """One controller on the GPUs of one program."""

    def __init__(
        self,
        controller: WindowController,
        gpus: Sequence[Gpu],
        *,
        program: MonitoredProgram,
        step_times: ProgressEstimator,
        phase_players: PhasePlayers | None = None,
    ) -> None:
        """`phase_players` plays settings per phase of a step; without, one setting is held throughout."""
        self.controller = controller
        self._actuator = Actuator(gpus)
        self.progress: Progress = controller.start()
        self._program, self._step_times = program, step_times
        self.readings = ProgramGpus(gpus, on_late=step_times.starved)
        self._decided_s = self._checked_s = float("-inf")
        self._condition = Condition.UNUSED
        self._named = self._actuator.gpus
        self.lost: tuple[LostGpu, ...] = ()
        """GPUs that were left out, since they do not answer any more."""
        self._applied = DRIVER_DEFAULT
        self._failing_since_s: float | None = None
        self._remarks: deque[str] = deque()
        self._failed = False
        self._phase_players = phase_players
        self._phase_hold: PhaseHold | None = None
        self._due_since_s: float | None = None
        """From when on a window could have ended at a move of the counter."""
        self.rest_s = 0.0
        """How long the loop rests at least between two ticks, so that it takes little processor time."""
        self.changes = 0
        """Number of settings that were applied."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self._actuator.gpus

    @property
    def wait_s(self) -> float:
        """Seconds until the next tick: `rest_s` at least, unless a move of a counter is needed exactly."""
        return self.readings.wait_s(is_due=self._is_due, rest_s=self._least_rest_s)

    def tick(self) -> None:
        """Do what is due: read, and twice a second decide and set. An error disables tuning."""
        if not self._failed:
            self._failed = self.guarded(self._tick) is not None

    def begin_phase(self, name: str, stamp: Stamp | None) -> None:
        """Request what is due in the phase of a step that begins, where settings are held per phase."""
        if self._phase_hold is not None:
            self._phase_hold.begin(name, stamp)

    def remark(self, text: str) -> None:
        """Note an event at the next decision; callable from any thread."""
        self._remarks.append(text)

    def refused(self, error: DeviceError) -> None:
        """Take note that the present setting was refused, and set the next."""
        self.progress = self.controller.failed(self.progress, error)
        self._set()

    def close(self) -> None:
        """Count the last window and restore the GPUs, since the program has ended."""
        self._failed = self.guarded(self._close) is not None

    def guarded(self, call: Callable[[], None]) -> Exception | None:
        """Call a part of the tuning; where it raises, disable tuning with an event, and return the error."""
        try:
            call()
        except Exception as error:  # whatever it is, the program that is tuned must not suffer from it
            self.disable(error_text(error))
            return error
        return None

    def abandon(self) -> None:
        """Restore the GPUs while a tick still waits for the driver, and let that tick change nothing any more."""
        self._failed = True
        self._end_phase_hold()
        self._actuator.close()

    def disable(self, why: str) -> None:
        """End the tuning for good and restore the GPUs."""
        if not isinstance(self.progress.state, Disabled):
            self.progress = self.controller.disabled(self.progress, why)
        self.restore()

    def restore(self) -> None:
        """Restore each GPU, also one that could not be restored before."""
        self._end_phase_hold()
        self._actuator.restore()
        self._restored()

    def _tick(self) -> None:
        if isinstance(self.progress.state, Disabled) and self._failing_since_s is not None:
            return
        now_s = self._sample()
        self._follow_steps(now_s)
        self._follow_phases(now_s)
        if now_s is not None and self._may_decide(now_s):
            self._decided_s, self._due_since_s = now_s, None
            self._decide(now_s)

    def _may_decide(self, now_s: float) -> bool:
        """Return whether it is time: where a window may begin or end, at a move of the counter."""
        if not self.controller.is_due(self.progress, now_s, self._step_times.marks.latest):
            self._due_since_s = None
            return now_s - self._decided_s >= DECIDE_S
        if self._due_since_s is None:
            self._due_since_s = now_s
        return self.readings.is_at_edge or now_s - self._due_since_s >= EDGE_PATIENCE_S

    @property
    def _is_due(self) -> bool:
        """Whether a window may begin or end at the next move of the counter."""
        return self._due_since_s is not None

    @property
    def _least_rest_s(self) -> float:
        return max(self.rest_s, COUNTED_S if self._step_times.is_counted else 0.0)

    def _close(self) -> None:
        if self.readings.took_s < PATIENCE_S:
            self._follow_steps(self._sample(always=True))
        if self.readings.newest is not None:
            steps = self._step_times.marks.latest
            observation = Observation(readings=self.readings.take(), condition=self._condition, steps=steps)
            self.progress = self.controller.step(self.progress, observation)
        since_s, last = self.progress.measuring_since_s, self.progress.last
        step_time = None if since_s is None or last is None else self._step_times.between(since_s, last.exact_s)
        self.progress = self.controller.closed(self.progress, step_time).noted(*self._taken_remarks())
        self.restore()

    def _sample(self, *, always: bool = False) -> float | None:
        """Read what is new and return the GPU's time; None where it does not answer."""
        try:
            now_s = self.readings.sample(is_due=self._is_due, rest_s=self._least_rest_s, always=always)
        except DeviceError as error:
            if not isinstance(error, DeviceLost) or not self._left_out_lost():
                self._missed(error)
            return None
        finally:
            self._remarks.extend(self.readings.take_news())
        self._failing_since_s = None
        return now_s

    def _missed(self, error: DeviceError) -> None:
        """Note a reading that failed, and disable tuning where that goes on."""
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        self.progress = self.progress.noted(f"the GPU could not be read: {error.message}")
        lost = isinstance(error, DeviceLost) or now_s - self._failing_since_s > BLIND_S
        if lost and not isinstance(self.progress.state, Disabled):
            self.disable("it cannot be read any more")

    def _left_out_lost(self) -> bool:
        """Leave out the GPUs that are lost and go on with the others; return False where there are no others."""
        losses = [_loss(gpu) for gpu in self.gpus]
        places = [place for place, loss in enumerate(losses) if loss is None]
        if not places or len(places) == len(losses):
            return False
        self.restore()
        for place, (gpu, loss) in enumerate(zip(self.gpus, losses, strict=True)):
            if loss is not None:
                spent = self.readings.spent(place)
                self.lost = (*self.lost, LostGpu(gpu.spec, self._named.index(gpu), loss.message, spent))
        gone = " and ".join(f"GPU {one.index}" for one in self.lost[len(places) - len(losses) :])
        left = " and ".join(f"GPU {self._named.index(self.gpus[place])}" for place in places)
        news = f"{gone} is lost; from now on only {left} is measured and set: {self.lost[-1].why}"
        self._keep(places)
        self._begin_without(news)
        return True

    def _begin_without(self, news: str) -> None:
        """Count from the first readings of the GPUs that are left, and measure a baseline again."""
        span = self.readings.span()
        if span is not None:
            (first, last), state = span, self.progress.state
            if isinstance(state, Settling):
                state = replace(state, since=last)
            self.progress = replace(self.progress, first=first, last=last, state=state)
        self._step_times.forget()
        self.progress = self.controller.restarted(self.progress, news)
        self._set()

    def _decide(self, now_s: float) -> None:
        if now_s - self._checked_s >= CHECK_S:
            self._checked_s = now_s
            self._condition = self._present_condition()
            self._narrow()
        readings = self.readings.take()
        by_phase = () if self._phase_hold is None else self._phase_hold.by_phase
        change = self._step_times.add(readings, setting=self._applied, by_phase=by_phase)
        trouble = self._step_times.counters.read(readings)
        evidence = self._evidence(now_s)
        if trouble is not None:
            self.remark(trouble)
        observation = Observation(
            readings=readings,
            condition=self._condition,
            evidence=evidence,
            change=change,
            remarks=self._taken_remarks(),
            steps=self._step_times.marks.latest,
        )
        changes = len(self.progress.changes)
        self.progress = self.controller.step(self.progress, observation)
        if change is None and len(self.progress.changes) > changes:
            self._step_times.forget()
        self._set()

    def _present_condition(self) -> Condition:
        """Combine what the processes of the program and the activity of its GPUs show."""
        condition, activity = self._program.condition(), self.readings.idle.activity
        if condition is Condition.WORKING and activity is Activity.IDLE:
            return Condition.IDLE
        if condition is Condition.WORKING and activity is Activity.UNKNOWN and self.readings.idle.last_s is not None:
            return Condition.UNUSED
        return condition

    def _narrow(self) -> None:
        """Leave out GPUs that the program does not use, before anything is set."""
        if self.progress.windows or self._condition is not Condition.WORKING or len(self.gpus) == 1:
            return
        used = self._program.used()
        kept = tuple(gpu for place, gpu in enumerate(self.gpus) if used is None or place in used)
        if kept and kept != self.gpus and isinstance(self.progress.state, Waiting):
            self._keep([self.gpus.index(gpu) for gpu in kept])
            self.readings.begin()
            names = ", ".join(gpu.spec.label for gpu in kept)
            begun = replace(self.controller.start(), events=self.progress.events)
            self.progress = begun.noted(f"of the GPUs named, the program uses {len(kept)}: {names}")

    def _keep(self, places: Sequence[int]) -> None:
        """Read and set only the GPUs at these places from now on."""
        kept = tuple(self.gpus[place] for place in places)
        self._step_times.counters.keep(places)
        self._program.keep(kept)
        self._actuator = Actuator(kept)
        self.readings.keep(places)

    def _taken_remarks(self) -> tuple[str, ...]:
        """Take the remarks so far, one by one, since others may come from other threads meanwhile."""
        return tuple(self._remarks.popleft() for _ in range(len(self._remarks)))

    def _evidence(self, now_s: float) -> Evidence | None:
        """Return what the present window shows of the work of the program, where that is due."""
        since_s = self.progress.measuring_since_s
        if since_s is None or not self.progress.wants_step_time:
            return None
        return self._step_times.evidence(since_s, now_s)

    def _follow_steps(self, now_s: float | None) -> None:
        """Take the steps that are counted inside the program; begin again where their unit is new."""
        if self._step_times.refused is not None:
            if not isinstance(self.progress.state, Disabled) and self._step_times.refuses():
                self.disable(self._step_times.refused)
            return
        news = None if now_s is None else self._step_times.follow(now_s)
        begins = self._step_times.begins()
        if news is None and begins and self.progress.windows:
            news = "steps are reported from now on"
        failure = None if self._step_times.hook is None else self._step_times.hook.failure()
        if failure is not None:
            self.remark(f"a process of the program does not count its steps: {failure}")
        if news is not None or begins:
            self._step_times.forget()
            last = self.readings.newest or self.progress.last
            self.progress = replace(self.progress, first=self.progress.first or last, last=last)
            early_steps = self._step_times.marks.total - 1 if begins else None
            self.progress = self.controller.restarted(self.progress, news, early_steps=early_steps)
            self._set()

    def _follow_phases(self, now_s: float | None) -> None:
        """Place the marks that the GPU has passed, and end settings per phase that failed."""
        if now_s is not None:
            self._step_times.phases.resolve(now_s)
        hold = self._phase_hold
        if hold is None:
            return
        hold.poll()
        failure = hold.take_failure()
        if failure is not None:
            self._end_phase_hold()
            self.progress = self.controller.failed(self.progress, failure)
            self._set()

    def _end_phase_hold(self) -> None:
        """Restore the GPUs where settings are held per phase."""
        hold, self._phase_hold = self._phase_hold, None
        if hold is not None:
            hold.close()
            self._actuator.stuck = hold.stuck
            self._restored()

    def _set(self) -> None:
        """Request the setting of the progress; a refusal goes to the controller, which chooses another."""
        if self._phase_hold is not None and self._phase_hold.by_phase != self.progress.by_phase:
            self._end_phase_hold()
        while (wanted := self.progress.setting) != self._applied:
            self._actuator.put(wanted)
            refusal = self._actuator.take_failure()
            if refusal is None:
                self._applied = wanted
                self.changes += 1
            else:
                self._restored()
                self.progress = self.controller.failed(self.progress, refusal)
        if self.progress.by_phase and self._phase_hold is None and self._phase_players is not None:
            self._phase_hold = PhaseHold(self.gpus, self.progress.by_phase, self._phase_players)

    def _restored(self) -> None:
        """Take note that the GPUs are as they were found, and which of them are not."""
        self._applied = DRIVER_DEFAULT
        for gpu, error in self._actuator.stuck:
            self.progress = self.progress.noted(
                f"{gpu.spec.label} could not be restored, `wattune restore` will try again: {error_text(error)}"
            )


def _loss(gpu: Gpu) -> DeviceLost | None:
    """Return the error of a GPU that is lost."""
    try:
        gpu.count()
    except DeviceLost as error:
        return error
    except DeviceError:
        pass
    return None
