"""Setting, Measurement, Objective, Plan, WorkGraph, GpuSpec, Trace: small values and their rules."""

import contextlib
import pickle
from math import hypot, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core import errors
from wattune.core.codec import to_json
from wattune.core.errors import Infeasible, InputError, NotSupported, PlanError, SettingRefused
from wattune.core.frontier import Trial
from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits, nearest
from wattune.core.measurement import Measurement
from wattune.core.objective import Deadline, EnergyDelay, LeastCarbon, LeastCost, LeastEnergy, LeastMoney, PowerBudget
from wattune.core.reading import Count, Reading, Throttle, Trace
from wattune.core.setting import DRIVER_DEFAULT, Setting, parse_setting
from wattune.core.workload import Phase, Workload
from wattune.plans.plan import Operation, WorkGraph

settings = st.builds(
    Setting,
    st.none() | st.integers(1, 3000),
    st.none() | st.integers(1, 12000),
    st.none() | st.floats(1, 1000),
)
positive = st.floats(0, 1e6)
measurements = st.builds(Measurement, positive, positive, st.none() | positive, st.none() | positive)

A100 = GpuSpec(
    name="NVIDIA A100",
    uuid="GPU-1",
    clocks=(ClockTable(1215, tuple(range(210, 1411, 15))),),
    power_limits=PowerLimits(100, 400, 400),
    simulated=True,
)


@given(st.lists(settings))
def test_settings_sort_and_driver_default_is_last(unordered):
    ordered = sorted([*unordered, DRIVER_DEFAULT])
    assert ordered[-1] == DRIVER_DEFAULT
    keys = [setting.sm_mhz if setting.sm_mhz is not None else inf for setting in ordered]
    assert keys == sorted(keys)


@given(settings)
def test_a_setting_names_the_knobs_it_fixes(setting):
    assert len(setting.knobs) == 3 - [setting.sm_mhz, setting.mem_mhz, setting.power_limit_w].count(None)
    assert (str(setting) == "driver default") == (setting == DRIVER_DEFAULT)


whole_settings = st.builds(
    Setting,
    st.none() | st.integers(1, 3000),
    st.none() | st.integers(1, 12000),
    st.none() | st.integers(1, 2000).map(float) | st.integers(1000, 999_999).map(lambda mw: mw / 1000),
)


@given(whole_settings)
def test_a_setting_is_parsed_from_both_of_its_forms(setting):
    assert parse_setting(setting.argument) == setting
    assert parse_setting(str(setting)) == setting
    assert " " not in setting.argument


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("1200MHz", Setting(sm_mhz=1200)),
        ("1200 mhz", Setting(sm_mhz=1200)),
        ("250W", Setting(power_limit_w=250.0)),
        ("1200MHz,mem=7001MHz,250.5W", Setting(1200, 7001, 250.5)),
        ("mem=810MHz", Setting(mem_mhz=810)),
        ("Default", DRIVER_DEFAULT),
    ],
)
def test_settings_are_parsed_from_text(text, setting):
    assert parse_setting(text) == setting


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1200", "1200 has no unit"),
        ("", "is no setting"),
        ("fast", "'fast' is no setting"),
        ("1200MHz,", "is no setting"),
        ("1200MHz,900MHz", "sets the core clock twice"),
        ("mem=250W", "clocks are in MHz"),
        ("1200.5MHz", "whole MHz"),
        ("-5W", "is no setting"),
        ("nanW", "is no setting"),
    ],
)
def test_a_text_that_is_no_setting_gets_a_hint(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_setting(text)
    assert caught.value.hint


@given(st.text())
def test_any_text_is_a_setting_or_refused(text):
    with contextlib.suppress(InputError):
        assert isinstance(parse_setting(text), Setting)


@given(measurements, measurements)
def test_measurements_add_up_in_either_order(one, other):
    total = one + other
    assert total == other + one
    assert total.time_s == one.time_s + other.time_s
    if one.energy_error_j is None or other.energy_error_j is None:
        assert total.energy_error_j is None
    else:
        assert total.energy_error_j == pytest.approx(hypot(one.energy_error_j, other.energy_error_j))


@given(measurements, st.integers(1, 1000))
def test_n_equal_parts_make_the_whole(whole, n):
    part = whole / n
    assert part.time_s * n == pytest.approx(whole.time_s)
    assert part.energy_j * n == pytest.approx(whole.energy_j)


@given(st.lists(measurements, min_size=1, max_size=8))
def test_together_is_longest_time_and_summed_energy(parts):
    together = Measurement.together(parts)
    assert together.time_s == max(part.time_s for part in parts)
    assert together.energy_j == pytest.approx(sum(part.energy_j for part in parts))


@pytest.mark.parametrize("bad", [(-1, 0), (0, -1), (float("nan"), 1), (1, inf)])
def test_impossible_measurements_are_refused(bad):
    with pytest.raises(ValueError, match="finite and not negative"):
        Measurement(*bad)


def test_measurement_between_two_counts_needs_both_counters():
    assert Measurement.between(Count(1, 10), Count(3, 50)) == Measurement(2, 40)
    with pytest.raises(ValueError, match="without an energy counter"):
        Measurement.between(Reading(time_s=1), Reading(time_s=2))
    with pytest.raises(ValueError, match="at least one"):
        Measurement.together([])
    with pytest.raises(ValueError, match="divide"):
        _ = Measurement(1, 1) / 0
    assert Measurement(0, 0).power_w == 0


HISTORY = tuple(
    Trial(name, Measurement(*cost))
    for name, cost in {"fast": (1.0, 100.0), "mild": (1.04, 80.0), "slow": (1.2, 70.0), "worst": (1.3, 120.0)}.items()
)


@pytest.mark.parametrize(
    ("objective", "best"),
    [
        (LeastEnergy(0.05), "mild"),
        (LeastEnergy(0), "fast"),
        (LeastEnergy(0.5), "slow"),
        (Deadline(1.1), "mild"),
        (LeastCost(1, 100), "slow"),
        (LeastCost(0, 100), "fast"),
        (LeastMoney(0.3, 0), "slow"),
        (LeastMoney(0.3, 100), "fast"),
        (LeastCarbon(400), "slow"),
        (LeastCarbon(400, 1e6), "fast"),
        (EnergyDelay(0), "slow"),
        (EnergyDelay(20), "fast"),
        (PowerBudget(80), "mild"),
    ],
)
def test_objectives_choose(objective, best):
    assert objective.choose(HISTORY).choice == best


def test_the_reference_is_what_slowdown_is_measured_from():
    assert LeastEnergy(0.05).choose(HISTORY, reference=Measurement(1.15, 0)).choice == "slow"


@pytest.mark.parametrize("objective", [Deadline(0.5), PowerBudget(1)])
def test_an_objective_that_cannot_be_met_is_infeasible(objective):
    with pytest.raises(Infeasible) as caught:
        objective.choose(HISTORY)
    assert caught.value.hint
    with pytest.raises(Infeasible, match="no trials to choose"):
        objective.choose(())


@pytest.mark.parametrize("make", [lambda: LeastEnergy(-0.1), lambda: LeastCost(2, 1), lambda: Deadline(float("nan"))])
def test_invalid_objectives_are_refused(make):
    with pytest.raises(ValueError, match="not"):
        make()


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 8))
    before = tuple(tuple(sorted(draw(st.sets(st.integers(0, i - 1))))) if i else () for i in range(size))
    return WorkGraph(tuple(Operation(f"op{i}", "kind") for i in range(size)), before)


