"""Running other people's programs under `wattune simulate`, in their own environment and off the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peer_environment
import pytest
from played import WORKLOAD

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[2] / "src"
# A variable of the user's that would point a client at other GPUs, another node or another configuration.
UNWANTED = ("CUDA_VISIBLE_DEVICES", "WATTUNE_NODE", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "SLURM_JOB_ID")


@dataclass(frozen=True)
class Outcome:
    """What came back from a program, and whom it asked for on the network."""

    code: int
    stdout: str
    stderr: str
    called_out: tuple[str, ...]

    def json(self) -> Any:
        """What a client of ours printed: one JSON document on its last line."""
        assert self.code == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Peers:
    """Runs programs of the peers' environment under `wattune simulate`, at home in a folder of the test's own."""

    environment: dict[str, str]
    bin: Path
    home: Path

    def simulate(self, *options: str, command: tuple[str, ...]) -> Outcome:
        """What came back from a command under `wattune simulate` with these options."""
        done = subprocess.run(
            self.command_line(*options, command=command),
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        notes = Path(self.environment["PEERS_CALLED_OUT"])
        called_out = tuple(notes.read_text().splitlines()) if notes.exists() else ()
        return Outcome(done.returncode, done.stdout, done.stderr, called_out)

    def command_line(self, *options: str, command: tuple[str, ...]) -> list[str]:
        """The words of the whole command; the search path of the peers is for the peers alone."""
        path = os.pathsep.join(str(folder) for folder in (HERE / "standins" / "offline", SOURCE))
        start = [sys.executable, "-m", "wattune", "simulate", "--workload", WORKLOAD, *options, "--"]
        # Bytecode is kept in the peers' own folder, whatever the user wants of his: compiling zeus again takes seconds.
        bytecode = f"PYTHONPYCACHEPREFIX={self.bin.parent / 'bytecode'}"
        return [*start, "env", f"PYTHONPATH={path}", "PYTHONDONTWRITEBYTECODE=", bytecode, *command]

    def client(self, name: str, *arguments: str) -> tuple[str, ...]:
        """The command that runs one of the scripts in clients/."""
        return (str(self.bin / "python"), str(HERE / "clients" / f"{name}.py"), *arguments)

    def tool(self, name: str, *arguments: str) -> tuple[str, ...]:
        """The command that runs a program of the environment."""
        return (str(self.bin / name), *arguments)


@pytest.fixture(scope="session")
def peers_folder() -> Path:
    """The environment of the peers, made where it is missing."""
    return peer_environment.ensure()


@pytest.fixture
def peers(peers_folder: Path, emulated_library: Path, tmp_path: Path) -> Peers:
    """A runner of programs whose home, cache, state and configuration lie in the test's own folder."""
    return _peers_at(tmp_path, peers_folder, emulated_library)


@pytest.fixture(scope="module")
def peers_for_module(peers_folder: Path, emulated_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Peers:
    """The same for what several tests of a module read."""
    return _peers_at(tmp_path_factory.mktemp("peers"), peers_folder, emulated_library)


def _peers_at(home: Path, folder: Path, library: Path) -> Peers:
    kept = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    environment = {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TMPDIR": str(home),
        "PEERS_CALLED_OUT": str(home / "called-out.txt"),
        "WATTUNE_CACHE": str(library.parent.parent),
        "WATTUNE_STATE": str(home / "state"),
        "WATTUNE_LOCKS": str(home / "state"),
        "WATTUNE_STORE": str(home / "store.db"),
        "WATTUNE_CONFIG": str(home / "none.toml"),
        "LC_ALL": "C.UTF-8",
    }
    return Peers(environment, folder / "bin", home)
