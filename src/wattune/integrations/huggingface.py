"""A callback for the Trainer of Hugging Face: `Trainer(..., callbacks=[TrainerEnergy(max_slowdown=0.05)])`.

A step is an optimizer step. Figures go into the logs that the trainer writes (`logging_steps`), and so to all its
loggers; evaluations and checkpoints count as neither steps nor their energy.

A callback gets the logs only after the loggers, which the trainer calls first, and learns nothing of an exception.
`Trainer.log` is the method that transformers documents for changing logs, and `Trainer.train` the one that raises: this
module wraps both, for the callbacks of their own trainer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import wraps
from typing import Any

try:
    from transformers import Trainer, TrainerCallback
except ModuleNotFoundError as error:
    raise ImportError("the callback of the Trainer needs it: pip install 'wattune[huggingface]'") from error

from wattune.integrations.training.energy import TrainingEnergy

_MARK = "adds_wattune_figures"
"""An attribute of what is wrapped already, as by an import of this module again."""


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


def _callbacks(trainer: Any) -> Iterator[TrainerEnergy]:
    return (one for one in trainer.callback_handler.callbacks if isinstance(one, TrainerEnergy))


def _wrap_trainer() -> None:
    """Let `Trainer.log` add the figures of our callbacks, and an exception in `Trainer.train` end them; once."""
    log, train = Trainer.log, Trainer.train
    if hasattr(log, _MARK):
        return

    @wraps(log)
    def log_with_figures(trainer: Any, logs: dict[str, Any], *rest: Any, **named: Any) -> None:
        for callback in _callbacks(trainer):
            callback.add_to(logs)
        log(trainer, logs, *rest, **named)

    @wraps(train)
    def train_to_the_end(trainer: Any, *rest: Any, **named: Any) -> Any:
        try:
            return train(trainer, *rest, **named)
        except BaseException:
            for callback in _callbacks(trainer):
                callback.end(failed=True)
            raise

    setattr(log_with_figures, _MARK, True)
    Trainer.log, Trainer.train = log_with_figures, train_to_the_end


_wrap_trainer()
