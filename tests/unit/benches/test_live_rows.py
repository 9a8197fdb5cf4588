"""The judgement of live runs: their truth from a trace, what each arm claims, rows and goals, and saved runs."""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import psutil
import pytest

from processes import wait_until
from wattune.cli.main import run
from wattune_bench.live.arms import ARMS, ENERGY, SAVING, SLOWDOWN, Claim, LiveCase, claims_of, command_of
from wattune_bench.live.bench import LiveBench, bench_saved, live_cases, save
from wattune_bench.live.play import Played
from wattune_bench.live.processor_time import ProcessorTime
from wattune_bench.live.rows import judged, live_rows
from wattune_bench.live.truth import Bound, TracePoint, Truth

CASE = LiveCase(
    gpu="a100",
    switching="ideal",
    arm="run",
    run=0,
    seed=3,
    workload="bert-base:8",
    steps=100,
    width=64,
    slowdown=0.05,
    seconds=150.0,
)
BOUND = Bound.of(CASE.gpu, CASE.workload, slowdown=CASE.slowdown)
FIGURES = {
    "saving_percent": 9.0,
    "saving_error_percent": 0.2,
    "slowdown_percent": 2.0,
    "slowdown_error_percent": None,
}


def point(event, iterations, *, saving=0.1, slowdown=0.02, **changes):
    """The node after so many iterations, each of which saved and lost that much."""
    time_s, energy_j = iterations * BOUND.default.time_s, iterations * BOUND.default.energy_j
    made = TracePoint(
        event=event,
        time_s=time_s * (1 + slowdown),
        energy_j=energy_j * (1 - saving),
        iterations=iterations,
        sm_mhz=1200,
        mem_mhz=1215,
    )
    return replace(made, **changes)


TRACE = (
    point("start", 0.0, energy_j=-200 * BOUND.default.energy_j * 0.9),
    *(point("step", 10.0 + number) for number in range(100)),
    point("step", 111.0),  # 99 intervals of one iteration, and one that the host doubled
    point("end", 112.0),
)


def played(arm="run", **claims):
    return Played(claims={arm: claims}, process_cpu_percent=0.5, load=1.0, trace=TRACE)


def test_the_truth_lies_between_the_first_and_the_last_step():
    truth = Truth.of(TRACE, BOUND.default)
    assert (truth.steps, truth.late_percent) == (100, pytest.approx(100 / 101))
    assert truth.saving_percent == pytest.approx(10)
    assert truth.slowdown_percent == pytest.approx(2)
    assert truth.whole_saving_percent < 0  # the start cost as much as 200 iterations
    assert truth.step_energy_j == pytest.approx(1.01 * 0.9 * BOUND.default.energy_j)
    assert Truth.of(TRACE[:2], BOUND.default) is None


def test_the_best_fixed_setting_is_within_the_limit():
    assert BOUND.best.time_s <= 1.05 * BOUND.default.time_s
    free = Bound.of(CASE.gpu, CASE.workload, slowdown=10.0)
    assert 0 < BOUND.best_saving_percent < free.best_saving_percent
    assert Bound.of(CASE.gpu, CASE.workload, slowdown=0.0).default == BOUND.default


def test_each_arm_says_what_it_saved_in_a_document_of_its_own():
    found = {SAVING: Claim(9.0, 0.2), SLOWDOWN: Claim(2.0)}
    assert claims_of("run", printed=FIGURES) == {"run": found}
    assert claims_of("gpoeo", printed=FIGURES) == {"gpoeo": found}
    assert claims_of("tuned", inside=FIGURES) == {"tuned": found}
    assert claims_of("callback", inside=FIGURES) == {"callback": found}
    part = {"saving_percent": 1.0, "energy_saving_percent": 9.0, "energy_saving_error_percent": 0.2}
    assert claims_of("job", job={"parts": [part]}) == {"job": {SAVING: Claim(9.0, 0.2)}}
    against = {"energy_percent": -8.9, "energy_error_percent": 0.3, "time_percent": 2.1, "time_error_percent": 0.1}
    printed = {"steps": {"per_step": {"energy_j": 7.4, "energy_error_j": 0.1}}, "against_default": against}
    assert claims_of("sweep+hold", swept={"recommended": FIGURES}, printed=printed) == {
        "sweep": found,
        "hold": {SAVING: Claim(8.9, 0.3), SLOWDOWN: Claim(2.1, 0.1), ENERGY: Claim(7.4, 0.1)},
    }


