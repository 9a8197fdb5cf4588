"""What people get wrong, by real processes: one line that says what, a hint, the right exit code, and nothing lost."""

import json
import os
import subprocess
import sys

import pytest

from command import Command, complaint

KERNELS = ("--tp", "1", "--pp", "1", "--microbatch-size", "1", "--sequence", "512", "--microbatches", "2")
HEAD = "workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\n"


@pytest.fixture
def wattune(tmp_path):
    return Command(tmp_path)


# names


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("devices", "--device", "nvlm:0"), "there is no device 'nvlm:0'", "did you mean nvml"),
        (("measure", "--device", "gpu7", "--", "true"), "there is no device 'gpu7'", "devices are auto, nvml:0"),
        (("sweep", "--device", "sim:a1000"), "there is no simulated GPU 'a1000'", "a100"),
        (("sweep", "--device", ""), "there is no device ''", "devices are auto, nvml:0"),
        (("run", "--max-slowdown", "", "--", "true"), "'' is no slowdown", "5% or 0.05"),
        (("simulate", "--gpu", "v10", "--", "true"), "there is no simulated GPU 'v10'", "v100"),
        (("measure", "--device", "nvml:0", "--", "true"), "no NVIDIA driver is installed", "--device sim:a100"),
        (("monitor", "--once", "--workload", "resnet51"), "no workload 'resnet51'", "did you mean resnet50 or"),
        (("sweep", "--workload", "resnet50:many"), "has no whole batch size", "resnet50:64"),
        (("history", "3f0c"), "there is no run whose id begins with '3f0c'", "wattune history"),
        (
            ("layers", "plan", "--model", "resnet51", "--gpu", "a4000"),
            "no workload 'resnet51'",
            "did you mean resnet50 or",
        ),
        (("layers", "roofline", "--model", "vgg16", "--gpu", "a400"), "no simulated GPU 'a400'", "did you mean a4000"),
        (
            ("layers", "plan", "--model", "vgg16", "--gpu", "a4000", "--switch-latency", "-5ms"),
            "--switch-latency -5ms: not a time of 0 or more",
            "--switch-latency 10ms",
        ),
        (("measure", "--device", "RTX 4090", "--", "true"), "there is no device 'RTX 4090'", "did you mean sim:4090?"),
        (("sweep", "--workload", "resnet"), "there is no workload 'resnet'", "did you mean resnet18 or resnet50 or"),
        (("layers", "plan", "--model", "lama", "--gpu", "a4000"), "no workload 'lama'", "llama3.2-3b or llama3.3-70b?"),
        (("layers", "plan", "--model", "mine", "--gpu", "a4000"), "no workload 'mine'", "--model train.py:make"),
        (
            ("kernels", "plan", "--model", "llama", "--gpu", "a100", "--out", "plan.json", *KERNELS),
            "there is no transformer 'llama'",
            "did you mean llama3.2-3b or llama3.3-70b? there are bert-base, bert-large, gpt2, gpt3-175b, llama3.2-3b, "
            "llama3.3-70b, qwen3-1.7b; for another, write what differs from the nearest: llama3.2-3b:layers=32",
        ),
        (("devices", "--catalog", ""), "there is no simulated GPU ''", "a100"),
        (("physics", "fit", "sweep.csv", "--gpu", "v10"), "no simulated GPU 'v10'", "v100-sxm2? for a GPU that is not"),
        (("physics", "fit", "sweep.csv", "--gpu", ""), "no simulated GPU ''", "v100-sxm2; for a GPU that is not"),
        (("job", "run", "", "--", "true"), "a job needs a name", "nightly-bert"),
        (
            ("job", "run", "a", "--batch-sizes", "8", "--target", "1", "--objective", "", "--", "true"),
            "'' is no objective",
            "cost:0.5",
        ),
        (("run", "--step-pattern", "", "--", "true"), "an empty pattern matches every line", "step"),
        (("simulate", "--fault", "0:tired", "--", "true"), "'0:tired' is not a fault", "0:lost@30s"),
    ],
)
def test_an_unknown_name_is_met_with_the_nearest(wattune, arguments, message, hint):
    done = wattune(*arguments)
    assert done.stdout == ""
    found, advice = complaint(done)
    assert message in found
    assert hint in advice


