"""What repeats in a power trace: found, or refused."""

import json

import numpy as np
import pytest

from wattune.signals.period import Verdict, find_period
from wattune.signals.samples import PowerSamples


def steps(period_s, *, busy=0.7, interval_s=0.02, duration_s=40.0, noise_w=2.0, seed=0):
    """Samples of a program that works for a part of each step and waits for the rest, polled unevenly."""
    random = np.random.default_rng(seed)
    time_s = np.cumsum(interval_s * random.uniform(0.8, 1.2, int(duration_s / interval_s)))
    power_w = np.where((time_s % period_s) < busy * period_s, 250.0, 120.0)
    return PowerSamples(time_s, power_w + noise_w * random.standard_normal(len(time_s)))


@pytest.mark.parametrize("period_s", [0.2847, 0.5, 1.006, 2.3])
def test_the_period_of_steps_is_found_to_a_percent(period_s):
    answer = find_period(steps(period_s))
    assert answer.verdict is Verdict.PERIODIC
    assert answer.period_s == pytest.approx(period_s, rel=0.01)
    assert answer.error_s is not None
    assert answer.error_s < 0.05 * period_s


def test_noise_alone_is_given_no_period():
    random = np.random.default_rng(1)
    time_s = np.arange(0, 60, 0.02)
    answer = find_period(PowerSamples(time_s, 200 + 10 * random.standard_normal(len(time_s))))
    assert answer.verdict is not Verdict.PERIODIC
    assert answer.period_s is None


def test_a_few_samples_say_nothing():
    answer = find_period(PowerSamples(np.arange(5.0), np.ones(5)))
    assert answer.verdict is Verdict.NOT_OBSERVABLE


def test_the_command_answers_as_json(tmp_path, capfd):
    from wattune.cli.main import main

    file = tmp_path / "trace.csv"
    samples = steps(0.8)
    rows = [f"{time_s:.4f},{power_w:.2f}" for time_s, power_w in zip(samples.time_s, samples.power_w, strict=True)]
    file.write_text("time_s,power_w\n" + "\n".join(rows), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["period", str(file), "--json"])
    assert ended.value.code == 0
    document = json.loads(capfd.readouterr().out)
    assert document["verdict"] == "periodic"
    assert document["period_s"] == pytest.approx(0.8, rel=0.01)
    assert document["cycles"]
