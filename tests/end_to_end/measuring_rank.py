"""One rank of a tensor-parallel program that measures its kernels where it is asked to.

python measuring_rank.py FOLDER RANK RANKS KILLED     KILLED: the trial in which all ranks are killed; 0 for none
"""

import itertools
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from overlap_samples import sample_input, whole_blocks
from wattune.integrations.overlap import Activations, GroupTransport, OverlapExecutor, measured_if_asked, requested
from wattune.integrations.overlap.repeating import RepeatedPartitions


class Killed(RepeatedPartitions):
    """Partitions in the middle of one of which the process is killed."""

    last, count = 0, itertools.count(1)

    def prepare(self, partition, choice):
        if next(self.count) == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().prepare(partition, choice)


def main(folder, rank, ranks, killed):
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting{killed}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks, timeout=timedelta(seconds=240))
    blocks = [block.shard(rank, ranks) for block in whole_blocks(2)]
    executor = OverlapExecutor(blocks, {"tp": GroupTransport()}, activations=Activations.RECOMPUTE)
    Killed.last, requested.RepeatedPartitions = killed, Killed
    print("measured" if measured_if_asked(executor, [sample_input(4)]) else "trained")
    Path(folder, f"{rank}.prepared").write_text(str(next(Killed.count) - 1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
