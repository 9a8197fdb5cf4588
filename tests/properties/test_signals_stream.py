"""What holds for streams of any values: nothing breaks, nothing is made up, and order of magnitude does not matter."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.reading import Reading
from wattune.signals.change import ChangeDetector, ProgramSample
from wattune.signals.readings import IdleWatch, Sanity

anything = st.none() | st.floats()
samples = st.lists(st.tuples(anything, anything, anything), max_size=120)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_a_detector_takes_any_values(values):
    detector = ChangeDetector()
    for place, (period_s, power_w, util) in enumerate(values):
        detector = detector.add(ProgramSample(time_s=float(place), period_s=period_s, power_w=power_w, util=util))
        if detector.change is not None:
            assert detector.change.what
            assert detector.change.since_s <= detector.change.time_s
            assert detector.change.words
        assert all(level > 0 for name, level in detector.levels.items() if name != "util")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.5, 2.0), min_size=30, max_size=90), st.integers(-10, 10))
def test_units_do_not_matter(values, power):
    def places(factor):
        detector, found = ChangeDetector(), []
        for place, value in enumerate(values):
            detector = detector.add(ProgramSample(time_s=float(place), power_w=value * factor))
            found.append(detector.change is not None)
        return found

    assert places(1.0) == places(2.0**power)


readings = st.lists(
    st.builds(
        Reading,
        time_s=st.floats(allow_nan=True),
        energy_j=anything,
        power_w=anything,
        sm_util=anything,
        sm_mhz=st.none() | st.integers(),
        power_limit_w=anything,
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(readings)
def test_cleaned_readings_are_possible(stream):
    sanity, idle = Sanity(), IdleWatch()
    energy_j, time_s = 0.0, float("-inf")
    for reading in stream:
        sanity, clean = sanity.add(reading)
        idle = idle.add(reading)
        if clean is None:
            continue
        assert clean.time_s >= time_s
        time_s = clean.time_s
        assert clean.power_w is None or 0 <= clean.power_w <= 1e5
        assert clean.sm_util is None or 0 <= clean.sm_util <= 1
        assert clean.power_w in (None, reading.power_w)
        if clean.energy_j is not None:
            assert clean.energy_j >= energy_j
            energy_j = clean.energy_j
    assert idle.idle_after_s >= 10
