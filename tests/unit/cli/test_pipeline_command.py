from __future__ import annotations

import csv
import json
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from pipelines import HEADER, profile_csv, profile_rows
from wattune.cli.main import run
from wattune.levels.pipeline.plan_file import parse_plan
from wattune.levels.pipeline.planner import POINTS, POINTS_OF_LARGE
from wattune.render.quantity import quantity

PLAN = ("plan", "--profile", "p.csv", "--microbatches", "4", "--blocking-power", "60", "--points", "8")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "p.csv").write_text(profile_csv(3))
    return tmp_path


def document(capsys, *arguments):
    assert run(["pipeline", *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def complaint(capsys, *arguments, code=1):
    assert run(["pipeline", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    if code == 1:
        assert len(captured.err.splitlines()) == 2
        assert "hint: " in captured.err
    return captured.err


def words(capsys, *arguments):
    assert run(["pipeline", *arguments]) == 0
    return capsys.readouterr().out


def test_the_help_names_the_default_points(capsys):
    assert f"[default: {POINTS}, or {POINTS_OF_LARGE} for" in " ".join(words(capsys, "plan", "--help").split())


def test_a_plan_is_found_and_written(home, capsys):
    found = document(capsys, *PLAN, "--out", "plan.json", "--frontier-csv", "f.csv")
    frontier = found["frontier"]
    assert (found["schedule"], found["stages"], found["microbatches"]) == ("1f1b", 3, 4)
    assert (found["simulated"], found["straggler"], found["out"]) == (False, None, "plan.json")
    assert found["saved_per_1000_gpu_hours"]["energy_kwh"] > 0
    said = words(capsys, *PLAN)
    assert "per 1,000 GPU-hours, against every instruction at its highest setting." in said
    assert (found["baseline"], found["job"]["gpus"]) == ("every instruction at its highest setting", 3)
    assert (found["trust"], found["blocking_power_source"]) == (None, "as given")
    assert len(frontier) >= 4
    for row in frontier:
        assert row["bound_j"] <= row["energy_j"] * (1 + 1e-9)
        assert row["gap_percent"] < 8
    times = [row["time_s"] for row in frontier]
    assert times == sorted(times)
    assert frontier[found["chosen"]]["time_s"] <= found["default"]["time_s"] * (1 + 1e-9)
    planned = parse_plan((home / "plan.json").read_text(), file="plan.json")
    assert [trial.cost.energy_j for trial in planned.frontier] == [row["energy_j"] for row in frontier]
    with (home / "f.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [[float(row[key]) for key in ("time_s", "energy_j", "bound_j")] for row in rows] == [
        [row[key] for key in ("time_s", "energy_j", "bound_j")] for row in frontier
    ]


def test_a_straggler_and_a_deadline_choose(home, capsys):
    found = document(capsys, *PLAN, "--straggler", "1.5")
    chosen, wait = found["frontier"][found["chosen"]], found["straggler"]
    assert wait["straggler_time_s"] == pytest.approx(1.5 * found["default"]["time_s"])
    assert chosen["time_s"] + wait["wait_s"] == pytest.approx(wait["straggler_time_s"])
    assert wait["saving_percent"] > 0
    deadline = found["frontier"][2]["time_s"]
    assert document(capsys, *PLAN, "--deadline", repr(deadline))["chosen"] == 2
    assert "no plan" not in complaint(capsys, *PLAN, "--deadline", "0.001")


def test_the_screen_shows_a_table_and_the_cost_of_a_straggler(home, capsys):
    out = words(capsys, *PLAN, "--straggler", "1.3", "--out", "plan.json")
    for word in (
        "1f1b, 3 ranks, 4 microbatches",
        "p.csv",
        "60 W",
        "default",
        "chosen",
        "cheapest",
        "straggler",
        "written",
    ):
        assert word in out


@pytest.mark.parametrize("schedule", ["gpipe", "early-recomputation", "zero-bubble", "interleaved"])
def test_every_schedule_can_be_planned_and_shown(home, capsys, schedule):
    (home / "p.csv").write_text(profile_csv(4, instructions=("forward", "backward", "recompute", "weight")))
    found = document(capsys, *PLAN, "--schedule", schedule, "--out", "plan.json")
    assert found["chunks"] == (2 if schedule == "interleaved" else 1)
    assert "rank 1" in words(capsys, "show", "plan.json")


@pytest.fixture
def plan_file(home, capsys):
    words(capsys, *PLAN, "--out", "plan.json")
    return home / "plan.json"


def test_show_draws_default_and_plan(plan_file, capsys):
    out = words(capsys, "show", "plan.json", "--svg", "t.svg", "--html", "t.html")
    assert out.count("rank 2") == 2
    assert "default: " in out
    assert "█" in out
    assert "MHz" in out
    ElementTree.parse(plan_file.with_name("t.svg"))
    assert "Every plan" in plan_file.with_name("t.html").read_text(encoding="utf-8")


def test_show_names_what_all_gpus_of_the_job_spend(home, capsys):
    words(capsys, *PLAN, "--dp", "2", "--out", "plan.json")
    spent = document(capsys, "show", "plan.json")["job"]
    out = words(capsys, "show", "plan.json")
    assert f"all 6 GPUs of the job spend {quantity(spent['energy_j'], 'J')} per iteration instead of" in out


def test_show_chooses_another_plan_without_a_new_solve(plan_file, capsys, monkeypatch):
    monkeypatch.setattr("wattune.levels.pipeline.planned.plan_pipeline", None)
    found = document(capsys, "show", "plan.json", "--straggler", "2")
    assert found["chosen"] == len(found["frontier"]) - 1
    assert found["straggler"]["wait_s"] > 0
    assert document(capsys, "show", "plan.json", "--plan", "1")["chosen"] == 1
    assert "straggler takes" in words(capsys, "show", "plan.json", "--straggler", "2")


def test_show_lists_the_steps_of_a_rank(plan_file, capsys):
    found = document(capsys, "show", "plan.json", "--rank", "1")
    (steps,) = found["steps"]
    assert [step["span"] for step in steps[:2]] == ["forward 1.0", "forward 1.1"]
    assert all(before["end_s"] <= after["start_s"] + 1e-9 for before, after in pairwise(steps))
    assert len(document(capsys, "show", "plan.json")["steps"]) == 3
    assert "backward 1.3" in words(capsys, "show", "plan.json", "--rank", "1")
    assert "no rank 3" in complaint(capsys, "show", "plan.json", "--rank", "3", code=2)


def test_export_import_and_verify_agree(plan_file, capsys):
    files = document(capsys, "export", "plan.json", "--format", "perseus", "--out", "schedules")["files"]
    assert files[0] == "freqs_pipeline_00000.py"
    arguments = ("--profile", "p.csv", "--blocking-power", "60")
    found = document(capsys, "import", "schedules", *arguments, "--out", "again.json")
    assert found["made_by"] == f"imported from {len(files)} schedule files"
    assert len(found["frontier"]) == len(files)
    rows = document(capsys, "verify", "again.json", "--profile", "p.csv")["plans"]
    assert all(abs(row["time_percent"]) < 1e-6 for row in rows)
    one = document(capsys, "import", f"schedules/{files[-1]}", *arguments)
    assert len(one["frontier"]) == 1
    assert "0 of" in words(capsys, "verify", "plan.json", "--profile", "p.csv")


def test_two_frontiers_do_not_mix_in_one_folder(plan_file, capsys):
    words(capsys, "export", "plan.json", "--format", "perseus", "--out", "s")
    assert "files written to s" in words(capsys, "export", "plan.json", "--format", "perseus-sosp24", "--out", "s")
    (plan_file.parent / "s" / "freqs_pipeline_99999.py").write_text("[[1]]")
    assert "another frontier" in complaint(capsys, "export", "plan.json", "--format", "perseus", "--out", "s")


def test_simulated_profiles_are_marked_everywhere(home, capsys):
    rows = (f"{row},yes" for row in profile_rows(3))
    (home / "p.csv").write_text("\n".join((f"{HEADER},simulated", *rows)))
    assert "(simulated)" in words(capsys, *PLAN, "--out", "plan.json")
    assert document(capsys, *PLAN)["simulated"] is True
    assert "(simulated)" in words(capsys, "show", "plan.json", "--html", "t.html")
    assert "simulated" in (home / "t.html").read_text(encoding="utf-8")
    words(capsys, "export", "plan.json", "--format", "perseus", "--out", "s")
    assert "simulated" in (home / "s" / "freqs_pipeline_00000.py").read_text()


def test_output_for_files_and_colour_terminals_differs(plan_file, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in words(capsys, "show", "plan.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [row for row in rows if not row.startswith("1,")], "stage 2 and none for stage 1"),
        (lambda rows: [row for row in rows if not row.startswith("1,b")], "stage 1 has no row for 'backward'"),
        (lambda rows: [*rows, rows[0]], "on line 2 too"),
        (lambda rows: ["0,forward,1400,0,3", *rows[1:]], "line 2, column time"),
        (lambda rows: ["0,forward,1400,1,3", *rows[1:]], "line 2, column energy: 3 J in 1 s is 3.0 W"),
    ],
)
def test_a_bad_profile_is_refused_in_one_line(home, capsys, change, message):
    (home / "p.csv").write_text("\n".join((HEADER, *change(profile_rows(3)))))
    assert message in complaint(capsys, *PLAN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "--profile", "no.csv", *PLAN[3:]), "cannot read no.csv"),
        ((*PLAN, "--out", "no/such/plan.json"), "no folder to write to"),
        ((*PLAN, "--schedule", "interleaved"), "3 stages cannot be spread"),
        ((*PLAN, "--chunks", "2"), "one chunk per rank"),
        (("show", "p.csv"), "is not JSON"),
        (("verify", "no.json", "--profile", "p.csv"), "cannot read no.json"),
        (("import", "nothing", "--profile", "p.csv", "--blocking-power", "60"), "there is no nothing"),
        (("import", ".", "--profile", "p.csv", "--blocking-power", "60"), "no freqs_pipeline"),
        (("import", "p.csv", "--profile", "p.csv", "--blocking-power", "60"), "no freqs_pipeline"),
    ],
)
def test_bad_input_is_one_line_and_a_hint(home, capsys, arguments, message):
    assert message in complaint(capsys, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (*PLAN, "--straggler", "0.5"),
        (*PLAN, "--straggler", "1.2", "--deadline", "3"),
        (*PLAN, "--schedule", "2f2b"),
        ("plan", "--profile", "p.csv", "--microbatches", "0", "--blocking-power", "60"),
        ("export", "plan.json", "--format", "yaml", "--out", "x"),
    ],
)
def test_wrong_usage_is_exit_code_2(home, capsys, arguments):
    assert "--help` shows how it is used" in complaint(capsys, *arguments, code=2)


