"""Programs that need PyTorch, as processes forked from one that has imported it: the import takes seconds of CPU time.

def test_something(start_torch, tmp_path):
    process = start_torch(SCRIPT, "argument", output=tmp_path / "output", environment={"NAME": "value"})
    assert process.wait() == 0, (tmp_path / "output").read_text()
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from multiprocessing import forkserver
from pathlib import Path
from unittest.mock import patch

import pytest

_context = multiprocessing.get_context("forkserver")


class TorchProcess:
    """A script that runs in a process of its own."""

    def __init__(self, script: Path, arguments: tuple[str, ...], output: Path, environment: Mapping[str, str]) -> None:
        arguments = (str(script), *arguments)
        self._process = _context.Process(target=_run, args=(arguments, str(output), dict(environment)))
        self._process.start()

    def poll(self) -> int | None:
        """Return the exit code, negative after a signal, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.poll()

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.pid is not None and self.poll() is None:
            os.kill(self._process.pid, number)


class StartTorch:
    """Starts scripts, and kills those that a test leaves behind."""

    def __init__(self, library: Path) -> None:
        self._library, self._running = library, []

    def __call__(
        self, script: Path, *arguments: str, output: Path, environment: Mapping[str, str] | None = None
    ) -> TorchProcess:
        # The loader reads the path of libraries once, when the server starts.
        with patch.dict(os.environ, LD_LIBRARY_PATH=str(self._library.parent)):
            self._running.append(TorchProcess(script, arguments, output, environment or {}))
        return self._running[-1]

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def _torch_server() -> Iterator[None]:
    _context.set_forkserver_preload(["torch.distributed.pipelining", "torch.nn.parallel", "wattune.api"])
    yield
    forkserver._forkserver._stop()


@pytest.fixture(scope="module")
def start_torch(_torch_server: None, emulated_library: Path) -> Iterator[StartTorch]:
    """Return a function that starts scripts with PyTorch and the emulated NVML library."""
    starter = StartTorch(emulated_library)
    yield starter
    starter.close()


def _run(arguments: tuple[str, ...], output: str, environment: dict[str, str]) -> None:
    with open(output, "wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.update({"GLOO_SOCKET_IFNAME": "lo", **environment})
    warnings.simplefilter("ignore")
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).parent))
    runpy.run_path(arguments[0], run_name="__main__")
