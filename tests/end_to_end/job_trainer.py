"""A training program for `wattune job run`, in the virtual time of an emulated GPU.

`job_trainer.py SIZE=EPOCHS,SIZE=EPOCHS,…` trains ResNet-50 with the batch size of its environment and reaches a metric
of 1 after so many epochs; 0 epochs stands for never. It writes its steps and metrics into a file and lets no time pass
until wattune has dealt with them (`read_file`). `START_S` and `PAUSE_S` are how long it prepares, and pauses after each
epoch; into the file `TRUTH` it appends what its steps took and spent.
"""

import json
import os
import signal
import sys
from pathlib import Path

from read_file import ReadFile

from wattune.emulator.node import Node
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

SAMPLES = 6400
STEPS = 10
"""Iterations between two calls."""


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    size = int(os.environ["WATTUNE_BATCH_SIZE"])
    needed = dict(tuple(map(int, pair.split("="))) for pair in sys.argv[1].split(","))[size]
    load = tabulate(load_model("a40"), make_workload("resnet50", batch_size=size))
    with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
        node.play(0, load)
        node.advance(float(os.environ.get("START_S", "0")))
        try:
            train(node, size, needed)
        finally:
            node.idle(0)


def train(node, size, needed):
    """Train until the metric is 1."""
    reports = ReadFile(os.environ["WATTUNE_METRIC_FILE"])
    steps, time_s, energy_j = 0, 0.0, 0.0
    for epoch in range(1, 100):
        for step in range(STEPS, SAMPLES // size + 1, STEPS):
            before_s, before_j = node.now_s(), node.truth_j(0)
            node.run(0, STEPS)
            time_s, energy_j = time_s + node.now_s() - before_s, energy_j + node.truth_j(0) - before_j
            steps += STEPS
            reports.tell(json.dumps({"step": step}))
        node.advance(float(os.environ.get("PAUSE_S", "0")))
        metric = min(epoch / needed, 1.0) if needed else 0.1
        if metric == 1 and "TRUTH" in os.environ:
            with open(os.environ["TRUTH"], "a") as file:
                print(json.dumps({"steps": steps, "time_s": time_s, "energy_j": energy_j}), file=file)
        reports.tell(json.dumps({"metric": metric, "epoch": epoch}))
        if metric == 1:
            break


if __name__ == "__main__":
    main()
