"""One rank of tensor-parallel trainings over gloo with overlapped collectives, one case after another.

python overlap_worker.py CASES.json RANK     the results go to the folder of the cases as RANK.json

Each case is compared with plain execution of the whole blocks in this process.
"""

import itertools
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from overlap_samples import all_choices, check_order, loss_of, plain, sample_input, whole_blocks
from wattune.core.codec import to_json
from wattune.core.errors import DeviceError
from wattune.core.workload import Workload
from wattune.devices.simulated import SimulatedGpu
from wattune.integrations.overlap import (
    Activations,
    BlockOperation,
    GroupTransport,
    OverlapExecutor,
    SequenceParallelBlock,
    WholeMicrobatch,
)
from wattune.integrations.overlap.repeating import RepeatedPartitions, SimulatedPartitions
from wattune.integrations.overlap.trial_session import TrialSession
from wattune.integrations.torch_ranks import TorchRanks
from wattune.levels.overlap.space import PartitionChoice
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload

BLOCKS, BATCH = 2, 4
CHOICES = [(name, PartitionChoice(1200, 6, "linear_0")) for name in ("fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn")]


@dataclass(frozen=True)
class Case:
    dtype: str = "float64"
    activations: str = "recompute"
    nanobatches: int = 2
    launch: str = "norm_0"
    sequence_parallel: bool = False
    whole: str = ""
    """forward, backward or `forward backward`: the passes that run without nanobatches."""
    failure: str | None = None
    """raises, killed or hung: what the last rank does in its backward pass or, measured, in its second trial."""
    measured: bool = False
    """Measure partitions instead of training."""


@dataclass(frozen=True)
class Cases:
    folder: str
    ranks: int
    timeout_s: float
    cases: tuple[Case, ...]

    @classmethod
    def read(cls, file):
        document = json.loads(Path(file).read_text())
        return cls(**{**document, "cases": tuple(Case(**case) for case in document["cases"])})

    def write(self):
        file = Path(self.folder) / "cases.json"
        file.write_text(json.dumps(asdict(self)))
        return file


def transposed_shards(blocks, gradients, rank, ranks):
    """Return the parts of whole gradients that belong to the weights of one rank."""
    values = iter(gradients)
    for block in blocks:
        with torch.no_grad():
            for weight in block.parameters():
                weight.copy_(next(values))
    return [weight.detach() for block in blocks for weight in block.shard(rank, ranks).parameters()]


def largest_error(pairs):
    return max(((one - two).abs().max() / two.abs().max()).item() for one, two in pairs)


class Failing:
    """A block whose rotary embedding fails in the backward pass."""

    def __init__(self, block, failure):
        self._block, self._failure = block, failure

    def steps(self):
        return [self._broken(step) if getattr(step, "name", "") == "rope" else step for step in self._block.steps()]

    def _broken(self, step):
        def run(state):
            if state[0].requires_grad:  # and not in the forward pass, whose activations are dropped
                state[0].register_hook(self._fail)
            return step.run(state)

        return BlockOperation(step.name, step.kind, run)

    def _fail(self, gradient):
        fail(self._failure)


def run(case, rank, ranks):
    dtype = getattr(torch, case.dtype)
    hidden, whole = sample_input(BATCH, dtype), whole_blocks(BLOCKS, dtype)
    output, loss, gradient, gradients = plain(whole, hidden)
    mine = [block.shard(rank, ranks) for block in whole]
    own_gradients = transposed_shards(whole, gradients, rank, ranks)
    blocks = mine if case.failure is None or rank < ranks - 1 else [Failing(block, case.failure) for block in mine]
    transport, log = GroupTransport(), []
    activations = Activations(case.activations)
    if case.sequence_parallel:
        blocks = [SequenceParallelBlock(block) for block in mine]
        hidden, output, gradient = (value.chunk(ranks, dim=1)[rank] for value in (hidden, output, gradient))
    executor = OverlapExecutor(
        blocks, {"tp": transport}, nanobatches=case.nanobatches, activations=activations, record=log.append
    )
    choices = {}
    if not case.sequence_parallel:
        forward = all_choices(("fwd_attn", "fwd_mlp"), case.launch, comm_sms=3)
        backward = all_choices(("bwd_mlp", "bwd_attn"), case.launch, comm_sms=6)
        choices = forward | backward
        executor.follow(forward=forward, backward=choices if activations is Activations.RECOMPUTE else backward)
        if case.whole:
            executor.follow(**dict.fromkeys(case.whole.split(), WholeMicrobatch(1200)))
    hidden = hidden.clone().requires_grad_()
    found = executor(hidden)
    found_loss = loss_of(found)
    found_loss.backward()
    if case.sequence_parallel:
        found_loss = found_loss.detach()
        dist.all_reduce(found_loss)
        for block in mine:  # each rank has normalised a part of the sequence
            for weight in (block.attention_norm, block.mlp_norm):
                dist.all_reduce(weight.grad)
    weights = [weight.grad for block in mine for weight in block.parameters()]
    return {
        "output": largest_error([(found.detach(), output)]),
        "loss": abs(found_loss.item() / loss - 1.0),
        "gradients": largest_error([(hidden.grad, gradient), *zip(weights, own_gradients, strict=True)]),
        "collectives": check_order(log, choices) if choices and case.nanobatches > 1 and not case.whole else 0,
        "budgets": list(transport.budgets),
        "exchange": exchange(rank, ranks) if case.sequence_parallel else 0.0,
        "log": [list(launch) for launch in log],
    }


