"""A callback for the Trainer of Hugging Face: `Trainer(..., callbacks=[TrainerEnergy(max_slowdown=0.05)])`.

A step is an optimizer step. Figures go into the logs that the trainer writes (`logging_steps`), and so to all its
loggers; evaluations and checkpoints count as neither steps nor their energy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

try:
    from transformers import TrainerCallback
    from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback
except ModuleNotFoundError as error:
    raise ImportError("the callback of the Trainer needs it: pip install 'wattune[huggingface]'") from error

from wattune.integrations.training.energy import TrainingEnergy


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
        self._come_before_loggers(sys._getframe(1).f_locals.get("self"))
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

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Add the figures to the first logs after the step that they are of."""
        if self._pending and logs is not None:
            logs.update(self._pending)
            state.log_history[-1].update(self._pending)
            self._pending = None

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.end()

    def _come_before_loggers(self, handler: Any) -> None:
        """Move before the loggers in the trainer's list of callbacks, behind the one that decides when to log.

        The trainer puts its loggers before the callbacks of its user, and passes the same logs to one after the other.
        It tells a callback nothing of the others, so that the caller of this callback has to be looked at.
        """
        if not isinstance(handler, CallbackHandler) or self not in handler.callbacks:
            self._say("the figures reach the trainer's history of logs, but not its loggers")
            return
        handler.callbacks.remove(self)
        flow = [isinstance(callback, DefaultFlowCallback) for callback in handler.callbacks]
        handler.callbacks.insert(flow.index(True) + 1 if True in flow else 0, self)
