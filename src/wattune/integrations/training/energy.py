"""Measure, tune, log and store the energy of a training loop: `with TrainingEnergy(max_slowdown=0.05) as energy: …`.

The callbacks of trainers inherit from it and add when a step ends. All ranks of a job make the same calls; rank 0 logs,
prints and stores for the job. Nothing that fails after the start reaches the training: it is printed, and what cannot
be measured any more is left out.
"""

from __future__ import annotations

import atexit
import shlex
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from wattune.api import check_goal, run_session, surroundings, warn_of_simulated
from wattune.config import load_config
from wattune.control.ranks import Alone, Ranks, error_text
from wattune.core.errors import ConfigError, DeviceNotFound, InputError, WattuneError
from wattune.core.measurement import Measurement
from wattune.devices.gpu import Gpu, PlaysWorkloads, play_on_simulated
from wattune.devices.meter import Measured
from wattune.devices.open import open_gpus, say_once
from wattune.integrations.training import job_gpus, job_record
from wattune.integrations.training.step_counter import FAILED, NOTHING, StepCounter, StepsCost, steps_cost
from wattune.levels.run.session import Tuning, check_alike
from wattune.workloads.catalog import make_workload

if TYPE_CHECKING:
    from wattune.levels.run.session import RunSession

Log = Callable[[Mapping[str, float], int], object]
"""Takes values by name and the number of the step, as `accelerator.log`, `wandb.log` and `mlflow.log_metrics` do."""

WORKLOAD = "resnet50"
"""What a simulated GPU plays that is used since there is no real one."""


