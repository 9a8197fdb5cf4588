"""Measure the kernels of a tensor-parallel model on 2 ranks, plan with the measurements, and play the plan.

The ranks compute on the CPU over gloo, and each has a simulated GPU. On GPUs leave out `--device`, use the NCCL
back-end, and give your own blocks a description as in docs/how-to/overlap-kernels.md.

    python overlapped_model.py                                    all steps, as below
    torchrun --nproc-per-node 2 overlapped_model.py train         plain training
    python overlapped_model.py ranks                              the same; all ranks are forked from one process
"""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

LAYERS, WIDTH, HEADS, KEY_HEADS, INNER = 2, 64, 4, 2, 128
SAMPLES, TOKENS, MICROBATCHES, STEPS = 4, 16, 2, 2
MODEL = f"llama3.2-3b:layers={LAYERS},width={WIDTH},heads={HEADS},key_heads={KEY_HEADS},inner={INNER},vocabulary=1000"
SIZES = ("--model", MODEL, "--tp", "2", "--microbatch-size", str(SAMPLES), "--sequence", str(TOKENS))
GPU = "a100-40gb"


def train(plan=None):
    """Train on this rank, or measure where `wattune kernels measure` runs this program."""
    import torch
    from torch import distributed
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    from wattune import open_gpu
    from wattune.integrations.overlap import (
        Activations,
        GroupTransport,
        LlamaBlock,
        LlamaShape,
        OverlapExecutor,
        measured_if_asked,
        played_overlap,
    )

    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(1)  # all ranks make the same whole blocks, and keep their part
    shape = LlamaShape(width=WIDTH, heads=HEADS, kv_heads=KEY_HEADS, feedforward=INNER)
    blocks = torch.nn.ModuleList(LlamaBlock(shape).shard(rank, ranks) for _ in range(LAYERS))
    executor = OverlapExecutor(list(blocks), {"tp": GroupTransport()}, activations=Activations.RECOMPUTE)
    batch = torch.randn(SAMPLES * MICROBATCHES, TOKENS, WIDTH)

    if measured_if_asked(executor, [batch[:SAMPLES]]):
        return

    blocks.forward = executor  # what the stage calls in place of a loop over the blocks
    alone = distributed.new_group([rank], use_local_synchronization=True)  # one stage, so a pipeline of one rank
    schedule = Schedule1F1B(
        PipelineStage(blocks, 0, 1, torch.device("cpu"), group=alone), MICROBATCHES, loss_fn=torch.nn.MSELoss()
    )
    start = {name: weight.clone() for name, weight in blocks.state_dict().items()}
    optimizer = torch.optim.SGD(blocks.parameters(), lr=1.0)

    def losses():
        blocks.load_state_dict(start)
        for _ in range(STEPS):
            found = []
            schedule.step(batch, target=torch.zeros_like(batch), losses=found)
            optimizer.step()
            optimizer.zero_grad()
            yield sum(found).item()

    report("as it is:     ", losses(), rank)
    if plan is not None:
        with open_gpu(f"sim:{GPU}") as gpu, played_overlap(schedule, plan, gpu, {0: executor}) as clocks:
            report("with the plan:", losses(), rank)
        assert clocks.disabled is None, clocks.disabled
    distributed.destroy_process_group()


def report(name, losses, rank):
    text = " ".join(f"{loss:.5f}" for loss in losses)
    if rank == 0:
        print(f"losses {name} {text}")


def fork_ranks(*arguments):
    """Start both ranks as torchrun does, but on this machine only and with PyTorch imported once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.pipelining", "wattune.integrations.overlap"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [context.Process(target=_rank, args=(rank, arguments)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    sys.exit(any(rank.exitcode for rank in ranks))


def _rank(rank, arguments):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    train(*arguments)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    """Run the commands of the guide, one after the other."""
    wattune = (sys.executable, "-m", "wattune")
    ranks = (sys.executable, __file__, "ranks")  # or: "torchrun", "--nproc-per-node", "2", __file__, "train"
    with tempfile.TemporaryDirectory() as folder:
        trials, plan = str(Path(folder) / "trials.jsonl"), str(Path(folder) / "plan.json")

        measure = (*SIZES, "--search", "random", "--budget", "4", "--device", f"sim:{GPU}", "--trials", trials)
        found = json.loads(run(*wattune, "kernels", "measure", *measure, "--no-store", "--json", "--", *ranks))
        counts = ", ".join(f"{own['name']} {own['measurements']}" for own in found["partitions"])
        print(f"trials (simulated): {counts}")
        factors = ", ".join(f"{name} ×{own['time']:.2f}" for name, own in found["calibrations"].items())
        print(f"time of whole passes over the sum of their partitions (simulated): {factors}")

        layout = (*SIZES, "--pp", "1", "--microbatches", str(MICROBATCHES), "--gpu", GPU, "--blocking-power", "40")
        planning = (*wattune, "kernels", "plan", *layout, "--trials", trials, "--out", plan, "--json")
        default_s = json.loads(run(*planning))["default"]["time_s"]
        made = json.loads(run(*planning, "--deadline", str(1.1 * default_s)))
        changes = f"time {made['plan']['time_percent']:+.0f} %, energy {made['plan']['energy_percent']:+.0f} %".replace(
            "-", "−"
        )
        print(f"{made['plans']} plans, chosen with 10 % more time: {changes} (simulated)")

        print(run(*ranks, plan), end="")


if __name__ == "__main__":
    step, *rest = sys.argv[1:] or ["all"]
    {"train": train, "ranks": fork_ranks, "all": main}[step](*rest)
