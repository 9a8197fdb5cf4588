"""One rank of trainings over gloo in which a part of the tuning fails, one case after another.

python rank_failure_worker.py CASES.json RANK     the results go to the folder of the cases as RANK.json

The same training is done without tuning first. GPUs are simulated in virtual time, which passes with the work of the
training; energies of instructions are made up, so that a plan is held after some iterations.
"""

import hashlib
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from wattune import tuned as tuned_program
from wattune.control.stamps import HostStamp
from wattune.core.errors import SettingRefused
from wattune.core.job import Job
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.integrations import pipelining
from wattune.integrations.torch_ranks import TorchRanks
from wattune.levels.job.policies import searcher_named
from wattune.levels.job.session import RecurringRun
from wattune.levels.job.store_access import JobStoreAccess
from wattune.levels.pipeline import tuner
from wattune.levels.pipeline.online import OnlinePlanning, PlanDisabled
from wattune.levels.pipeline.profiling import Attribution
from wattune.levels.run.policy import CurvePolicy
from wattune.physics.catalog import load_model
from wattune.store.worker import StoreWorker
from wattune.workloads.catalog import make_workload

WIDTH = 8
MICROBATCHES = 4
STEP_S = 0.1
EPOCH_STEPS = 20
TOP_MHZ = 1410


@dataclass(frozen=True)
class Case:
    folder: str
    level: str
    """run or job, data-parallel trainings, or pipeline."""
    failure: str
    """policy, device, refused, killed or hung."""
    rank: int
    """Where it fails."""
    at: int
    """The step at which it fails."""
    steps: int
    timeout_s: float
    """Of collectives."""

    @property
    def loses_a_rank(self):
        return self.failure in ("killed", "hung")


class FailingGpu:
    """A simulated GPU that stops working on demand."""

    def __init__(self):
        self.time = VirtualTime()
        self.real = SimulatedGpu(load_model("a100"), time=self.time)
        self.real.play(make_workload("resnet50"))
        self.spec, self.refresh = self.real.spec, None
        self.is_lost = self.refuses = False
        self.applied = []
        self._lock = threading.Lock()

    def work(self, seconds):
        with self._lock:
            self.time.wait(seconds)

    def count(self):
        with self._lock:
            self._check()
            return self.real.count()

    def read(self):
        with self._lock:
            self._check()
            return self.real.read()

    def apply(self, setting):
        with self._lock:
            if self.refuses and self.applied:
                raise SettingRefused(f"no {setting} any more")
            self.real.apply(setting)
            self.applied.append(setting)

    def restore(self):
        with self._lock:
            self.real.restore()

    def _check(self):
        if self.is_lost:
            raise OSError("the driver is gone")


class Failure:
    """What goes wrong on this rank, and when."""

    def __init__(self, case, rank, gpu):
        self._case, self._gpu = case, gpu
        self._is_here = case.rank == rank
        self._step = 0
        self._undo = None

    def undo(self):
        if self._undo is not None:
            owner, step = self._undo
            owner.step = step

    def advance(self):
        """Count a step of the training, and break what breaks at it."""
        self._step += 1
        if self._step != self._case.at:
            return
        is_done = Path(self._case.folder) / "done"
        if not self._is_here:
            is_done.touch()
            return
        if self._case.loses_a_rank:
            wait_until(is_done.exists)  # the other rank needs this one for its own step of the training
        match self._case.failure:
            case "policy":
                owner = CurvePolicy if self._case.level == "run" else OnlinePlanning
                self._undo = (owner, owner.step)
                owner.step = _broken
            case "device":
                self._gpu.is_lost = True
            case "refused":
                self._gpu.refuses = True
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hung":
                time.sleep(10**6)


def _broken(*arguments, **options):
    raise ZeroDivisionError("the policy is broken")


class Kernel(torch.autograd.Function):
    """Work of a simulated GPU in both directions."""

    @staticmethod
    def forward(context, value, gpu):
        context.gpu = gpu
        gpu.work(duration_s(gpu, 1.0))
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        context.gpu.work(duration_s(context.gpu, 2.0))
        return gradient, None


class Layer(nn.Module):
    def __init__(self, seed, gpu):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.inner, self.gpu = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()), gpu
        with torch.no_grad():
            for weights in self.inner.parameters():
                weights.copy_(torch.randn(weights.shape, generator=generator) / WIDTH**0.5)

    def forward(self, value):
        return Kernel.apply(self.inner(value), self.gpu)


def duration_s(gpu, share):
    return 0.01 * share * (0.2 + 0.8 * TOP_MHZ / (gpu.real.setting.sm_mhz or TOP_MHZ))


def made_up_energies(gpu):
    """Stand in for the counter, which does not move in virtual time: each kind at the clock of the GPU."""

    def attributed(boundaries, **_options):
        kinds = {boundary.kind for boundary in boundaries[1:]} - {"waiting", "outside", "paused"}
        power_w = 60 + 240 * ((gpu.real.setting.sm_mhz or TOP_MHZ) / TOP_MHZ) ** 3
        times_s = {kind: duration_s(gpu, 2.0 if "backward" in kind else 1.0) for kind in kinds}
        costs = {kind: Measurement(time_s, time_s * power_w) for kind, time_s in times_s.items()}
        return Attribution(costs, 60.0, int(tuner.MEASURED.most_steps)) if kinds else None

    tuner.attribute, tuner.watch = attributed, lambda *_arguments, **_options: None


