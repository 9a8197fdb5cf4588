"""`wattune job` around real programs: reports are used, and no ending damages the history."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pynvml
import pytest

from command import Command
from emulated import MakeNode
from processes import wait_until
from wattune.cli.main import run
from wattune.core.job import Outcome
from wattune.devices.open import Surroundings, open_gpu
from wattune.emulator.node import Privilege
from wattune.store.sql_store import open_store

PATTERN = r"epoch (?P<epoch>\d+) acc (?P<metric>\S+)"
NEW = ("--batch-sizes", "16,32,64", "--default", "32", "--target", "0.75")
QUICK = ("--device", "sim:a100", "--linger", "0", "--metric-pattern", PATTERN)
TRAINER = str(Path(__file__).with_name("job_trainer.py"))


@pytest.fixture
def job(tmp_path, monkeypatch, capfd):
    """A function that runs `wattune job …` here, and gives its exit code, its JSON document and standard error."""
    places = {"STORE": "h.db", "STATE": "state", "CONFIG": "none.toml"}
    for variable, place in places.items():
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        capfd.readouterr()
        code = run(["job", arguments[0], "--json", *arguments[1:]])
        out, errors = capfd.readouterr()
        assert "Traceback" not in errors
        return code, json.loads(out) if out else None, errors

    return call


@pytest.fixture
def job_store(tmp_path):
    """The jobs in the store of the test."""
    return lambda: open_store(f"sqlite:///{tmp_path / 'h.db'}").jobs


def python(script, *arguments):
    return ("--", sys.executable, "-c", script, *arguments)


def prints(*lines, then=""):
    """A program that prints these lines."""
    return python("\n".join([*(f"print({line!r})" for line in lines), then]), "{batch_size}")


GOOD = prints("epoch 1 acc 0.5", "epoch 2 acc 0.8")
STEADY = python(
    "import time\nfor epoch, metric in ((1, 0.5), (2, 0.8)):\n time.sleep(0.4); print('epoch', epoch, 'acc', metric)",
    "{batch_size}",
)
"""The same at a cost that hardly depends on the machine, so that no trial of another size is stopped."""


def outcomes(job_store, name="nightly"):
    return [record.run.outcome.value for record in reversed(job_store().job_runs(name))]


# what it is for


def test_the_first_run_defines_a_job_and_later_ones_need_not_say_it_again(job, job_store):
    code, first, errors = job("run", "nightly", *NEW, *QUICK, *STEADY)
    assert (code, first["reached"], first["simulated"]) == (0, True, True)
    assert first["job"]["batch_sizes"] == [16, 32, 64]
    assert first["runs"][0]["metrics"] == [0.5, 0.8]
    assert first["runs"][0]["cost"]["time_s"] > 0
    assert "epoch 1 acc 0.5\nepoch 2 acc 0.8\n" in errors
    code, second, errors = job("run", "nightly", *QUICK, *STEADY)
    assert (code, second["job"], second["redefined"]) == (0, first["job"], [])
    assert "redefined" not in errors
    assert (second["reached"], outcomes(job_store)[-1]) == (True, "reached")
    _, listed, _ = job("list")
    assert [(one["name"], one["simulated"]) for one in listed["jobs"]] == [("nightly", True)]
    runs = listed["jobs"][0]["runs"]
    assert runs >= 2  # a trial of another size may be stopped on a busy machine
    joules = sum(run["cost"]["energy_j"] for done in (first, second) for run in done["runs"])
    assert listed["jobs"][0]["energy_kwh"] == pytest.approx(joules / 3.6e6)
    _, shown, _ = job("show", "nightly", "--plot", "page.html")
    assert shown["parts"][0]["recurrences"] == 2
    assert "simulated" in Path("page.html").read_text(encoding="utf-8")
    _, following, _ = job("next", "nightly", "--device", "sim:a100")
    assert following["batch_size"] in (16, 32, 64)
    assert following["why"]
    assert len(job_store().job_runs("nightly")) == runs
    code, forgotten, _ = job("forget", "nightly", "--yes")
    assert (code, forgotten["forgotten"]["runs"]) == (0, runs)
    assert job_store().jobs() == ()


def test_the_program_gets_its_batch_size_and_all_that_goes_with_it(job):
    script = """
