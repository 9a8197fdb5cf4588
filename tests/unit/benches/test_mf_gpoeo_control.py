"""The controller of MF-GPOEO."""

from wattune_bench.run.mf_gpoeo import Control, stopping_point

LIMIT = 0.049


def control(**values):
    return Control(limit=LIMIT, points=124, **({"point": 117} | values))


def test_the_first_step_is_small():
    # 0.7·2.8·0.049 of the point
    assert control().after(0.0, 1.0).point == round(117 * (1 - 0.7 * 2.8 * LIMIT))


def test_the_clock_goes_up_above_the_limit_and_down_below_it():
    assert control().after(0.08, 1.0).point > 117
    assert control().after(0.02, 1.0).point < 117
    assert control(point=123).after(0.08, 1.0).point == 123
    assert control(point=0).after(0.0, 1.0).point == 0


def test_the_gain_grows_while_the_index_does_not_react():
    state = control()
    gains = []
    for _ in range(6):
        state = state.after(0.0, 1.0)
        gains.append(state.gain)
    assert gains[0] < gains[1] < gains[2]
    assert max(gains) == 8.0


def test_within_the_dead_band_the_clock_stays():
    state = control().after(0.02, 1.0)
    assert state.after(LIMIT * 0.995, 0.9).point == state.point


def test_the_controller_does_not_stop_before_the_third_step():
    state = control().after(0.02, 0.9).after(LIMIT * 0.995, 0.8)
    assert stopping_point(state, 30.0, low_memory=False) is None


def test_after_five_steps_the_controller_stops_at_the_best_point_within_the_limit():
    state = control(point=110)
    for index, objective in ((0.0, 1.0), (0.01, 0.9), (0.09, 0.7), (0.03, 0.85), (0.045, 0.8)):
        state = state.after(index, objective)
    points = [step.point for step in state.steps]
    assert stopping_point(state, 30.0, low_memory=False) == points[4]


def test_without_a_point_within_the_limit_the_controller_stops_at_the_highest():
    state = control(point=60)
    for _ in range(5):
        state = state.after(0.2, 1.0)
    assert stopping_point(state, 30.0, low_memory=False) == max(step.point for step in state.steps)


def test_a_low_clock_without_reaction_is_low_enough():
    state = control(point=70)
    for _ in range(3):
        state = state.after(0.001, 0.7)
    rest = stopping_point(state, 20.0, low_memory=False)
    assert rest is not None
    assert rest < 70
