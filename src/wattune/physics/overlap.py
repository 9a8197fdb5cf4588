"""Computation that overlaps with communication: time and energy of a partition at every core clock.

Communication takes some SMs and some memory bandwidth from the computation. Its speed depends on the number of these
SMs and on their clock, up to the rate of the link.

Notation
    s       SMs that communicate, of S
    r(f)    bytes per second that one of them moves, proportional to the clock f
    t_x     time of the communication: latency + bytes/(s·r(f)) + bytes/link
    φ       share of the computation's own time after which communication is launched; None: after all of it

The sum of the two terms of t_x, rather than the larger of them, is what all-reduces on 1 to 20 SMs of an A100 show
(ml-energy/kareus). Computation beside communication slowed down by 19 % on the average in arXiv 2507.03114.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattune.core.errors import InputError, NotSupported
from wattune.core.workload import Phase
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats, LinkPhysics
from wattune.physics.spend import kernel_w
from wattune.physics.timing import column, phase_times

# Reading, reducing and writing move each byte that crosses the link two to three times through the memory.
MEMORY_PASSES = 2.5

# Slowdown of two concurrent kernels by conflicts in the cache: 0 to 5 %.
INTERFERENCE = 0.03


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

    @property
    def power_w(self) -> Floats:
        """(clocks,): mean power; a GPU does not hold a clock at which this exceeds its power limit."""
        return self.energy_j / self.time_s


@dataclass(frozen=True, slots=True, eq=False)
class _StepTimes:
    """Phases of computation, alone and beside communication; (phases, clocks)."""

    alone_s: Floats
    alone_w: Floats
    beside_s: Floats
    beside_w: Floats


def partition_cost(model: GpuModel, partition: Partition, *, mem_mhz: int | None = None) -> Cost:
    """Compute time and energy of a partition on one of several equal GPUs at the same clock."""
    link = _link(model)
    _check(model, partition)
    row = model.mem_clocks_mhz.index(mem_mhz) if mem_mhz is not None else 0
    clocks_mhz, mem = model.clocks[row].sm_mhz, model.mem_clocks_mhz[row]
    sm_mhz = np.array(clocks_mhz, dtype=np.float64)
    comm_s = communication_s(model, link, partition, sm_mhz)
    comm_w = _communication_w(model, link, partition, sm_mhz, comm_s)
    step_times = _step_times(model, partition, sm_mhz, mem_mhz=mem, comm_s=comm_s)
    time_s, work_j, exposed_s = _joined(step_times, comm_s, comm_w, partition.launch)
    awake_w = model.awake_w(sm_mhz, mem)
    leak_w = model.leak_w(sm_mhz, model.settled_c(sm_mhz, awake_w + work_j / time_s))
    return Cost(clocks_mhz, time_s, work_j + (awake_w + leak_w) * time_s, exposed_s)


def communication_cost(model: GpuModel, communication: Communication, *, comm_sms: int, mem_mhz: int) -> Cost:
    """Compute time and energy of a collective that overlaps with nothing, on one of several equal GPUs."""
    link = _link(model)
    clocks_mhz = model.clocks[model.mem_clocks_mhz.index(mem_mhz)].sm_mhz
    sm_mhz = np.array(clocks_mhz, dtype=np.float64)
    alone = Partition(compute=(), communication=communication, comm_sms=min(comm_sms, model.sms - 1), launch=None)
    time_s = communication_s(model, link, alone, sm_mhz)
    power_w = model.awake_w(sm_mhz, mem_mhz) + _communication_w(model, link, alone, sm_mhz, time_s)
    leak_w = model.leak_w(sm_mhz, model.settled_c(sm_mhz, power_w))
    return Cost(clocks_mhz, time_s, (power_w + leak_w) * time_s, time_s)


def communication_s(model: GpuModel, link: LinkPhysics, partition: Partition, sm_mhz: Floats) -> Floats:
    """(clocks,): time of the communication on its SMs."""
    sent = partition.communication.link_bytes
    sm_rate = partition.comm_sms * link.sm_bytes_per_s * sm_mhz / model.max_mhz
    return np.asarray(partition.communication.latency_s + sent / sm_rate + sent / link.bytes_per_s)


def _communication_w(
    model: GpuModel, link: LinkPhysics, partition: Partition, sm_mhz: Floats, comm_s: Floats
) -> Floats:
    """(clocks,): power that communication adds to an idle GPU with a context."""
    rate = partition.communication.link_bytes / comm_s
    copying_w = model.core_w(sm_mhz, model.core.busy_clock_w_per_ghz * partition.comm_sms / model.sms)
    cache_w = model.memory.l2_j_per_byte * MEMORY_PASSES * rate * model.voltage(sm_mhz) ** 2
    return np.asarray(copying_w + cache_w + (model.memory.j_per_byte * MEMORY_PASSES + link.j_per_byte) * rate)


def _step_times(model: GpuModel, partition: Partition, sm_mhz: Floats, *, mem_mhz: int, comm_s: Floats) -> _StepTimes:
    """Compute every phase alone, and beside communication with the SMs and the bandwidth that remain."""
    phases = partition.compute
    share = 1.0 - partition.comm_sms / model.sms
    spare = MEMORY_PASSES * partition.communication.link_bytes / comm_s
    alone = phase_times(model, phases, sm_mhz, mem_mhz=mem_mhz)
    beside = phase_times(model, phases, sm_mhz, mem_mhz=mem_mhz, sm_share=share, spare_bytes_per_s=spare)
    beside = replace(beside, duration_s=beside.duration_s * (1.0 + INTERFERENCE))
    waits_s = column(phase.host_stall_s for phase in phases)
    alone_j = alone.duration_s * kernel_w(model, phases, sm_mhz, times=alone)
    beside_j = beside.duration_s * kernel_w(model, phases, sm_mhz, times=beside, sm_share=share)
    alone_s, beside_s = alone.duration_s + waits_s, beside.duration_s + waits_s
    return _StepTimes(alone_s, alone_j / alone_s, beside_s, beside_j / beside_s)


def _joined(
    step_times: _StepTimes, comm_s: Floats, comm_w: Floats, launch: float | None
) -> tuple[Floats, Floats, Floats]:
    """Return time, energy of all work and exposed communication; phases run in order, communication from its launch."""
    before_s = np.full_like(comm_s, np.inf) if launch is None else launch * step_times.alone_s.sum(axis=0)
    left_s, time_s = comm_s.copy(), np.zeros_like(comm_s)
    energy_j = comm_w * comm_s
    for alone_s, alone_w, beside_s, beside_w in zip(
        step_times.alone_s, step_times.alone_w, step_times.beside_s, step_times.beside_w, strict=True
    ):
        # First before the launch, then beside communication until it ends, then alone again.
        first = np.minimum(before_s / alone_s, 1.0)
        before_s = before_s - first * alone_s
        second = np.minimum((1.0 - first) * beside_s, left_s) / beside_s
        left_s = left_s - second * beside_s
        time_s += (1.0 - second) * alone_s + second * beside_s
        energy_j += (1.0 - second) * alone_s * alone_w + second * beside_s * beside_w
    return time_s + left_s, energy_j, left_s


def _link(model: GpuModel) -> LinkPhysics:
    if model.link is None:
        raise NotSupported(f"{model.name} has no known link", hint="give its catalogue file a [link]")
    return model.link


def _check(model: GpuModel, partition: Partition) -> None:
    if (
        not all(phase.flops or phase.dram_bytes or phase.launches for phase in partition.compute)
        or not partition.compute
    ):
        raise InputError("every phase of a partition computes something", hint="give it work or launches")
    if not 1 <= partition.comm_sms < model.sms:
        raise InputError(
            f"communication cannot have {partition.comm_sms} of {model.sms} SMs", hint=f"1 to {model.sms - 1} will do"
        )
    if partition.launch is not None and not 0 <= partition.launch <= 1:
        raise InputError(f"a launch lies between 0 and 1, not at {partition.launch}", hint="None: one after the other")
