"""Overlaps the collectives of a transformer with the computation of other nanobatches, as a plan says, and measures it.

executor = OverlapExecutor(blocks, {"tp": GroupTransport(group)}, nanobatches=2)
with played_overlap(schedule, "plan.json", gpu, {stage_index: executor}):
    ...                                                 # the training loop; stages call executor(hidden)
"""

from wattune.integrations.overlap.execution import Launch
from wattune.integrations.overlap.executor import OverlapExecutor, PartitionClocks
from wattune.integrations.overlap.launching import SEQUENTIAL, LaunchChoice, PlannedLaunch, WholeMicrobatch
from wattune.integrations.overlap.llama import LlamaBlock, LlamaShape, SequenceParallelBlock
from wattune.integrations.overlap.measuring import measure_partition
from wattune.integrations.overlap.playing import played_overlap
from wattune.integrations.overlap.program import Activations
from wattune.integrations.overlap.repeating import RepeatedPartitions, SimulatedPartitions, WholePasses
from wattune.integrations.overlap.requested import measured_if_asked
from wattune.integrations.overlap.steps import Block, BlockOperation, Collective
from wattune.integrations.overlap.transport import GroupTransport, Transport
from wattune.integrations.overlap.trial_session import TrialSession

__all__ = [
    "SEQUENTIAL",
    "Activations",
    "Block",
    "BlockOperation",
    "Collective",
    "GroupTransport",
    "Launch",
    "LaunchChoice",
    "LlamaBlock",
    "LlamaShape",
    "OverlapExecutor",
    "PartitionClocks",
    "PlannedLaunch",
    "RepeatedPartitions",
    "SequenceParallelBlock",
    "SimulatedPartitions",
    "Transport",
    "TrialSession",
    "WholeMicrobatch",
    "WholePasses",
    "measure_partition",
    "measured_if_asked",
    "played_overlap",
]