@pytest.mark.parametrize("word", ["x" * 120_000, "x y " * 30_000])
@pytest.mark.parametrize(
    "before",
    [
        (),
        ("sweep",),
        ("sweep", "--device"),
        ("sweep", "--points"),
        ("layers", "plan", "--gpu", "a100", "--model"),
        ("pipeline", "show"),
    ],
)
def test_a_huge_word_does_not_flood_the_terminal(wattune, before, word):
    done = wattune(*before, word)
    message, _ = complaint(done, code=done.returncode)
    assert done.returncode in (1, 2)
    assert len(message) < 320
    assert len(done.stderr) < 1000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mesure", "--", "true"), "Did you mean 'measure'?"),
        (("sweep", "--point", "3"), "no such option '--point'"),
        (("measure",), "COMMAND"),
        (("measure", "--gpu", "0", "--", "true"), "no such option '--gpu'. Did you mean '--device'?"),
        (("run", "--gpu", "0", "--", "true"), "Did you mean '--device'?"),
        (("run", "--slowdown", "5%", "--", "true"), "Did you mean '--max-slowdown'?"),
        (("hold", "1200MHz", "--gpu", "0", "--", "true"), "Did you mean '--device'?"),
        (("sweep", "--gpu", "0", "--", "true"), "Did you mean '--device'?"),
        (("simulate", "--device", "a100", "--", "true"), "Did you mean '--gpu'?"),
        (("job", "run", "j", "--gpu", "0", "--", "true"), "Did you mean '--device'?"),
        (("pipeline", "profile", "--gpu", "0", "--", "true"), "--gpu"),
        (("kernels", "measure", "--gpu", "0", "--", "true"), "Did you mean '--device'?"),
        (("layers", "switch-latency", "--gpu", "0", "--", "true"), "Did you mean '--device'?"),
        (("measure", "--interval", "soon", "--", "true"), "'--interval': 'soon' is not a number"),
        (("attach", "python"), "invalid value for 'PID': 'python' is not a whole number"),
        (("sweep", "--points", "0"), "--points"),
        (("sweep", "--knob", "fan"), "sm-clock"),
        (("export", "--format", "xml"), "parquet"),
        (("export", "--format", "parquet"), "--out"),
        (("history", "--since", "yesterday"), "2025-03-01"),
        (("bench", "nothing"), "nothing"),
        (("layers", "plan", "--gpu", "a4000"), "--model"),
        (("layers", "plan", "--model", "vgg16", "--gpu", "a4000", "--strategy", "greedy"), "segments"),
        (("layers", "plan", "--model", "vgg16", "--gpu", "a4000", "--min-dwell", "0"), "--min-dwell"),
    ],
)
def test_wrong_usage_ends_with_2(wattune, arguments, said):
    done = wattune(*arguments)
    assert done.stdout == ""
    found, hint = complaint(done, code=2)
    assert said in found
    assert "--help` shows how it is used" in hint
    assert len(done.stderr.splitlines()) == 2


def test_a_group_without_a_command_shows_its_help(wattune):
    done = wattune("job")
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: wattune job")
    assert "forget" in done.stderr


# files


@pytest.mark.parametrize("command", ["sweep", "run"])
def test_a_report_of_an_unknown_form_is_refused_before_the_work(wattune, command):
    tail = ("--", "touch", "ran") if command == "run" else ()
    found, hint = complaint(wattune(command, "--device", "sim:a100", "--report", "page.pdf", *tail))
    assert "a report cannot be written as page.pdf" in found
    assert "name it page.html" in hint
    assert not (wattune.folder / "ran").exists()


