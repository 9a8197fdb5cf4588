"""Overlaps the collectives of a transformer with the computation of other nanobatches, as a plan says, and measures it.

executor = OverlapExecutor(blocks, {"tp": GroupTransport(group)}, nanobatches=2)
executor.follow(forward=choices, backward=choices)
hidden = executor(hidden)
"""

from wattune.integrations.overlap.execution import Launch
from wattune.integrations.overlap.executor import OverlapExecutor, PartitionClocks
from wattune.integrations.overlap.launching import SEQUENTIAL, LaunchChoice, SequentialChoice
from wattune.integrations.overlap.llama import LlamaBlock, LlamaShape
from wattune.integrations.overlap.program import Activations
from wattune.integrations.overlap.steps import Block, BlockOperation, Collective
from wattune.integrations.overlap.transport import GroupTransport, Transport

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
    "SequentialChoice",
    "Transport",
]
