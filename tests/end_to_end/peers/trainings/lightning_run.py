"""A small training with Lightning: python lightning_run.py FOLDER STEPS [MAX_SLOWDOWN]; two ranks where RANK is set.

Gradients are accumulated over two batches; it validates every 80 batches.
"""

from __future__ import annotations

import os
import sys

import lightning.pytorch as lightning
import torch
from lightning.pytorch.loggers import Logger
from tiny import BATCH, Samples, Tiny, leave
from torch.utils.data import DataLoader

from wattune.integrations.lightning import LightningEnergy


class Rows(Logger):
    """Stands for W&B, MLflow or TensorBoard."""

    name, version = "rows", "0"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    @lightning.utilities.rank_zero_only
    def log_metrics(self, metrics, step=None):
        self.rows.append({**metrics, "step": step})

    def log_hyperparams(self, params, *args, **kwargs):
        pass


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Tiny()

    def training_step(self, batch, place):
        loss = self.model(**batch)["loss"]
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, place):
        return self.model(**batch)["loss"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main(folder: str, steps: int, max_slowdown: float | None) -> None:
    logger, lines = Rows(), []
    energy = LightningEnergy(max_slowdown=max_slowdown, notify=lines.append)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_steps=steps,
        accumulate_grad_batches=2,
        val_check_interval=80,
        check_val_every_n_epoch=None,
        log_every_n_steps=20,
        logger=logger,
        callbacks=[energy],
        default_root_dir=folder,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = DataLoader(Samples(4 * BATCH * steps), batch_size=BATCH)
    trainer.fit(Module(), data, DataLoader(Samples(2 * BATCH), batch_size=BATCH))
    leave(
        rows=logger.rows,
        lines=lines,
        steps=energy.steps,
        energy_j=None if energy.cost is None else energy.cost.energy_j,
        windows=[] if energy.tuning is None else [window.purpose.value for window in energy.tuning.windows],
        disabled=None if energy.tuning is None else energy.tuning.disabled,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if sys.argv[3:] else None)
