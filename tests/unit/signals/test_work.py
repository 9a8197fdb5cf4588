"""Work in bits: the same outcome however it is cut, and whoever asks for it."""

from wattune.signals.samples import IncrementalTask, done


def adding(many):
    total = 0
    for number in range(many):
        yield
        total += number
    return total


def nested(many):
    return (yield from adding(many)) + 1


def test_work_done_at_once_returns_its_result():
    assert done(adding(5)) == 10
    assert done(nested(5)) == 11
    assert done(adding(0)) == 0


def test_a_task_is_done_after_its_last_step():
    task = IncrementalTask(adding(3))
    assert [task.after(bits) for bits in (1, 2, 3, 4, 9)] == [None, None, None, 3, 3]


def test_a_task_that_is_ahead_gives_no_result_early():
    task = IncrementalTask(adding(3))
    assert task.after(10) == 3
    assert task.after(2) is None
    assert task.after(4) == 3
