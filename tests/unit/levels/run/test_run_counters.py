"""Counters of several GPUs as one, what they say of a window, and what is done where they fail."""

from contextlib import contextmanager

import pytest
from run_fakes import OddGpu, Script, ticked

from wattune.control.counters import CounterWatch, counters_of
from wattune.core.errors import DeviceError, DeviceNotFound
from wattune.core.objective import LeastEnergy
from wattune.core.reading import Reading
from wattune.core.setting import Setting
from wattune.devices.nvml import open as nvml_open
from wattune.levels.run.session import RunSession


class FixedCounters:
    """A reader that returns what a test sets."""

    def __init__(self, **shares):
        self.shares = shares
        self.error = None

    def read(self):
        if self.error is not None:
            raise self.error
        return dict(self.shares)


def failures(watch, seconds, *, sm_mhz=1000, start_s=0.0):
    """Return the failures that the watch reports in so many seconds, with two readings a second."""
    found = []
    for place in range(2 * seconds + 1):
        found.append(watch.read([Reading(time_s=start_s + 0.5 * place, sm_mhz=sm_mhz)]))
    return [one for one in found if one is not None]


def test_the_mean_of_all_gpus_over_a_window():
    readers = FixedCounters(tensor=0.2, sm=1.0, fp64=0.0), FixedCounters(tensor=0.4, sm=0.5)
    watch = CounterWatch(readers, top_mhz=2000)
    assert failures(watch, 20) == []
    assert watch.between(5.0, 15.0) == pytest.approx({"tensor": 0.3, "sm": 0.75})
    assert watch.between(30.0, 40.0) == {}
    assert watch.step_time(5.0, 15.0).step_time_s == pytest.approx(1 / (0.3 * 1000 / 2000))


def test_counters_that_fail_are_reported_once_and_not_read_again():
    reader = FixedCounters(tensor=0.2)
    watch = CounterWatch((reader,), top_mhz=2000)
    failures(watch, 10)
    reader.error = DeviceError("no more")
    (failure,) = failures(watch, 10, start_s=11.0)
    assert "no more" in failure
    assert failures(watch, 10, start_s=22.0) == []
    assert watch.between(0.0, 10.0) == {"tensor": pytest.approx(0.2)}


def test_without_readers_there_are_no_counters():
    watch = CounterWatch()
    assert failures(watch, 10) == []
    assert watch.between(0.0, 10.0) == {}
    assert watch.step_time(0.0, 10.0) is None


def test_gpus_that_are_not_tuned_are_not_counted():
    watch = CounterWatch((FixedCounters(tensor=0.2), FixedCounters(tensor=0.0)), top_mhz=2000)
    watch.keep([0])
    failures(watch, 10)
    assert watch.between(0.0, 10.0) == {"tensor": pytest.approx(0.2)}


def readers_for(monkeypatch, readers):
    @contextmanager
    def opened(uuid):
        reader = next(readers)
        if isinstance(reader, Exception):
            raise reader
        yield reader

    monkeypatch.setattr(nvml_open, "opened_counters", opened)


def test_all_gpus_have_counters_or_none_is_read(monkeypatch):
    both = (FixedCounters(tensor=0.1), FixedCounters(tensor=0.2))
    gpus = (OddGpu(), OddGpu(index=1))
    for readers, found in ((both, both), ((both[0], None), ()), ((DeviceNotFound("no driver"),), ())):
        readers_for(monkeypatch, iter(readers))
        with counters_of(gpus) as opened:
            assert opened == found


def test_a_session_puts_counters_into_its_windows(monkeypatch):
    readers_for(monkeypatch, iter((FixedCounters(tensor=0.3, dram=0.1),)))
    gpu = OddGpu()
    session = RunSession((gpu,), objective=LeastEnergy(0.05), policy=Script((Setting(1200),), seconds=8.0))
    with session:
        ticked(session.loop, gpu, 30)
    windows = session.progress.windows
    assert [dict(one.features) for one in windows[:2]] == [pytest.approx({"tensor": 0.3, "dram": 0.1})] * 2


def test_missing_counters_of_a_policy_are_reported(monkeypatch):
    readers_for(monkeypatch, iter((None,)))
    with RunSession((OddGpu(),), objective=LeastEnergy(0.05), policy="gpoeo") as session:
        assert "gpoeo has no counters" in session.progress.events[0].text