def measure(case, rank, ranks, folder):
    """Measure partitions on simulated GPUs, of which each rank has one, and continue after a stop."""
    gpu = SimulatedGpu(load_model("a100"))
    blocks = [block.shard(rank, ranks) for block in whole_blocks(BLOCKS)]
    executor = OverlapExecutor(blocks, {"tp": GroupTransport()}, activations=Activations.RECOMPUTE)
    # The ranks are unequally slow, and must repeat equally often all the same.
    phase = replace(make_workload("resnet50").phases[0], host_stall_s=0.001 * rank)
    work = Workload(name="partition", phases=(phase,))
    repeated = RepeatedPartitions(executor, [sample_input(BATCH)])
    partitions = SimulatedPartitions(repeated, gpu, lambda *_: work)
    if case.failure and rank == ranks - 1:
        prepare, count = partitions.prepare, itertools.count(1)
        partitions.prepare = lambda *what: fail(case.failure) if next(count) == 4 else prepare(*what)
    found, shared = [], TorchRanks()
    for choices in (CHOICES[:2], CHOICES):
        with TrialSession(
            partitions,
            gpu,
            layout="tiny",
            nanobatches=2,
            ranks=shared,
            file=Path(folder) / "trials.jsonl",
            progress=lambda trial: found.append(to_json(trial)),
        ) as session:
            if session.leads:
                for partition, choice in choices:
                    session.measure(partition, choice)
            else:
                session.serve()
    return {"trials": found, "after": str(gpu.setting)}


def fail(failure):
    if failure == "raises":
        raise ValueError("this rank is broken")
    os.kill(os.getpid(), signal.SIGKILL if failure == "killed" else signal.SIGSTOP)


def exchange(rank, ranks):
    """Carry out every kind of collective along the second dimension; return the largest error."""
    whole = [torch.arange(6.0 * ranks).reshape(3, 2 * ranks) + 100 * other for other in range(ranks)]
    wanted = {
        "all_reduce": sum(whole),
        "all_gather": torch.cat(whole, dim=1),
        "reduce_scatter": sum(whole).chunk(ranks, dim=1)[rank],
        "all_to_all": torch.cat([other.chunk(ranks, dim=1)[rank] for other in whole], dim=1),
    }
    transport = GroupTransport()
    found = {kind: transport.start(kind, whole[rank].clone(), dim=1, sms=None).wait() for kind in wanted}
    return max((found[kind] - wanted[kind]).abs().max().item() for kind in wanted)


def run_or_fail(case, rank, cases):
    start_s = time.monotonic()
    try:
        return measure(case, rank, cases.ranks, cases.folder) if case.measured else run(case, rank, cases.ranks)
    except (RuntimeError, ValueError, DeviceError) as error:
        if case.failure is None:
            raise
        notes = getattr(error, "__notes__", [])
        return {"error": str(error), "notes": notes, "waited_s": time.monotonic() - start_s}


def main(file, rank):
    cases = Cases.read(file)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{cases.folder}/meeting",
        rank=rank,
        world_size=cases.ranks,
        timeout=timedelta(seconds=cases.timeout_s),
    )
    results = [run_or_fail(case, rank, cases) for case in cases.cases]
    (Path(cases.folder) / f"{rank}.json").write_text(json.dumps(results))
    if any(case.failure for case in cases.cases):
        os._exit(0)  # without waiting for a rank that is gone
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
