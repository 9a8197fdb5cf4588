"""The program that `wattune bench live` starts: a small PyTorch training of so many optimizer steps.

    LIVE_STEPS=600 python training.py --folder FOLDER [--by tuned|callback|zeus]

It writes the end of each step, in ns of the monotonic clock, into a file of its own in that folder: one number in
mapped memory, which costs a step nothing, passes through no code of wattune and survives a kill. Its steps follow
the simulated GPU as under `wattune simulate --follow`.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STEPS_VARIABLE = "LIVE_STEPS"
"""The number of steps: not an option, so that a sweep of few steps and what is held then are the same command."""
EPOCHS = 8
"""Each prints a metric, for recurring jobs; the last of them reaches 1."""

Begin = Callable[[], None]
"""Called before each step."""
End = Callable[[], None]
"""Called after each step."""


def main(arguments: list[str] | None = None) -> None:
    """Train."""
    asked, steps = _parser().parse_args(arguments), int(os.environ[STEPS_VARIABLE])
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(asked.seed)
    model = torch.nn.Sequential(torch.nn.Linear(32, asked.width), torch.nn.ReLU(), torch.nn.Linear(asked.width, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(32, 32), torch.randint(10, (32,))
    every = max(steps // EPOCHS, 1)
    with _stamps(asked.folder, steps) as stamps, _tuning(asked) as (begin, end):
        for step in range(1, steps + 1):
            begin()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            stamps[step] = time.monotonic_ns()
            stamps[0] = step
            end()
            if step % every == 0:
                print(f"accuracy: {step / (every * EPOCHS):.4f}", flush=True)


def _parser() -> argparse.ArgumentParser:
    this = argparse.ArgumentParser(description="Train a small network for wattune bench live.")
    this.add_argument("--folder", type=Path, required=True, help="for the ends of steps, and the claim of what tunes")
    this.add_argument(
        "--by", choices=("none", "tuned", "callback", "zeus"), default="none", help="tuned inside by this"
    )
    this.add_argument("--slowdown", type=float, default=0.05)
    this.add_argument("--zeus", help="folder of the packages of Zeus, where it is not installed here")
    this.add_argument("--width", type=int, default=64, help="of the network: the work of the host for a step")
    this.add_argument("--seed", type=int, default=0)
    return this


@contextmanager
def _stamps(folder: Path, steps: int) -> Iterator[memoryview]:
    """Map a file for the number of steps and the end of each."""
    size = 8 * (steps + 1)
    with (folder / f"{os.getpid()}.stamps").open("w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as memory, memoryview(memory) as octets, octets.cast("q") as stamps:
            yield stamps


@contextmanager
def _tuning(asked: argparse.Namespace) -> Iterator[tuple[Begin, End]]:
    """Tune inside the program, and write what the tuning says in the end."""
    if asked.by == "tuned":
        import wattune

        with wattune.open_gpu() as gpu, wattune.tuned(gpu, slowdown=asked.slowdown) as tuning:
            yield _nothing, tuning.step
        _write_claim(asked.folder, tuning.figures)
    elif asked.by == "callback":
        from wattune.integrations.training import TrainingEnergy

        with TrainingEnergy(max_slowdown=asked.slowdown) as energy:
            yield energy.resume, energy.step
        _write_claim(asked.folder, None if energy.tuning is None else energy.tuning.figures)
    elif asked.by == "zeus":
        yield _zeus(asked.zeus), _nothing
    else:
        yield _nothing, _nothing


def _nothing() -> None:
    """Leave a step alone."""


def _zeus(folder: str | None) -> Begin:
    """Start Zeus's optimizer of the power limit with its default settings."""
    import torch

    if folder:
        sys.path.append(folder)
    # Zeus waits for CUDA, which a simulated GPU does not have; each step has ended already when Zeus asks.
    torch.cuda.is_available = lambda: True
    torch.cuda.synchronize = lambda _=None: None
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(gpu_indices=[0], cpu_indices=[]))
    step: Begin = optimizer.on_step_begin
    return step


def _write_claim(folder: Path, figures: Any) -> None:
    """Write saving and slowdown with their errors, under the names that `wattune run --json` has."""
    found = {}
    for name in ("saving", "slowdown"):
        value = getattr(figures, name, None)
        found[f"{name}_percent"] = None if value is None else 100 * value.value
        error = None if value is None else value.error
        found[f"{name}_error_percent"] = None if error is None else 100 * error
    (folder / "claim.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
