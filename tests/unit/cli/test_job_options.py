"""What the options of `wattune job` say: definitions, placeholders, learning rates, and mistakes in one line."""

import re
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeGpu
from wattune.cli.job.program import (
    PLACEHOLDERS,
    JobProgram,
    ScaledRate,
    Wanted,
    changes,
    filled,
    first_definition,
    parse_sizes,
    redefined,
    used,
)
from wattune.cli.job.recurrence import Attempt, Patience, ReportListener, run_recurrence
from wattune.cli.job.steps import ProgramSteps
from wattune.cli.main import run
from wattune.cli.training_child import Ending, ReportWatch
from wattune.control.progress_estimator import ProgressEstimator
from wattune.control.reports.report import NoMemory, Report, StepReport, Unreadable
from wattune.core.errors import InputError
from wattune.core.job import JobGpu, JobRun, Outcome
from wattune.core.tariff import Tariff
from wattune.levels.job.session import NO_DOUBT, RunVerdict

# definitions

FULL = Wanted(batch_sizes=(16, 32), default_batch_size=32, target=0.75)


def test_a_first_definition_takes_what_is_said_and_defaults_for_the_rest():
    job = first_definition("nightly", FULL)
    assert (job.batch_sizes, job.default_batch_size, job.target) == ((16, 32), 32, 0.75)
    assert (job.higher_is_better, job.max_epochs, job.objective) == (True, 100, "cost:0.5")
    assert first_definition("one", Wanted(batch_sizes=(8,), target=1.0)).default_batch_size == 8


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        (Wanted(), "--batch-sizes"),
        (Wanted(batch_sizes=(16, 32)), "--target"),
        (Wanted(batch_sizes=(16, 32), target=0.5), "--default 32"),
    ],
)
def test_what_a_new_job_lacks_is_named(wanted, hint):
    with pytest.raises(InputError, match="nightly is a new job") as caught:
        first_definition("nightly", wanted)
    assert hint in caught.value.hint


def test_a_redefinition_changes_what_is_said_and_nothing_else():
    job = first_definition("nightly", FULL)
    assert redefined(job, Wanted()) is job
    assert redefined(job, FULL) is job
    other = redefined(job, Wanted(batch_sizes=(32, 64), target=0.8, higher_is_better=False))
    assert (other.default_batch_size, other.max_epochs) == (32, 100)
    assert changes(job, job) == ()
    assert changes(job, other) == (
        "batch sizes: 32,64 instead of 16,32",
        "target: 0.8 instead of 0.75",
        "higher is better: no instead of yes",
        "earlier runs had another target: they are kept and not used",
    )


def test_lists_of_batch_sizes():
    assert parse_sizes("64, 16,32,16,") == (16, 32, 64)
    for text in ("", ",", "16;32", "0,1", "-4", "1.5", "many", "٣"):
        with pytest.raises(InputError, match="is no list of batch sizes"):
            parse_sizes(text)


# placeholders

VALUES = {name: name.upper() for name in PLACEHOLDERS}


def test_placeholders_are_filled_and_other_braces_left_alone():
    texts = ("--b={batch_size}", "{{batch_size}}", '{"a": 1}', "{}", "{0}", "${HOME}", "{ seed }", "{seed}{seed}")
    assert used(texts) == {"batch_size", "seed"}
    assert tuple(filled(text, VALUES) for text in texts) == (
        *("--b=BATCH_SIZE", "{batch_size}", '{"a": 1}', "{}", "{0}", "${HOME}", "{ seed }", "SEEDSEED"),
    )


@pytest.mark.parametrize(
    ("name", "hint"), [("batchsize", "did you mean {batch_size}?"), ("lr", "there are {batch_size}")]
)
def test_an_unknown_placeholder_is_an_error_that_says_how_to_keep_it(name, hint):
    with pytest.raises(InputError, match=re.escape(f"there is no placeholder {{{name}}}")) as caught:
        used((f"--x={{{name}}}",))
    assert hint in caught.value.hint
    assert f"write {{{{{name}}}}}" in caught.value.hint


@given(st.text(alphabet="{}abz_ ", max_size=30))
def test_a_text_without_known_placeholders_is_refused_or_only_loses_double_braces(text):
    try:
        used((text,))
    except InputError:
        return
    assert filled(text, VALUES) == re.sub(r"\{\{([a-z_]+)\}\}", r"{\1}", text)


# learning rates


def test_a_learning_rate_follows_the_batch_size():
    assert ScaledRate.parse("0.1@256", "linear").at_size(64) == pytest.approx(0.025)
    assert ScaledRate.parse("1e-3@256", "sqrt").at_size(64) == pytest.approx(0.0005)


@pytest.mark.parametrize(
    "text", ["", "0.1", "0.1@", "@256", "0@8", "-1@8", "nan@8", "inf@8", "0.1@0", "0.1@1.5", "a@b"]
)
def test_what_is_no_learning_rate(text):
    with pytest.raises(InputError, match="is no learning rate at a batch size"):
        ScaledRate.parse(text, "linear")


