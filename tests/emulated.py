"""Fixtures for tests that use the emulated NVML library.

def test_something(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu, "v100")         # virtual time; used by NVML in this process
    node.play(0, plain_load(gpu))
    node.advance(1.0)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from processes import shared_folder
from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits, Sensors
from wattune.emulator.emulated_gpu import GENERATIONS, EmulatedGpu
from wattune.emulator.library import build_library
from wattune.emulator.node import Node, Privilege, emulated
from wattune.physics.catalog import load_model
from wattune.physics.gpu_parts import Thermal
from wattune.physics.load_table import LoadTable

MakeNode = Callable[..., Node]


@pytest.fixture(scope="session")
def emulated_library() -> Path:
    """Compile the library once for all test processes of this source."""
    return build_library(shared_folder())


@pytest.fixture
def emulated_node(emulated_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeNode]:
    """Return a function that makes a node, which NVML in this process uses until the test ends."""
    # Nodes of tests that run at the same time have GPUs of the same UUID.
    monkeypatch.setenv("WATTUNE_LOCKS", str(tmp_path / "locks"))
    with contextlib.ExitStack() as stack:

        def make(*gpus: str | EmulatedGpu, clock: str = "virtual", privilege: Privilege = Privilege.GRANTED) -> Node:
            models = [EmulatedGpu.of(load_model(gpu), n) if isinstance(gpu, str) else gpu for n, gpu in enumerate(gpus)]
            path = tmp_path / f"node{len(list(tmp_path.iterdir()))}"
            node = Node.create(path, models, library=emulated_library, clock=clock, privilege=privilege)  # type: ignore[arg-type]
            return stack.enter_context(emulated(stack.enter_context(node)))

        yield make
        _shut_nvml_down()


def _shut_nvml_down() -> None:
    """Shut NVML down as often as it was initialised, for tests that did not."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        for _ in range(100):
            pynvml.nvmlShutdown()


def plain_gpu(
    *, sm_mhz: tuple[int, ...] = (500, 1000, 1500), counter_period_s: float | None = None, index: int = 0
) -> EmulatedGpu:
    """Make a GPU with round numbers and ideal sensors: 20 W without a context, 40, 50, 60 W with one."""
    clocks = (ClockTable(1000, sm_mhz),)
    return EmulatedGpu(
        spec=GpuSpec(
            name="Plain",
            uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
            clocks=clocks,
            power_limits=PowerLimits(100.0, 300.0, 300.0),
            can_lock_mem=True,
            simulated=True,
            architecture="Volta",
            sensors=Sensors(counter_period_s, 0.1, 0.1),
        ),
        idle_w=20.0,
        context_idle_w=(tuple(40.0 + 10.0 * n for n in range(len(sm_mhz))),),
        thermal=Thermal(25.0, 0.1, 10.0),
        memory_bytes=16 << 30,
        cores=5120,
        generation=GENERATIONS["volta"],
        noise_w=0.0,
        serial=f"{index + 1}",
    )


def plain_load(
    gpu: EmulatedGpu,
    *,
    duration_s: tuple[float, ...] = (0.2, 0.1),
    power_w: tuple[float, ...] = (250.0, 80.0),
) -> tuple[LoadTable, ...]:
    """Make a load with these durations and powers at the highest clock, in proportion to the clock below it."""
    return tuple(_plain_table(table, duration_s, power_w) for table in gpu.spec.clocks)


def _plain_table(clocks: ClockTable, duration_s: tuple[float, ...], power_w: tuple[float, ...]) -> LoadTable:
    share = np.array(clocks.sm_mhz, dtype=np.float64) / clocks.sm_mhz[-1]
    return LoadTable(
        name="plain",
        mem_mhz=clocks.mem_mhz,
        sm_mhz=clocks.sm_mhz,
        duration_s=np.outer(duration_s, 1 / share),
        power_w=np.outer(power_w, share),
        sm_util=np.array([1.0, *([0.5] * (len(duration_s) - 1))]),
        mem_util=np.full((len(duration_s), len(share)), 0.25),
    )