@given(graphs(), st.data())
def test_makespan_is_the_longest_path(graph, data):
    size = len(graph.operations)
    durations = tuple(data.draw(st.lists(st.floats(0, 10), min_size=size, max_size=size)))

    def longest_to(index):
        return durations[index] + max((longest_to(other) for other in graph.predecessors[index]), default=0.0)

    assert graph.makespan_s(durations) == pytest.approx(max(longest_to(index) for index in range(size)))


def test_work_graphs_have_no_cycles_and_no_duplicates():
    one, two = Operation("a", "k"), Operation("b", "k")
    assert WorkGraph.chain((one, two)).makespan_s((1.0, 2.0)) == 3
    for bad in (
        lambda: WorkGraph((one, two), ((1,), ())),
        lambda: WorkGraph((one, one), ((), ())),
        lambda: WorkGraph((one,), ()),
    ):
        with pytest.raises(PlanError):
            bad()


def test_a_spec_refuses_what_it_does_not_have():
    A100.check(Setting(1005, 1215, 250))
    with pytest.raises(SettingRefused) as caught:
        A100.check(Setting(1000))
    assert "990" in caught.value.hint
    assert "1005" in caught.value.hint
    with pytest.raises(SettingRefused, match="memory clock"):
        A100.check(Setting(mem_mhz=900))
    with pytest.raises(SettingRefused, match="power limit"):
        A100.check(Setting(power_limit_w=99))
    laptop = GpuSpec(name="laptop", uuid="GPU-2", clocks=(), power_limits=None)
    for setting in (Setting(1000), Setting(mem_mhz=1000), Setting(power_limit_w=50)):
        with pytest.raises(NotSupported):
            laptop.check(setting)
    assert A100.label == "NVIDIA A100 (simulated)"


@given(st.integers(0, 3000))
def test_nearest_surrounds(wanted):
    near = nearest(wanted, A100.sm_clocks_mhz)
    assert min(abs(mhz - wanted) for mhz in near) == min(abs(mhz - wanted) for mhz in A100.sm_clocks_mhz)


def test_traces_are_in_order():
    trace = Trace("gpu", tuple(Reading(time_s=t, power_w=p) for t, p in ((0, 100.0), (0.1, 200.0), (0.2, None))))
    assert trace.duration_s == pytest.approx(0.2)
    assert Trace("gpu", ()).duration_s == 0
    with pytest.raises(ValueError, match="order"):
        Trace("gpu", (Reading(time_s=1), Reading(time_s=0)))


def test_throttle_in_words():
    assert to_json(Throttle.POWER_CAP | Throttle.IDLE) == ["idle", "power cap"]
    assert to_json(Throttle.NONE) == []


def test_workloads_are_not_empty_or_negative():
    with pytest.raises(ValueError, match="no phases"):
        Workload(name="nothing", phases=())
    with pytest.raises(ValueError, match="flops"):
        Phase(name="bad", flops=-1)


def test_every_error_survives_pickling_with_its_hint():
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.WattuneError):
            again = pickle.loads(pickle.dumps(kind("what", hint="how")))
            assert (type(again), again.message, again.hint) == (kind, "what", "how")
            assert kind.__name__ in errors.__doc__
