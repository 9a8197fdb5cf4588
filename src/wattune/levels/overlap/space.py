"""The settings of a partition: core clock, SMs of its collective, and the slot at which that is launched.

Sequential execution, with the collective after the computation, is one of the launches. Clocks and SMs are by default
those that Kareus searches on an A100 (ml-energy/kareus); the text of a setting is that of its schedules,
`slot-none-SMs-1024`, whose second part is the end of the overlap (always none) and whose last is the size of a block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wattune.core.errors import InputError
from wattune.levels.overlap.partitions import NONE, KernelPartition
from wattune.physics.gpu_model import GpuModel

A100_CLOCKS_MHZ = tuple(range(900, 1411, 30))
REDUCING_SMS = tuple(range(3, 31, 3))
"""Of tensor-parallel collectives, which are large."""
GATHERING_SMS = tuple(range(1, 21))
"""Of context-parallel collectives, which are small."""
BLOCK = 1024

_TEXT = re.compile(r"(?P<launch>none|[a-z]+_\d+|-1)-(?P<end>none|-1)-(?P<sms>[0-9]{1,6})-(?P<block>[0-9]{1,6})")


@dataclass(frozen=True, slots=True, order=True)
class PartitionChoice:
    """One setting of a partition."""

    sm_mhz: int
    comm_sms: int
    launch: str
    """The slot before which the collective is launched, or `none`: after all computation."""

    @property
    def sequential(self) -> bool:
        return self.launch == NONE

    @property
    def text(self) -> str:
        """The launch and the SMs, as schedules of Kareus write them; the clock is that of the instruction."""
        return f"{self.launch}-{NONE}-{self.comm_sms}-{BLOCK}"


def parse_choice(text: str, *, sm_mhz: int) -> PartitionChoice:
    """Read a setting of a Kareus schedule."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text!r} is no setting of a partition", hint="write one as norm_0-none-12-1024")
    if int(found["block"]) != BLOCK:
        raise InputError(f"{text!r} has blocks of {found['block']} threads", hint=f"only {BLOCK} is known")
    launch = NONE if found["launch"] == "-1" else found["launch"]
    return PartitionChoice(sm_mhz, int(found["sms"]), launch)


def choices(
    partition: KernelPartition,
    gpu: GpuModel,
    *,
    clocks_mhz: Sequence[int] | None = None,
    comm_sms: Sequence[int] | None = None,
) -> tuple[PartitionChoice, ...]:
    """List all settings of a partition in order, sequential execution included."""
    clocks = tuple(sorted(set(usual_clocks_mhz(gpu) if clocks_mhz is None else clocks_mhz)))
    sms = tuple(sorted(set(usual_comm_sms(partition) if comm_sms is None else comm_sms)))
    check_clocks(gpu, clocks)
    check_comm_sms(gpu, sms)
    if partition.communication is None:
        return tuple(PartitionChoice(clock, sms[0], NONE) for clock in clocks)
    launches = sorted((*partition.launches, NONE))
    return tuple(PartitionChoice(clock, count, launch) for clock in clocks for count in sms for launch in launches)


def usual_clocks_mhz(gpu: GpuModel) -> tuple[int, ...]:
    """Return the clocks that Kareus uses on an A100, and on others every second clock from 0.64 of the highest on."""
    known = gpu.clocks[0].sm_mhz
    if set(A100_CLOCKS_MHZ) <= set(known) and gpu.max_mhz == A100_CLOCKS_MHZ[-1]:
        return A100_CLOCKS_MHZ
    usable = [clock for clock in known if clock >= A100_CLOCKS_MHZ[0] / A100_CLOCKS_MHZ[-1] * gpu.max_mhz]
    return tuple(sorted(usable[::-1][::2]))


def usual_comm_sms(partition: KernelPartition) -> tuple[int, ...]:
    """Return the numbers of SMs that Kareus tries for a collective of this kind."""
    communication = partition.communication
    reduces = communication is None or communication.name == "all-reduce"
    return REDUCING_SMS if reduces else GATHERING_SMS


def check_clocks(gpu: GpuModel, clocks_mhz: Sequence[int]) -> None:
    """Refuse clocks that the GPU does not have."""
    missing = [clock for clock in clocks_mhz if clock not in gpu.clocks[0].sm_mhz]
    if missing or not clocks_mhz:
        table = gpu.clocks[0].sm_mhz
        raise InputError(
            f"{gpu.name} has no core clock of {', '.join(map(str, missing)) or 'none'} MHz",
            hint=f"it has {table[0]} to {table[-1]} MHz in steps of {table[1] - table[0]}",
        )


def check_comm_sms(gpu: GpuModel, comm_sms: Sequence[int]) -> None:
    """Refuse numbers of SMs that leave none to one of both."""
    for count in comm_sms:
        if not 1 <= count < gpu.sms:
            raise InputError(
                f"a collective cannot have {count} of the {gpu.sms} SMs of {gpu.name}", hint=f"1 to {gpu.sms - 1}"
            )
    if not comm_sms:
        raise InputError("no number of SMs is given for the collective", hint="for example 3, 6 and 12")
