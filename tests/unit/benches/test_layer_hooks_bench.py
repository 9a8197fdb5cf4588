"""The bench of hooks: two networks in turns, the same bits, and figures from the pairs of steps."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from wattune.core.setting import Setting
from wattune.integrations.torch.layers import overhead
from wattune.integrations.torch.layers.overhead import HookedStep, NetworkSize, TimedStep
from wattune_bench.layers import hooks


def pair(plain_s, hooked_s, *, identical=True):
    return HookedStep(
        plain=TimedStep(plain_s, plain_s / 2), hooked=TimedStep(hooked_s, hooked_s / 2), identical=identical
    )


def test_figures_are_medians_of_pairs():
    found = hooks._figures([pair(1.0, 1.01), pair(2.0, 2.06), pair(1.0, 1.02), pair(1.0, 1.02, identical=False)])
    assert found["step_overhead"] == found["core_overhead"] == pytest.approx(0.02)
    assert found["identical"] == 0.75
    assert [goal.met for goal in hooks._goals(found)] == [False, False, False]


@pytest.mark.parametrize(
    ("overhead", "error", "met"), [(0.005, 0.001, True), (0.02, 0.015, None), (0.02, 0.005, False)]
)
def test_a_busy_machine_leaves_the_overhead_undecided(overhead, error, met):
    assert hooks._overhead_goal("overhead", overhead, error).met is met


def test_the_bench_trains_with_and_without_hooks(monkeypatch):
    monkeypatch.setattr(overhead, "NetworkSize", partial(NetworkSize, width=4, batch_size=2, pixels=8))
    monkeypatch.setattr(overhead, "BLOCK", 2)
    done = []
    bench = hooks.bench_hooks(steps=3, on_step=done.append)
    (row,) = bench.rows
    assert done == [1, 2, 3]
    assert row["identical"] == 1.0
    assert row["layers"] == 119
    assert bench.goals[-1].met


def test_the_silent_gpu_takes_everything_and_keeps_time():
    from wattune.physics.catalog import load_model

    gpu = hooks.SilentGpu(load_model("a4000").spec())
    gpu.apply(Setting(900))
    gpu.restore()
    assert gpu.read().time_s <= gpu.count().time_s
