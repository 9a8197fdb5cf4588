"""The bench of recurring jobs on made-up tables, from the command line on."""

import json

import numpy as np
import pytest

from job_tables import write_tables
from wattune.cli.main import run
from wattune_bench.job import figures, unseen
from wattune_bench.job.bench import bench_of, play_job_bench
from wattune_bench.job.cases import SECTIONS, ReplayResult

FIELDS = {"workload", "gpu", "policy", "seed", "recurrences", "cost", "energy_j", "time_s", "regret_percent"}


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    return write_tables(tmp_path / "tables", gpus=("p100", "t4"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    tables = write_tables(tmp_path_factory.mktemp("tables"), gpus=("p100", "t4"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unseen, "NUMBERS", (2,))  # others would show the same
        return bench_of(play_job_bench(tables, seeds=1, processes=1))


def test_all_sections_are_played(bench):
    assert bench.bench == "job"
    assert bench.simulated is False
    policies = {row["policy"] for row in bench.rows}
    assert policies >= {"default", "grid", "zeus", "wattune", "oracle"}
    assert len(bench.rows) == len(policies) * 2
    assert all(row.keys() >= FIELDS | {"cost_first_5", "cost_first_10", "cost_first_20"} for row in bench.rows)
    assert {"policies", "workloads", *SECTIONS[1:], "cpu_s"} <= set(bench.document["summary"])
    assert {row["drift"] for row in bench.figures["drift"]} == {"x1.5", "x2.5", "shift 2"}
    assert {row["load"] for row in bench.figures["overlap"]} == {0.2, 0.8}
    assert {row["eta"] for row in bench.figures["eta"]} == {0.0, 1.0}
    assert {row["known_from"] for row in bench.figures["transfer"]} == {None, "p100", "t4"}
    json.dumps(bench.document, default=str, allow_nan=False)


def test_rows_add_up(bench):
    for row in bench.rows:
        if row["policy"] == "default":
            assert row["runs"] == row["recurrences"] == 40
            assert row["profiling_percent"] == 0
        if row["policy"] == "oracle":
            assert abs(row["regret_percent"]) < 10
        assert row["cost_first_5"] < row["cost_first_10"] < row["cost_first_20"] < row["cost"]
        max_power_w = {"p100": 250.0, "t4": 260.0}[row["gpu"]]
        assert row["cost"] == pytest.approx(0.5 * row["energy_j"] + 0.5 * max_power_w * row["time_s"])


def test_every_goal_is_against_zeus_in_the_same_run(bench):
    names = " | ".join(goal.name for goal in bench.goals)
    for words in ("η 0.5: regret", "η 0: regret", "η 1: regret", "after 10", "after 20", "worst moment"):
        assert words in names
    for words in ("drift x1.5", "drift x2.5", "drift shift 2", "load 0.2", "load 0.8", "seconds per GPU"):
        assert words in names
    by_policy = {(row["gpu"], row["policy"]): row["regret_percent"] for row in bench.figures["policies"]}
    ours, peers = (sum(by_policy[gpu, policy] for gpu in ("p100", "t4")) for policy in ("wattune", "zeus"))
    goal = next(goal for goal in bench.goals if goal.name.startswith("η 0.5") and goal.name.endswith("the horizon"))
    assert goal.value == pytest.approx(ours / peers)
    assert bench.goals[-1].met is None


def test_two_processes_find_the_same(tables):
    alone, shared = (
        bench_of(play_job_bench(tables, ["p100"], seeds=2, sections=["horizon"], processes=processes))
        for processes in (1, 2)
    )
    assert alone.rows == shared.rows


def test_programs_get_one_document(tables, capsys):
    arguments = ["--data", str(tables), "--gpu", "t4", "--seeds", "1", "--section", "horizon", "--processes", "1"]
    assert run(["bench", "job", *arguments, "--eta", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["gpu"] for row in found["rows"]} == {"t4"}
    assert all(row["cost"] == pytest.approx(row["energy_j"]) for row in found["rows"])
    assert found["summary"]["published_energy_saving_percent"] == [15.3, 75.8]


def test_people_get_tables_goals_and_a_page(tables, tmp_path, capsys):
    page = tmp_path / "jobs.html"
    arguments = ["--data", str(tables), "--gpu", "t4", "--seeds", "2", "--processes", "1", "--plot", str(page)]
    assert run(["bench", "job", *arguments, "--section", "horizon", "--section", "drift"]) == 0
    shown = capsys.readouterr().out
    for words in ("means over workloads", "the job changes half way", "wattune", "of default", "published for Zeus"):
        assert words in shown
    assert "…" not in shown
    assert "toy net adam" in page.read_text()
    assert run(["bench", "job", *arguments[:-1], str(tmp_path / "jobs.svg"), "--section", "horizon"]) == 0
    assert (tmp_path / "jobs.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu", "h100"), "there is no table of GPU 'h100'"),
        (("--workload", "vgg"), "the tables have no workload 'vgg'"),
        (("--section", "dinner"), "the bench has no section 'dinner'"),
        (("--plot", "jobs.png"), "cannot plot to jobs.png"),
        (("--plot", "jobs.svg", "--section", "drift"), "pictures are of the horizon"),
        (("--plot", "no/such/jobs.svg"), "cannot write no/such/jobs.svg"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_hint(tables, capsys, arguments, words):
    assert run(["bench", "job", "--data", str(tables), *arguments]) == 1
    captured = capsys.readouterr()
    assert words in captured.err
    assert "hint: " in captured.err
    assert captured.out == ""


def test_without_tables_there_is_no_bench(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("WATTUNE_DATA", raising=False)
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    assert run(["bench", "job"]) == 2
    assert "give --data DIR" in capsys.readouterr().err


def test_the_standard_error_of_a_mean_is_that_of_the_textbook():
    costs = np.random.default_rng(0).normal(100.0, 5.0, (16, 1))
    played = ReplayResult(*(costs,) * 8, cpu_s=0.0)
    note = figures._error([(None, played)], lambda some: float(some[0][1].costs.mean()))
    assert note == f"± {costs.std(ddof=1) / 4:.2g}, standard error over seeds"


def test_a_default_dealt_other_trainings_shows_what_chance_does():
    costs = np.array([[10.0, 10.0, 10.0], [10.0, 12.0, 10.0]])
    alike = ReplayResult(*[costs] * 7, oracle=np.full(3, 9.0), cpu_s=0.0)
    assert figures.chance_ratios(alike) == pytest.approx([1.1, 1.0])


def test_luck_is_no_decision_but_a_bad_trial_is():
    lucky = np.array([[10.0, 14.0, 10.0]])
    usual = np.full((1, 3), 10.0)
    trial = np.array([[10.0, 13.0, 8.0]])

    def result(costs, expected):
        return ReplayResult(*[costs] * 4, expected, costs, costs, oracle=np.full(3, 9.0), cpu_s=0.0)

    default = result(usual, usual)
    assert figures.worst_ratios(result(lucky, usual), default) == pytest.approx([1.2])
    assert figures.decided_ratios(result(lucky, usual), default) == pytest.approx([1.0])
    assert figures.decided_ratios(result(usual, trial), default) == pytest.approx([1.15])
