"""What programs tell, by file and by what they print."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.control.reports.file import LONGEST_LINE, LineBuffer, LineForm, MetricFile
from wattune.control.reports.report import (
    MetricPattern,
    NoMemory,
    Report,
    StepCount,
    StepPattern,
    StepReport,
    Unreadable,
)
from wattune.core.errors import InputError


def parsed(*lines):
    """What these lines of one file tell."""
    form, found = LineForm(), []
    for line in lines:
        form, one = form.read(line)
        found.append(one)
    return found


# one line


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ("0.71", Report(0.71)),
        (" -3e2 \r", Report(-300.0)),
        ("nan", Report(None)),
        ("-inf", Report(None)),
        ("3,0.71", Report(0.71, 3)),
        ("3.0, 0.71", Report(0.71, 3)),
        (",0.71", Report(0.71)),
        ("3,n/a", Report(None, 3)),
        ("3,", Report(None, 3)),
        ('{"metric": 0.71}', Report(0.71)),
        ('{"metric": 0.71, "epoch": 3, "loss": [1]}', Report(0.71, 3)),
        ('{"metric": NaN, "epoch": "4"}', Report(None, 4)),
        ('{"metric": null}', Report(None)),
        ('{"metric": 1' + "0" * 400 + "}", Report(None)),
        ('{"step": 200}', StepReport(200)),
        ('{"error": "out_of_memory"}', NoMemory()),
        ("\ufeff0.5", Report(0.5)),
        ("", None),
        ("# accuracy", None),
        ("epoch,metric", None),
    ],
)
def test_a_line_is_understood(line, report):
    assert parsed(line) == [report]


def test_a_heading_says_what_the_columns_are():
    assert parsed("Step,Metric,Loss", "10,0.5,2", "20,,1", "30,0.6") == [
        None,
        Report(0.5),
        StepReport(20),
        Unreadable("'30,0.6' is no metric: it has 2 fields where step,metric,loss has another number"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("hello", "a,0.5", "1,2,3", "[1]", "{", "{}", '{"a":' * 5000, '{"metric": "0.7"}', '{"metric": true}'),
        *('{"metric": [1]}', '{"metric": 1, "epoch": 1.5}', '{"step": -1}', '{"step": "many"}', '{"error": "boom"}'),
    ],
)
def test_a_line_without_a_value_is_reported_in_one_short_line(line):
    (found,) = parsed(line)
    assert isinstance(found, Unreadable)
    assert "is no metric: " in found.complaint
    assert "\n" not in found.complaint
    assert len(found.complaint) < 200


@given(st.text())
def test_any_text_is_understood_or_complained_of(text):
    LineForm().read(text)


# bytes that come in pieces


@given(st.lists(st.binary(max_size=12)))
def test_lines_do_not_depend_on_how_the_bytes_were_cut(pieces):
    whole, cut = LineBuffer(), LineBuffer()
    data = b"".join(pieces)
    assert sum((cut.feed(piece) for piece in pieces), ()) + cut.rest() == whole.feed(data) + whole.rest()


def test_a_progress_bar_and_colours():
    lines = LineBuffer()
    assert lines.feed(b"1/3\r2/3\r\x1b[32macc 0.5\x1b[0m\r\nne") == ("1/3", "2/3", "acc 0.5")
    assert lines.feed(b"xt\n") == ("next",)
    assert lines.feed(b"no end") == ()
    assert (lines.rest(), lines.rest()) == (("no end",), ())


def test_a_line_that_never_ends_does_not_fill_the_memory():
    lines = LineBuffer()
    for _ in range(4):
        assert lines.feed(b"x" * LONGEST_LINE) == ()
    assert len(lines.rest()[0]) == LONGEST_LINE


# what is printed


def test_patterns_find_metrics_epochs_and_steps():
    assert MetricPattern.parse("acc(?:uracy)? ([0-9.]+)").read("epoch 3: accuracy 0.71") == Report(0.71)
    named = MetricPattern.parse(r"epoch (?P<epoch>\d+).*acc (?P<metric>\S+)")
    assert named.read("epoch 3: acc 0.71") == Report(0.71, 3)
    assert named.read("epoch 3: acc nan") == Report(None, 3)
    assert named.read("epoch 3: loss 1") is None
    assert MetricPattern.parse("(?:acc ([0-9.]+))?").read("nothing") is None
    assert StepPattern.parse("^iteration").read("iteration done") == StepReport()
    assert StepPattern.parse(r"(\d+)/\d+").read("200/1000") == StepReport(200)
    assert StepPattern.parse(r"(\w+) step (?P<step>\d+)").read("my step 7") == StepReport(7)
    assert StepPattern.parse(r"step (\S+)").read("step down") is None


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (MetricPattern, "accuracy", "has no group for the metric"),
        (MetricPattern, "(a)(b)", "has 2 groups and none is called metric"),
        (MetricPattern, "([0-9", "is no regular expression"),
        (StepPattern, "(a)(b)", "has 2 groups and none is called step"),
        (StepPattern, "*", "is no regular expression"),
    ],
)
def test_a_bad_pattern_is_an_error_that_shows_a_good_one(kind, text, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        kind.parse(text)
    assert "'" in caught.value.hint


# counting


def test_an_epoch_that_was_reported_is_not_new():
    counted = StepCount().reported(Report(0.5, 1)).reported(Report(0.6))
    assert [counted.is_new(report) for report in (Report(0.7, 1), Report(0.7, 2), Report(0.7))] == [False, True, True]


def test_steps_are_counted_however_they_are_reported():
    counted, steps = StepCount(), []
    for number in (None, None, 10, 10, 25, 5, 10):
        counted, more = counted.stepped(StepReport(number))
        steps.append(more)
    assert steps == [1, 1, 8, 0, 15, 5, 5]


# a file


def add(path, text):
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_file_is_read_as_it_grows(tmp_path):
    path = tmp_path / "metric.csv"
    source = MetricFile(path)
    assert source.read() == ()
    add(path, "0.1\n0.")
    assert source.read() == (Report(0.1),)
    assert source.read() == ()
    add(path, "25\n0.3")
    assert source.read() == (Report(0.25),)
    assert source.read(ended=True) == (Report(0.3),)


def test_of_an_earlier_file_only_the_heading_is_used(tmp_path):
    path = tmp_path / "metric.csv"
    add(path, "metric,epoch\n0.9,1\n0.")
    source = MetricFile(path)
    assert source.read() == ()
    add(path, "\n0.1,2\n")
    assert source.read() == (Report(0.1, 2),)


def test_a_file_that_is_written_again_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "metric.csv"
    add(path, "0.9\n0.95\n")
    source = MetricFile(path)
    path.write_text("0.1\n", encoding="utf-8")
    assert source.read() == (Report(0.1),)
    path.write_text("0.2\n0.3\n0.4\n", encoding="utf-8")
    assert source.read() == (Report(0.2), Report(0.3), Report(0.4))


def test_a_file_that_is_replaced_or_removed(tmp_path):
    path = tmp_path / "metric.csv"
    source = MetricFile(path)
    add(path, "0.1\n")
    assert source.read() == (Report(0.1),)
    new = tmp_path / "new"
    add(new, "0.1\n0.2\n")
    os.replace(new, path)
    assert source.read() == (Report(0.1), Report(0.2))
    path.unlink()
    assert source.read() == ()
    add(path, "0.5\n")
    assert source.read() == (Report(0.5),)


def test_places_that_cannot_be_a_metric_file(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        MetricFile(tmp_path / "none" / "metric.csv")
    with pytest.raises(InputError, match="no plain file"):
        MetricFile(tmp_path)
    with pytest.raises(InputError, match="no plain file"):
        MetricFile(Path("/dev/null"))
