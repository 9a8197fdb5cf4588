"""The main functions for users: opening GPUs, training a recurring job, tuning a program while it runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from wattune.config import Config, load_config
from wattune.core.errors import InputError, WattuneError
from wattune.devices import open as opening
from wattune.devices.gpu import Gpu

if TYPE_CHECKING:
    from wattune.control.ranks import Ranks
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.objective import Objective
    from wattune.core.window import RunPolicy
    from wattune.levels.job.session import RecurringRun
    from wattune.levels.layer.phase_policy import PhasePolicy
    from wattune.levels.layer.switching import SwitchCost
    from wattune.levels.run.own_policy import Policy
    from wattune.levels.run.session import RunSession, Tuning


def surroundings(config: Config) -> opening.Surroundings:
    """Return what opening a GPU needs, from the settings."""
    return opening.Surroundings(
        config.state_dir,
        config.visible_gpus,
        config.gpu_order,
        lock_dir=config.lock_dir,
        require_gpu=config.require_gpu,
    )


class SimulatedGpuWarning(UserWarning):
    """A simulated GPU is used, since no NVIDIA driver is installed."""


@cache
def warn_of_simulated(text: str) -> None:
    """Warn of a fallback to a simulated GPU, once in a process, at the line of the program that opens the GPU."""
    warnings.warn(f"{text}; WATTUNE_REQUIRE_GPU=1 makes this an error", SimulatedGpuWarning, stacklevel=6)


def open_gpu(
    name: str | None = None, *, on_fallback: Callable[[str], None] = warn_of_simulated
) -> AbstractContextManager[Gpu]:
    """Open one GPU by name (`auto`, `nvml:0`, `sim:a100`, …) and restore it when the block ends."""
    config = load_config()
    around = replace(surroundings(config), on_fallback=on_fallback)
    return opening.open_gpu(config.device if name is None else name, around)


def open_gpus(
    *names: str, wall_clock: bool = False, on_fallback: Callable[[str], None] = warn_of_simulated
) -> AbstractContextManager[tuple[Gpu, ...]]:
    """Open several GPUs by name and restore them when the block ends; `auto` and `nvml` stand for all visible ones.

    With `wall_clock` simulated GPUs run in wall time; otherwise their time passes when work is run on them.
    `on_fallback` takes the line about a simulated GPU that `auto` stands for where no NVIDIA driver is installed.
    """
    config = load_config()
    around = replace(surroundings(config), wall_clock=wall_clock, on_fallback=on_fallback)
    return opening.open_gpus(names or (config.device,), around)


@contextmanager
def recurring_job(
    name: str,
    *,
    target: float,
    batch_sizes: Sequence[int],
    default: int,
    max_epochs: int,
    higher_is_better: bool = True,
    objective: str = "cost:0.5",
    devices: Sequence[str] = (),
    knob: str = "auto",
    searcher: str = "wattune",
    ranks: Ranks | None = None,
    replaces: str | None = None,
    synchronise: Callable[[], None] | None = None,
) -> Iterator[RecurringRun]:
    """Do one run of a job that is trained again and again, with the batch size and setting expected to be best.

    `default` is the batch size that is used today. `devices` are the GPUs of this process; without any, those of the
    `device` setting. `replaces` is the id of a run that was stopped or missed the target and that this one replaces.
    `synchronise` waits until the GPUs have finished their work, as `torch.cuda.synchronize` does.
    """
    from wattune.core.job import Job
    from wattune.levels.job.options import knob_named
    from wattune.levels.job.policies import searcher_named
    from wattune.levels.job.session import RecurringRun, log_warning, served_following
    from wattune.levels.job.store_access import JobStoreAccess
    from wattune.store.worker import StoreWorker

    job = Job(
        name=name,
        batch_sizes=tuple(batch_sizes),
        default_batch_size=default,
        target=target,
        higher_is_better=higher_is_better,
        max_epochs=max_epochs,
        objective=objective,
    )
    if ranks is not None and ranks.size > 1 and not devices:
        raise InputError(
            f"{name}: name the GPU of each rank; otherwise every rank takes them all",
            hint='pass devices=[f"nvml:{local_rank}"]',
        )
    config = load_config()
    store_access = JobStoreAccess(
        job,
        searcher_named(searcher),
        worker=StoreWorker(config.store_url),
        state_dir=config.state_dir,
        warn=log_warning,
    )
    with open_gpus(*devices) as gpus:
        following = served_following(gpus)
        if following.refused is not None:
            log_warning(following.refused)
        run = RecurringRun(
            job,
            gpus,
            store_access=store_access,
            knob=knob_named(knob),
            ranks=ranks,
            synchronise=synchronise,
            following=following,
        )
        run.start(replaces=replaces)
        try:
            yield run
        except BaseException as error:
            run.end(error=error)
            raise
        run.end()


@contextmanager
def tuned(
    *gpus: Gpu,
    slowdown: float | None = None,
    objective: str | None = None,
    policy: str | Policy = "wattune",
    ranks: Ranks | None = None,
) -> Iterator[Tuning]:
    """Tune the GPUs of a program while a block runs: `with tuned(gpu, slowdown=0.05) as tuning: …`.

    Call `tuning.step()` after each iteration if possible; without it the step time is estimated from the GPUs' power.
    Several GPUs get the same setting. With `ranks` every process of a data-parallel job does the same on its own GPUs,
    all call `step` equally often, and one policy chooses for all. At the end the GPUs are restored.

    A program that also reports the phases of its steps (`tuning.phase("backward")`) gets a setting per phase where the
    phases are long enough and that pays; otherwise one setting is held. `policy` is a name, or a policy of your own.
    """
    from wattune.levels.run.session import Tuning

    with run_session(gpus, slowdown=slowdown, objective=objective, policy=policy, ranks=ranks) as session:
        yield Tuning(session)


def check_goal(slowdown: float | None, objective: str | None) -> None:
    """Raise an error unless exactly one of a slowdown limit and an objective is given, and can be meant."""
    if (slowdown is None) == (objective is None):
        raise InputError(
            "give either a slowdown limit or an objective",
            hint='tuned(gpu, slowdown=0.05), or tuned(gpu, objective="edp")',
        )
    if slowdown is not None and slowdown >= 1:
        raise InputError(f"{slowdown:g} is a share of {100 * slowdown:g} %", hint=f"slowdown={slowdown / 100:g}?")


def run_session(
    gpus: Sequence[Gpu],
    *,
    slowdown: float | None = None,
    objective: str | None = None,
    policy: str | Policy = "wattune",
    ranks: Ranks | None = None,
) -> RunSession:
    """Return the session by which `tuned` tunes GPUs, for code that also reports on it."""
    from wattune.control.process_monitor import is_beside_unfollowed
    from wattune.core.objective import LeastEnergy, parse_objective
    from wattune.levels.job.gpus import highest_limit_w
    from wattune.levels.run.own_policy import OwnPolicy
    from wattune.levels.run.policies import policy_named
    from wattune.levels.run.session import RunSession
    from wattune.process.step_file import UNFOLLOWED

    check_goal(slowdown, objective)
    if objective is None:
        wanted: Objective = LeastEnergy(slowdown or 0.0)
    else:
        wanted = parse_objective(objective, max_power_w=max(map(highest_limit_w, gpus), default=0.0))
    chosen = policy_named(policy, wanted) if isinstance(policy, str) else OwnPolicy.of(policy, type(policy).__name__)
    per_phase = phase_policy(chosen, wanted, gpus)
    session = RunSession(
        gpus,
        objective=wanted,
        policy=per_phase or chosen,
        ranks=ranks,
        phase_players=None if per_phase is None else partial(per_phase.player, spec=gpus[0].spec),
    )
    if is_beside_unfollowed(gpus):
        session.watch.refused = UNFOLLOWED
    return session


def phase_policy(policy: RunPolicy, objective: Objective, gpus: Sequence[Gpu]) -> PhasePolicy | None:
    """Return our own policy with a setting per phase of a step where that pays; None for others, and without a limit.

    Published policies stay as they were published.
    """
    from wattune.core.objective import LeastEnergy
    from wattune.levels.layer.phase_policy import PhasePolicy

    if policy.name != "wattune" or not isinstance(objective, LeastEnergy) or not gpus:
        return None
    return PhasePolicy(policy, objective.slowdown, _switching(gpus[0].spec))


def _switching(spec: GpuSpec) -> Callable[[], SwitchCost]:
    """Return what returns the cost of a change of clocks: as measured on such a GPU, or else by its specification.

    The store is read in a thread, from the first call on. The specification counts until it has answered, since a
    program that trains does not wait for a store.
    """
    from wattune.levels.layer.switch_latency import KIND, latest_switching
    from wattune.levels.layer.switching import SwitchCost
    from wattune.store.worker import PATIENCE_S, StoreWorker

    known = SwitchCost.of(spec)
    stored = cache(lambda: StoreWorker(load_config().store_url).post(lambda store: store.runs(kind=KIND)))

    def switching() -> SwitchCost:
        try:
            return latest_switching(stored().result(PATIENCE_S), spec, known=known) or known
        except (WattuneError, TimeoutError):
            return known

    return switching
