"""A callback for the Trainer of Lightning: `Trainer(..., callbacks=[LightningEnergy(max_slowdown=0.05)])`.

A step is an optimizer step. Figures go to all loggers of the trainer every `log_every_n_steps`; validation counts as
neither steps nor their energy.
"""

from __future__ import annotations

import sys
from typing import Any

try:
    if "lightning" not in sys.modules and "pytorch_lightning" in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback
except ModuleNotFoundError as error:
    try:
        from pytorch_lightning import Callback
    except ModuleNotFoundError:
        raise ImportError("the callback of Lightning needs it: pip install 'wattune[lightning]'") from error

from wattune.integrations.training.energy import TrainingEnergy


class LightningEnergy(TrainingEnergy, Callback):
    """Measures a training run of Lightning, and tunes it where a slowdown limit or an objective is given.

    It takes the options of `TrainingEnergy`; `log` and `log_every` are for loggers that the trainer does not have.
    """

    _done = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._done = trainer.global_step
        self.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.resume()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count a step where the optimizer has stepped; manual optimization may do so several times in a batch.

        Loggers get the figures directly: what a module logs by `self.log` is repeated in later rows of its epoch.
        """
        if trainer.global_step == self._done:
            return
        self._done = trainer.global_step
        self.step()
        row = _row(trainer)
        if trainer.log_every_n_steps and (row + 1) % trainer.log_every_n_steps == 0:
            values = self.figures()
            for logger in trainer.loggers if values else ():
                self._sent(logger.log_metrics, values, row)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self.pause()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.pause()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.end(failed=True)


def _row(trainer: Any) -> int:
    """Return the number under which Lightning logs this step: that of batches before it whose optimizer stepped.

    `global_step` differs from it where several optimizers step in a batch.
    """
    return int(getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", trainer.global_step - 1))
