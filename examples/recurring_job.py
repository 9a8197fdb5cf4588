"""A job that recurs, by command: `wattune job run` around a program, three nights long, on a simulated GPU.

The program trains in the virtual time of an emulated A40, so that three nights pass in seconds.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

NIGHTS = 3
JOB = ("--batch-sizes", "16,32,64", "--default", "64", "--target", "0.75", "--metric-http", "--knob", "power-limit")


def train():
    """What the job runs: a training whose accuracy grows with every epoch, at a rate that the batch size sets."""
    import urllib.request

    from wattune.emulator.node import Node
    from wattune.physics.catalog import load_model
    from wattune.physics.spend import tabulate
    from wattune.workloads.catalog import make_workload

    batch_size = int(sys.argv[2])
    epochs_needed = {16: 5, 32: 6, 64: 10}[batch_size]

    def post(variable, document):
        with urllib.request.urlopen(os.environ[variable], data=json.dumps(document).encode()) as reply:
            return json.load(reply)

    with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
        node.play(0, tabulate(load_model("a40"), make_workload("resnet50", batch_size=batch_size)))
        for epoch in range(1, 51):
            for step in range(10, 9600 // batch_size + 1, 10):
                node.run(0, 10)
                post("WATTUNE_STEP_URL", {"step": step})
            accuracy = 0.75 * epoch / epochs_needed
            if post("WATTUNE_METRIC_URL", {"metric": accuracy, "epoch": epoch})["stop"]:
                break


def night(folder):
    """What one run of the job came to; its history, and all else that wattune keeps, is in the folder."""
    places = {f"WATTUNE_{name}": f"{folder}/{name.lower()}" for name in ("STORE", "STATE", "CACHE")}
    wattune = [sys.executable, "-m", "wattune"]
    simulated = [
        *wattune,
        "simulate",
        "--gpu",
        "a40",
        "--workload",
        "none",
        "--virtual-time",
        "--truth",
        f"{folder}/truth",
    ]
    job = [*wattune, "job", "run", "nightly", "--json", *JOB]
    program = [sys.executable, __file__, "train", "{batch_size}"]
    command = [*simulated, "--", *job, "--", *program]
    done = subprocess.run(command, env={**os.environ, **places}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, NIGHTS + 1):
            found = night(folder)
            for run in found["runs"]:
                part = run["gpu"]["name"] + (" (simulated)" if found["simulated"] else "")
                limit = f"limit {run['setting']['power_limit_w']:.0f} W" if run["setting"] else "no limit found yet"
                energy = f"{run['cost']['energy_j'] / 1000:.0f} kJ"
                epochs = f"{run['epochs']} epochs"
                print(f"night {number}: batch size {run['batch_size']}, {epochs}, {limit}, {energy} on {part}")


if __name__ == "__main__":
    train() if sys.argv[1:2] == ["train"] else main()