import os, sys
names = ("BATCH_SIZE", "LOCAL_BATCH_SIZE", "LEARNING_RATE", "RUN_ID", "METRIC_FILE")
print(*sys.argv[1:], *(os.environ["WATTUNE_" + name] for name in names), file=sys.stderr)
open(os.environ["WATTUNE_METRIC_FILE"], "w").write("epoch,metric\\n1,0.9\\n")
"""
    arguments = ("{batch_size}", "{local_batch_size}", "{learning_rate}", "{seed}", "{{seed}}", '{"a": 1}')
    code, done, errors = job(
        *("run", "nightly", *NEW, "--device", "sim:a100", "--linger", "0", "--metric-file", "{run_id}.csv"),
        *("--lr", "0.1@8", "--lr-rule", "sqrt", *python(script, *arguments)),
    )
    run_id = done["runs"][0]["id"]
    line_of_run = next(line for line in errors.splitlines() if line.startswith("32 "))
    assert code == 0
    assert line_of_run == f'32 32 0.2 0 {{seed}} {{"a": 1}} 32 32 0.2 {run_id} {Path(f"{run_id}.csv").absolute()}'


def test_output_and_exit_code_stay_those_of_the_program(job, capfd):
    patient = ("--linger", "3600")  # it ends by itself
    program = prints("epoch 1 acc 0.8", then="exit(7)")
    assert run(["job", "run", "nightly", *NEW, *QUICK, *patient, *program]) == 7
    assert capfd.readouterr().out == "epoch 1 acc 0.8\n"


def test_a_program_is_ended_when_it_has_reached_its_target(job):
    endless = "import signal; signal.pause()"
    code, done, _ = job("run", "nightly", *NEW, *QUICK, *prints("epoch 1 acc 0.8", then=endless))
    assert (code, done["reached"]) == (0, True)
    assert done["runs"][0]["program_exit_code"] == 143
    polite = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); {}; signal.pause()"
    code, done, _ = job("run", "nightly", *QUICK, *python(polite.format("print('epoch 1 acc 0.8')")))
    assert (code, done["runs"][0]["program_exit_code"]) == (0, 3)


def test_it_may_go_on_and_keeps_its_code(job):
    more = ("epoch 1 acc 0.8", "epoch 2 acc 0.1", "epoch 3 acc 0.9")
    code, done, errors = job("run", "nightly", *NEW, *QUICK, "--keep-going", *prints(*more, then="exit(5)"))
    assert (code, done["reached"]) == (5, True)
    assert done["runs"][0]["metrics"] == [0.8]
    assert "epoch 3" in errors


# what goes wrong


def test_a_program_that_dies_says_nothing_of_its_batch_size(job, job_store):
    code, done, errors = job("run", "nightly", *NEW, *QUICK, *prints("epoch 1 acc 0.5", then="exit(9)"))
    assert (code, done["runs"][0]["outcome"]) == (9, "crashed")
    assert "error: nightly: the program died with exit code 9\nhint: " in errors
    assert job("run", "nightly", *QUICK, *GOOD)[1]["runs"][0]["batch_size"] == 32
    assert outcomes(job_store) == ["crashed", "reached"]


def test_a_program_that_never_reports_is_a_mistake_that_is_said(job, job_store):
    code, done, errors = job("run", "nightly", *NEW, *QUICK, *prints("accuracy 0.8"))
    assert (code, done["runs"][0]["outcome"], done["exit_code"]) == (1, "crashed", 1)
    assert "error: nightly: the program ended and no metric was found\nhint: check the pattern" in errors
    assert job("next", "nightly", "--device", "sim:a100")[1]["batch_size"] == 32


def test_a_metric_that_is_no_number_is_none(job):
    code, done, _ = job(
        "run", "nightly", *NEW, *QUICK, *prints("epoch 1 acc nan", "epoch 2 acc -inf", "epoch 3 acc 0.8")
    )
    assert (code, done["runs"][0]["metrics"]) == (0, [None, None, 0.8])


def test_an_epoch_that_is_reported_twice_counts_once(job):
    lines = ("epoch 1 acc 0.1", "epoch 1 acc 0.9", "epoch 2 acc 0.2", "epoch 2 acc 0.2", "epoch 3 acc 0.8")
    code, done, _ = job("run", "nightly", *NEW, *QUICK, *prints(*lines))
    assert (code, done["runs"][0]["metrics"]) == (0, [0.1, 0.2, 0.8])


def test_a_run_that_misses_its_target_is_replaced_by_another(job, job_store):
    script = "import sys; [print(f'epoch {{n}} acc', 0.8 if sys.argv[1] == '64' else 0.1) for n in (1, 2, 3)]"
    code, done, _ = job("run", "nightly", *NEW, *QUICK, "--max-epochs", "3", *python(script, "{batch_size}"))
    runs = done["runs"]
    assert (code, done["reached"]) == (0, True)
    assert [one["outcome"] for one in runs[:-1]] == ["missed"] * (len(runs) - 1)
    assert (runs[0]["batch_size"], runs[-1]["batch_size"]) == (32, 64)
    assert {one["recurrence"] for one in runs} == {0}
    records = job_store().job_runs("nightly")[::-1]
    assert [record.replaces for record in records] == [None, *(one["id"] for one in runs[:-1])]


def test_attempts_end_some_time(job, job_store):
    code, done, errors = job("run", "nightly", *NEW, *QUICK, "--attempts", "2", *prints("epoch 1 acc 0.1"))
    assert (code, done["reached"], len(done["runs"])) == (1, False, 2)
    assert "error: nightly: the target 0.75 was not reached in 2 runs\nhint: see what happened" in errors


OUT_OF_MEMORY = """
import sys
if int(sys.argv[1]) >= 32:
    sys.exit("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
print("epoch 1 acc 0.8")
"""


def test_a_size_that_does_not_fit_is_never_tried_again_on_that_part(job, job_store):
    code, done, _ = job("run", "nightly", *NEW, *QUICK, *python(OUT_OF_MEMORY, "{batch_size}"))
    assert code == 0
    assert [one["outcome"] for one in done["runs"]][-1] == "reached"
    assert done["runs"][-1]["batch_size"] == 16
    full = [one["batch_size"] for one in done["runs"] if one["outcome"] == "out_of_memory"]
    assert len(full) == len(set(full))
    for _ in range(3):
        code, done, _ = job("run", "nightly", *QUICK, *python(OUT_OF_MEMORY, "{batch_size}"))
        assert (code, [one["batch_size"] for one in done["runs"]]) == (0, [16])
    sizes = {one["batch_size"]: one["state"] for one in job("show", "nightly")[1]["parts"][0]["sizes"]}
    assert sizes == {16: "tried", 32: "infeasible", 64: "infeasible"}


def test_out_of_memory_can_be_reported(job):
    script = """
import os
line = '{"error": "out_of_memory"}' if os.environ["WATTUNE_BATCH_SIZE"] != "16" else '{"metric": 0.8, "epoch": 1}'
with open(os.environ["WATTUNE_METRIC_FILE"], "a") as file:
    print(line, file=file)
"""
    options = ("--device", "sim:a100", "--linger", "3600", "--metric-file", "metrics")
    code, done, errors = job("run", "nightly", *NEW, *options, *python(script))
    assert (code, done["runs"][0]["outcome"], done["runs"][-1]["batch_size"]) == (0, "out_of_memory", 16)
    assert "the command has no {batch_size}" in errors


def test_a_job_that_is_redefined_says_so_and_keeps_its_history(job, job_store):
    job("run", "nightly", *NEW, *QUICK, *GOOD)
    code, done, errors = job("run", "nightly", "--batch-sizes", "32,64,128", *QUICK, *GOOD)
    assert (code, done["redefined"]) == (0, ["batch sizes: 32,64,128 instead of 16,32,64"])
    assert "nightly is redefined: batch sizes" in errors
    assert recurrences(job_store().job_memory("nightly").runs) == {0, 1}
    code, done, _ = job("run", "nightly", "--target", "0.6", *QUICK, *GOOD)
    assert done["redefined"][-1].startswith("earlier runs had another target")
    assert recurrences(job_store().job_memory("nightly").runs) == {2}
    assert {one["recurrence"] for one in job("show", "nightly")[1]["runs"]} == {0, 1, 2}
    code, _, errors = job("run", "nightly", "--batch-sizes", "8,16", *QUICK, *GOOD)
    assert code == 1
    assert "error: nightly: the default batch size 32 is none of 8, 16\nhint: " in errors
    assert recurrences(record.run for record in job_store().job_runs("nightly")) == {0, 1, 2}


def recurrences(runs):
    """Those of the runs; a trial of another size may have been stopped and replaced."""
    return {run.recurrence for run in runs}


def test_training_goes_on_without_a_history(job, tmp_path, monkeypatch):
    (tmp_path / "h.db").write_text("this is no database, " * 100, encoding="utf-8")
    code, done, errors = job("run", "nightly", *NEW, *QUICK, *GOOD)
    assert (code, done["runs"][0]["batch_size"], done["reached"]) == (0, 32, True)
    assert "default batch size 32, without the history of the job" in errors
    assert "how the run ended is kept in" in errors


# signals


@pytest.fixture
def wattune(tmp_path):
    return Command(tmp_path)


WAIT = "import signal; print('epoch 1 acc 0.5', flush=True); signal.pause()"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_goes_to_the_program_and_no_other_attempt_follows(wattune, number):
    with wattune.start("job", "run", "nightly", *NEW, *QUICK, *python(WAIT)) as process:
        assert process.stdout.readline() == "epoch 1 acc 0.5\n"
        os.kill(process.pid, number)
        _, errors = process.communicate()
    assert process.returncode in (128 + number, 1)
    assert "error: nightly: the program was interrupted" in errors
    (record,) = open_store(wattune.environment["WATTUNE_STORE"]).jobs.job_runs("nightly")
    assert (record.run.outcome, record.run.metrics) == (Outcome.CRASHED, (0.5,))


def test_after_kill_nine_the_run_is_lost_in_time_and_the_next_choice_is_sound(wattune):
    with wattune.start("job", "run", "nightly", *NEW, *QUICK, *python(WAIT)) as process:
        assert process.stdout.readline() == "epoch 1 acc 0.5\n"
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for child in family:
            child.kill()
    job_store = open_store(wattune.environment["WATTUNE_STORE"]).jobs
    later = datetime.now(UTC) + timedelta(days=1)
    assert job_store.job_memory("nightly").runs[0].outcome is Outcome.RUNNING
    assert job_store.job_memory("nightly", now=later).runs[0].outcome is Outcome.LOST
    done = json.loads(wattune("job", "run", "nightly", "--json", *QUICK, *GOOD).stdout)
    assert (done["reached"], done["runs"][0]["batch_size"]) == (True, 32)


OUTLIVES = """
import os, sys, time
print("epoch 1 acc 0.5", flush=True)
while not os.path.exists("enough"):
    time.sleep(0.05)
for epoch in range(2, 5000):
    print("epoch", epoch, "acc 0.5", flush=True)
print("and an error", file=sys.stderr, flush=True)
open("finished", "w")
"""


def test_a_program_outlives_wattune_and_its_output_goes_where_it_went(wattune, tmp_path):
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        line = wattune.line("job", "run", "nightly", *NEW, *QUICK, *python(OUTLIVES))
        process = subprocess.Popen(line, stdout=out, stderr=err, env=wattune.environment, cwd=tmp_path)
    wait_until(lambda: "epoch 1 " in (tmp_path / "out").read_text(), process)
    process.kill()
    process.wait()
    (tmp_path / "enough").touch()
    wait_until(lambda: (tmp_path / "finished").exists())
    wait_until(lambda: (tmp_path / "out").read_text().endswith("epoch 4999 acc 0.5\n"))
    wait_until(lambda: (tmp_path / "err").read_text().endswith("and an error\n"))


def test_no_metric_is_lost_in_much_output(job):
    lines = "[print('x' * 200) for _ in range(20000)]"
    program = python(f"{lines}; print('epoch 1 acc 0.5'); {lines}; print('epoch 2 acc 0.8'); {lines}")
    code, done, errors = job("run", "nightly", *NEW, *QUICK, "--keep-going", *program)
    assert (code, done["runs"][0]["metrics"]) == (0, [0.5, 0.8])
    assert errors.count("x" * 200) == 60000


# the settings of a GPU, in virtual time


@pytest.fixture
def trained(job, emulated_node: MakeNode, monkeypatch):
    """A function that makes a node, and one that trains on it."""

    def make(*, privilege=Privilege.GRANTED):
        node = emulated_node("a40", privilege=privilege)
        monkeypatch.setenv("WATTUNE_NODE", str(node.path))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(node.library.parent))

        def train(epochs, *options):
            options = ("--device", "nvml:0", "--metric-file", "metrics", "--knob", "power-limit", *options)
            return job("run", "nightly", *options, "--", sys.executable, TRAINER, epochs)

        return node, train

    return make


def test_the_best_limit_is_found_held_kept_and_taken_back(trained, job_store):
    node, train = trained()
    found = node.setting(0)
    code, done, _ = train("16=9,32=6,64=7", *NEW)
    ran = done["runs"][0]
    assert (code, ran["outcome"], ran["epochs"]) == (0, "reached", 5)
    assert 150 <= ran["setting"]["power_limit_w"] < 300
    assert 0 < ran["profiling"]["energy_j"] < ran["cost"]["energy_j"]
    assert node.setting(0) == found
    (profile,) = job_store().job_memory("nightly").profiles
    assert (profile.batch_size, len(profile.trials) > 1, profile.gpu.simulated) == (32, True, True)


def test_a_run_that_cannot_win_is_stopped_and_the_next_attempt_starts_by_itself(trained, job_store):
    _, train = trained()
    for _ in range(3):
        code, done, errors = train("16=0,32=6,64=0", *NEW, "--searcher", "zeus", "--knob", "none")
        assert (code, done["reached"]) == (0, True)
        stopped = [one for one in done["runs"] if one["outcome"] == "stopped"]
        if stopped:
            break
    assert f"stopped by wattune ({stopped[0]['ended_because']})" in errors
    assert stopped[0]["epochs"] < 100
    assert done["runs"][-1]["batch_size"] == 32
    assert {one["recurrence"] for one in done["runs"]} == {done["runs"][0]["recurrence"]}


def test_a_gpu_that_refuses_to_be_set_is_measured_all_the_same(trained):
    node, train = trained(privilege=Privilege.DENIED)
    found = node.setting(0)
    code, done, errors = train("16=9,32=3,64=7", *NEW)
    ran = done["runs"][0]
    assert (code, ran["outcome"], ran["setting"]) == (0, "reached", None)
    assert ran["cost"]["energy_j"] > 0
    assert "going on without" in errors
    assert node.setting(0) == found


def test_a_limit_of_the_administrator_is_kept(trained, tmp_path):
    _, train = trained()
    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(0), 200_000)
    code, done, _ = train("16=9,32=6,64=7", *NEW)
    assert code == 0
    assert done["runs"][0]["setting"]["power_limit_w"] <= 200
    with open_gpu("nvml:0", Surroundings(tmp_path / "state")) as gpu:
        assert gpu.read().power_limit_w == 200