def test_what_is_unknown_is_no_claim():
    assert claims_of("run", printed={"saving_percent": None}) == claims_of("run") == {"run": {}}
    assert claims_of("sweep+hold", swept={"recommended": None}) == claims_of("sweep+hold") == {"sweep": {}, "hold": {}}
    assert claims_of("job", job={"parts": []}) == claims_of("job") == {"job": {}}
    assert claims_of("none", printed=FIGURES, inside=FIGURES) == {"none": {}}
    assert claims_of("zeus", printed=FIGURES, inside=FIGURES) == {"zeus": {}}


def test_every_arm_starts_the_program(tmp_path):
    for arm in ARMS:
        command = command_of(replace(CASE, arm=arm), tmp_path, setting="1200MHz")
        assert command[command.index("--folder") + 1] == str(tmp_path)
        assert ("wattune" in command) is (arm in ("run", "sweep+hold", "job", "gpoeo"))


def live_row(case, one):
    (row,) = live_rows(case, one)
    return row


def test_a_row_holds_a_claim_against_the_truth():
    row = live_row(CASE, played(saving_percent=Claim(10.3, 0.4), slowdown_percent=Claim(2.3, 0.2)))
    assert (row["held_saving_percent"], row["held_slowdown_percent"], row["held_step_energy_j"]) == (True, False, None)
    assert row["slowdown_limit_met"]
    assert row["share_of_best_fixed_percent"] == pytest.approx(100 * 10 / BOUND.best_saving_percent)
    # A claim without an interval is as good as one that does not hold; a run without steps has no truth.
    assert not live_row(CASE, played(saving_percent=Claim(10.0)))["held_saving_percent"]
    nothing = live_row(CASE, replace(played(saving_percent=Claim(10.0, 1.0)), trace=()))
    assert nothing["held_saving_percent"] is None
    assert nothing["slowdown_limit_met"] is None


def test_the_arm_of_a_sweep_has_a_row_for_what_each_says():
    claims = {"sweep": {SAVING: Claim(10.0, 1.0)}, "hold": {ENERGY: Claim(1.0, 0.1)}}
    sweep, hold = live_rows(replace(CASE, arm="sweep+hold"), replace(played(), claims=claims))
    assert (sweep["arm"], sweep["held_saving_percent"], sweep["held_step_energy_j"]) == ("sweep", True, None)
    assert (hold["arm"], hold["held_saving_percent"], hold["held_step_energy_j"]) == ("hold", None, False)
    assert sweep["true_saving_percent"] == hold["true_saving_percent"]
    assert (sweep["process_cpu_percent"], hold["process_cpu_percent"]) == (None, 0.5)


def test_goals_are_judged_over_the_arms_of_wattune():
    good = live_row(CASE, played(saving_percent=Claim(10.05, 0.1), slowdown_percent=Claim(2.0, 0.1)))
    wrong = live_row(CASE, played("job", saving_percent=Claim(80.5)))
    zeus = {**live_row(CASE, played("zeus")), "true_slowdown_percent": 30.0, "slowdown_limit_met": False}
    goals = {goal.name: goal for goal in judged([good, wrong, zeus]).goals}
    assert (goals["savings: intervals that hold"].value, goals["savings: intervals that hold"].met) == (50.0, False)
    assert goals["savings: mean error"].value == pytest.approx((0.05 + 70.5) / 2)
    assert goals["slowdowns: intervals that hold"].met
    assert goals["energies of a step: mean error"].met is None
    assert goals["rows beyond their slowdown limit"].met
    assert goals["Zeus: true slowdown, %"].value == 30.0


