"""A callback for the Trainer of Hugging Face: `Trainer(..., callbacks=[TrainerEnergy(max_slowdown=0.05)])`.

A step is an optimizer step. Figures go into the logs that the trainer writes (`logging_steps`), and so to all its
loggers; evaluations and checkpoints count as neither steps nor their energy.

A callback gets the logs only after the loggers, which the trainer calls first, and has no way to reach the trainer.
`Trainer.log` is the method that transformers documents for changing logs: the first training wraps it, so that it adds
the figures of the callbacks of its own trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any

try:
    from transformers import Trainer, TrainerCallback
except ModuleNotFoundError as error:
    raise ImportError("the callback of the Trainer needs it: pip install 'wattune[huggingface]'") from error

from wattune.integrations.training.energy import TrainingEnergy

_MARK = "adds_wattune_figures"


class TrainerEnergy(TrainingEnergy, TrainerCallback):
    """Measures a training run of the Trainer, and tunes it where a slowdown limit or an objective is given.

    It takes the options of `TrainingEnergy`; `log` and `log_every` are for loggers that the trainer does not have.
    """

    _pending: Mapping[str, float] | None = None
    """Figures that wait for the logs of their step; None where there are none."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._pending = None
        if not self._devices and not self._gpus and args.n_gpu > 1:
            self._devices = ("nvml",)  # one process that trains on all GPUs (DataParallel)
        _wrap_log()
        self.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.step()
        if control.should_log:
            self._pending = self.figures()
        if control.should_evaluate or control.should_save:
            self.pause()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.pause()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.end()

    def add_to(self, logs: dict[str, Any]) -> None:
        """Add the figures to the first logs after the step that they are of."""
        pending, self._pending = self._pending, None
        logs.update(pending or {})


def _wrap_log() -> None:
    """Let `Trainer.log` add the figures of our callbacks, from now on; more calls change nothing."""
    original = Trainer.log
    if hasattr(original, _MARK):
        return

    @wraps(original)
    def log(trainer: Any, logs: dict[str, Any], *rest: Any, **named: Any) -> None:
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, TrainerEnergy):
                callback.add_to(logs)
        original(trainer, logs, *rest, **named)

    setattr(log, _MARK, True)
    Trainer.log = log