def test_a_run_names_its_report(wattune):
    done = wattune("run", "--device", "sim:a100", "--report", "page.html", "--", "true")
    assert done.returncode == 0
    assert "report written to page.html" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sweep.csv is empty"),
        (HEAD, "sweep.csv has a header and no rows"),
        (HEAD + "a,1000,,,nan,5\n", "sweep.csv, line 2, column time_s: nan is not a finite number above 0"),
        (HEAD + "a,1000,,,1,inf\n", "sweep.csv, line 2, column energy_j: inf is not a finite number above 0"),
        (HEAD + "a,1000,,,1,5\n\na,fast,,,1,5\n", "sweep.csv, line 4, column sm_mhz: 'fast' is not a number"),
        (HEAD + "a,1000.5,,,1,5\n", "sweep.csv, line 2, column sm_mhz: 1000.5 is not a whole number"),
        (HEAD + "a,1000,,-3,1,5\n", "sweep.csv, line 2, column power_limit_w: -3 is not a finite number above 0"),
        (HEAD + "a,1000,,,1\n", "sweep.csv, line 2, column energy_j: 5 cells for 6 columns"),
        ("workload,sm_mhz,time_s\n", "sweep.csv, line 1: there is no column mem_mhz"),
        (HEAD + 'a,"1000,,,1,5\n', "sweep.csv, line 2"),
        ("\udcff\udcfe", "cannot read sweep.csv: it is not UTF-8 text"),
    ],
)
def test_a_bad_table_is_named_by_file_line_and_column(wattune, text, message):
    (wattune.folder / "sweep.csv").write_bytes(text.encode(errors="surrogateescape"))
    done = wattune("sweep", "--device", "table:sweep.csv")
    assert done.stdout == ""
    assert message in complaint(done)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('devise = "auto"\n', "there is no setting 'devise'"),
        ("device = 3\n", "setting 'device' is not a text"),
        ("device =\n", "line 1, column 9"),
    ],
)
def test_a_bad_settings_file_is_named(wattune, text, message):
    (wattune.folder / "config.toml").write_text(text)
    found, _ = complaint(wattune("devices", WATTUNE_CONFIG="config.toml"))
    assert message in found
    assert "config.toml" in found


@pytest.mark.parametrize(
    "arguments",
    [
        ("measure", "--trace", "missing/trace.csv", "--", "touch", "ran"),
        ("sweep", "--csv", "missing/sweep.csv"),
        ("sweep", "--report", "missing/report.html"),
        ("demo", "--out", "missing/report.html"),
        ("simulate", "--truth", "missing/truth.json", "--", "touch", "ran"),
        ("export", "--out", "missing/runs.csv"),
    ],
)
def test_a_folder_that_is_missing_is_noticed_before_anything_runs(wattune, arguments):
    done = wattune(*arguments)
    assert done.stdout == ""
    assert "cannot write missing/" in complaint(done)[0]
    assert not (wattune.folder / "ran").exists()


# settings

SETTER = """
import json
from wattune import Setting, WattuneError, open_gpu

found = []
for device in ("nvml:0", "sim:a100"):
    with open_gpu(device) as gpu:
        for wanted in (Setting(1234), Setting(mem_mhz=500), Setting(power_limit_w=99), Setting(1410, None, 401)):
            try:
                gpu.apply(wanted)
            except WattuneError as error:
                found.append([type(error).__name__, error.message, error.hint])
print(json.dumps(found))
"""


def under(node):
    return {"WATTUNE_NODE": str(node.path), "LD_LIBRARY_PATH": str(node.library.parent)}


