"""A GPU to test on, its emulated counterpart, and what differs between the two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattune.core.errors import DeviceError, NoDriver
from wattune.devices.gpu import Gpu
from wattune.devices.open import Surroundings, expand, open_gpu
from wattune.emulator.node import NODE_VARIABLE
from wattune.physics.catalog import catalog_names, load_model

PROBE = (
    "import json; from wattune.devices.nvml.probe import probe;"
    "print(json.dumps({answer.function: [answer.outcome, answer.microseconds] for answer in probe(0)}))"
)
_differences: list[str] = []


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Surroundings]:
    """The first GPU by name, and the folder of its journal; skip without a driver."""
    around = Surroundings(tmp_path_factory.mktemp("state"), os.environ.get("CUDA_VISIBLE_DEVICES"))
    try:
        return expand(("nvml",), around)[0], around
    except NoDriver:
        pytest.skip("no NVIDIA driver is installed")
    except DeviceError as error:
        pytest.skip(error.message)


@pytest.fixture
def gpu(device: tuple[str, Surroundings]) -> Iterator[Gpu]:
    """The GPU, restored at the end of each test."""
    with open_gpu(*device) as opened:
        yield opened


@pytest.fixture
def differs() -> list[str]:
    """Lines about what differs from the emulated library; printed at the end."""
    return _differences


@pytest.fixture(scope="session")
def emulated_answers(device: tuple[str, Surroundings], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list]:
    """What every reader answers on an emulated GPU of the same model, or of an A100."""
    with open_gpu(*device) as opened:
        name = opened.spec.name.removesuffix(" (simulated)")
    model = next((key for key in catalog_names() if load_model(key).name == name), "a100")
    environment = {"WATTUNE_CACHE": str(tmp_path_factory.mktemp("emulated")), **os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    environment.pop(NODE_VARIABLE, None)
    command = [sys.executable, "-m", "wattune", "simulate", "--gpu", model, "--", sys.executable, "-c", PROBE]
    done = subprocess.run(command, env=environment, cwd=Path.cwd(), capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what differs."""
    if _differences:
        terminalreporter.section("what differs from the emulated library")
        for line in _differences:
            terminalreporter.write_line(line)
