"""Computation that overlaps with communication: time and energy of a partition at every core clock.

Communication takes some SMs and some memory bandwidth from the computation, and is itself slower beside it. Its speed
depends on the number of its SMs and on their clock, up to the rate of the link.

Notation
    s       SMs that communicate, of S
    r(f)    bytes per second that one of them moves, proportional to the clock f
    t_x     time of the communication alone: latency + the p-norm of bytes/(s·r(f)) and bytes/link, p = 3
    φ       share of the computation's own time after which communication is launched; None: after all of it

Energy is static (what a GPU that holds a context and runs no kernel would spend in the same time, at the temperature of
the work) plus dynamic. The constants below are those of a fit of `streams.two_streams` to all-reduces beside an
attention partition on 2 A100 at 640 settings (ml-energy/kareus); `physics.fit.overlap_streams` makes it, and
`wattune bench physics` judges it. Computation beside communication slowed down by 19 % on the average in arXiv
2507.03114.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from wattune.core.errors import InputError, NotSupported
from wattune.core.workload import Phase
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats, LinkPhysics
from wattune.physics.spend import kernel_w
from wattune.physics.streams import StreamCost, StreamPhases, two_streams
from wattune.physics.timing import column, phase_times, smooth_maximum

# Reading, reducing and writing move each byte that crosses the link two to three times through the memory.
MEMORY_PASSES = 2.5

# Fitted to the sweep: p of the norm, and the progress of communication beside computation relative to that alone. That
# computation loses just the SMs that communicate is confirmed by the fit (1.06 of them).
LINK_NORM = 3.0
PROGRESS = 0.58

_NO_LINK = LinkPhysics("none", bytes_per_s=inf, sm_bytes_per_s=inf, j_per_byte=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """A collective among GPUs that a link connects.

    Bytes per GPU are those of rings (Patarasu and Yuan 2009): to sum a tensor over n GPUs each sends 2·(n − 1)/n of it,
    to gather or to scatter it (n − 1)/n; to exchange with all others, it sends all of its own but 1/n.
    """

    name: str
    link_bytes: float
    """Sent over the link by each GPU, in one direction."""
    gpus: int
    latency_s: float = 20e-6

    @classmethod
    def all_reduce(cls, tensor_bytes: float, *, gpus: int) -> Communication:
        """Make the sum of a tensor over GPUs, for all of them."""
        return cls(name="all-reduce", link_bytes=2 * _others(gpus) * tensor_bytes, gpus=gpus)

    @classmethod
    def all_gather(cls, tensor_bytes: float, *, gpus: int) -> Communication:
        """Make a whole tensor, for all GPUs, of which each has 1/n."""
        return cls(name="all-gather", link_bytes=_others(gpus) * tensor_bytes, gpus=gpus)

    @classmethod
    def reduce_scatter(cls, tensor_bytes: float, *, gpus: int) -> Communication:
        """Make the sum of a tensor over GPUs, 1/n of it for each."""
        return cls(name="reduce-scatter", link_bytes=_others(gpus) * tensor_bytes, gpus=gpus)

    @classmethod
    def all_to_all(cls, tensor_bytes: float, *, gpus: int) -> Communication:
        """Make an exchange in which each GPU sends 1/n of its tensor to each other one."""
        return cls(name="all-to-all", link_bytes=_others(gpus) * tensor_bytes, gpus=gpus)


def _others(gpus: int) -> float:
    if gpus < 2:
        raise InputError(f"{gpus} GPU cannot communicate alone", hint="give two or more")
    return (gpus - 1) / gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Computation and the communication that may overlap with it."""

    compute: tuple[Phase, ...]
    communication: Communication
    comm_sms: int
    launch: float | None
    """Share of the computation after which communication starts, 0 to 1; None: one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Cost:
    """Time and energy of one GPU at every core clock."""

    sm_mhz: tuple[int, ...]
    time_s: Floats
    energy_j: Floats
    exposed_s: Floats
    """Communication that does not overlap with computation."""
    static_j: Floats
    """Of a GPU that runs no kernel for as long, just as warm."""

    @property
    def dynamic_j(self) -> Floats:
        """Energy of the work itself."""
        return self.energy_j - self.static_j

    @property
    def power_w(self) -> Floats:
        """Mean power; a GPU does not hold a clock at which this exceeds its power limit."""
        return self.energy_j / self.time_s


def partition_cost(
    model: GpuModel, partition: Partition, *, mem_mhz: int | None = None, temperature_c: float | None = None
) -> Cost:
    """Compute time and energy of a partition on one of several equal GPUs at the same clock.

    The GPU has the given temperature, or the one at which it settles when it repeats the partition.
    """
    if partition.launch is not None and not 0 <= partition.launch <= 1:
        raise InputError(f"a launch lies between 0 and 1, not at {partition.launch}", hint="None: one after the other")
    run = _StreamRun.of(model, partition.compute, partition.communication, mem_mhz=mem_mhz)
    phases = run.phases(partition.comm_sms)
    all_s = phases.alone_s.sum(axis=0)
    before_s = np.full_like(all_s, np.inf) if partition.launch is None else partition.launch * all_s
    return run.cost(partition.comm_sms, phases, before_s, temperature_c)


def slot_costs(
    model: GpuModel,
    compute: tuple[Phase, ...],
    communication: Communication,
    *,
    comm_sms: int,
    launches: Sequence[int | None],
    temperature_c: float | None = None,
) -> Cost:
    """Compute a partition whose communication is launched before each of these phases; arrays are (launches, clocks).

    None stands for a launch after all computation.
    """
    run = _StreamRun.of(model, compute, communication)
    phases = run.phases(comm_sms)
    if any(launch is not None and not 0 <= launch < len(compute) for launch in launches):
        raise InputError(f"a partition of {len(compute)} phases has no such launches", hint="count phases from 0")
    before_s = [
        np.full(len(run), np.inf) if launch is None else phases.alone_s[:launch].sum(axis=0) for launch in launches
    ]
    return run.cost(comm_sms, phases, np.stack(before_s), temperature_c)


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """When phases and the collective run, in seconds from the start of a partition; phases follow one another."""

    phase_ends_s: tuple[float, ...]
    comm_start_s: float
    comm_end_s: float


def slot_times(
    model: GpuModel,
    compute: tuple[Phase, ...],
    communication: Communication,
    *,
    comm_sms: int,
    launch: int | None,
    sm_mhz: int,
) -> StreamTimes:
    """Compute when everything runs at one clock; `launch` is the place of a phase as for `slot_costs`."""
    run = _StreamRun.of(model, compute, communication)
    at = [run.clocks_mhz.index(sm_mhz)]
    every = run.phases(comm_sms)
    arrays = (every.alone_s, every.alone_w, every.beside_s, every.beside_w, every.progress)
    comm_s = run.communication_s(comm_sms)[at]
    before_s = np.full(1, np.inf) if launch is None else every.alone_s[:launch, at].sum(axis=0)
    costs = [
        two_streams(StreamPhases(*(array[:end, at] for array in arrays)), comm_s, before_s)
        for end in range(1, len(compute) + 1)
    ]
    ends_s = tuple(float((cost.time_s - cost.exposed_s)[0]) for cost in costs)
    start_s = ends_s[-1] if launch is None else float(before_s[0])
    return StreamTimes(ends_s, start_s, start_s + float(costs[-1].comm_s[0]))


def compute_cost(model: GpuModel, compute: tuple[Phase, ...], *, temperature_c: float | None = None) -> Cost:
    """Compute phases that no communication belongs to."""
    nothing = Communication(name="nothing", link_bytes=0.0, gpus=1, latency_s=0.0)
    run = _StreamRun.of(replace(model, link=model.link or _NO_LINK), compute, nothing)
    return run.cost(1, run.phases(1), np.full(len(run), np.inf), temperature_c)


def communication_cost(model: GpuModel, communication: Communication, *, comm_sms: int, mem_mhz: int) -> Cost:
    """Compute time and energy of a collective that overlaps with nothing, on one of several equal GPUs."""
    run = _StreamRun.of(model, (), communication, mem_mhz=mem_mhz)
    time_s = run.communication_s(min(comm_sms, model.sms - 1))
    alone = StreamCost(time_s, np.zeros_like(time_s), time_s, time_s)
    return run.joined(min(comm_sms, model.sms - 1), alone, None)


@dataclass(frozen=True, slots=True, eq=False)
class _StreamRun:
    """A partition on a GPU at its core clocks, before SMs and launch are chosen."""

    model: GpuModel
    link: LinkPhysics
    compute: tuple[Phase, ...]
    communication: Communication
    clocks_mhz: tuple[int, ...]
    mem_mhz: int
    sm_mhz: Floats

    @classmethod
    def of(
        cls, model: GpuModel, compute: tuple[Phase, ...], communication: Communication, *, mem_mhz: int | None = None
    ) -> _StreamRun:
        if model.link is None:
            raise NotSupported(f"{model.name} has no known link", hint="give its catalogue file a [link]")
        row = model.mem_clocks_mhz.index(mem_mhz) if mem_mhz is not None else 0
        clocks_mhz = model.clocks[row].sm_mhz
        mhz = np.array(clocks_mhz, dtype=np.float64)
        return cls(model, model.link, compute, communication, clocks_mhz, model.mem_clocks_mhz[row], mhz)

    def __len__(self) -> int:
        return len(self.clocks_mhz)

    def communication_s(self, comm_sms: int) -> Floats:
        """(clocks,): time of the communication on its SMs, beside nothing."""
        sent = self.communication.link_bytes
        sm_rate = comm_sms * self.link.sm_bytes_per_s * self.sm_mhz / self.model.max_mhz
        crossing_s = np.full_like(sm_rate, sent / self.link.bytes_per_s)
        return self.communication.latency_s + smooth_maximum(sent / sm_rate, crossing_s, LINK_NORM)

    def phases(self, comm_sms: int) -> StreamPhases:
        """Compute every phase alone, and beside communication with the SMs and the bandwidth that remain."""
        self._check(comm_sms)
        model, phases, comm_s = self.model, self.compute, self.communication_s(comm_sms)
        share = 1.0 - comm_sms / model.sms
        used = MEMORY_PASSES * self.communication.link_bytes / np.maximum(comm_s, 1e-12) * PROGRESS
        alone = phase_times(model, phases, self.sm_mhz, mem_mhz=self.mem_mhz)
        beside = phase_times(model, phases, self.sm_mhz, mem_mhz=self.mem_mhz, sm_share=share, spare_bytes_per_s=used)
        waits_s = column(phase.host_stall_s for phase in phases)
        alone_j = alone.duration_s * kernel_w(model, phases, self.sm_mhz, times=alone)
        beside_j = beside.duration_s * kernel_w(model, phases, self.sm_mhz, times=beside, sm_share=share)
        alone_s, beside_s = alone.duration_s + waits_s, beside.duration_s + waits_s
        progress = np.full_like(alone_s, PROGRESS)
        return StreamPhases(alone_s, alone_j / alone_s, beside_s, beside_j / beside_s, progress)

    def cost(self, comm_sms: int, phases: StreamPhases, before_s: Floats, temperature_c: float | None) -> Cost:
        """Run both streams; (…, clocks)."""
        return self.joined(comm_sms, two_streams(phases, self.communication_s(comm_sms), before_s), temperature_c)

    def joined(self, comm_sms: int, streams: StreamCost, temperature_c: float | None) -> Cost:
        """Add the energy of communication and of the GPU itself to that of the computation."""
        model, memory = self.model, self.model.memory
        copying_w = model.core_w(self.sm_mhz, model.core.busy_clock_w_per_ghz * comm_sms / model.sms)
        cached_j = memory.l2_j_per_byte * MEMORY_PASSES * model.voltage(self.sm_mhz) ** 2
        byte_j = cached_j + memory.j_per_byte * MEMORY_PASSES + self.link.j_per_byte
        work_j = streams.compute_j + copying_w * streams.comm_s + byte_j * self.communication.link_bytes
        awake_w = model.awake_w(self.sm_mhz, self.mem_mhz)
        settled_c = model.settled_c(self.sm_mhz, awake_w + work_j / streams.time_s)
        leak_w = model.leak_w(self.sm_mhz, settled_c if temperature_c is None else temperature_c)
        static_j = (awake_w + leak_w) * streams.time_s
        return Cost(self.clocks_mhz, streams.time_s, work_j + static_j, streams.exposed_s, static_j)

    def _check(self, comm_sms: int) -> None:
        work = [phase.flops or phase.dram_bytes or phase.launches for phase in self.compute]
        if not work or not all(work):
            raise InputError("every phase of a partition computes something", hint="give it work or launches")
        if not 1 <= comm_sms < self.model.sms:
            raise InputError(
                f"communication cannot have {comm_sms} of {self.model.sms} SMs",
                hint=f"1 to {self.model.sms - 1} will do",
            )
