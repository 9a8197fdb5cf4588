"""One program, tuned while it runs: the policy, the GPUs and the step times of the program, tied together.

session = RunSession(gpus, objective=LeastEnergy(0.05), program=...)
with session:                       a thread reads, decides and sets
    session.step()                  after each iteration, where the program can report them
report_of(session, …)               the result, in `levels.run.report`; the GPUs are restored by then

Whatever goes wrong inside becomes an event: tuning is disabled, the GPUs are restored, and the program goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Self

from wattune.control.actuator import actuator_for, passes_by_itself
from wattune.control.background import Background
from wattune.control.controller import WindowController
from wattune.control.counters import CounterWatch, counters_of
from wattune.control.loop import ControlLoop
from wattune.control.phase_hold import PhasePlayers
from wattune.control.process_monitor import Itself, MonitoredProgram
from wattune.control.progress_estimator import ProgressEstimator
from wattune.control.ranks import RankExchange, Ranks, SharedGpu, error_text
from wattune.control.recall import Memory
from wattune.control.stamps import Stamp
from wattune.control.state import Disabled, Progress
from wattune.core.errors import DeviceError, InputError, SettingRefused
from wattune.core.gpu_spec import KNOBS, limited_to
from wattune.core.objective import Objective
from wattune.core.reading import Reading
from wattune.core.setting import Setting
from wattune.core.window import RunPolicy, Window
from wattune.devices.gpu import Gpu, time_of
from wattune.levels.run.figures import RunFigures, figures_of
from wattune.levels.run.policies import policy_named, slowdown_limit_of
from wattune.process.step_file import StepFollower

_UNUSED = "phases are not used: one setting is held with several ranks, other policies, and without a slowdown limit"
_MISSED = "this GPU shows none from outside (NVML's GPM, on Hopper and newer)"


class RunSession:
    """Tunes one program on GPUs of one kind, as one."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        objective: Objective,
        policy: str | RunPolicy = "wattune",
        knobs: frozenset[str] = frozenset(KNOBS),
        program: MonitoredProgram | None = None,
        ranks: Ranks | None = None,
        memory: Memory | None = None,
        notes: Sequence[str] = (),
        phase_players: PhasePlayers | None = None,
        hook: StepFollower | None = None,
    ) -> None:
        """`memory` is what an earlier run of the same program showed; `notes` become the first events.

        `phase_players` is for a policy that may order a setting per phase of a step; `hook` counts steps inside the
        program.
        """
        check_alike(tuple(gpus))
        self.objective = objective
        self.policy = policy_named(policy, objective) if isinstance(policy, str) else policy
        spec = gpus[0].spec
        self.watch = ProgressEstimator(spec.sensors)
        self.watch.hook = hook
        self._own = tuple(gpus)
        self._now_s = time_of(gpus[0])
        self._shared: SharedGpu | None = None
        self._exchange: RankExchange | None = None
        self._background: Background | None = None
        self._opened = ExitStack()
        self._failed = False
        self.ended = False
        """True once the GPUs are restored."""
        self._phases_used = phase_players is not None and (ranks is None or ranks.size == 1)
        self._remark_unused = cache(lambda: self.loop.remark(_UNUSED))
        if ranks is not None and ranks.size > 1:
            self._shared = SharedGpu(spec)
            self._actuator = actuator_for(self._own)
            self._exchange = RankExchange(ranks, self._actuator)
        controller = WindowController(self.policy, limited_to(spec, knobs), memory=memory)
        tuned: Sequence[Gpu] = self._own if self._shared is None else (self._shared,)
        self.loop = ControlLoop(
            controller, tuned, program=program or Itself(), step_times=self.watch, phase_players=phase_players
        )
        self.loop.progress = self.loop.progress.noted(*notes)
        if self._exchange is None and passes_by_itself(gpus[0]):
            self._background = Background(self.loop)

    def __enter__(self) -> Self:
        close = getattr(self.policy, "close", None)
        if close is not None:  # a policy in a process of its own
            self._opened.callback(close)
        if self._exchange is not None:
            self._opened.enter_context(self._actuator)
        elif self.policy.tunes:
            self._guarded(self._count)
        if self._background is not None:
            self._opened.enter_context(self._background)
        else:
            self._opened.callback(self.loop.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        self.ended = True

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of this process that are tuned."""
        return self._own if self._shared is not None else self.loop.gpus

    @property
    def setting(self) -> Setting:
        """The present setting, or the one requested."""
        if self._exchange is not None and self._exchange.agreement.disabled is None:
            return self._exchange.setting
        return self.progress.setting

    @property
    def progress(self) -> Progress:
        return self.loop.progress

    @property
    def background(self) -> Background | None:
        """The thread that tunes; None where that happens within `step`."""
        return self._background

    def step(self, count: int = 1, *, age_s: float = 0.0) -> None:
        """Count iterations of the program, the last of which ended so long ago.

        Never raises: a failure disables tuning.
        """
        if not self._failed:
            self._guarded(lambda: self._step(count, age_s))

    def phase(self, name: str, *, stamp: Stamp | None = None, age_s: float = 0.0) -> None:
        """Note that a phase of a step begins, at a stamp in the work of the GPU or so long ago. Never raises."""
        if not self._failed:
            self._guarded(lambda: self._phase(name, stamp, age_s))

    def _phase(self, name: str, stamp: Stamp | None, age_s: float) -> None:
        if not self._phases_used:
            self._remark_unused()
            return
        try:
            numbered = self.watch.phases.add(name, self._now_s() - age_s, stamp=stamp)
        except DeviceError:
            return
        self.loop.begin_phase(numbered, stamp)
        if self._background is None:
            self.loop.tick()

    def _step(self, count: int, age_s: float) -> None:
        if self._exchange is not None:
            self._step_with_ranks(self._exchange, count)
            return
        self.watch.phases.end_step()
        try:
            self.watch.report(self._now_s() - age_s, count)
        except DeviceError:
            return  # the loop notices by itself that the GPU does not answer
        if self._background is None:
            self.loop.tick()

    def _step_with_ranks(self, exchange: RankExchange, count: int) -> None:
        exchange.step(count, self._decided)
        why = exchange.agreement.disabled or exchange.agreement.failure
        if why is not None:
            self._disable(why)
        elif exchange.refusal is not None:
            self.loop.progress = self.progress.noted(f"this rank was refused a setting: {exchange.refusal}")
            exchange.refusal = None

    def _guarded(self, call: Callable[[], None]) -> None:
        """Call a part of the tuning; where that fails, tuning is disabled, on all ranks."""
        error = self.loop.guarded(call)
        if error is None:
            return
        if self._exchange is None:
            self._failed = True
        else:
            self._exchange.agreement.fail(error)  # and go on counting steps up to the next decision point
            self._actuator.disable(error_text(error))

    def _disable(self, why: str) -> None:
        """Set nothing any more and restore the GPUs."""
        self.loop.disable(why)
        if self._exchange is not None:
            self._actuator.disable(why)

    def _count(self) -> None:
        """Read the counters of the GPUs from now on, or note that the policy lacks them."""
        readers = self._opened.enter_context(counters_of(self._own))
        clocks = self._own[0].spec.sm_clocks_mhz
        self.watch.counters = CounterWatch(readers, top_mhz=clocks[-1] if clocks else 0.0)
        if not readers and self.policy.needs_counters:
            self.loop.progress = self.loop.progress.noted(f"{self.policy.name} has no counters to go by: {_MISSED}")

    def _decided(self, reading: Reading, refused: bool, steps: int) -> Setting:
        """Return what all ranks are to set, given what their GPUs show together."""
        assert self._shared is not None
        self._shared.reading = reading
        self.watch.marks.add(reading.time_s, steps)
        if refused:
            wanted = self._shared.wanted
            self.loop.refused(SettingRefused(f"a rank could not set {wanted}", hint="see the log of that rank"))
        self.loop.tick()
        if isinstance(self.progress.state, Disabled):
            raise DeviceError(self.progress.state.why)  # which disables all ranks
        return self._shared.wanted


def check_alike(gpus: tuple[Gpu, ...]) -> None:
    """Raise an error unless these GPUs can be tuned as one."""
    if not gpus:
        raise InputError("there is no GPU to tune", hint="name one, such as nvml:0 or sim:a100")
    names = sorted({gpu.spec.name for gpu in gpus})
    if len(names) > 1:
        raise InputError(
            f"GPUs that are tuned as one are of one kind, not {' and '.join(names)}",
            hint="name those of one kind, or tune each by itself: --per-gpu",
        )


class Tuning:
    """The handle of a training program: it reports steps here and reads the results so far."""

    def __init__(self, session: RunSession) -> None:
        self._session = session

    def step(self, count: int = 1) -> None:
        self._session.step(count)

    def phase(self, name: str, *, stamp: Stamp | None = None) -> None:
        """Report that a phase of the step begins: forward, backward, optimizer; the last one ends with the step.

        Any names will do if they come in the same order in every step. `stamp` is a place in the work of the GPU at
        which the phase begins, for programs that give it work ahead of time.
        """
        self._session.phase(name, stamp=stamp)

    @property
    def setting(self) -> Setting:
        """The present setting, or the one requested."""
        return self._session.setting

    @property
    def held(self) -> Setting | None:
        """The setting that is held, or was last; None before the search has come to an end."""
        return self._session.progress.held

    @property
    def held_by_phase(self) -> Mapping[str, Setting]:
        """The setting of each phase of a step that is held, or was last; empty where one is held throughout."""
        return {one.name: one.setting for one in self._session.progress.held_by_phase}

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows so far, per GPU."""
        return self._session.progress.windows

    @property
    def figures(self) -> RunFigures:
        """Saving and slowdown so far, each with its error; both are 0 in the end where nothing was ever set."""
        session, slowdown_limit = self._session, slowdown_limit_of(self._session.objective)
        was_set = session.loop.changes > 0 or not session.ended
        return figures_of(self.windows, gpus=len(session.gpus), slowdown_limit=slowdown_limit, was_set=was_set)

    @property
    def disabled(self) -> str | None:
        """The reason why tuning has ended and the GPUs are restored; None while it goes on."""
        state = self._session.progress.state
        return state.why if isinstance(state, Disabled) else None

    @property
    def events(self) -> tuple[str, ...]:
        """Events in words."""
        return tuple(event.text for event in self._session.progress.events)
