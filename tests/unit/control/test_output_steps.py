"""Steps in the output of programs, by the forms that training programs print."""

import os

import pytest

from wattune.control.reports.output import ENOUGH, TAKES_OVER, OutputFollower, OutputSteps

BAR = " {percent:3d}%|{blocks:<10}| {step}/{total} [00:10<00:12,  4.50it/s, loss=0.5]"
LINES = {
    "tqdm": lambda step: BAR.format(percent=step // 2, blocks="█" * (step // 20), step=step, total=200),
    "Lightning": lambda step: "Epoch 0: " + BAR.format(percent=step // 2, blocks="█▌", step=step, total=200),
    "tqdm without a total": lambda step: f"{step}it [00:10,  4.50it/s]",
    "Megatron-LM": lambda step: (
        f" [2024-05-01 10:00:00] iteration {step:8d}/  500000 | consumed samples: {step * 64:12d} | "
        "elapsed time per iteration (ms): 1234.5 | learning rate: 1.0E-04 |"
    ),
    "DeepSpeed": lambda step: (
        f"[2024-05-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.0001]"
    ),
    "DeepSpeed engine": lambda step: f"steps: {step} loss: 3.1415 iter time (s): 0.512 samples/sec: 64.2",
    "Keras 3": lambda step: f"{step:3d}/200 ━━━━━━━━━━━━━━━━━━━━ 12s 34ms/step - accuracy: 0.9 - loss: 0.5",
    "Keras 2": lambda step: f"{step:3d}/200 [=====>........................] - ETA: 5s - loss: 0.5",
}


@pytest.mark.parametrize("form", LINES)
def test_numbered_steps_of_each_form_are_counted(form):
    steps = OutputSteps()
    assert sum(steps.read(LINES[form](step)) for step in range(1, 101)) == 100 - ENOUGH
    # Not every step is printed.
    assert steps.read(LINES[form](110)) == 10


def test_lines_of_the_hugging_face_trainer_are_counted():
    line = "{'loss': 2.31, 'grad_norm': 1.5, 'learning_rate': 4.9e-05, 'epoch': 0.02}"
    steps = OutputSteps()
    assert sum(steps.read(line) for _ in range(20)) == 20 - ENOUGH
    assert steps.read("{'eval_loss': 2.2, 'eval_runtime': 3.1, 'epoch': 1.0}") == 0


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3/10 done",
        "loss 0.5 at step 12",
        "45%|████▌     | 45.0M/100M [00:10<00:12, 4.50MB/s]",
        "tests/unit 10/20 [ok]",
        "",
    ],
)
def test_other_lines_are_not(line):
    steps = OutputSteps()
    assert [steps.read(line) for _ in range(50)] == [0] * 50
    assert steps.chosen is None


def test_of_nested_bars_the_inner_one_counts_in_every_epoch():
    steps, counted = OutputSteps(), 0
    for epoch in range(1, 4):
        counted += sum(steps.read(LINES["tqdm"](step)) for step in range(1, 101))
        counted += steps.read(BAR.format(percent=30, blocks="██", step=epoch, total=3))
    assert counted == 300 - ENOUGH


def test_training_replaces_what_prepared_its_data():
    steps = OutputSteps()
    for step in range(0, 1000, 10):
        steps.read(BAR.format(percent=50, blocks="█", step=step, total=1000))
    assert sum(steps.read(LINES["tqdm"](step)) for step in range(1, 101)) == 100 - TAKES_OVER


def test_a_file_is_read_beside_the_program(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"{LINES['tqdm'](step)}\r" for step in range(50)))
    with log.open("a") as out:
        follower = OutputFollower.beside((out.fileno(), out.fileno()))
        assert follower.take() is None  # that was an earlier program
        for step in range(1, 11):
            out.write(f"{LINES['tqdm'](step)}\r")
        out.flush()
        assert follower.take().count == 1  # when the first ones ended is unknown
        assert not follower.unit_changed
        assert follower.source == "tqdm"
        out.write(f"{LINES['tqdm'](25)}\r")
        out.flush()
        assert follower.take().count == 15
        out.truncate(0)
        out.write("\n".join(LINES["tqdm"](step) for step in range(26, 30)) + "\n")
        out.flush()
        assert follower.take().count == 4
        follower.close()


def test_pipes_and_terminals_are_left_alone():
    read, write = os.pipe()
    assert OutputFollower.beside((write, 987654)) is None
    os.close(read)
    os.close(write)