class TrainingEnergy:
    """The energy of a training run, on the GPUs of all its ranks."""

    def __init__(
        self,
        *,
        max_slowdown: float | None = None,
        objective: str | None = None,
        devices: Sequence[str] = (),
        gpus: Sequence[Gpu] = (),
        log: Log | None = None,
        log_every: int = 10,
        name: str | None = None,
        store: bool = True,
        notify: Callable[[str], None] = say_once,
    ) -> None:
        """Measure only, unless `max_slowdown` (0.05: at most 5 % more time) or `objective` says what to tune for.

        `devices` names the GPUs of this process, and `gpus` are some that are open already; without either it is the
        GPU of the `device` setting, or that of CUDA. `log` gets the figures every `log_every` steps; `notify` gets the
        summary and whatever goes wrong, as lines. `name` stands for the program in the history.
        """
        if max_slowdown is not None or objective is not None:
            check_goal(max_slowdown, objective)
        if log_every < 1:
            raise InputError(f"figures cannot be logged every {log_every} steps", hint="log_every=10")
        self.steps = 0
        """Steps until now."""
        self.cost: Measurement | None = None
        """Time and energy of the whole job from begin to end, on rank 0; None before, and where it is not known."""
        self.tuning: Tuning | None = None
        """The tuning of this rank, as `wattune.tuned` returns it; None where nothing is tuned."""
        self._slowdown, self._objective = max_slowdown, objective
        self._devices, self._gpus = tuple(devices), tuple(gpus)
        self._log, self._log_every = log, log_every
        self._name = name or _program_name()
        self._store, self._notify = store, notify
        self._ranks: Ranks = Alone()
        self._opened: ExitStack | None = None
        self._session: RunSession | None = None
        self._follows = True
        self._counter = StepCounter(())
        self._total = NOTHING
        self._known: tuple[int, dict[str, float]] = (-1, {})

    # a training run

    def __enter__(self) -> Self:
        self.begin()
        self.resume()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end(failed=kind is not None)

    @property
    def is_first(self) -> bool:
        """Whether this process reports for the job."""
        return self._ranks.rank == 0

    def begin(self) -> None:
        """Open the GPUs and start measuring and tuning; all ranks call it together.

        GPUs that are not there, and bad settings, are errors. Where GPUs cannot be used for another reason, the run is
        not measured.
        """
        self._close()
        self.steps, self._total, self.cost, self._known = 0, NOTHING, None, (-1, {})
        self._ranks, self._opened = job_gpus.ranks_of_program(), ExitStack()
        atexit.register(self._close)
        try:
            self._begin(self._opened)
        except (DeviceNotFound, InputError, ConfigError):
            self._close()
            raise
        except Exception as error:  # whatever it is, the training can do without being measured
            self._close()
            self._say(f"this training is not measured: {error_text(error)}")

    def step(self, count: int = 1) -> None:
        """Count optimizer steps; all ranks call it equally often. Never raises."""
        if self._opened is None:
            return
        before, self.steps = self.steps, self.steps + count
        self._counter.steps += count
        if self._session is not None and self._follows:
            self._session.step(count)
        log = self._log
        if log is not None and before // self._log_every < self.steps // self._log_every:
            values = self.figures()
            if values and not self._sent(log, values, self.steps):
                self._log = None if self._ranks.size == 1 else _nowhere

    def resume(self) -> None:
        """Go on with steps, after a pause. Never raises."""
        self._guarded(self._counter.resume)

    def pause(self) -> None:
        """Leave what comes now, such as an evaluation, out of the energy of steps. Never raises."""
        self._guarded(self._counter.pause)

    def figures(self) -> dict[str, float]:
        """Return the figures of the steps since they were last known, by the names under which they are logged.

        What is not known is not in it. Ranks other than 0 get nothing, but all must call it at the same step.
        """
        found = self._exchanged(certain=True)
        if self._opened is None or not self.is_first:
            return {}
        values: dict[str, float] = {}
        try:
            values = job_record.step_figures(found, self._total) | self._tuned_figures()
        except Exception as error:  # whatever it is, the training must not see it
            self._say(f"the figures of a step are not known: {error_text(error)}")
        start = job_record.prefix(simulated=self._gpus_used[0].spec.simulated)
        return {f"{start}{name}": value for name, value in values.items()}

    def end(self, *, failed: bool = False) -> None:
        """Restore the GPUs, print one line and store the run. Never raises.

        After a failure the other ranks cannot be asked any more, and a job of several is not stored.
        """
        opened = self._opened
        if opened is None:
            return
        try:
            can_ask = self._ranks.size == 1 or not failed
            if can_ask:
                self._exchanged(certain=False)
            parts = self._ended(opened)
            if can_ask:
                self._report(job_gpus.gathered(self._ranks, parts))
        except Exception as error:  # whatever it is, the training is over and must not fail because of it
            self._say(f"the energy of this training is not known: {error_text(error)}")
        finally:
            self._close()

    # its parts

    def _begin(self, opened: ExitStack) -> None:
        ranks = self._ranks
        hosts = job_gpus.gathered(ranks, socket.gethostname())
        gpus: tuple[Gpu, ...] = ()
        problem: WattuneError | None = None
        try:
            gpus = self._gpus or self._open(opened, job_gpus.local_place(hosts, ranks.rank))
            if self._tunes:
                check_alike(gpus)
        except WattuneError as error:
            problem = error
        own = {
            "keys": [job_gpus.key_of(gpu) for gpu in gpus],
            "kinds": sorted({gpu.spec.name for gpu in gpus}),
            "logs": self._log is not None,
            "problem": None if problem is None else problem.message,
        }
        each = job_gpus.gathered(ranks, own)
        if problem is not None:
            raise problem
        job_gpus.check_ranks(each, tunes=self._tunes)
        if any(one["logs"] for one in each):  # then all ranks contribute, also where rank 0 alone has a logger
            self._log = self._log or _nowhere
        keys = [one["keys"] for one in each]
        first = [job_gpus.is_first(keys, ranks.rank, place) for place in range(len(gpus))]
        self._gpus_used = gpus
        self._owned = tuple(gpu for gpu, counts in zip(gpus, first, strict=True) if counts)
        self._started_at = datetime.now(UTC)
        self._span = Measured(*self._owned) if self._owned else None
        if self._span is not None:
            self._span.__enter__()
        self._counter = StepCounter(self._owned)
        if self._tunes and self._may_tune(gpus):
            views = [gpu if counts else job_gpus.ReadOnlyGpu(gpu) for gpu, counts in zip(gpus, first, strict=True)]
            self._session = opened.enter_context(
                run_session(views, slowdown=self._slowdown, objective=self._objective, ranks=ranks)
            )
            self.tuning = Tuning(self._session)

    @property
    def _tunes(self) -> bool:
        return self._slowdown is not None or self._objective is not None

    def _open(self, opened: ExitStack, local: int) -> tuple[Gpu, ...]:
        config = load_config()
        around = replace(surroundings(config), wall_clock=True, on_fallback=warn_of_simulated)
        several = self._ranks.size > 1
        names = self._devices or job_gpus.own_names(config, around, local=local, of_several=several)
        gpus = opened.enter_context(open_gpus(names, around))
        play_on_simulated(gpus, make_workload(WORKLOAD))
        # A program does not follow the clock of a GPU that is simulated in this process; its power shows its steps.
        self._follows = not any(isinstance(gpu, PlaysWorkloads) for gpu in gpus)
        return gpus

    def _may_tune(self, gpus: Sequence[Gpu]) -> bool:
        """Return whether these GPUs may be set: those that were named, that this program uses, or simulated ones."""
        if self._devices or self._gpus or job_gpus.uses_cuda() or all(gpu.spec.simulated for gpu in gpus):
            return True
        self._say("PyTorch finds no GPU in this program: those of this machine are measured, and not tuned")
        return False

    def _exchanged(self, *, certain: bool) -> StepsCost | None:
        """Exchange what the ranks spent since the last time; None while it is unknown, or with `certain` uncertain."""
        if self._opened is None:
            return None
        counts = None
        numbers: tuple[float, ...] = FAILED
        try:
            numbers, counts = self._counter.peek()
        except Exception as error:  # reported by all ranks together: no figures
            self._say(f"the GPU cannot be read: {error_text(error)}")
        try:
            found = steps_cost(self._counter.steps, *self._ranks.sum_and_max(numbers))
        except Exception as error:  # a rank has died; the others cannot be asked any more
            self._say(f"the energy of this training is not known: {error_text(error)}")
            self._close()
            return None
        if found is None or (certain and not found.is_certain):
            return None
        if counts is not None:
            self._counter.take(counts)
        self._total += found
        return found

    def _tuned_figures(self) -> dict[str, float]:
        if self.tuning is None:
            return {}
        count = len(self.tuning.windows)
        if count != self._known[0]:
            self._known = (count, job_record.compared_figures(self.tuning.figures))
        return job_record.setting_figures(self.tuning.setting) | self._known[1]

    def _sent(self, log: Log, values: Mapping[str, float], step: int) -> bool:
        """Pass values to a logger, and return whether it took them."""
        try:
            log(values, step)
        except Exception as error:  # a logger that fails must not end the training
            self._say(f"figures are not logged: {error_text(error)}")
            return False
        return True

    def _ended(self, opened: ExitStack) -> list[dict[str, object]]:
        """End measuring and tuning, and return what the GPUs took that this rank counts."""
        span, self._span = self._span, None
        if span is not None:
            span.__exit__()
        parts = [] if span is None else job_record.gpu_parts(self._owned, span.parts)
        opened.close()
        return parts

    def _report(self, parts: Sequence[Sequence[dict[str, object]]]) -> None:
        if not self.is_first:
            return
        goal = self._objective or f"energy:{100 * (self._slowdown or 0.0):g}%"
        full, line = job_record.finished(
            self._name, parts, session=self._session, goal=goal, started_at=self._started_at, steps=self._total
        )
        run = full.run
        if run.energy_j is not None:
            self.cost = Measurement(run.time_s, run.energy_j, None, run.energy_error_j)
        self._notify(line)
        if self._store:
            job_record.keep(full)

    def _guarded(self, call: Callable[[], None]) -> None:
        if self._opened is None:
            return
        try:
            call()
        except Exception as error:  # whatever it is, the training must not see it
            self._say(f"the GPU cannot be read: {error_text(error)}")

    def _say(self, text: str) -> None:
        self._notify(f"{text}; training goes on")

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        atexit.unregister(self._close)
        self._session = None
        if opened is not None:
            opened.close()


def _nowhere(values: Mapping[str, float], step: int) -> None:
    """Drop the values, of which the other ranks contribute their parts all the same."""


def _program_name() -> str:
    """Return the command line of this program, without the folders of its script."""
    script, *rest = sys.argv or [""]
    return shlex.join([Path(script).name, *rest]) if script not in ("", "-c") else "training"