def test_arms_of_a_run_train_the_same_and_other_runs_train_something_else(tmp_path):
    asked = LiveBench(cache_dir=tmp_path, runs=2, gpus=("a100",), arms=("none", "run"), switchings=("ideal",))
    cases = list(live_cases(asked))
    assert [(case.run, case.arm) for case in cases] == [(0, "none"), (0, "run"), (1, "none"), (1, "run")]
    assert cases[0] == replace(cases[1], arm="none")
    assert (cases[0].workload, cases[0].steps) != (cases[2].workload, cases[2].steps)


def test_a_saved_run_is_judged_again(tmp_path, capsys):
    save(tmp_path / "new", CASE, played(saving_percent=Claim(10.3, 0.4)))
    again = bench_saved(tmp_path / "new")
    assert again.rows == (live_row(CASE, played(saving_percent=Claim(10.3, 0.4))),)
    assert run(["bench", "live", "--from", str(tmp_path / "new"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [dict(again.rows[0])]


def test_claims_and_contention_of_each_row_fit_into_80_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    claims = {"saving_percent": Claim(10.31, 0.44), "slowdown_percent": Claim(2.05, 0.31)}
    save(tmp_path, CASE, played(**claims))
    assert run(["bench", "live", "--from", str(tmp_path)]) == 0
    head, row = next(pair for pair in pairwise(capsys.readouterr().out.splitlines()) if "claimed" in pair[0])
    assert head.split() == [
        "arm",
        "saved",
        "%",
        "claimed",
        "±",
        "holds",
        "slower",
        "%",
        "claimed",
        "±",
        "holds",
        "late",
        "%",
    ]
    assert row.split() == ["run", "10.00", "10.31", "0.44", "yes", "2.00", "2.05", "0.31", "yes", "0.99"]


@pytest.mark.parametrize("text", ["", "{}", '{"case": 1, "played": 2}'])
def test_what_is_no_saved_run_is_one_line(tmp_path, capsys, text):
    (tmp_path / "odd.json").write_text(text)
    assert run(["bench", "live", "--from", str(tmp_path)]) == 1
    assert "odd.json" in capsys.readouterr().err


def test_an_unknown_arm_is_one_line(capsys):
    assert run(["bench", "live", "--arm", "magic"]) == 1
    assert "there is no arm 'magic'" in capsys.readouterr().err


@pytest.fixture
def spin():
    """Start processes that compute without end."""
    with ExitStack() as stack:

        def start(word):
            process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], env={"NAME": word})
            stack.callback(process.wait)
            stack.callback(process.kill)
            return psutil.Process(process.pid)

        yield start


def test_the_processor_time_is_that_of_all_but_the_program(tmp_path, spin):
    program, tuner, other = spin("ours"), spin("ours"), spin("theirs")
    (tmp_path / f"{program.pid}.stamps").touch()
    watch = ProcessorTime("ours", tmp_path)

    def watch_until(process, seconds):
        """Return the share of a core from now until the process has taken so many more seconds of processor time."""
        start_s, before_s = time.monotonic(), process.cpu_times().user
        watch.sample()
        wait_until(lambda: process.cpu_times().user >= before_s + seconds)
        watch.sample()
        return watch.percent(start_s, time.monotonic())

    assert watch.percent(0.0, time.monotonic()) is None
    assert watch_until(tuner, 0.1) > 0
    tuner.kill()
    wait_until(lambda: tuner.status() == psutil.STATUS_ZOMBIE)
    watch.sample()
    assert watch_until(other, 0.1) == watch_until(program, 0.1) == 0
