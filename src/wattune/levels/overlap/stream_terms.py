"""What a GPU model expects of the operations and of the collective of partitions, each alone, at every setting.

These are the terms that `stream_form` puts together to times and energies of partitions. Arrays have a column per
setting; those of all partitions of a model stand side by side.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from wattune.core.workload import Phase
from wattune.levels.overlap.partitions import NONE, KernelPartition
from wattune.levels.overlap.space import PartitionChoice
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.overlap import Communication, communication_cost, compute_cost

Ints = NDArray[np.int64]

_NO_TIME_S = 1e-12
"""Of the operations that a partition has fewer than others."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamTerms:
    """One partition at its settings."""

    operations: tuple[Phase, ...]
    communication: Communication | None
    alone_s: Floats
    """(operations, settings)"""
    follows_clock: Floats
    """(operations, settings): share of the time that is inverse to the clock."""
    dynamic_j: Floats
    """(operations, settings)"""
    before: Ints
    """(settings,): operations before the launch; all of them in sequence."""
    overlaps: NDArray[np.bool_]
    latency_s: Floats
    by_sms_s: Floats
    """Of the collective at the rate of its SMs."""
    by_link_s: Floats
    comm_j: Floats
    static_w: Floats
    sm_share: Floats
    log_clock: Floats
    """Logarithm of the clock over the highest."""


def stream_terms(partition: KernelPartition, gpu: GpuModel, settings: Sequence[PartitionChoice]) -> StreamTerms:
    """Compute the terms of a partition on a GPU."""
    column = {clock: place for place, clock in enumerate(gpu.clocks[0].sm_mhz)}
    at = np.array([column[setting.sm_mhz] for setting in settings])
    clock = np.array([setting.sm_mhz for setting in settings]) / gpu.max_mhz
    sms = np.array([setting.comm_sms for setting in settings], dtype=np.float64)
    costs = [compute_cost(gpu, (phase,)) for phase in partition.phases]
    alone_s = np.stack([cost.time_s for cost in costs])
    slope = -np.gradient(np.log(alone_s), np.log(np.array(gpu.clocks[0].sm_mhz, dtype=np.float64)), axis=1)
    together = compute_cost(gpu, partition.phases)
    launches = [len(costs) if own.launch == NONE else partition.slots.index(own.launch) for own in settings]
    latency_s, by_sms_s, by_link_s, comm_j = _collective(partition.communication, gpu, sms, clock, at)
    return StreamTerms(
        operations=partition.phases,
        communication=partition.communication,
        alone_s=alone_s[:, at],
        follows_clock=np.clip(slope, 0.0, 1.0)[:, at],
        dynamic_j=np.stack([cost.dynamic_j for cost in costs])[:, at],
        before=np.array(launches, dtype=np.int64),
        overlaps=np.array([setting.launch != NONE for setting in settings]),
        latency_s=latency_s,
        by_sms_s=by_sms_s,
        by_link_s=by_link_s,
        comm_j=comm_j,
        static_w=(together.static_j / together.time_s)[at],
        sm_share=sms / gpu.sms,
        log_clock=np.log(clock),
    )


def _collective(
    communication: Communication | None, gpu: GpuModel, sms: Floats, clock: Floats, at: Ints
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return latency, the times by SMs and by the link, and the dynamic energy of a collective alone."""
    if communication is None or gpu.link is None:
        return (np.zeros_like(sms),) * 4
    sent, memory = communication.link_bytes, gpu.mem_clocks_mhz[0]
    alone = {
        count: communication_cost(gpu, communication, comm_sms=int(count), mem_mhz=memory).dynamic_j
        for count in np.unique(sms)
    }
    return (
        np.full_like(sms, communication.latency_s),
        sent / (sms * gpu.link.sm_bytes_per_s * clock),
        np.full_like(sms, sent / gpu.link.bytes_per_s),
        np.array([alone[count][place] for count, place in zip(sms, at, strict=True)]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ModelTerms:
    """All partitions of a model side by side, with numbers of equal operations and of equal collectives."""

    columns: StreamTerms
    """Arrays of all settings; operations that a partition lacks take no time."""
    operation: Ints
    """(operations, settings): −1 where a partition has no such operation."""
    collective: Ints
    """(settings,)"""
    partition: Ints
    """(settings,)"""
    segment: Ints
    """(settings,): partitions with the same operations have the same number."""

    operations: int
    collectives: int

    @property
    def ends(self) -> Ints:
        """Where the settings of each partition end."""
        return np.cumsum(np.bincount(self.partition))

    def taken(self, places: Ints) -> ModelTerms:
        """Return some settings alone."""
        return replace(
            self,
            columns=_taken(self.columns, places),
            operation=self.operation[:, places],
            collective=self.collective[places],
            partition=self.partition[places],
            segment=self.segment[places],
        )


def _taken(columns: StreamTerms, places: Ints) -> StreamTerms:
    arrays = [getattr(columns, field.name)[..., places] for field in fields(StreamTerms)[2:]]
    return StreamTerms(columns.operations, columns.communication, *arrays)


def model_terms(parts: Sequence[StreamTerms]) -> ModelTerms:
    """Put partitions side by side."""
    most = max(len(part.operations) for part in parts)
    phases, collectives, segments = dict[Hashable, int](), dict[Hashable, int](), dict[Hashable, int]()
    numbers = [
        (
            [_number(phases, phase) for phase in part.operations],
            _number(collectives, part.communication),
            _number(segments, part.operations),
        )
        for part in parts
    ]
    counts = [len(part.before) for part in parts]
    operation = [
        np.repeat(np.pad(own, (0, most - len(own)), constant_values=-1)[:, None], count, axis=1)
        for (own, _, _), count in zip(numbers, counts, strict=True)
    ]
    arrays = [
        np.concatenate([_padded(getattr(part, field.name), most, field.name) for part in parts], axis=-1)
        for field in fields(StreamTerms)[2:]
    ]
    return ModelTerms(
        StreamTerms((), None, *arrays),
        np.concatenate(operation, axis=1),
        np.repeat([own[1] for own in numbers], counts),
        np.repeat(np.arange(len(parts)), counts),
        np.repeat([own[2] for own in numbers], counts),
        len(phases),
        len(collectives),
    )


def _number(known: dict[Hashable, int], key: Hashable) -> int:
    return known.setdefault(key, len(known))


def _padded(values: Floats, most: int, name: str) -> Floats:
    if values.ndim == 1:
        return values
    fill = _NO_TIME_S if name == "alone_s" else 0.0
    return np.pad(values, ((0, most - len(values)), (0, 0)), constant_values=fill)
