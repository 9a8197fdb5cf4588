"""Whatever a program shows, the published rules ask for what the part has, and ask the same when asked again."""

from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits
from wattune.core.measurement import Measurement
from wattune.core.window import Window
from wattune.levels.run.gpoeo.models import FEATURES
from wattune.levels.run.gpoeo.policy import GpoeoPolicy, untaught
from wattune.physics.catalog import load_model
from wattune_bench.run import odpp
from wattune_bench.run.mf_gpoeo import MfGpoeoPolicy
from wattune_bench.run.odpp import OdppPolicy
from wattune_bench.run.zeus_limit import ZeusLimitPolicy

RULES = (
    GpoeoPolicy(learn=untaught),
    GpoeoPolicy(0.0, learn=untaught),
    OdppPolicy(learn=odpp.untaught),
    MfGpoeoPolicy(),
    ZeusLimitPolicy(),
)


def part(*clocks, limits=None, mem=False):
    return GpuSpec(name="Odd", uuid="GPU-odd", clocks=clocks, power_limits=limits, can_lock_mem=mem)


SPECS = (
    load_model("3080ti").spec(),
    load_model("a100").spec(),
    part(ClockTable(None, (1000,))),
    part(ClockTable(None, (700, 1400)), limits=PowerLimits(100, 110, 110)),
    part(ClockTable(9000, (300, 900, 1500)), ClockTable(5000, (300, 900)), ClockTable(800, (300,)), mem=True),
)

share = st.floats(0, 1)
maybe = st.one_of(st.none(), share)
seen = st.fixed_dictionaries(
    {
        "step_time_s": st.one_of(st.none(), st.floats(1e-3, 100)),
        "power_w": st.floats(0, 600),
        "sm_util": maybe,
        "mem_util": maybe,
        "sm_mhz": st.one_of(st.none(), st.floats(100, 3000)),
        "features": st.one_of(st.just({}), st.fixed_dictionaries(dict.fromkeys(FEATURES, share))),
    }
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@settings(max_examples=60, deadline=None)
@given(spec=st.sampled_from(SPECS), shown=st.lists(seen, min_size=1, max_size=40))
def test_orders_can_be_carried_out_whatever_was_seen(rule, spec, shown):
    windows = []
    now_s = 0.0
    for window in shown:
        order = rule.step(tuple(windows), spec)
        assert order == rule.step(tuple(windows), spec)
        spec.check(order.setting)
        assert 0 < order.least_s <= order.most_s < 1e4
        assert order.settle_s is None or isfinite(order.settle_s)
        power_w = window["power_w"]
        values = {name: value for name, value in window.items() if name != "power_w"}
        windows.append(
            Window(
                setting=order.setting,
                purpose=order.purpose,
                start_s=now_s,
                cost=Measurement(order.least_s, order.least_s * power_w),
                settling=Measurement(0.0, 0.0),
                **values,
            )
        )
        now_s += order.least_s
