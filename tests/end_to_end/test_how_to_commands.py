"""The commands of the README, the tutorial and the how-to guides, as they are written there.

Every command is parsed. Those that need no program of the reader's own are run, against two emulated GPUs, beside a
small `train.py`; `sudo` and `sleep` are shortened by programs of the same name.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from command import Command
from wattune.cli.main import wattune as group

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/how-to").glob("*.md")),
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
]
BLOCK = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)

TRAINER = """
import sys, time
print("learning rate and batch size:", sys.argv[1:], flush=True)
for step in range(20):
    time.sleep(0.02)
    print(f"step {step}", flush=True)
print("accuracy: 0.80", flush=True)
"""
NOT_RUN = {
    "…": "is shortened",
    " ...": "is shortened",
    "torchrun": "several ranks have tests of their own",
    "job forget": "asks first",
    "attach": "names a process of the reader's",
    "train.py:make": "needs PyTorch",
    "--table layers.csv": "needs a table of the reader's own layers",
    "wattune bench": "takes minutes",
    "switch-latency": "measures for half a minute",
    "kernels ": "searches for half a minute; its example is run by a golden test",
}


AS_ROOT = 'sudo env "PATH=$PATH" '
"""What keeps the reader's virtual environment under sudo; without it a command is not found."""


def commands(page: Path) -> list[str]:
    """Return the commands of wattune on a page, continued lines joined and remarks left out."""
    text = "".join(BLOCK.findall(page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if re.match(rf"({re.escape(AS_ROOT)})?wattune (?!took )", line)]


def why_not(line: str) -> str | None:
    return next((why for part, why in NOT_RUN.items() if part in line), None)


COMMANDS = [pytest.param(line, id=f"{page.stem}-{n}") for page in PAGES for n, line in enumerate(commands(page))]
RUN = [
    pytest.param(page, [line for line in commands(page) if why_not(line) is None], id=page.stem)
    for page in PAGES
    if any(why_not(line) is None for line in commands(page))
]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_has_the_options_that_are_written(line: str) -> None:
    own = line.removeprefix(AS_ROOT)
    words = [word for word in shlex.split(own, comments=True) if word not in ("…", "...")]
    command: click.Command = group
    context, rest = click.Context(group, info_name="wattune"), words[1:]
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.parse_args(context, rest)


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("page", "lines"), RUN)
def test_a_page_can_be_followed(page: Path, lines: list[str], tmp_path: Path) -> None:
    wattune, folder = Command(tmp_path), tmp_path
    programs = folder / "programs"
    programs.mkdir()
    shims = {"sudo": 'exec "$@"', "sleep": f"exec {shutil.which('sleep')} 0.5", "python": f'exec {sys.executable} "$@"'}
    shims["wattune"] = f'exec {sys.executable} -m wattune "$@"'
    for name, line in shims.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    (folder / "train.py").write_text(TRAINER)
    shutil.copy(ROOT / "examples/own_policy.py", folder)
    example = [sys.executable, str(ROOT / "examples/stage_profile.py")]
    profile = subprocess.run(example, check=True, capture_output=True, timeout=60).stdout
    for name in ("stage_profile.csv", "new_profile.csv", "stages.csv"):
        (folder / name).write_bytes(profile)
    script = "\n".join(["set -e", f'PATH="{programs}:$PATH"', *lines])
    done = wattune("simulate", "--gpu", "a100", "--count", "2", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stdout + done.stderr
