"""One rank that trains a small model over gloo with a GPU of an emulated node beside it.

python pipeline_worker.py JOB.json RANK     what it found goes to the job's folder as RANK.json
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from wattune.devices.open import Surroundings, open_gpu
from wattune.emulator.node import Node
from wattune.integrations.pipelining import played, profiled, tuned
from wattune.levels.pipeline.online import PlanHeld, PlanProfiled
from wattune.levels.pipeline.plan_file import read_plan
from wattune.physics.load_table import LoadTable

WIDTH = 16
SM_MHZ = tuple(range(600, 1501, 75))
HIGHEST_MHZ = SM_MHZ[-1]
WORK_S = 0.012
"""Of a forward at the highest clock; a backward takes twice as long."""


@dataclass(frozen=True)
class Job:
    folder: str
    node: str
    library: str
    ranks: int
    chunks: int
    microbatches: int
    iterations: int
    plan_file: str | None = None
    """None trains at the driver's settings."""
    plain_first: bool = True
    """Whether the same training is done without a plan before."""
    straggler: int | None = None
    """Plan while training, and let this rank be slow for a while."""
    profile: str | None = None
    """Measure a stage profile into this file, by so many clocks."""
    clocks: int = 3


class Seen:
    """A GPU that writes down what the emulator has after each setting."""

    def __init__(self, gpu, node, index):
        self._gpu, self._node, self._index = gpu, node, index
        self.spec, self.refresh = gpu.spec, None
        self.applied = []
        self.read, self.count, self.restore = gpu.read, gpu.count, gpu.restore

    def apply(self, setting):
        self._gpu.apply(setting)
        assert self._node.setting(self._index).sm_mhz == setting.sm_mhz
        self.applied.append(setting.sm_mhz)


def layer(stage):
    generator = torch.Generator().manual_seed(100 + stage)
    made = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    with torch.no_grad():
        for weights in made.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator) / WIDTH**0.5)
    return made


def schedule_of(job, rank):
    total = job.ranks * job.chunks
    stages = [PipelineStage(layer(stage), stage, total, torch.device("cpu")) for stage in range(rank, total, job.ranks)]
    if job.chunks > 1:
        return ScheduleInterleaved1F1B(stages, job.microbatches, loss_fn=nn.functional.mse_loss), stages
    return Schedule1F1B(stages[0], job.microbatches, loss_fn=nn.functional.mse_loss), stages


def step(job, rank, schedule, batch, target, losses=None):
    if rank == 0:
        schedule.step(batch)
    elif rank == job.ranks - 1:
        schedule.step(target=target, losses=losses)
    else:
        schedule.step()


