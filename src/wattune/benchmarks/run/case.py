"""One program under every policy, and many of them in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from time import process_time

from wattune.benchmarks.run.environment import SimulatedRun
from wattune.benchmarks.run.oracle import Standard, standard_of
from wattune.benchmarks.run.play import FixedSetting, PlayOutcome, play
from wattune.benchmarks.run.policies import ORACLE, make_policy
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.window import RunPolicy
from wattune.levels.run.simulated_program import program_of
from wattune.physics.catalog import load_model
from wattune.workloads.family import family

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class RunCase:
    """A member of the family with a seed, on a GPU, under a promise."""

    gpu: str
    workload: str
    seed: int
    policies: tuple[str, ...]
    slowdown: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RunPlayed:
    """A policy's outcome in a case, without its windows."""

    policy: str
    cost: Measurement
    luck_s: float
    evaluations: int
    search_s: float
    """Until something was held."""
    search_j: float
    """What that cost beyond the same work at the rate of the rest of the run."""
    windows: int
    changes: int
    held: Setting
    break_even_s: float | None
    deciding_s: float
    unit: str | None


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """All policies of a case."""

    standard: Standard
    played: tuple[RunPlayed, ...]
    cpu_s: float


def run_case(case: RunCase) -> CaseOutcome:
    """Every policy of the case, dealt the same program."""
    begun_s = process_time()
    member = next(member for member in family(seed=case.seed) if member.name == case.workload)
    program = program_of(load_model(case.gpu), member)
    standard = standard_of(program, seconds=case.seconds, slowdown=case.slowdown)
    played = []
    for name in case.policies:
        run = SimulatedRun(program, seed=case.seed)
        outcome = play(_policy(name, case, standard), run, passes=standard.passes)
        played.append(_played(name, outcome, standard, run.observation.unit))
    return CaseOutcome(standard, tuple(played), process_time() - begun_s)


def run_cases(
    cases: Sequence[RunCase], *, processes: int, on_case: Callable[[int], None]
) -> list[tuple[RunCase, CaseOutcome]]:
    """The outcomes of many cases, in their order; `on_case` is told how many are done."""
    found: dict[int, CaseOutcome] = {}
    for place, outcome in _outcomes(cases, processes):
        found[place] = outcome
        on_case(len(found))
    return [(case, found[place]) for place, case in enumerate(cases)]


def _outcomes(cases: Sequence[RunCase], processes: int) -> Iterator[tuple[int, CaseOutcome]]:
    if processes < 2:
        yield from ((place, run_case(case)) for place, case in enumerate(cases))
        return
    with ExitStack() as stack:
        stack.enter_context(one_thread_each())
        pool = stack.enter_context(ProcessPoolExecutor(processes, mp_context=get_context("spawn")))
        stack.callback(pool.shutdown, cancel_futures=True)
        waiting = {pool.submit(run_case, case): place for place, case in enumerate(cases)}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes that begin in here compute with one thread each; several would only wait for each other."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _policy(name: str, case: RunCase, standard: Standard) -> RunPolicy:
    if name == ORACLE:
        return FixedSetting(ORACLE, standard.best)
    return make_policy(name, case.gpu, slowdown=case.slowdown)


def _played(name: str, outcome: PlayOutcome, standard: Standard, unit: str | None) -> RunPlayed:
    return RunPlayed(
        policy=name,
        cost=outcome.cost,
        luck_s=outcome.luck_s,
        evaluations=outcome.evaluations,
        search_s=outcome.search.cost.time_s,
        search_j=_search_j(outcome),
        windows=len(outcome.windows),
        changes=outcome.changes,
        held=outcome.held,
        break_even_s=_break_even_s(outcome, standard),
        deciding_s=outcome.deciding_s,
        unit=unit,
    )


def _search_j(outcome: PlayOutcome) -> float:
    search, rest = outcome.search, outcome.passes - outcome.search.passes
    if rest <= 0:
        return 0.0
    return search.cost.energy_j - (outcome.cost.energy_j - search.cost.energy_j) * search.passes / rest


def _break_even_s(outcome: PlayOutcome, standard: Standard) -> float | None:
    """From when on the run had spent less than the default for the same work; None where it never did for good."""
    pass_j = standard.default.energy_j / standard.passes
    behind = [mark.cost.time_s for mark in outcome.path if mark.cost.energy_j >= pass_j * mark.passes * (1 - 1e-9)]
    last_s = max(behind, default=0.0)
    return None if last_s >= outcome.cost.time_s else last_s