def test_a_name_that_is_too_long_is_one_line_and_a_hint(home, capsys):
    said = complaint(capsys, "import", "9" * 400, "--profile", "p.csv", "--blocking-power", "60")
    assert said.startswith("error: cannot use 999")
    assert "File name too long\nhint: check the name" in said
    assert len(said.splitlines()) == 2


def test_binary_files_are_refused(home, capsys):
    (home / "p.csv").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8 text" in complaint(capsys, *PLAN)


def test_a_plan_for_another_shape_is_refused(plan_file, capsys):
    plan_file.with_name("two.csv").write_text(profile_csv(2))
    assert "for 3 stages" in complaint(capsys, "verify", "plan.json", "--profile", "two.csv")


def test_transfers_and_endings_of_a_profile_are_planned_too(tmp_path, capsys):
    rows = ["stage,instruction,frequency,time,energy"]
    for stage in (0, 1):
        rows += [
            f"{stage},{name},1410,{time_s},{300 * time_s}" for name, time_s in (("forward", 0.1), ("backward", 0.2))
        ]
        rows += [f"{stage},optimizer,1410,0.5,100", f"{stage},optimizer,1005,0.6,90"]
    rows += ["0,send-forward,1410,0.01,2", "1,send-backward,1410,0.01,2"]
    profile = tmp_path / "profile.csv"
    profile.write_text("\n".join(rows) + "\n")
    plan = tmp_path / "plan.json"
    arguments = ["--schedule", "1f1b", "--microbatches", "2", "--blocking-power", "80", "--out", str(plan), "--json"]
    assert run(["pipeline", "plan", "--profile", str(profile), *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["extras"] == ["send-forward", "send-backward", "optimizer"]
    # F0 send F1 … B1 send B0 optimizer: two microbatches through two stages, one transfer each way, one step
    assert document["default"]["time_s"] == pytest.approx(3 * 0.3 + 4 * 0.01 + 0.5, abs=0.021)
    assert run(["pipeline", "verify", str(plan), "--profile", str(profile)]) == 0


GIVEN = "latency as given, stall of the slowest"


def test_switching_is_free_unless_its_latency_or_the_gpu_is_given(home, capsys):
    free = document(capsys, *PLAN)
    assert free["switching"] is None
    assert "free_energy_j" not in free["frontier"][0]
    assert "Switching is taken to be free" in words(capsys, *PLAN)
    slow = document(capsys, *PLAN, "--switch-latency", "40ms", "--out", "plan.json")
    assert slow["switching"] == {"latency_s": 0.04, "stall_s": 0.0002, "source": f"{GIVEN} known GPU"}
    for row in slow["frontier"]:
        assert row["energy_j"] >= row["free_energy_j"] > 0
        assert row["switching_loss_percent"] == pytest.approx(100 * (row["energy_j"] / row["free_energy_j"] - 1))
    shown = document(capsys, "show", "plan.json")
    assert shown["frontier"] == slow["frontier"]
    assert "takes 40 ms and stalls for 0.2 ms" in " ".join(words(capsys, *PLAN, "--switch-latency", "40ms").split())
    known = document(capsys, *PLAN, "--gpu", "a100")["switching"]
    assert known == {"latency_s": 0.01, "stall_s": 0.0001, "source": "NVIDIA A100-SXM4-40GB by the catalogue"}
    both = document(capsys, *PLAN, "--gpu", "a100", "--switch-latency", "20ms")["switching"]
    assert (both["latency_s"], both["stall_s"]) == (0.02, 0.0001)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--switch-latency", "soon"), "not a time"),
        (("--switch-latency", "-1ms"), "not a time"),
        (("--switch-latency", "2000s"), "0 to 60 s"),
        (("--gpu", "abacus"), "abacus"),
    ],
)
def test_a_wrong_switching_is_refused(home, capsys, arguments, message):
    assert message in complaint(capsys, *PLAN, *arguments)


