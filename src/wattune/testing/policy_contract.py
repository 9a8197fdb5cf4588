"""The tests that every policy for running programs must pass. Subclass `PolicyContract` and give it a method `make`:

    class TestMyPolicy(PolicyContract):
        def make(self):
            return MyPolicy(LeastEnergy(slowdown=0.05))

They play the policy on made-up windows and under the shipped loop on a simulated GPU, in virtual time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from wattune.control.state import Disabled
from wattune.core.gpu_spec import SM_CLOCK, GpuSpec, limited_to, without
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.window import Order, Window
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.run.own_policy import OwnPolicy, Policy, order_problem
from wattune.levels.run.session import RunSession
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload

WINDOWS = 12
PLAYED_S = 300.0
_COMPUTE, _STATIC_W, _DYNAMIC_W = 0.6, 100.0, 200.0
"""Share of a step that follows the clock, and the power of the made-up program."""


def window_of(order: Order, spec: GpuSpec, start_s: float, *, timed: bool = True) -> Window:
    """Return the window that an order may lead to: a program whose steps follow the core clock in part."""
    top_mhz = max(spec.sm_clocks_mhz, default=1000)
    share = (order.setting.sm_mhz or top_mhz) / top_mhz
    step_s, power_w = 0.1 * (_COMPUTE / share + 1 - _COMPUTE), _STATIC_W + _DYNAMIC_W * share**2
    if order.setting.power_limit_w is not None:
        power_w = min(power_w, order.setting.power_limit_w)
    return Window(
        setting=order.setting,
        purpose=order.purpose,
        start_s=start_s,
        cost=Measurement(order.most_s, power_w * order.most_s, None, 1.0),
        settling=Measurement(0.5, 0.5 * power_w),
        step_time_s=step_s if timed else None,
        step_time_error_s=0.002 * step_s if timed else None,
        source="steps" if timed else None,
        sm_mhz=float(order.setting.sm_mhz or top_mhz),
        sm_util=0.9,
        mem_util=0.4,
    )


class PolicyContract:
    """The tests. A subclass defines `make`, which returns a new policy each time."""

    def make(self) -> Policy:
        """Return a new policy for at most 5 % more time."""
        raise NotImplementedError("define make, which returns a new policy")

    @pytest.fixture
    def spec(self) -> GpuSpec:
        """Return the GPU of the made-up windows."""
        return load_model("a100").spec()

    def orders(self, spec: GpuSpec, *, timed: bool = True, changed_at: int | None = None) -> list[Order]:
        """Return the orders of a new policy over some windows, checked one by one."""
        policy, orders, now_s = self.make(), list[Order](), 0.0
        windows: tuple[Window, ...] = ()
        for place in range(WINDOWS):
            order = policy.step(windows, spec)
            assert order_problem(order) is None
            for setting in order.settings:
                spec.check(setting)
            orders.append(order)
            window = window_of(order, spec, now_s, timed=timed)
            windows, now_s = (*windows, replace(window, changed=place == changed_at)), now_s + window.total.time_s
        return orders

    def test_every_order_can_be_carried_out(self, spec: GpuSpec) -> None:
        assert self.orders(spec)

    def test_the_same_windows_lead_to_the_same_order(self, spec: GpuSpec) -> None:
        assert self.orders(spec) == self.orders(spec)
        policy = self.make()
        assert policy.step((), spec) == policy.step((), spec)

    def test_it_answers_without_step_times(self, spec: GpuSpec) -> None:
        assert self.orders(spec, timed=False)

    def test_it_answers_after_the_program_changed(self, spec: GpuSpec) -> None:
        assert self.orders(spec, changed_at=4)

    def test_it_answers_where_only_core_clocks_can_be_set(self, spec: GpuSpec) -> None:
        assert self.orders(limited_to(spec, frozenset({SM_CLOCK})))

    def test_it_does_not_insist_on_a_refused_setting(self, spec: GpuSpec) -> None:
        left = spec
        for order in self.orders(spec):
            if order.setting.sm_mhz is not None and len(left.sm_clocks_mhz) > 2:
                left = without(left, order.setting)
        assert self.orders(left)

    def test_a_whole_program_is_tuned_and_the_gpu_restored(self) -> None:
        time = VirtualTime()
        gpu = SimulatedGpu(load_model("a100"), time=time)
        gpu.play(make_workload("resnet50"))
        session = RunSession((gpu,), objective=LeastEnergy(0.05), policy=OwnPolicy.of(self.make(), "contract"))
        with session:
            while time.now_s() < PLAYED_S:
                time.wait(session.loop.wait_s)
                session.loop.tick()
        assert not isinstance(session.progress.state, Disabled), session.progress.state
        assert session.progress.windows
        assert gpu.setting == DRIVER_DEFAULT
