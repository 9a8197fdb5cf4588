"""Ranks that agree, as threads of this process: whatever fails on one of them disables all of them together."""

import threading

import pytest

from wattune.control.ranks import Agreement, Alone, setting_numbers, setting_of
from wattune.core.setting import DRIVER_DEFAULT, Setting

LIMIT_S = 120


class Threads:
    """Ranks that are threads of this process."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots = [None] * size
        self.exchanges = 0

    def gather(self, rank, value):
        self.slots[rank] = value
        if self.barrier.wait(timeout=LIMIT_S) == 0:
            self.exchanges += 1
        found = list(self.slots)
        self.barrier.wait(timeout=LIMIT_S)
        return found


class ThreadRank:
    def __init__(self, group, rank):
        self.group, self.rank, self.size = group, rank, group.size

    def broadcast(self, text):
        return self.group.gather(self.rank, text)[0]

    def sum_and_max(self, values):
        columns = list(zip(*self.group.gather(self.rank, tuple(values)), strict=True))
        return tuple(map(sum, columns)), tuple(map(max, columns))


def on_all(work, size=3):
    """Return what a function of an agreement returns on every rank, the agreements and the group."""
    group = Threads(size)
    agreements = [Agreement(ThreadRank(group, rank)) for rank in range(size)]
    results = [None] * size

    def run(rank):
        results[rank] = work(agreements[rank])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=LIMIT_S)
        assert not thread.is_alive()
    return results, agreements, group


def decided(agreement):
    own = float(agreement.ranks.rank)
    return agreement.decide(lambda: (own, 1.0), lambda sums, maxima: (*sums, *maxima, own), sizes=(2, 5))


def test_every_rank_gets_the_decision_of_rank_0():
    results, _, _ = on_all(decided)
    assert results == [(3.0, 3.0, 2.0, 1.0, 0.0)] * 3


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("part", ["contribute", "decide", "before"])
def test_a_failure_on_any_rank_disables_all_in_the_same_call(rank, part):
    def work(agreement):
        def failing(what):
            if part == what and agreement.ranks.rank == rank:
                raise ZeroDivisionError("mine")
            return (1.0,)

        if part == "before" and agreement.ranks.rank == rank:
            agreement.fail("the clock was refused")
        first = agreement.decide(lambda: failing("contribute"), lambda *_: failing("decide"), sizes=(1, 1))
        return first, agreement.decide(lambda: (1.0,), lambda *_: (1.0,), sizes=(1, 1))

    results, agreements, group = on_all(work)
    assert results == [(None, None)] * 3
    assert group.exchanges == (2 if part == "decide" else 1)  # and none after that
    why = [agreement.disabled for agreement in agreements]
    assert why[rank] == ("the clock was refused" if part == "before" else "ZeroDivisionError: mine")
    assert all("another rank" in other for number, other in enumerate(why) if number != rank)


def test_numbers_of_the_wrong_count_disable_instead_of_mixing_up_the_exchange():
    def work(agreement):
        size = 2 if agreement.ranks.rank == 1 else 1
        return agreement.decide(lambda: (1.0,) * size, lambda *_: (1.0,), sizes=(1, 1))

    results, agreements, _ = on_all(work)
    assert results == [None] * 3
    assert agreements[1].disabled == "2 numbers to exchange instead of 1"


def test_ranks_that_cannot_be_reached_disable_this_one():
    class Dead(Alone):
        def sum_and_max(self, values):
            raise RuntimeError("connection closed by peer")

    agreement = Agreement(Dead(0, 2))
    assert agreement.decide(lambda: (1.0,), lambda *_: (1.0,), sizes=(1, 1)) is None
    assert "cannot be reached" in agreement.disabled


@pytest.mark.parametrize("setting", [DRIVER_DEFAULT, Setting(900), Setting(1410, 1215, 300.0)])
def test_settings_survive_as_numbers(setting):
    assert setting_of(setting_numbers(setting)) == setting
