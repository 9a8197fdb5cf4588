"""Steps in the output of programs, by the forms that training programs print."""

import contextlib
import os
import pty
import subprocess
import sys

import pytest

from wattune.process.injected.wattune_hook import MOST_TEXT, RECORD_HEAD
from wattune.process.output import PrintedLines
from wattune.process.printed_steps import ENOUGH, TAKES_OVER, OutputFollower, OutputSteps
from wattune.process.step_file import StepFile

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
        follower = OutputFollower(PrintedLines.beside((out.fileno(), out.fileno())))
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


def test_other_descriptors_than_files_are_left_alone():
    read, write = os.pipe()
    assert OutputFollower(PrintedLines.beside((write, 987654))).take() is None
    os.close(read)
    os.close(write)


PRINTS = r"""
import os, sys
for step in range(1, 41):
    sys.stderr.write(f"\r\x1b[32m{step:3}%|\u2588\u258f  | {step}/100 [00:10<00:12,  4.50it/s]\x1b[0m")
print("terminals:", sys.stdout.isatty(), sys.stderr.isatty())
"""
BARS = "".join(f"\r\x1b[32m{step:3}%|█▏  | {step}/100 [00:10<00:12,  4.50it/s]\x1b[0m" for step in range(1, 41))


def start_printing(tmp_path, file, source=PRINTS, **streams):
    script = tmp_path / "prints.py"
    script.write_text(source)
    environment = file.environment({**os.environ, "PYTHONIOENCODING": "utf-8"})
    return subprocess.Popen([sys.executable, str(script)], env=environment, **streams)


def counted(follower):
    """Return how many steps were shown after the first ones."""
    steps = follower.take()
    assert steps is not None
    assert follower.source == "tqdm"
    return follower._steps[follower._process.pid]._count.steps


def test_what_python_prints_to_a_pipe_is_copied(tmp_path):
    with StepFile.made() as file:
        pipe = subprocess.PIPE
        out, err = start_printing(tmp_path, file, stdout=pipe, stderr=pipe).communicate(timeout=60)
        assert out == b"terminals: False False\n"
        assert err.decode() == BARS
        assert counted(OutputFollower(PrintedLines((), file))) == 39  # the end of the last one is not known
        assert file.failure is None


def test_what_python_prints_to_a_terminal_is_copied(tmp_path):
    ours, theirs = pty.openpty()
    with StepFile.made() as file:
        process = start_printing(tmp_path, file, stdout=theirs, stderr=theirs)
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # EIO at the end
            while data := os.read(ours, 1 << 16):
                seen += data
        assert process.wait(60) == 0
        assert seen.decode() == BARS + "terminals: True True\r\n"
        assert counted(OutputFollower(PrintedLines((), file))) == 39
    os.close(ours)


def test_text_that_is_copied_is_not_counted_again_in_its_file(tmp_path):
    with StepFile.made() as file, (tmp_path / "log").open("w") as log:
        follower = OutputFollower(PrintedLines.beside((log.fileno(),), file))
        assert start_printing(tmp_path, file, stdout=log, stderr=log).wait(60) == 0
        assert follower.take().count == 1
        assert follower.take() is None
        follower.close()


def printed(file):
    """Return what each stream of a file has by now, as one text, and check that times do not go back."""
    found = []
    for text in file.texts():
        writes = file.writes_since(0, text)
        assert [one.time_s for one in writes] == sorted(one.time_s for one in writes)
        found.append(b"".join(one.data for one in writes))
    return found


@pytest.mark.parametrize("length", [10, 1000, 5000])
def test_writes_are_copied_with_their_times_and_lost_where_they_are_overwritten(tmp_path, length):
    source = f"import sys\nfor place in range(400):\n  sys.stdout.write(f'{{place}} ' + 'x' * {length} + '\\n')"
    with StepFile.made() as file:
        reader = PrintedLines((), file)
        assert start_printing(tmp_path, file, source, stdout=subprocess.DEVNULL).wait(60) == 0
        (text,) = file.texts()
        assert file.writes_since(text.written, text) == ()
        lines = [line for found in reader.new().values() for line in found]
        whole = [f"{place} {'x' * length}" for place in range(400)]
        assert [line.text for line in lines] == (whole if length == 10 else [])
        (one,) = file.writes_since(text.written - RECORD_HEAD - min(length + 5, MOST_TEXT), text)
        assert one.data == f"399 {'x' * length}\n".encode()[-MOST_TEXT:]


def test_forked_processes_print_into_texts_of_their_own(tmp_path):
    source = "import os\nprint('one', flush=True)\nif not os.fork(): print('two', flush=True)\nelse: os.wait()"
    with StepFile.made() as file:
        assert start_printing(tmp_path, file, source, stdout=subprocess.DEVNULL).wait(60) == 0
        assert printed(file) == [b"one\n", b"two\n"]


def test_threads_that_print_at_once_and_a_signal_handler_that_prints_do_no_harm(tmp_path):
    source = """
import signal, sys, threading
left = list(range(300))  # more would overwrite the ring
signal.signal(signal.SIGALRM, lambda *_: left and left.pop() and sys.stdout.write("handled\\n"))
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
sys.setswitchinterval(1e-6)
def many(name):
    for _ in range(200):
        sys.stdout.write(name * 20 + "\\n")
threads = [threading.Thread(target=many, args=(name,)) for name in "ab"]
[one.start() for one in threads]
[one.join() for one in threads]
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    with StepFile.made() as file:
        assert start_printing(tmp_path, file, source, stdout=subprocess.DEVNULL).wait(60) == 0
        assert file.failure is None
        (text,) = printed(file)
        lines = text.decode().split("\n")
        assert {"a" * 20, "b" * 20} <= set(lines) <= {"a" * 20, "b" * 20, "handled", ""}


def test_one_of_several_ranks_is_followed(tmp_path):
    source = "import os\nfor _ in range(3): os.fork()\n" + PRINTS
    with StepFile.made() as file:
        follower = OutputFollower(PrintedLines((), file))
        out = subprocess.PIPE
        start_printing(tmp_path, file, source, stdout=out, stderr=out).communicate(timeout=60)
        assert len(file.texts()) == 16
        assert follower.take().count == 1
        assert follower.take() is None


def test_streams_that_cannot_be_copied_leave_the_program_alone(tmp_path):
    source = "import os\nos.unlink(os.environ['WATTUNE_STEP_FILE'].rsplit(':', 2)[0])\nprint('printed')"
    with StepFile.made() as file:
        out, _ = start_printing(tmp_path, file, source, stdout=subprocess.PIPE).communicate(timeout=60)
        assert out == b"printed\n"