def train_data_parallel(case, rank, gpu, after_step):
    """Train, and return losses and gradients of every step, exactly. Where a rank is lost, each trains alone."""
    layer = Layer(7, gpu)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    inputs = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(rank))
    computed = []
    for _ in range(case.steps):
        optimizer.zero_grad()
        loss = layer(inputs).square().mean()
        loss.backward()
        if not case.loses_a_rank:
            for weights in layer.parameters():
                dist.all_reduce(weights.grad)
        optimizer.step()
        gpu.work(STEP_S)
        computed.append(digest([loss], layer))
        if after_step() == "stop":
            break
    return computed


def schedule_of(rank, gpu):
    stage = PipelineStage(Layer(100 + rank, gpu), rank, 2, torch.device("cpu"))
    return Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)


def train_pipeline(case, rank, schedule, before_step, after_step):
    layer = schedule._stage.submod
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(7)
    computed = []
    for _ in range(case.steps):
        batch, target = torch.randn(2, 2 * MICROBATCHES, WIDTH, generator=generator)
        optimizer.zero_grad()
        losses = []
        before_step()
        schedule.step(batch) if rank == 0 else schedule.step(target=target, losses=losses)
        computed.append(digest(losses, layer))
        optimizer.step()
        if after_step() == "stop":
            break
    return computed


def digest(losses, layer):
    values = [*losses, *(weights.grad for weights in layer.parameters())]
    return hashlib.sha256(b"".join(value.detach().numpy().tobytes() for value in values)).hexdigest()


def nothing():
    pass


def plain_training(case, rank):
    """The training without tuning, which is the same for all cases of a file."""
    gpu = FailingGpu()
    if case.level == "pipeline":
        return train_pipeline(case, rank, schedule_of(rank, gpu), nothing, nothing)
    return train_data_parallel(case, rank, gpu, nothing)


def run_level(case, rank):
    gpu = FailingGpu()
    failure = Failure(case, rank, gpu)
    with tuned_program(gpu, slowdown=0.05, ranks=TorchRanks()) as tuning:

        def after_step():
            failure.advance()
            tuning.step()

        computed = train_data_parallel(case, rank, gpu, after_step)
        result = {"disabled": tuning.disabled, "in_block": str(gpu.real.setting), "setting": str(tuning.setting)}
        result |= {"events": list(tuning.events), "windows": [str(window.setting) for window in tuning.windows]}
    failure.undo()
    return result | {"tuned": computed, "applied": len(gpu.applied), "after": str(gpu.real.setting)}


def job_level(case, rank):
    gpu = FailingGpu()
    failure = Failure(case, rank, gpu)
    job = Job(name="nightly", batch_sizes=(64,), default_batch_size=64, target=0.9, max_epochs=100)
    warnings = []
    store_access = JobStoreAccess(
        job,
        searcher_named("wattune"),
        worker=StoreWorker(f"sqlite:///{case.folder}/{rank}.db", wait_s=60.0),
        state_dir=Path(case.folder) / f"state{rank}",
        warn=warnings.append,
    )
    run = RecurringRun(job, [gpu], store_access=store_access, ranks=TorchRanks(), warn=warnings.append)
    run.start()
    done, goes_on = 0, []

    def after_step():
        nonlocal done
        failure.advance()
        run.step()
        done += 1
        if done % EPOCH_STEPS == 0:
            goes_on.append(run.report(0.95 if done == case.steps else 0.1))

    computed = train_data_parallel(case, rank, gpu, after_step)
    result = {"disabled": run.disabled, "in_block": str(gpu.real.setting), "goes_on": goes_on, "why": run.why}
    run.end()
    result |= {"tuned": computed, "applied": len(gpu.applied), "after": str(gpu.real.setting)}
    return result | {"epochs": run.run.epochs, "warnings": warnings}


def pipeline_level(case, rank):
    gpu = FailingGpu()
    made_up_energies(gpu)
    pipelining.stamps_for = lambda _schedule: lambda: HostStamp(gpu.time.now_s())
    failure, schedule = Failure(case, rank, gpu), schedule_of(rank, gpu)
    states = []
    with pipelining.tuned(schedule, gpu, slowdown=0.1, clocks=2) as listener:
        finish = listener.finish

        def finish_or_fail():
            failure.advance()
            finish()

        listener.finish = finish_or_fail

        def after_step():
            states.append(type(listener.progress).__name__)
            # The next step of a pipeline without one of its ranks fails by itself.
            return "stop" if case.loses_a_rank and isinstance(listener.progress, PlanDisabled) else None

        computed = train_pipeline(case, rank, schedule, nothing, after_step)
        disabled = listener.progress.why if isinstance(listener.progress, PlanDisabled) else None
        wait_until(lambda: gpu.real.setting == DRIVER_DEFAULT or disabled is None)
        result = {"disabled": disabled, "in_block": str(gpu.real.setting), "states": states}
    failure.undo()
    return result | {"tuned": computed, "applied": len(gpu.applied), "after": str(gpu.real.setting)}


def wait_until(condition):
    while not condition():  # the thread that sets the clocks must get on; the test has a time limit
        time.sleep(0.001)


def main(cases_file, rank):
    cases = [Case(**case) for case in json.loads(Path(cases_file).read_text())]
    torch.set_num_threads(1)
    folder, timeout_s = Path(cases[0].folder), cases[0].timeout_s
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=timeout_s),
    )
    levels = {"run": run_level, "job": job_level, "pipeline": pipeline_level}
    plain = plain_training(cases[0], rank)
    results = [levels[case.level](case, rank) | {"plain": plain} for case in cases]
    (folder / f"{rank}.json").write_text(json.dumps(results))
    if cases[-1].loses_a_rank:
        os._exit(0)  # without waiting for a rank that is gone
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
