"""Spans: accuracy on slow counters, cost in calls, nesting, decorators."""

import random

import pytest

from fakes import FakeGpu
from wattune.core.errors import WattuneError
from wattune.devices.meter import ALWAYS_FRESH, measured


def span_of(gpu, seconds, **options):
    with measured(gpu, wait=gpu.wait, **options) as span:
        gpu.wait(seconds)
    return span


@pytest.mark.parametrize("period_s", [0.1, 0.1013, 0.0201])
def test_long_spans_are_right_to_half_a_percent_from_the_first_on(period_s):
    generator = random.Random(3)
    for phase in range(20):
        gpu = FakeGpu(period_s=period_s, phase_s=phase * period_s / 20, nominal_s=round(period_s, 1) or 0.02)
        for _ in range(3):
            gpu.wait(generator.uniform(0, 0.3))
            seconds = generator.uniform(5, 8)
            span = span_of(gpu, seconds)
            truth_j = gpu.power_w * span.measurement.time_s
            assert span.measurement.energy_j == pytest.approx(truth_j, rel=0.005)
            assert abs(span.measurement.energy_j - truth_j) <= span.measurement.energy_error_j


def test_the_error_of_short_spans_covers_the_truth():
    generator = random.Random(5)
    gpu = FakeGpu()
    for _ in range(300):
        gpu.wait(generator.uniform(0, 0.3))
        span = span_of(gpu, 10 ** generator.uniform(-3, 0))
        truth_j = gpu.power_w * span.measurement.time_s
        assert abs(span.measurement.energy_j - truth_j) <= span.measurement.energy_error_j + 1e-9


def test_a_span_reads_each_counter_twice_once_the_refresh_is_known():
    gpu = FakeGpu()
    span_of(gpu, 0.5)
    gpu.wait(0.013)  # away from the edges, near which the counter is read once more
    before = gpu.calls
    span_of(gpu, 0.5)
    assert gpu.calls - before == 2


def test_a_counter_that_moves_at_every_read_is_known_at_once_however_slow_polling_is():
    class Quick(FakeGpu):
        def count(self):
            self.now_s += 1e-6
            return super().count()

    gpu = Quick(period_s=1e-7)
    with measured(gpu, wait=lambda _: gpu.wait(0.02)) as span:
        gpu.wait(0.5)
    assert gpu.refresh is ALWAYS_FRESH
    assert span.measurement.energy_j == pytest.approx(gpu.power_w * span.measurement.time_s, rel=1e-3)
    assert gpu.calls <= 10


def test_a_counter_that_never_moves_gives_an_estimate_with_a_large_error():
    gpu = FakeGpu(period_s=1e9, phase_s=-5.0)
    measurement = span_of(gpu, 0.05).measurement
    assert measurement.energy_j == pytest.approx(10)
    assert measurement.energy_error_j >= 9.99


def test_several_gpus_nest_and_keep_their_names():
    one, two = FakeGpu(power_w=100), FakeGpu(power_w=300, uuid="GPU-two")

    def wait(seconds):
        one.wait(seconds)
        two.wait(seconds)

    with measured(one, two, name="epoch", wait=wait) as epoch:
        wait(3)
        with epoch.span("validation") as validation:
            wait(2)
    assert [part.energy_j for part in epoch.parts] == pytest.approx([500, 1500], rel=0.005)
    assert epoch.measurement.energy_j == pytest.approx(2000, rel=0.005)
    assert validation.measurement.energy_j == pytest.approx(800, rel=0.05)
    assert [child.name for child in epoch.children] == ["validation"]


def test_a_decorated_function_adds_up_its_calls():
    gpu = FakeGpu(period_s=0.001, nominal_s=0.001)

    @measured(gpu)
    def train(seconds):
        """Train."""
        gpu.wait(seconds)
        return seconds

    assert train(2) == 2
    assert train(3) == 3
    assert train.calls == 2
    assert train.total.energy_j == pytest.approx(1000, rel=0.01)
    assert train.last.time_s == pytest.approx(3)
    assert train.__doc__ == "Train."


def test_a_span_that_ends_in_an_error_still_counts():
    gpu = FakeGpu()
    span = measured(gpu, wait=gpu.wait)

    def fail():
        with span:
            gpu.wait(5)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert span.measurement.energy_j == pytest.approx(1000, rel=0.005)


def test_misuse_raises_with_a_hint():
    gpu = FakeGpu()
    with pytest.raises(WattuneError, match="no GPU"):
        measured()
    span = measured(gpu)
    with pytest.raises(WattuneError, match="not ended"):
        _ = span.measurement
