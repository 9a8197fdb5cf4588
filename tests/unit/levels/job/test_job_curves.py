from __future__ import annotations

import numpy as np
import pytest

from wattune.render.chart import Scale
from wattune.render.svg import draw
from wattune_bench.job.curves import PolicyCurve, PolicyCurves, cost_chart, mean_regret_chart, regret_chart


def curves(**changes: object) -> PolicyCurves:
    zeus = np.array([[300.0, 200.0, 100.0, 100.0], [300.0, 300.0, 100.0, 120.0]])
    ours = np.array([[150.0, 100.0, 100.0, 100.0], [150.0, 120.0, 100.0, 100.0]])
    fields = {
        "workload": "cifar100 <x> & ü",
        "gpu": "V100",
        "simulated": False,
        "oracle": 100.0,
        "curves": (
            PolicyCurve("default", np.full((2, 4), 250.0)),
            PolicyCurve("zeus", zeus),
            PolicyCurve("wattune", ours),
        ),
    }
    return PolicyCurves(**{**fields, **changes})


def test_regret_is_what_was_paid_beyond_the_oracle() -> None:
    view = curves()
    default, zeus, ours = view.curves
    assert view.regret(zeus).tolist() == [[200.0, 300.0, 300.0, 300.0], [200.0, 400.0, 400.0, 420.0]]
    assert [view.regret_after(default, n) for n in (1, 4)] == [150.0, 150.0]
    assert view.regret_after(ours, 2) == pytest.approx(30.0)
    assert view.regret_after(ours, 5) is None
    assert view.regret_after(ours, 0) is None


def test_the_oracle_may_change_on_the_way() -> None:
    view = curves(oracle=[100.0, 100.0, 50.0, 50.0])
    assert view.regret_after(view.curves[0], 4) == pytest.approx(100 * 700 / 300)
    chart = cost_chart(view)
    assert not chart.rules
    assert chart.series[-1].name == "oracle"


def test_costs_are_means_over_seeds_with_the_oracle_as_a_line() -> None:
    chart = cost_chart(curves())
    zeus = next(series for series in chart.series if series.name == "zeus")
    assert [point.y for point in zeus.points] == [300.0, 250.0, 100.0, 110.0]
    assert [point.x for point in zeus.points] == [1, 2, 3, 4]
    assert [rule.text for rule in chart.rules] == ["oracle 100 J"]
    assert chart.subtitle is not None
    assert chart.subtitle.startswith("V100; ")


def test_costs_far_apart_go_by_factors() -> None:
    costly = PolicyCurve("zeus", np.array([[9000.0, 100.0]]))
    assert cost_chart(curves(curves=(costly,))).y.scale is Scale.LOG
    assert cost_chart(curves()).y.scale is Scale.LINEAR


def test_regret_has_a_band_and_says_where_it_ends() -> None:
    chart = regret_chart(curves())
    names = [series.name for series in chart.series]
    assert names == ["default: 150 %", "zeus: 90.0 %", "wattune: 15.0 %"]
    band = chart.series[1].spread[1]
    assert (band.x, band.low, band.high) == (2, pytest.approx(3.1), pytest.approx(3.9))
    assert chart.series[0].points[-1].y is not None


def test_the_default_may_leave_the_picture_but_others_may_not() -> None:
    many = PolicyCurve("default", np.full((1, 50), 250.0))
    ours = PolicyCurve("wattune", np.concatenate([[400.0], np.full(49, 100.0)])[None, :])
    default, wattune = regret_chart(curves(curves=(many, ours))).series
    assert len(wattune.points) == 50
    assert len(default.points) < 5


def test_every_line_has_a_shape_of_its_own() -> None:
    shapes = [series.shape for series in regret_chart(curves()).series]
    assert len(set(shapes)) == len(shapes)


def test_a_policy_that_was_stuck_ends_there_and_says_so() -> None:
    stuck = PolicyCurve("zeus", np.array([[300.0, np.nan, np.nan], [300.0, 200.0, 100.0]]))
    view = curves(curves=(stuck, PolicyCurve("wattune", np.full((2, 3), 110.0))))
    chart = regret_chart(view)
    assert chart.series[0].name == "zeus: stuck"
    assert [point.y for point in chart.series[0].points] == [2.0, None, None]
    assert "nan" not in draw(chart).lower()
    assert "nan" not in draw(cost_chart(view)).lower()


def test_one_seed_and_one_recurrence_make_a_picture() -> None:
    view = curves(curves=(PolicyCurve("wattune", np.array([120.0])),))
    for chart in (cost_chart(view), regret_chart(view), mean_regret_chart([view])):
        assert "nan" not in draw(chart).lower()
        assert not chart.series[0].spread


def test_long_curves_are_thinned_but_keep_their_end() -> None:
    view = curves(curves=(PolicyCurve("wattune", np.full((2, 1001), 120.0)),))
    points = cost_chart(view).series[0].points
    assert len(points) < 260
    assert points[-1].x == 1001


def test_the_mean_over_jobs_has_the_policies_that_all_have() -> None:
    alone = curves(curves=(PolicyCurve("wattune", np.full((2, 3), 110.0)),), simulated=True)
    chart = mean_regret_chart([curves(), alone])
    assert [series.name for series in chart.series] == ["wattune"]
    assert [point.y for point in chart.series[0].points] == pytest.approx([30.0, 20.0, 15.0])
    assert "mean of 2 jobs" in chart.title
    assert "simulated" in (chart.subtitle or "")


def test_money_has_no_unit() -> None:
    chart = cost_chart(curves(unit=""))
    assert chart.y.label == "cost"
    assert chart.rules[0].text == "oracle 100"


def test_simulated_is_said() -> None:
    for chart in (cost_chart(curves(simulated=True)), regret_chart(curves(simulated=True))):
        assert "simulated V100" in (chart.subtitle or "")


def test_names_are_escaped() -> None:
    assert "cifar100 &lt;x&gt; &amp; ü" in draw(cost_chart(curves()))


@pytest.mark.parametrize("oracle", [0.0, -1.0, float("nan"), float("inf")])
def test_an_oracle_that_costs_nothing_is_refused(oracle: float) -> None:
    with pytest.raises(ValueError, match="oracle"):
        curves(oracle=oracle)


def test_no_policy_and_no_costs_are_refused() -> None:
    with pytest.raises(ValueError, match="no policy"):
        curves(curves=())
    with pytest.raises(ValueError, match="seeds by recurrences"):
        PolicyCurve("zeus", np.zeros((2, 0)))
