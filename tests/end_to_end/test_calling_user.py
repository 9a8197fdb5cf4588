"""Under sudo, programs run as the user who called it; the variables of sudo stand for sudo itself here."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest

from command import Command
from emulated import MakeNode

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as another user")

SIM = ("--device", "sim:a100")
JOB = ("--batch-sizes", "8", "--default", "8", "--target", "0.9", "--metric-pattern", r"metric (\S+)")
IDENTITY = ("--", "sh", "-c", 'id -u; id -g; id -G; echo "$HOME $USER $LOGNAME $SHELL $KEY"; echo metric 0.9')
CALLED = "the program runs as nobody, who called sudo, with the environment that sudo kept (`sudo -E` keeps all of it)"


@pytest.fixture
def command(tmp_path: Path) -> Command:
    for folder in (tmp_path, *tmp_path.parents[:3]):  # the folders of pytest are of root alone
        if folder.stat().st_uid == 0 and folder != Path("/tmp"):
            folder.chmod(0o755)
    made = Command(tmp_path)
    nobody = pwd.getpwnam("nobody")
    made.environment |= {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid), "SUDO_USER": "nobody"}
    return made


def identity_of_nobody() -> str:
    user = pwd.getpwnam("nobody")
    groups = " ".join(map(str, os.getgrouplist("nobody", user.pw_gid)))
    return f"{user.pw_uid}\n{user.pw_gid}\n{groups}\n{user.pw_dir} nobody nobody {user.pw_shell} secret\nmetric 0.9\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", *SIM),
        ("run", *SIM, "--step-pattern", "metric"),
        ("measure", *SIM),
        ("hold", *SIM, "900MHz"),
        ("job", "run", "nightly", *SIM, *JOB),
    ],
)
def test_a_program_runs_as_the_user_who_called_sudo(command: Command, arguments: tuple[str, ...]) -> None:
    done = command(*arguments, *IDENTITY, KEY="secret")
    assert (done.returncode, done.stdout) == (0, identity_of_nobody())
    assert done.stderr.count(CALLED) == 1
    assert "--as-root runs it as root" in done.stderr
    own = command(arguments[0], *(["run"] if arguments[0] == "job" else []), "--as-root", *_rest(arguments), *IDENTITY)
    assert own.stdout.startswith("0\n0\n")
    assert "the program runs as root; without --as-root it runs as nobody, who called sudo" in own.stderr


def _rest(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return arguments[2:] if arguments[0] == "job" else arguments[1:]


def test_a_sweep_runs_its_program_as_that_user_too(command: Command) -> None:
    line = command.line("sweep", "--setting", "900MHz", "--", "sh", "-c", "id -u")
    done = command("simulate", "--", *line)
    assert done.stderr.count(f"{pwd.getpwnam('nobody').pw_uid}\n") >= 2
    assert done.stderr.count(CALLED) == 1


def test_nothing_is_said_where_nobody_called_sudo(command: Command) -> None:
    for variables in ({"SUDO_UID": ""}, {"SUDO_UID": "0"}, {"SUDO_UID": "-3"}, {"SUDO_UID": "9" * 30}):
        done = command("measure", *SIM, "--", "id", "-u", **variables)
        assert (done.stdout, "sudo" in done.stderr) == ("0\n", False)
    done = command("measure", *SIM, "--", "sh", "-c", "id -u; id -G; echo $USER", SUDO_UID="54321", SUDO_GID="54322")
    assert done.stdout == "54321\n54322\nnobody\n"  # a user without an entry keeps the name that sudo gives


def test_a_program_that_the_user_may_not_run_is_one_line(command: Command) -> None:
    hidden = command.folder / "hidden"
    hidden.write_text("#!/bin/sh\n")
    hidden.chmod(0o700)
    done = command("run", *SIM, "--", str(hidden))
    assert done.returncode == 1
    assert f"error: cannot run '{hidden}': Permission denied\nhint: may nobody run it? --as-root" in done.stderr


STEPS = """
import sys, time
sys.path.insert(0, {folder!r})
from tqdm.std import tqdm
for _ in tqdm(range(40)):
    time.sleep(0.1)
"""
BAR = """
class tqdm:
    def __init__(self, items): self.items = items
    def update(self, n=1): pass
    def __iter__(self): yield from self.items
"""


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="another user needs a Python of the system")
def test_the_steps_of_that_user_are_counted(command: Command, emulated_node: MakeNode) -> None:
    node = emulated_node("a100", clock="wall")
    command.environment |= {"WATTUNE_NODE": str(node.path), "LD_LIBRARY_PATH": str(node.library.parent)}
    (command.folder / "tqdm").mkdir()
    (command.folder / "tqdm" / "__init__.py").touch()
    (command.folder / "tqdm" / "std.py").write_text(BAR)
    program = ("--", "/usr/bin/python3", "-c", STEPS.format(folder=str(command.folder)))
    done = command("run", "--json", "--device", "nvml:0", *program)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step_source"] == "hook"