# programs

GPU = JobGpu(name="Plain", simulated=True, max_power_w=300.0, count=4)
RUN = JobRun(id="abc", order=7, recurrence=3, batch_size=64, gpu=GPU)


def program(*command_line, rate=None, workload="resnet50", gpus=4, **watch):
    return JobProgram(
        command_line=command_line, watch=ReportWatch(**watch), rate=rate, workload=workload, gpus=(None,) * gpus
    )


def test_a_program_for_one_run(tmp_path):
    asked = program(
        "train", "{local_batch_size}", "{learning_rate}", rate=ScaledRate(0.1, 32, "linear"), file=tmp_path / "{run_id}"
    )
    command_line, watch, environment = asked.for_run(RUN)
    assert command_line == ("train", "16", "0.2")
    assert watch.file == tmp_path / "abc"
    ours = {name: value for name, value in environment.items() if name.startswith("WATTUNE_")}
    assert ours["WATTUNE_METRIC_FILE"] == str(tmp_path / "abc")
    assert (ours["WATTUNE_BATCH_SIZE"], ours["WATTUNE_LOCAL_BATCH_SIZE"], ours["WATTUNE_RUN_ID"]) == ("64", "16", "abc")


def test_a_program_is_checked_before_anything_runs():
    job = first_definition("nightly", FULL)
    assert program("true", "{batch_size}").check(job)
    assert not program("true").check(job)
    with pytest.raises(InputError, match=r"contains \{learning_rate\}"):
        program("true", "{learning_rate}").check(job)
    with pytest.raises(InputError, match="cannot be divided among 5 GPUs"):
        program("true", "{local_batch_size}", gpus=5).check(job)
    with pytest.raises(InputError, match=r"no placeholder \{size\}"):
        program("true", workload="resnet50:{size}").check(job)


# reports of a program, and how it ends


class Live:
    """A run that reaches its target at a metric of 1 and is stopped at one below 0."""

    def __init__(self):
        self.verdict = None
        self.following = NO_DOUBT
        self.gpus = (FakeGpu(),)
        self.steps = 0
        self.metrics = []
        self.run = RUN
        self.ended = []

    def start(self, *, replaces=None):
        self.replaces = replaces
        return RUN

    def step(self, count=1, *, age_s=0.0):
        assert age_s == 0
        self.steps += count

    def poll(self):
        pass

    def report(self, metric):
        self.metrics.append(metric)
        if metric is not None and (metric >= 1 or metric < 0):
            self.verdict = RunVerdict(Outcome.REACHED if metric >= 1 else Outcome.STOPPED, "because")
        return self.verdict

    def end(self, outcome=None, *, error=None):
        self.ended.append(error or outcome)
        return RUN


def listener(linger_s=10.0):
    live, warnings = Live(), []
    steps = ProgramSteps(live, ProgressEstimator(live.gpus[0].spec.sensors), warn=warnings.append)
    return live, ReportListener(live, steps, linger_s=linger_s, warn=warnings.append), warnings


def ending(code=0, *, interrupted=False, asked=False, tail=""):
    return Ending(code, signal.SIGTERM if interrupted else None, asked, tail)


def test_each_event_is_reported_once_and_none_after_the_end():
    live, taker, warnings = listener()
    for report in (
        StepReport(),
        StepReport(5),
        Report(0.1, 1),
        Report(0.2, 1),
        Unreadable("what?"),
        Unreadable("again?"),
    ):
        assert not taker.take(report).stop
    assert (live.steps, live.metrics, warnings) == (5, [0.1], ["what?"])
    assert taker.take(Report(1.0, 2)).within_s == 10.0
    for report in (StepReport(9), Report(0.5, 3), NoMemory(), Unreadable("late")):
        assert taker.take(report).stop
    assert (live.steps, live.metrics, warnings) == (5, [0.1, 1.0], ["what?"])
    assert taker.outcome(ending(1, tail="out of memory")) is Outcome.REACHED


def test_a_run_that_is_stopped_gets_no_time_and_one_that_may_go_on_all():
    _, taker, _ = listener()
    assert taker.take(Report(-1.0)).within_s == 0.0
    assert taker.outcome(ending(143)) is Outcome.STOPPED
    _, taker, _ = listener(linger_s=None)
    assert not taker.take(Report(1.0)).stop


@pytest.mark.parametrize(
    ("end", "reports", "outcome"),
    [
        (ending(0), 1, Outcome.MISSED),
        (ending(0), 0, Outcome.CRASHED),
        (ending(1), 1, Outcome.CRASHED),
        (ending(0, interrupted=True), 1, Outcome.CRASHED),
        (ending(1, tail="RuntimeError: CUDA out of memory. Tried"), 0, Outcome.OUT_OF_MEMORY),
        (ending(1, tail="jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED"), 0, Outcome.OUT_OF_MEMORY),
        (ending(0, tail="out of memory, retrying with a smaller cache"), 1, Outcome.MISSED),
        (ending(143, interrupted=True, tail="out of memory"), 0, Outcome.CRASHED),
    ],
)
def test_how_a_run_ended_follows_from_how_its_program_did(end, reports, outcome):
    _, taker, _ = listener()
    for _ in range(reports):
        taker.take(Report(0.1))
    assert taker.outcome(end) is outcome


