"""The cases of the bench, section by section: the published horizon, other weights, drift, overlap, other GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wattune.benchmarks.job.case import PACKAGE, Case
from wattune.benchmarks.job.trace import Drift, TraceWorkload

SECTIONS = ("horizon", "eta", "drift", "overlap", "transfer")

ETAS = (0.0, 0.5, 1.0)
"""Weights of energy: time alone, as published, energy alone."""

DRIFTS = (Drift(factor=1.5), Drift(factor=2.5), Drift(shift=2))
DRIFT_PATIENCE = 4
"""Times the epochs that are allowed where a job is to change, since it may then need more."""

LOADS = (0.2, 0.8)
"""Submissions in the mean per length of the oracle's run."""

SUBMISSIONS = 100
TRANSFER_RECURRENCES = 20
SECTION_SEEDS = 5
"""Most seeds of the sections beside the horizon."""

PACKAGE_SEEDS = 6
"""Most seeds of the authors' own simulator, whose time is spent in tables of three hundred rows."""

_RIVALS = ("default", "zeus", "wattune")


def cases_of(
    section: str, workloads: Sequence[TraceWorkload], *, eta: float, seeds: int, package: bool
) -> tuple[Case, ...]:
    """The cases of a section; `package` adds Zeus by its authors' own simulator to the horizon."""
    makers = {
        "horizon": lambda: _horizon(workloads, eta, seeds, package=package),
        "eta": lambda: _etas(workloads, eta, min(seeds, SECTION_SEEDS)),
        "drift": lambda: _drifts(workloads, eta, min(seeds, SECTION_SEEDS)),
        "overlap": lambda: _overlaps(workloads, eta, min(seeds, SECTION_SEEDS)),
        "transfer": lambda: _transfers(workloads, eta, min(seeds, SECTION_SEEDS)),
    }
    return tuple(makers[section]())


def _horizon(workloads: Iterable[TraceWorkload], eta: float, seeds: int, *, package: bool) -> Iterable[Case]:
    policies = ("default", "grid", "zeus", *((PACKAGE,) if package else ()), "wattune", "oracle")
    for workload in workloads:
        for policy in policies:
            most = PACKAGE_SEEDS if policy == PACKAGE else seeds
            yield _case("horizon", workload, policy, eta, min(seeds, most))


def _etas(workloads: Iterable[TraceWorkload], main: float, seeds: int) -> Iterable[Case]:
    for eta in ETAS:
        if eta != main:
            yield from (_case("eta", workload, policy, eta, seeds) for workload in workloads for policy in _RIVALS)


def _drifts(workloads: Iterable[TraceWorkload], eta: float, seeds: int) -> Iterable[Case]:
    for drift in DRIFTS:
        for workload in workloads:
            patient = workload.patient(DRIFT_PATIENCE)
            for policy in (*_RIVALS, "oracle"):
                yield _case("drift", patient, policy, eta, seeds, drift=drift)


def _overlaps(workloads: Iterable[TraceWorkload], eta: float, seeds: int) -> Iterable[Case]:
    for load in LOADS:
        for workload in workloads:
            for policy in _RIVALS:
                yield _case("overlap", workload, policy, eta, seeds, recurrences=SUBMISSIONS, load=load)


def _transfers(workloads: Sequence[TraceWorkload], eta: float, seeds: int) -> Iterable[Case]:
    """Ours on each GPU, knowing nothing and knowing the same job from the GPU before it in the list."""
    for workload in workloads:
        others = [other for other in workloads if other.name == workload.name and other.gpu != workload.gpu]
        for before in (None, *others[-1:]) if others else ():
            yield _case("transfer", workload, "wattune", eta, seeds, recurrences=TRANSFER_RECURRENCES, before=before)


def _case(
    section: str,
    workload: TraceWorkload,
    policy: str,
    eta: float,
    seeds: int,
    *,
    recurrences: int | None = None,
    drift: Drift | None = None,
    load: float | None = None,
    before: TraceWorkload | None = None,
) -> Case:
    objective = f"cost:{eta:g}"
    return Case(
        section=section,
        workload=workload.wanting(objective),
        policy=policy,
        eta=eta,
        seeds=tuple(range(seeds)),
        recurrences=recurrences or workload.horizon,
        drift=drift,
        load=load,
        before=None if before is None else before.wanting(objective),
    )