def test_a_clock_or_limit_that_the_part_does_not_have_is_refused_with_what_it_has(wattune, emulated_node):
    node = emulated_node("a100", clock="wall")
    environment = {**wattune.environment, **under(node)}
    done = subprocess.run([sys.executable, "-c", SETTER], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert len(found) == 8
    assert {kind for kind, _, _ in found} == {"SettingRefused"}
    assert all("(simulated)" in message for _, message, _ in found)
    assert "nearest to yours: 1230 and 1245" in found[0][2]
    assert [hint for _, message, hint in found if "401 W" in message or "99 W" in message] == [
        "choose one from 100 to 400 W"
    ] * 4
    assert node.setter_calls() == 0


def test_a_knob_that_the_part_does_not_have_is_refused(wattune):
    found, hint = complaint(wattune("sweep", "--device", "sim:v100", "--knob", "mem-clock"))
    assert "does not let its memory clock be set" in found
    assert "--knob sm-clock" in hint


HOLDER = """
import sys
from wattune import Setting, open_gpu

with open_gpu("nvml:0") as gpu:
    gpu.apply(Setting(1005))
    print("holding", flush=True)
    sys.stdin.read()
"""


def test_two_tuners_cannot_have_one_gpu(wattune, emulated_node):
    node = emulated_node("a100", clock="wall")
    environment = {**wattune.environment, **under(node)}
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "holding\n"
        done = wattune("sweep", "--device", "nvml:0", "--", "true", **under(node))
        found, hint = complaint(done)
        assert f"is being tuned by process {holder.pid} already" in found
        assert f"kill {holder.pid}" in hint
        assert node.setting(0).sm_mhz == 1005
        measured = wattune("measure", "--device", "nvml:0", "--", "true", **under(node))
        assert measured.returncode == 0, "measuring needs no claim"
        holder.communicate("")
    assert holder.returncode == 0
    assert node.setting(0).sm_mhz is None
    assert wattune("sweep", "--device", "nvml:0", "--points", "1", "--", "true", **under(node)).returncode == 0


# stores and disks


@pytest.mark.parametrize("store", ["/dev/null/history.db", ".", "mysql://nobody@nowhere/none"])
def test_a_store_that_cannot_be_written_loses_nothing(wattune, store):
    done = wattune("measure", "--", "sh", "-c", "echo said; exit 7", WATTUNE_STORE=store)
    assert done.returncode == 7
    assert done.stdout == "said\n"
    assert "Traceback" not in done.stderr
    assert "warning: " in done.stderr
    assert "NVIDIA A100-SXM4-40GB (simulated)" in done.stderr
    assert str(wattune.folder / "state" / "unsaved-runs.db") in done.stderr
    assert json.loads(wattune("history", "--recover", "--json").stdout)["taken"] == 1
    runs = json.loads(wattune("history", "--json").stdout)["runs"]
    assert [run["details"]["exit_code"] for run in runs] == [7]


def test_a_sweep_whose_store_fails_is_shown_and_kept_beside_it(wattune):
    done = wattune("sweep", "--points", "2", "--json", WATTUNE_STORE="/dev/null/history.db")
    assert "the run is kept in" in complaint(done)[0]
    assert len(json.loads(done.stdout)["trials"]) == 3
    assert json.loads(wattune("history", "--recover", "--json").stdout)["taken"] == 1


def test_a_full_disk_keeps_the_figures_of_a_sweep_and_leaves_no_half_report(wattune):
    (wattune.folder / "report.html").write_text("the old report")
    arguments = ("sweep", "--even", "--points", "60", "--json", "--report", "report.html", "--csv", "sweep.csv")
    done = wattune(*arguments, largest_file=60_000)  # room for the run beside the store, and not for a new store
    assert complaint(done)[0] == "cannot write report.html: File too large"
    document = json.loads(done.stdout)
    assert (document["csv"], document["report"]) == ("sweep.csv", None)
    assert (wattune.folder / "report.html").read_text() == "the old report"
    assert (wattune.folder / "sweep.csv").read_text().count("\n") == len(document["trials"]) + 1 > 60
    assert json.loads(wattune("history", "--recover", "--json").stdout)["taken"] == 1
    assert not [file for file in os.listdir(wattune.folder) if file.startswith(".")]


@pytest.mark.parametrize(("child", "code"), [("exit 0", 1), ("exit 5", 5)])
def test_a_full_disk_keeps_the_figures_of_a_measured_command(wattune, child, code):
    arguments = ("measure", "--json", "--trace", "trace.csv", "--", "sh", "-c", child)
    done = wattune(*arguments, largest_file=40)
    assert complaint(done, code=code)[0] == "cannot write trace.csv: File too large"
    assert "the run could not be kept anywhere" in done.stderr
    assert json.loads(done.stdout)["exit_code"] == int(child[-1])
    assert not (wattune.folder / "trace.csv").exists()


def test_a_full_disk_keeps_the_old_export(wattune):
    for _ in range(2):
        assert wattune("sweep", "--points", "81", "--even").returncode == 0
    (wattune.folder / "trials.json").write_text("the old one")
    arguments = ("export", "--what", "trials", "--out", "trials.json", "--force")
    done = wattune(*arguments, largest_file=40_000)
    assert complaint(done)[0] == "cannot write trials.json: File too large"
    assert (wattune.folder / "trials.json").read_text() == "the old one"
    assert wattune(*arguments).returncode == 0
    assert len(json.loads((wattune.folder / "trials.json").read_text())["rows"]) == 2 * 82


def test_a_damaged_journal_is_named_and_kept_aside(wattune):
    (wattune.folder / "state").mkdir()
    (wattune.folder / "state" / "GPU-1.journal").write_text("{")
    findings = json.loads(wattune("doctor", "--json").stdout)["findings"]
    journal = next(finding for finding in findings if finding["topic"] == "journal")
    assert (journal["level"], "GPU-1" in journal["line"]) == ("problem", True)
    assert "journal entry of GPU-1 is damaged" in complaint(wattune("restore"))[0]
    assert "nothing to restore" in wattune("restore").stdout


# readers that go away


def test_a_reader_that_goes_away_is_no_failure(wattune):
    assert wattune("sweep", "--points", "81", "--even").returncode == 0
    with wattune.start("export", "--what", "trials") as process:
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == ""
