"""What holds for every stepped GPU and every partition, whatever their numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepped_gpu import Command, Machine, play
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import catalog_names, load_model
from wattune.physics.overlap import Communication, Partition, partition_cost
from wattune.physics.spend import tabulate

models = st.sampled_from([load_model(name) for name in catalog_names()])
phases = st.builds(
    Phase,
    name=st.just("phase"),
    flops=st.floats(1e9, 1e13),
    pipe=st.sampled_from(Pipe),
    dram_bytes=st.floats(1e6, 1e11),
    launches=st.floats(1, 100),
    host_stall_s=st.just(0.0) | st.floats(1e-4, 0.1),
)
loads = st.lists(phases, min_size=1, max_size=4).map(lambda some: Workload(name="load", phases=tuple(some)))


@settings(deadline=None, max_examples=40)
@given(models, loads, st.data())
def test_a_stepped_gpu_conserves_energy_and_never_exceeds_its_lock(model, load, data) -> None:
    commands = tuple(
        Command(time_s, Setting(sm_mhz=data.draw(st.sampled_from(model.clocks[0].sm_mhz))))
        for time_s in data.draw(st.lists(st.floats(0.0, 3.0), max_size=3, unique=True))
    )
    played = play(Machine.of(model, load), 4.0, commands=commands)
    assert played.start_s[-1] == pytest.approx(4.0)
    assert np.all(np.diff(played.energy_j) > 0)
    assert played.energy_at(played.start_s) == pytest.approx(played.energy_j, rel=1e-6)
    assert np.all(played.temperature_c >= model.thermal.ambient_c)
    if commands:
        last = max(commands, key=lambda command: command.time_s)
        assert np.all(played.sm_mhz[played.start_s[:-1] >= last.time_s + 1e-9] <= last.setting.sm_mhz)


@settings(deadline=None, max_examples=30)
@given(models, loads)
def test_a_settled_gpu_keeps_its_limit_on_the_average(model, load) -> None:
    machine = Machine.of(model, load)
    lowest_w = float(machine.tables[0].mean_power_w[0])
    settled_w = play(machine, 20.0).after(10.0)
    assert settled_w <= max(model.default_limit_w * 1.05, lowest_w * 1.01)


@settings(deadline=None)
@given(
    models,
    st.lists(phases, min_size=1, max_size=4),
    st.floats(1e5, 1e9),
    st.integers(1, 20),
    st.none() | st.floats(0, 1),
)
def test_overlap_lies_between_the_longer_and_the_contended_sum(model, compute, sent, comm_sms, launch) -> None:
    communication = Communication.all_reduce(sent, gpus=2)

    def cost(at):
        return partition_cost(
            model, Partition(compute=tuple(compute), communication=communication, comm_sms=comm_sms, launch=at)
        )

    alone_s = tabulate(model, Workload(name="alone", phases=tuple(compute)))[0].iteration_s
    sequential, overlapped = cost(None), cost(launch)
    comm_s = sequential.exposed_s
    assert np.all(overlapped.time_s >= np.maximum(alone_s, comm_s) * (1 - 1e-9))
    # Beside each other, nothing takes longer than on half of the memory and on the SMs that are left.
    slowest = 1.03 * max(2.0, 1.0 / (1.0 - comm_sms / model.sms))
    assert np.all(overlapped.time_s <= sequential.time_s * slowest)
    assert np.all(overlapped.exposed_s <= comm_s * (1 + 1e-9))
    assert np.all(overlapped.energy_j > 0)
