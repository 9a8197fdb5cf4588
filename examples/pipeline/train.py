"""A pipeline of two stages that trains over gloo, each stage on a simulated GPU of its own; no GPU is needed.

    wattune pipeline profile --out stage_profile.csv --clocks 5 -- torchrun --nproc-per-node 2 train.py
    wattune pipeline plan --profile stage_profile.csv --microbatches 4 --blocking-power 50 --gpu v100 --out plan.json
    torchrun --nproc-per-node 2 train.py plan.json

With GPUs: open `nvml:{LOCAL_RANK}`, leave out `OnGpu`, put the stage on its GPU, and use NCCL.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from wattune import open_gpus
from wattune.core.workload import Phase, Pipe, Workload
from wattune.integrations.pipelining import played, profiled

WIDTH, MICROBATCHES = 16, 4
FORWARD = Workload(name="forward", phases=(Phase(name="forward", flops=3e11, pipe=Pipe.FP16, dram_bytes=2e9),))
BACKWARD = Workload(name="backward", phases=(Phase(name="backward", flops=6e11, pipe=Pipe.FP16, dram_bytes=4e9),))


class Work(torch.autograd.Function):
    """Kernels that take as long as the simulated GPU needs for them at its present clock."""

    @staticmethod
    def forward(context, value, gpu):
        context.gpu = gpu
        gpu.run(FORWARD)
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        context.gpu.run(BACKWARD)
        return gradient, None


class OnGpu(nn.Module):
    """A stage whose forward and backward run on a simulated GPU."""

    def __init__(self, stage, gpu):
        super().__init__()
        self.stage, self.gpu = stage, gpu

    def forward(self, value):
        return Work.apply(self.stage(value), self.gpu)


def train(schedule, optimizer, *, iterations, is_over=lambda: False):
    """Train until all clocks are measured, or for a number of iterations; all ranks stop after the same one."""
    for number in range(iterations):
        batch, target = torch.randn(2, 2 * MICROBATCHES, WIDTH, generator=torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        schedule.step(*([batch] if dist.get_rank() == 0 else []), target=target)
        optimizer.step()
        if is_over():
            return


def main(plan=None):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    with open_gpus("sim:v100", wall_clock=True) as (gpu,):
        stage = OnGpu(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()), gpu)
        optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
        pipeline = PipelineStage(stage, rank, dist.get_world_size(), torch.device("cpu"))
        schedule = Schedule1F1B(pipeline, MICROBATCHES, loss_fn=nn.functional.mse_loss)
        if plan is None:
            with profiled(schedule, gpu) as profiler:
                train(schedule, optimizer, iterations=2000, is_over=lambda: profiler.has_profile)
        else:
            before = gpu.truth_j
            with played(schedule, plan, gpu) as clocks:
                train(schedule, optimizer, iterations=20)
            spent_j = (gpu.truth_j - before) / 20
            print(f"rank {rank}: {spent_j:.2f} J per iteration (simulated), disabled: {clocks.disabled}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(*sys.argv[1:])