def test_the_power_of_a_waiting_gpu_is_that_of_the_profile_or_of_its_gpu(home, capsys):
    plan = ("plan", "--profile", "p.csv", "--microbatches", "4")
    found = complaint(capsys, *plan)
    assert "the power of a GPU that waits is not known: p.csv names no GPU" in found
    assert "--blocking-power" in found
    assert document(capsys, *plan, "--gpu", "rtx4090")["blocking_power_source"].startswith(
        "idle with a context at 3120"
    )
    header, *rows = (home / "p.csv").read_text().splitlines()
    (home / "p.csv").write_text("\n".join([f"{header},gpu", *(f"{row},NVIDIA L4" for row in rows)]) + "\n")
    named = document(capsys, *plan)
    assert named["blocking_power_source"] == "idle with a context at 2040 MHz, simulated"
    (home / "p.csv").write_text("\n".join([f"{header},waiting_w", *(f"{row},61.5" for row in rows)]) + "\n")
    measured = document(capsys, *plan)
    assert (measured["blocking_power_w"], measured["blocking_power_source"]) == (61.5, "as measured, by p.csv")
    assert document(capsys, *plan, "--blocking-power", "70")["blocking_power_w"] == 70


def test_the_energy_of_the_job_is_that_of_all_its_gpus(home, capsys):
    one = document(capsys, *PLAN)
    all_ = document(capsys, *PLAN, "--dp", "2", "--tp", "4", "--out", "plan.json")
    assert all_["default"] == one["default"]
    chosen = all_["frontier"][all_["chosen"]]
    energies = {"energy_j": 8 * chosen["energy_j"], "default_energy_j": 8 * one["default"]["energy_j"]}
    assert all_["job"] == {"gpus": 24, **energies}
    assert "all 24 GPUs of the job spend" in words(capsys, *PLAN, "--dp", "2", "--tp", "4")
    assert document(capsys, "show", "plan.json")["job"] == all_["job"]
    words(capsys, "show", "plan.json", "--html", "page.html")
    assert "of all 24 GPUs" in (home / "page.html").read_text()


def test_a_simulated_profile_says_how_far_it_can_be_trusted(home, capsys):
    header, *rows = (home / "p.csv").read_text().splitlines()
    head, cells = f"{header},simulated,gpu", "yes,NVIDIA GeForce RTX 4090"
    (home / "p.csv").write_text("\n".join([head, *(f"{row},{cells}" for row in rows)]) + "\n")
    assert document(capsys, *PLAN, "--out", "plan.json")["trust"]["level"] == "not judged"
    assert document(capsys, "show", "plan.json")["trust"]["gpu"] == "NVIDIA GeForce RTX 4090"
    assert "simulated; this GPU's numbers were not judged on any measurement" in words(capsys, *PLAN)
    (home / "p.csv").write_text("\n".join([f"{header},simulated", *(f"{row},yes" for row in rows)]) + "\n")
    assert "simulated; the GPU is not named, so the error is unknown" in words(capsys, *PLAN)