@pytest.mark.parametrize(
    ("outcome", "end", "code"),
    [
        (Outcome.REACHED, ending(0), 0),
        (Outcome.REACHED, ending(5), 5),
        (Outcome.REACHED, ending(143, asked=True), 0),
        (Outcome.MISSED, ending(0), 1),
        (Outcome.MISSED, ending(0, asked=True), 1),
        (Outcome.CRASHED, ending(9), 9),
        (Outcome.CRASHED, ending(0), 1),
        (Outcome.CRASHED, ending(0, interrupted=True), 143),
        (Outcome.STOPPED, ending(143, asked=True), 1),
    ],
)
def test_exit_codes(outcome, end, code):
    from dataclasses import replace

    assert Attempt(replace(RUN, outcome=outcome), "", end).exit_code == code


def test_a_command_that_cannot_be_run_ends_its_run():
    live = Live()
    patience = Patience(attempts=1, linger_s=0.0, grace_s=1.0)
    with pytest.raises(InputError, match="there is no command 'no-such'"):
        run_recurrence(
            program("no-such", gpus=0), lambda: live, patience, tariff=Tariff(), quiet=True, say=lambda _: None
        )
    assert isinstance(live.ended[0], InputError)


# mistakes on the command line

PATTERN = ("--metric-pattern", "acc ([0-9.]+)")
NEW = ("--batch-sizes", "16,32", "--default", "32", "--target", "0.75", "--device", "sim:a100")


@pytest.fixture
def failing(tmp_path, monkeypatch, capfd):
    """A function that runs a command line and gives what it said was wrong."""
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=1):
        assert run(["job", *arguments]) == code
        out, errors = capfd.readouterr()
        assert out == ""
        assert "Traceback" not in errors
        return errors

    return call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*NEW,), "no option gives the source of the metric"),
        ((*NEW, "--metric-pattern", "accuracy"), "has no group for the metric"),
        ((*NEW, "--metric-pattern", "(["), "is no regular expression"),
        ((*NEW, *PATTERN, "--step-pattern", "("), "is no regular expression"),
        ((*PATTERN,), "new is a new job and lacks its batch sizes"),
        ((*NEW[:4], *PATTERN), "new is a new job and lacks the metric to reach"),
        ((*NEW, *PATTERN, "--default", "5"), "the default batch size 5 is none of 16, 32"),
        ((*NEW, *PATTERN, "--batch-sizes", "x"), "'x' is no list of batch sizes"),
        ((*NEW, *PATTERN, "--objective", "best"), "'best' is no objective"),
        ((*NEW, *PATTERN, "--lr", "0.1"), "no option gives the scaling of the learning rate"),
        ((*NEW, *PATTERN, "--lr", "0.1", "--lr-rule", "linear"), "is no learning rate at a batch size"),
        ((*NEW, *PATTERN, "--device", "sim:none"), "none"),
        ((*NEW, *PATTERN, "--workload", "none"), "there is no workload"),
        ((*NEW, "--metric-file", "no/such/file"), "there is no folder for the metric file"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(failing, arguments, message):
    errors = failing("run", "new", *arguments, "--", "true", "{batch_size}")
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert message in line
    assert "\nhint: " in errors


@pytest.mark.parametrize(
    "arguments",
    [
        (*NEW, *PATTERN, "--metric-file", "metrics", "--", "true"),
        (*NEW, *PATTERN, "--target", "nan", "--", "true"),
        (*NEW, *PATTERN, "--max-epochs", "9" * 400, "--", "true"),
        (*NEW, *PATTERN, "--lr-rule", "linear", "--", "true"),
        (*NEW, *PATTERN),
        (*NEW, *PATTERN, "--searcher", "oracle", "--", "true"),
    ],
)
def test_wrong_usage(failing, arguments):
    failing("run", "new", *arguments, code=2)


def test_unknown_jobs_and_files(failing):
    for arguments in (("show", "new"), ("next", "new"), ("forget", "new", "--yes")):
        assert "error: there is no job 'new'" in failing(*arguments)
    assert "error: cannot plot to page.png" in failing("show", "new", "--plot", "page.png")


@pytest.mark.parametrize(
    "arguments",
    [
        (*PATTERN, "--", "true", "{bach_size}"),
        (*PATTERN, "--", "no-such-command", "{batch_size}"),
        (*PATTERN, "--workload", "no-such", "--", "true"),
        ("--metric-file", "no/such/file", "--", "true"),
    ],
)
def test_nothing_is_kept_of_a_command_that_was_wrong(failing, capfd, arguments):
    failing("run", "new", *NEW, *arguments)
    assert run(["job", "list"]) == 0
    assert capfd.readouterr().out.startswith("no jobs yet")
