"""Trials of partitions: how long they last, what comes out, and how a stopped run continues."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

import torch

from overlap_samples import LateTransport, sample_input, whole_blocks
from wattune.core.errors import DeviceError, InputError, SettingRefused
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.workload import Workload
from wattune.devices.simulated import SimulatedGpu
from wattune.integrations.overlap import Activations, OverlapExecutor
from wattune.integrations.overlap.measuring import measure_partition
from wattune.integrations.overlap.repeating import (
    RepeatedPartitions,
    SimulatedPartitions,
    SimulatedPasses,
    WholePasses,
)
from wattune.integrations.overlap.trial_session import TrialSession
from wattune.integrations.overlap.trial_windows import TrialRule, TrialWindow, is_cool, next_repeats, result_of
from wattune.levels.overlap.search import PartitionSpace, RandomSearch, search
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.trial_file import PassChoice
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload

RULE = TrialRule()
PARTITIONS = ("fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn")


def simulated(activations=Activations.RECOMPUTE):
    """Return partitions of a small model, and the simulated GPU that they are measured on."""
    gpu = SimulatedGpu(load_model("a100"))
    executor = OverlapExecutor(whole_blocks(2), {"tp": LateTransport()}, activations=activations)
    work = Workload(name="partition", phases=make_workload("resnet50").phases[:1])
    return SimulatedPartitions(RepeatedPartitions(executor, [sample_input(4)]), gpu, lambda *_: work), gpu


@pytest.mark.parametrize("activations", [Activations.SAVE, Activations.RECOMPUTE])
@pytest.mark.parametrize("partition", [*PARTITIONS, "fwd_attn_ar"])
@pytest.mark.parametrize("launch", ["norm_0", "linear_0", "none"])
def test_a_partition_is_repeated_with_its_collective_and_finite_values(activations, partition, launch):
    transport, log = LateTransport(), []
    executor = OverlapExecutor(whole_blocks(2), {"tp": transport}, activations=activations, record=log.append)
    repeat = RepeatedPartitions(executor, [sample_input(4)]).prepare(partition, PartitionChoice(1410, 5, launch))
    log.clear()
    transport.started.clear()
    repeat(3)
    assert transport.started == [("all_reduce", 5)] * 3
    once = log[: len(log) // 3]
    assert log == 3 * once
    assert {launch.partition for launch in once} == {partition.removesuffix("_ar")}
    (place,) = (place for place, launch in enumerate(once) if launch.name == "all_reduce")
    assert place == {"norm_0": 0, "none": len(once) - 1}.get(launch, place)
    assert len({launch.nanobatch for launch in once}) == 2


def test_an_unknown_partition_is_refused():
    executor = OverlapExecutor(whole_blocks(1), {"tp": LateTransport()})
    with pytest.raises(InputError, match="no partition 'fwd_moe'"):
        RepeatedPartitions(executor, [sample_input(2)]).prepare("fwd_moe", PartitionChoice(1410, 5, "none"))


def test_repeating_leaves_no_gradients_behind():
    blocks = whole_blocks(1)
    executor = OverlapExecutor(blocks, {"tp": LateTransport()})
    RepeatedPartitions(executor, [sample_input(2)]).prepare("bwd_mlp", PartitionChoice(1410, 5, "none"))(2)
    assert all(weight.grad is None for weight in blocks[0].parameters())


def pass_choice(instruction, activations, *, split):
    names = PARTITIONS if activations is Activations.RECOMPUTE else PARTITIONS[2:]
    names = PARTITIONS[:2] if instruction == "forward" else names
    return PassChoice(instruction, 1410, dict.fromkeys(names, "linear_0-none-9-1024") if split else {})


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("activations", [Activations.SAVE, Activations.RECOMPUTE])
@pytest.mark.parametrize(("instruction", "collectives"), [("forward", 4), ("backward", 4)])
def test_whole_passes_are_repeated_as_they_run_in_a_step(instruction, collectives, activations, split):
    transport, log = LateTransport(), []
    blocks = whole_blocks(2)
    executor = OverlapExecutor(blocks, {"tp": transport}, activations=activations, record=log.append)
    passes = WholePasses(executor, [sample_input(4)])
    choice = pass_choice(instruction, activations, split=split)
    repeat = passes.prepare(choice)
    repeat(1)
    transport.started.clear()
    log.clear()
    repeat(3)
    again = 2 if instruction == "backward" and activations is Activations.RECOMPUTE else 0
    assert len(transport.started) == 3 * (2 if split else 1) * (collectives + again)
    assert (("all_reduce", 9) in transport.started) == split
    assert {launch.nanobatch for launch in log} == ({0, 1} if split else {0})
    assert log == 3 * log[: len(log) // 3]
    assert all(weight.grad is None for block in blocks for weight in block.parameters())


def test_the_gradients_of_a_repeated_backward_pass_are_those_of_a_step():
    blocks = whole_blocks(2)
    executor = OverlapExecutor(blocks, {"tp": LateTransport()}, activations=Activations.RECOMPUTE)
    started = []
    start = executor.start
    executor.start = lambda *what, **how: started.append(start(*what, **how)) or started[-1]
    WholePasses(executor, [sample_input(4)]).prepare(pass_choice("backward", Activations.RECOMPUTE, split=True))(3)
    executor.start = start
    executor(sample_input(4)).sum().backward()
    for block in blocks:
        for weight in block.parameters():
            torch.testing.assert_close(started[0].parameter_gradients[id(weight)], weight.grad)


def test_an_unknown_pass_is_refused():
    passes = WholePasses(OverlapExecutor(whole_blocks(1), {"tp": LateTransport()}), [sample_input(4)])
    with pytest.raises(InputError, match="no pass 'fwd_attn'"):
        passes.prepare(PassChoice("fwd_attn", 1410, {}))


def test_a_session_measures_passes_once_and_without_them_refuses(tmp_path):
    partitions, gpu = simulated()
    work = Workload(name="pass", phases=make_workload("resnet50").phases[:1])
    executor = OverlapExecutor(whole_blocks(2), {"tp": LateTransport()}, activations=Activations.RECOMPUTE)
    passes = SimulatedPasses(WholePasses(executor, [sample_input(4)]), gpu, lambda *_: work)
    choice = pass_choice("backward", Activations.RECOMPUTE, split=True)
    found = []
    for _ in range(2):
        with session_of(partitions, gpu, file=tmp_path / "t.jsonl", passes=passes) as session:
            found.append(session.measure_pass(choice))
            session.measure(*CHOICES[0])
    assert found[0] == found[1]
    assert (found[0].layers, found[0].recompute, found[0].simulated) == (2, True, True)
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 1 + 2
    with pytest.raises(InputError, match="no whole passes"), session_of(partitions, gpu) as session:
        session.measure_pass(choice)


def test_one_process_at_a_time_measures_into_a_file(tmp_path):
    partitions, gpu = simulated()
    with (
        session_of(partitions, gpu, file=tmp_path / "t.jsonl"),
        pytest.raises(InputError, match="another process measures"),
        session_of(partitions, gpu, file=tmp_path / "t.jsonl"),
    ):
        pass


def test_a_search_measures_by_a_session():
    partitions, gpu = simulated()
    choices = tuple(PartitionChoice(clock, 6, "none") for clock in (1410, 1005))
    space = PartitionSpace(choices, np.array([[choice.sm_mhz] for choice in choices], dtype=float), ("sm_mhz",))
    with TrialSession(partitions, gpu, layout="tiny", nanobatches=2) as session:
        history = search(space, RandomSearch(seed=1), partial(session.measure, "fwd_mlp"), budget=9)
    assert {trial.choice for trial in history} == set(choices)
    assert session.history("fwd_mlp") == history


def test_a_trial_is_exact_on_a_simulated_gpu():
    partitions, gpu = simulated()
    trial = measure_partition(partitions, "fwd_mlp", PartitionChoice(1110, 6, "linear_0"), gpu)
    assert trial.simulated
    assert gpu.setting.sm_mhz == 1110
    before_j, before_s = gpu.truth_j, gpu.count().time_s
    partitions.prepare("fwd_mlp", trial.choice)(trial.repeats)
    truth = Measurement(gpu.count().time_s - before_s, gpu.truth_j - before_j) / trial.repeats
    assert trial.cost.time_s == pytest.approx(truth.time_s, rel=0.01)
    assert trial.cost.energy_j == pytest.approx(truth.energy_j, rel=0.03)
    assert trial.window_s <= 2 * RULE.most_windows_s


def test_a_lower_clock_takes_longer_and_spends_less():
    partitions, gpu = simulated()
    fast, slow = (
        measure_partition(partitions, "bwd_attn", PartitionChoice(clock, 6, "none"), gpu).cost for clock in (1410, 1005)
    )
    assert fast.time_s < slow.time_s
    assert fast.energy_j > slow.energy_j


def test_later_trials_wait_until_the_gpu_is_as_cool_as_before_the_first():
    partitions, gpu = simulated()
    choice, rule = PartitionChoice(1410, 6, "none"), TrialRule(most_cooling_s=200.0)
    gpu.run(make_workload("resnet50"), iterations=50)
    first = measure_partition(partitions, "fwd_mlp", choice, gpu, rule=rule)
    gpu.run(make_workload("resnet50"), iterations=200)
    hot_c = gpu.read().temperature_c
    later = measure_partition(partitions, "fwd_mlp", choice, gpu, start_c=first.start_c, rule=rule)
    assert first.start_c + rule.tolerance_c < hot_c
    assert later.cooling_s > first.cooling_s
    assert later.start_c <= first.start_c + rule.tolerance_c
    assert later.end_c > later.start_c


CHOICES = [(name, PartitionChoice(clock, 6, "none")) for name in PARTITIONS for clock in (1410, 1005)]


def session_of(partitions, gpu, **options):
    return TrialSession(partitions, gpu, **{"layout": "tiny tp1", "nanobatches": 2} | options)


def test_a_run_that_was_stopped_continues_where_it_was(tmp_path):
    file, progress = tmp_path / "trials.jsonl", []
    partitions, gpu = simulated()
    with session_of(partitions, gpu, file=file) as session:
        costs = [session.measure(*choice) for choice in CHOICES[:3]]
    assert gpu.setting == DRIVER_DEFAULT
    with file.open("a") as stream:
        stream.write('{"partition": "fwd_ml')  # killed while it wrote
    with session_of(partitions, gpu, file=file, progress=progress.append) as session:
        assert [trial.cost for trial in session.history("fwd_attn")] == costs[:2]
        again = [session.measure(*choice) for choice in CHOICES]
    assert again[:3] == costs
    assert [trial.key for trial in session.trials] == CHOICES
    assert [trial.key for trial in progress] == CHOICES[3:]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["simulated"]
    assert len(lines) == 1 + len(CHOICES)
    with (
        pytest.raises(InputError, match="its layout is tiny tp1, and now"),
        session_of(partitions, gpu, file=file, layout="another"),
    ):
        pass


class TwoRanks:
    """Ranks of which the other one does the same as this one, or fails."""

    size = 2

    def __init__(self, *, rank=1, fails=False, texts=()):
        self.rank, self.heard = rank, []
        self._fails, self._texts = fails, list(texts)

    def broadcast(self, text):
        self.heard.append(text)
        return text if self.rank == 0 else self._texts.pop(0)

    def sum_and_max(self, values):
        failed = (1.0 if self._fails else values[0], *values[1:])
        return tuple(2 * value for value in failed), failed


def test_what_fails_on_another_rank_is_an_error_here():
    partitions, gpu = simulated()
    ranks = TwoRanks(rank=0, fails=True)
    with (
        pytest.raises(DeviceError, match="failed on another rank"),
        session_of(partitions, gpu, ranks=ranks) as session,
    ):
        session.measure(*CHOICES[0])
    assert len(ranks.heard) == 1  # the others have left already


def test_other_ranks_learn_how_the_search_ends():
    partitions, gpu = simulated()
    leading = TwoRanks(rank=0)
    with session_of(partitions, gpu, ranks=leading) as session:
        session.measure(*CHOICES[0])
    with session_of(partitions, gpu, ranks=TwoRanks(texts=leading.heard)) as session:
        session.serve()
    failing = TwoRanks(rank=0)
    with pytest.raises(ZeroDivisionError), session_of(partitions, gpu, ranks=failing):
        raise ZeroDivisionError("the search is broken")
    with (
        pytest.raises(DeviceError, match="the search is broken"),
        session_of(partitions, gpu, ranks=TwoRanks(texts=failing.heard)) as session,
    ):
        session.serve()


def test_a_refused_clock_is_an_error_after_the_other_ranks_learned_of_it():
    partitions, gpu = simulated()
    exchanged = []

    class Listening(TwoRanks):
        def sum_and_max(self, values):
            exchanged.append(values[0])
            return super().sum_and_max(values)

    with pytest.raises(SettingRefused):
        measure_partition(partitions, "fwd_mlp", PartitionChoice(1411, 6, "none"), gpu, ranks=Listening())
    assert exchanged == [1.0]


def window(repeats, time_s, power_w, error=0.001):
    return TrialWindow(repeats, Measurement(time_s, power_w * time_s, None, error * power_w * time_s))


def test_windows_grow_until_they_are_long_and_exact():
    assert next_repeats((), RULE) == 1
    assert next_repeats((window(1, 0.001, 200),), RULE) == 8
    assert next_repeats((window(100, 0.25, 200),), RULE) == 200
    assert next_repeats((window(100, 0.5, 200, error=0.03),), RULE) == 300


def test_a_trial_ends_when_power_is_steady_and_leaves_out_what_was_not():
    drifting = (window(100, 0.5, 180), window(100, 0.5, 190))
    assert result_of(drifting, RULE) is None
    result = result_of((*drifting, window(100, 0.5, 191)), RULE)
    assert result.repeats == 200
    assert result.cost.power_w == pytest.approx(190.5)
    endless = tuple(window(100, 1.0, 100 * 1.05**place) for place in range(10))
    assert result_of(endless, RULE).repeats == 100


def test_cooling_ends_at_the_first_start_or_where_it_would_take_too_long():
    assert is_cool((40.0,), RULE, start_c=39.0)
    assert not is_cool((45.0,), RULE, start_c=39.0)
    assert not is_cool((45.0, 44.0, 43.0), RULE, start_c=39.0)
    assert is_cool((45.0, 44.9, 44.8), RULE, start_c=39.0)
    assert is_cool((45.0, 45.0, 45.1), RULE, start_c=39.0)
    assert is_cool(tuple(60.0 - place for place in range(40)), RULE, start_c=10.0)


def test_the_first_trial_starts_when_the_gpu_no_longer_cools_down():
    assert not is_cool((45.0, 44.0), RULE, start_c=None)
    assert not is_cool((45.0, 44.0, 43.0), RULE, start_c=None)
    assert is_cool((43.2, 43.1, 43.0), RULE, start_c=None)
