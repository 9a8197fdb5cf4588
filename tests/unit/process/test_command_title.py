"""What heads a page is the command, not the place of its interpreter."""

import pytest

from wattune.process.python_command import command_title


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("/home/me/.venv/bin/python3.11 train.py --epochs 3", "python train.py --epochs 3"),
        ("python3 train.py", "python train.py"),
        ("pypy3.10 train.py", "pypy train.py"),
        ("/usr/local/bin/torchrun --nproc-per-node 2 train.py", "torchrun --nproc-per-node 2 train.py"),
        ("/usr/bin/python", "python"),
        ("pythonic.sh data/python3 x", "pythonic.sh data/python3 x"),
        ("./run.sh 'a b'", "./run.sh 'a b'"),
        ("'/opt/my tools/python' train.py", "'/opt/my tools/python' train.py"),
        ("PID 4711", "PID 4711"),
        ("", ""),
    ],
)
def test_a_title_has_no_place_of_an_interpreter(command, title):
    assert command_title(command) == title
