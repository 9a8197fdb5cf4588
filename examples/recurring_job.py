"""A job that recurs: three nights of `recurring_job`, on a simulated GPU.

The program trains in the virtual time of an emulated A40, so that three nights pass in seconds.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

NIGHTS = 3


def train():
    """What the job runs: a training whose accuracy grows with every epoch, at a rate that the batch size sets."""
    from wattune import recurring_job
    from wattune.emulator.node import Node
    from wattune.physics.catalog import load_model
    from wattune.physics.spend import tabulate
    from wattune.workloads.catalog import make_workload

    options = {"target": 0.75, "batch_sizes": (16, 32, 64), "default": 64, "max_epochs": 50, "knob": "power-limit"}
    with (
        Node.attach(Path(os.environ["WATTUNE_NODE"])) as node,
        recurring_job("nightly", devices=("nvml:0",), **options) as run,
    ):
        epochs_needed = {16: 5, 32: 6, 64: 10}[run.batch_size]
        node.play(0, tabulate(load_model("a40"), make_workload("resnet50", batch_size=run.batch_size)))
        for epoch in run.epochs():
            for _ in range(10, 9600 // run.batch_size + 1, 10):
                node.run(0, 10)
                run.step(10)
            run.report(0.75 * (epoch + 1) / epochs_needed)
    limit = f"limit {run.setting.power_limit_w:.0f} W" if run.setting else "no limit found yet"
    gpu = run.gpus[0].spec.label
    print(f"batch size {run.batch_size}, {epoch + 1} epochs, {limit}, {run.cost.energy_j / 1000:.0f} kJ on {gpu}")


def night(folder):
    """What one run of the job came to; its history, and all else that wattune keeps, is in the folder."""
    places = {f"WATTUNE_{name}": f"{folder}/{name.lower()}" for name in ("STORE", "STATE", "CACHE")}
    simulated = ("simulate", "--gpu", "a40", "--workload", "none", "--virtual-time", "--truth", f"{folder}/truth")
    command = [sys.executable, "-m", "wattune", *simulated, "--", sys.executable, __file__, "train"]
    done = subprocess.run(command, env={**os.environ, **places}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, NIGHTS + 1):
            print(f"night {number}: {night(folder)}")


if __name__ == "__main__":
    train() if sys.argv[1:2] == ["train"] else main()
