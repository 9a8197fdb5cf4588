"""A small training loop with Accelerate: python plain_run.py FOLDER STEPS [MAX_SLOWDOWN [held]].

There are two ranks where RANK is set. Gradients are accumulated over two batches. With `held` it ends once a setting
was held and measured, at the latest after STEPS.
"""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process
from tiny import BATCH, Samples, Tiny, leave
from torch.utils.data import DataLoader

from wattune.core.window import Purpose
from wattune.integrations.training import TrainingEnergy


class Rows(GeneralTracker):
    """Stands for W&B, MLflow or TensorBoard."""

    name, requires_logging_directory = "rows", False

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    @property
    def tracker(self) -> list[dict[str, float]]:
        return self.rows

    @on_main_process
    def store_init_configuration(self, values):
        pass

    @on_main_process
    def log(self, values, step=None, **_):
        self.rows.append({**values, "step": step})


def is_held(energy: TrainingEnergy) -> bool:
    return energy.tuning is not None and any(window.purpose is Purpose.HOLD for window in energy.tuning.windows)


def main(folder: str, steps: int, max_slowdown: float | None, *, until_held: bool) -> None:
    rows, lines = Rows(), []
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, log_with=rows)
    accelerator.init_trackers("tiny")
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = DataLoader(Samples(4 * BATCH * steps), batch_size=BATCH)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    log = accelerator.log if accelerator.is_main_process else None  # as some programs do
    with TrainingEnergy(max_slowdown=max_slowdown, log=log, log_every=20, notify=lines.append) as energy:
        for batch in batches:
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                energy.step()
                if energy.steps % 20 == 0:
                    accelerator.log({"loss": loss.item()}, step=energy.steps)
            if energy.steps == steps or (until_held and energy.steps % 20 == 0 and is_held(energy)):
                break
    leave(
        rows=rows.rows,
        lines=lines,
        steps=energy.steps,
        energy_j=None if energy.cost is None else energy.cost.energy_j,
        windows=[] if energy.tuning is None else [window.purpose.value for window in energy.tuning.windows],
        disabled=None if energy.tuning is None else energy.tuning.disabled,
        held_mhz=None if energy.tuning is None or energy.tuning.held is None else energy.tuning.held.sm_mhz,
    )
    accelerator.end_training()


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        float(sys.argv[3]) if sys.argv[3:] else None,
        until_held=sys.argv[4:] == ["held"],
    )
