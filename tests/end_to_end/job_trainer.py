"""A training program for `wattune job run`, in the virtual time of an emulated GPU.

`job_trainer.py SIZE=EPOCHS,SIZE=EPOCHS,…` trains ResNet-50 with the batch size of its environment and reaches a metric
of 1 after so many epochs; 0 epochs stands for never. It reports its steps and metrics over HTTP, so that each is
answered before time goes on, and ends when an answer says stop. `START_S` and `PAUSE_S` are how long it prepares, and
pauses after each epoch; into the file `TRUTH` it appends what its steps took and spent.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

from wattune.emulator.node import Node
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

SAMPLES = 6400
STEPS = 10
"""Iterations between two calls."""


def post(variable, document):
    """The answer to a document that was posted."""
    with urllib.request.urlopen(os.environ[variable], data=json.dumps(document).encode()) as reply:
        return json.load(reply)


def main():
    size = int(os.environ["WATTUNE_BATCH_SIZE"])
    needed = dict(tuple(map(int, pair.split("="))) for pair in sys.argv[1].split(","))[size]
    load = tabulate(load_model("a40"), make_workload("resnet50", batch_size=size))
    with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
        node.play(0, load)
        node.advance(float(os.environ.get("START_S", "0")))
        steps, time_s, energy_j = 0, 0.0, 0.0
        for epoch in range(1, 100):
            for step in range(STEPS, SAMPLES // size + 1, STEPS):
                before_s, before_j = node.now_s(), node.truth_j(0)
                node.run(0, STEPS)
                time_s, energy_j = time_s + node.now_s() - before_s, energy_j + node.truth_j(0) - before_j
                steps += STEPS
                post("WATTUNE_STEP_URL", {"step": step})
            node.advance(float(os.environ.get("PAUSE_S", "0")))
            metric = min(epoch / needed, 1.0) if needed else 0.1
            if post("WATTUNE_METRIC_URL", {"metric": metric, "epoch": epoch})["stop"]:
                break
        node.idle(0)
        if "TRUTH" in os.environ:
            with open(os.environ["TRUTH"], "a") as file:
                print(json.dumps({"steps": steps, "time_s": time_s, "energy_j": energy_j}), file=file)


if __name__ == "__main__":
    main()
