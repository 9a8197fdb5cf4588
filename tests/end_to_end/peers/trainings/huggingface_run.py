"""A small training with the Trainer of Hugging Face: python huggingface_run.py FOLDER STEPS [MAX_SLOWDOWN].

Gradients are accumulated over two batches; it evaluates and saves every 40 steps.
"""

from __future__ import annotations

import sys

from tiny import BATCH, Samples, Tiny, leave
from transformers import Trainer, TrainerCallback, TrainingArguments

from wattune.integrations.huggingface import TrainerEnergy


class Logger(TrainerCallback):
    """Stands for W&B, MLflow or TensorBoard: the trainer puts such callbacks before those of its user."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_log(self, args, state, control, logs=None, **_):
        if state.is_world_process_zero:
            self.rows.append({**logs, "step": state.global_step})


def main(folder: str, steps: int, max_slowdown: float | None) -> None:
    logger, lines = Logger(), []
    energy = TrainerEnergy(max_slowdown=max_slowdown, notify=lines.append)
    arguments = TrainingArguments(
        f"{folder}/out",
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=2,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=40,
        save_steps=40,
        save_total_limit=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    data = Samples(4 * BATCH * steps)
    trainer = Trainer(
        Tiny(), arguments, train_dataset=data, eval_dataset=Samples(2 * BATCH), callbacks=[logger, energy]
    )
    trainer.train()
    leave(
        rows=logger.rows,
        history=trainer.state.log_history,
        lines=lines,
        steps=energy.steps,
        energy_j=None if energy.cost is None else energy.cost.energy_j,
        windows=[] if energy.tuning is None else [window.purpose.value for window in energy.tuning.windows],
        disabled=None if energy.tuning is None else energy.tuning.disabled,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if sys.argv[3:] else None)
