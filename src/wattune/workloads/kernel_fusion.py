"""The kernels of a traced program, and their memory traffic without and with fusion.

Real traffic lies between two figures. Unfused, each kernel reads its inputs from memory and writes its outputs back.
Fused, a chain of element-wise kernels is one: it reads what comes from outside of the chain, and writes what is read
outside of it later (also in the backward pass) or never (results). Compilers and hand-written kernels come near the
second; eager programs stay near the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from wattune.core.workload import Phase, Pipe


class Fusion(Enum):
    """The kernels with which a kernel can be fused."""

    ALONE = "alone"
    """No other kernel: products of matrices, convolutions, sorting."""
    STARTS = "starts"
    """Later kernels only: it needs all of its input first, as batch norm does."""
    JOINS = "joins"
    """Earlier and later kernels: it works element by element, or row by row."""


@dataclass(frozen=True, slots=True)
class Use:
    """A tensor that a kernel reads or writes, identified by its storage."""

    storage: int
    size_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a traced program."""

    name: str
    module: str
    """Path of its layer in the network; empty outside of every layer."""
    backward: bool
    fusion: Fusion
    pipe: Pipe
    flops: float
    reads: tuple[Use, ...]
    """A tensor that is read twice is listed twice."""
    writes: tuple[Use, ...]
    launches: int = 1
    unfused_extra_bytes: float = 0.0
    """Traffic that this kernel avoids, which an unfused program would have."""

    @property
    def unfused_bytes(self) -> float:
        return sum(use.size_bytes for use in (*self.reads, *self.writes)) + self.unfused_extra_bytes


@dataclass(frozen=True, slots=True)
class Group:
    """Kernels that run as one."""

    kernels: tuple[Kernel, ...]
    dram_bytes: float
    launches: int

    @property
    def flops(self) -> float:
        return sum(kernel.flops for kernel in self.kernels)

    def phase(self) -> Phase:
        """Make a phase, named after the first kernel."""
        unfused = unfused_phase(self.kernels[0])
        return replace(unfused, flops=self.flops, dram_bytes=self.dram_bytes, launches=self.launches)


def unfused_phase(kernel: Kernel) -> Phase:
    """Make a phase of one kernel without fusion."""
    return Phase(
        name=f"{'backward' if kernel.backward else 'forward'}/{kernel.module or kernel.name}",
        flops=kernel.flops,
        pipe=kernel.pipe,
        dram_bytes=kernel.unfused_bytes,
        launches=kernel.launches,
    )


def fused(kernels: Sequence[Kernel]) -> tuple[Group, ...]:
    """Group the kernels that would run as one, in order, with the remaining traffic."""
    last_read = {use.storage: place for place, kernel in enumerate(kernels) for use in kernel.reads}
    groups, start = [], 0
    for end in range(1, len(kernels) + 1):
        if end == len(kernels) or not _continues(kernels[start:end], kernels[end]):
            groups.append(_group(kernels, start, end, last_read))
            start = end
    return tuple(groups)


def _continues(chain: Sequence[Kernel], following: Kernel) -> bool:
    """Return whether the next kernel reads a result of the chain, in the same pass, and both can be fused."""
    if following.fusion is not Fusion.JOINS or chain[-1].fusion is Fusion.ALONE:
        return False
    if following.backward != chain[-1].backward:
        return False
    made = {use.storage for kernel in chain for use in kernel.writes}
    return any(use.storage in made for use in following.reads)


def _group(kernels: Sequence[Kernel], start: int, end: int, last_read: dict[int, int]) -> Group:
    chain = tuple(kernels[start:end])
    made: dict[int, float] = {}
    taken: dict[int, float] = {}
    inside: set[int] = set()
    for kernel in chain:
        for storage, size_bytes in _sizes(kernel.reads).items():
            if storage in made:
                inside.add(storage)
            else:
                taken[storage] = max(taken.get(storage, 0.0), size_bytes)
        for storage, size_bytes in _sizes(kernel.writes).items():
            made[storage] = max(made.get(storage, 0.0), size_bytes)
    written = (
        size_bytes for storage, size_bytes in made.items() if last_read.get(storage, -1) >= end or storage not in inside
    )
    launches = chain[0].launches if len(chain) == 1 else 1
    return Group(chain, sum(taken.values()) + sum(written), launches)


def _sizes(uses: Iterable[Use]) -> dict[int, float]:
    """Add up bytes by storage."""
    sizes: dict[int, float] = {}
    for use in uses:
        sizes[use.storage] = sizes.get(use.storage, 0.0) + use.size_bytes
    return sizes