def train(job, rank, schedule, stages):
    """Losses and final gradients, exactly."""
    weights = [weight for stage in stages for weight in stage.submod.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(7)
    losses = []
    for _ in range(job.iterations):
        batch, target = torch.randn(2, 2 * job.microbatches, WIDTH, generator=generator)
        optimizer.zero_grad()
        found = []
        step(job, rank, schedule, batch, target, found)
        losses += [loss.item().hex() for loss in found]
        optimizer.step()
    return {
        "losses": losses,
        "gradients": [weight.grad.numpy().tobytes().hex() for weight in weights],
        "weights": [weight.detach().numpy().tobytes().hex() for weight in weights],
    }


class Kernel(torch.autograd.Function):
    """Work that takes as long as the emulated GPU's clock says, in both directions."""

    @staticmethod
    def forward(context, value, simulated):
        context.simulated = simulated
        simulated.work(1.0)
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        context.simulated.work(2.0)
        return gradient, None


class Simulated(nn.Module):
    """A layer whose GPU is emulated: it draws its power while it works, and waits otherwise."""

    def __init__(self, inner, node, index):
        super().__init__()
        self.inner, self.node, self.index = inner, node, index
        self.slowdown = 1.0

    def forward(self, value):
        return Kernel.apply(self.inner(value), self)

    def work(self, share):
        clock = (self.node.setting(self.index).sm_mhz or HIGHEST_MHZ) / HIGHEST_MHZ
        self.node.play(self.index, [busy_table(share)])
        time.sleep(WORK_S * share * self.slowdown * (0.2 + 0.8 / clock))  # what the GPU takes
        self.node.idle(self.index)


def busy_table(share):
    clock = np.array(SM_MHZ) / HIGHEST_MHZ
    return LoadTable(
        name="kernel",
        mem_mhz=1000,
        sm_mhz=SM_MHZ,
        duration_s=np.full((1, len(SM_MHZ)), 1.0),
        power_w=(60 + (180 + 20 * share) * clock**3)[None],
        sm_util=np.array([1.0]),
        mem_util=np.full((1, len(SM_MHZ)), 0.3),
    )


def tune(job, rank, gpu, node):
    """What the policy believed after each part of the run: planned, with a straggler, and after it."""
    kernel = Simulated(layer(rank), node, rank)
    stage = PipelineStage(kernel, rank, job.ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, job.microbatches, loss_fn=nn.functional.mse_loss)
    found = {}
    with tuned(schedule, gpu, slowdown=0.0, clocks=3) as listener:

        def train_until(name, condition):
            """All ranks know the same, so all stop at once."""
            for number in range(job.iterations):
                step(job, rank, schedule, *torch.zeros(2, 2 * job.microbatches, WIDTH))
                if condition(listener.progress):
                    found[name] = {"iterations": number + 1, **said(listener.progress)}
                    return
            raise RuntimeError(f"{name}: not within {job.iterations} iterations, {listener.progress}")

        train_until("planned", lambda progress: isinstance(progress, PlanHeld))
        kernel.slowdown = 2.0 if rank == job.straggler else 1.0
        train_until("straggling", lambda progress: progress.slowdowns[0][job.straggler] > 1.5)
        kernel.slowdown = 1.0
        train_until("recovered", lambda progress: progress.slowdowns[0][job.straggler] < 1.4)
    return found


def measure_profile(job, rank, gpu, node):
    """What all ranks know when the profile is complete, and how long that took."""
    kernel = Simulated(layer(rank), node, rank)
    stage = PipelineStage(kernel, rank, job.ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, job.microbatches, loss_fn=nn.functional.mse_loss)
    with profiled(schedule, gpu, out=job.profile, clocks=job.clocks) as listener:
        for number in range(job.iterations):
            step(job, rank, schedule, *torch.zeros(2, 2 * job.microbatches, WIDTH))
            if isinstance(listener.progress, PlanProfiled):
                step(job, rank, schedule, *torch.zeros(2, 2 * job.microbatches, WIDTH))  # training goes on
                settings = sorted({trial.choice.sm_mhz for _, trial in listener.progress.trials})
                return {"iterations": number + 1, "waiting_w": listener.progress.waiting_w, "clocks_mhz": settings}
    raise RuntimeError(f"no profile within {job.iterations} iterations: {listener.progress}")


def said(progress):
    """What all ranks agree on."""
    held = progress.held[0]
    return {
        "clocks_mhz": [choice.setting.sm_mhz for choice in held.choices],
        "slowdowns": progress.slowdowns[0],
        "waiting_w": progress.waiting_w,
        "times_s": {kind: [trial.cost.time_s for trial in trials] for kind, trials in progress.profile.items()},
        "powers_w": {kind: [trial.cost.power_w for trial in trials] for kind, trials in progress.profile.items()},
    }


def requested(steps, iterations):
    """The clocks that change, one after the other, over several iterations."""
    clocks = [step.setting.sm_mhz for step in steps] * iterations
    return [after for before, after in zip([None, *clocks], clocks, strict=False) if before != after]


def run(job, rank):
    found = {"plain": train(job, rank, *schedule_of(job, rank))} if job.plain_first else {}
    if job.straggler is not None:
        around = Surroundings(Path(job.folder) / "state")
        with open_gpu(f"nvml:{rank}", around) as gpu, Node.attach(Path(job.node), library=Path(job.library)) as node:
            found |= {"tuned": tune(job, rank, gpu, node), "simulated": gpu.spec.simulated}
    if job.profile is not None:
        around = Surroundings(Path(job.folder) / "state")
        with open_gpu(f"nvml:{rank}", around) as gpu, Node.attach(Path(job.node), library=Path(job.library)) as node:
            found["profiled"] = measure_profile(job, rank, gpu, node)
    if job.plan_file is not None:
        around = Surroundings(Path(job.folder) / "state")
        with open_gpu(f"nvml:{rank}", around) as gpu, Node.attach(Path(job.node), library=Path(job.library)) as node:
            seen = Seen(gpu, node, rank)
            schedule, stages = schedule_of(job, rank)
            with played(schedule, job.plan_file, seen) as clocks:
                found["planned"] = train(job, rank, schedule, stages)
                steps = read_plan(Path(job.plan_file)).plan.choice.ranks[rank]
                requests = len(requested(steps, job.iterations))
                while len(seen.applied) + clocks.skipped < requests:  # the thread that sets the clocks must get on
                    time.sleep(0.001)
            found |= {"applied": seen.applied, "skipped": clocks.skipped, "simulated": gpu.spec.simulated}
    return found


def main(job_file, rank):
    job = Job(**json.loads(Path(job_file).read_text()))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{job.folder}/meeting", rank=rank, world_size=job.ranks)
    found = run(job, rank)
    (Path(job.folder) / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def write(job):
    """The file of a job."""
    file = Path(job.folder) / "job.json"
    file.write_text(json.dumps(asdict(job)))
    return file


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
