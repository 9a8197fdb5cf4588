from __future__ import annotations

import csv
import json
from xml.etree import ElementTree

import pytest

from layer_samples import sample_comparison, sample_costs
from wattune.cli.layers.network import PRECISIONS
from wattune.cli.layers.plan import SCOPES as OPTION_SCOPES
from wattune.cli.layers.plan import STRATEGIES as OPTION_STRATEGIES
from wattune.cli.main import run
from wattune.core.workload import Pipe
from wattune.levels.layer.costs import SCOPES
from wattune.levels.layer.plan_file import read_layer_plans
from wattune.levels.layer.planner import STRATEGIES
from wattune.levels.layer.table_file import LayerCell, table_text

NETWORK = ("--model", "vgg16", "--batch", "64", "--gpu", "rtx-a4000")
PLAN = ("plan", *NETWORK, "--precision", "fp32", "--scope", "forward")
QUICK = (*PLAN, "--switch-latency", "3ms")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def document(capsys, *arguments):
    assert run(["layers", *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def complaint(capsys, *arguments):
    assert run(["layers", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("hint: ")
    return captured.err


def measured(path, *, complete=True):
    """Write the sample network as a table of measurements."""
    costs = sample_costs(simulated=False)
    cells = [
        LayerCell(name, setting, float(costs.time_s[row, column]), float(costs.energy_j[row, column]))
        for row, name in enumerate(costs.names)
        for column, setting in enumerate(costs.settings)
    ]
    path.write_text(table_text(cells if complete else cells[:-2]))


def test_the_names_in_the_options_are_those_of_the_planner():
    assert (OPTION_SCOPES, OPTION_STRATEGIES) == (SCOPES, STRATEGIES)
    assert {pipe.value for pipe in Pipe} == set(PRECISIONS)


def test_the_document_has_the_verdict_and_every_strategy(capsys):
    found = document(capsys, *QUICK, "--max-slowdown", "10%")
    assert found["simulated"] is True
    assert (found["model"], found["batch_size"], found["precision"]) == ("vgg16:64", 64, "fp32")
    assert (found["gpu"], found["scope"], found["max_slowdown_percent"]) == ("NVIDIA RTX A4000", "forward", 10.0)
    assert found["switching"]["sm_latency_s"] == pytest.approx(0.003)
    assert found["switching"]["origin"] == "latency as given"
    assert found["saved_per_1000_gpu_hours"]["energy_kwh"] > 0
    verdict = found["verdict"]
    assert "(simulated)" in verdict["sentence"]
    assert verdict["slowdown_percent"] <= 10.001
    assert tuple(found["strategies"]) == STRATEGIES
    assert [found["strategies"][name]["upper_bound"] for name in STRATEGIES] == [False] * 4 + [True]
    for name in ("single", "segments", "ideal"):
        within = found["strategies"][name]["within"]
        assert within["slowdown_percent"] <= 10.001
        assert within["saving_percent"] > 0
    assert found["strategies"]["ideal"]["within"]["played"] is None
    energies = [found["strategies"][name]["within"]["energy_j"] for name in ("single", "segments", "ideal")]
    assert energies == sorted(energies, reverse=True)


def test_the_files_are_written(home, capsys):
    found = document(capsys, *QUICK, "--out", "plan.json", "--html", "p.html", "--frontier-csv", "f.csv")
    assert (found["out"], found["html"], found["frontier_csv"]) == ("plan.json", "p.html", "f.csv")
    plans = read_layer_plans(home / "plan.json")
    within = found["strategies"]["segments"]["within"]
    assert plans.plan.cost.energy_j == pytest.approx(within["energy_j"])
    assert (plans.batch_size, plans.precision, plans.scope, plans.simulated) == (64, "fp32", "forward", True)
    with (home / "f.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(strategy["frontier"]) for strategy in found["strategies"].values())
    page = (home / "p.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert found["verdict"]["sentence"] in page
    assert "arithmetic intensity" in page


def test_people_read_the_verdict_first_and_what_was_assumed(capsys):
    assert run(["layers", *QUICK]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Changing clocks between layers ")
    assert "(simulated)" in text.splitlines()[0]
    for expected in ("upper bound", "segments", "latency as given", "Switching pays when it saves 1 %"):
        assert expected in text
    table = [line for line in text.splitlines() if line.startswith((*STRATEGIES, "strategy"))]
    assert len(table) == 1 + len(STRATEGIES)
    assert all(len(line) <= 80 for line in table)


def test_without_a_latency_the_catalogue_is_used_until_one_is_measured(capsys):
    known = document(capsys, *PLAN)["switching"]
    assert (known["origin"], known["sm_latency_s"]) == ("from the catalogue", 0.08)
    assert run(["layers", "switch-latency", "--device", "sim:a4000", "--repeats", "1"]) == 0
    capsys.readouterr()
    measured_now = document(capsys, *PLAN)["switching"]
    assert measured_now["origin"] == "measured on the simulated GPU"
    assert measured_now["sm_latency_s"] != known["sm_latency_s"]


def test_a_store_that_cannot_be_read_is_a_warning(home, capsys, monkeypatch):
    monkeypatch.setenv("WATTUNE_STORE", "mysql://nowhere/x")
    assert run(["layers", *PLAN, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["switching"]["origin"] == "from the catalogue"
    assert captured.err.startswith("warning: ")


def test_stall_and_dwell_can_be_given(capsys):
    found = document(capsys, *QUICK, "--switch-stall", "80us", "--min-dwell", "2")["switching"]
    assert (found["sm_stall_s"], found["dwell"]) == (pytest.approx(80e-6), 2.0)
    assert found["origin"] == "latency as given, stall as given"


def test_an_all_reduce_is_a_layer(capsys, home):
    document(
        capsys,
        "plan",
        *NETWORK,
        "--all-reduce",
        "8",
        "--switch-latency",
        "0.1s",
        "--strategy",
        "single",
        "--out",
        "p.json",
    )
    names = [operation.name for operation in read_layer_plans(home / "p.json").plan.choice.graph.operations]
    assert names[-2:] == ["all-reduce", "optimizer"]


def test_measured_layers_take_the_place_of_the_simulation(home, capsys):
    measured(home / "layers.csv")
    arguments = ("plan", "--model", "net", "--batch", "8", "--gpu", "a4000", "--table", "layers.csv")
    found = document(capsys, *arguments, "--switch-latency", "2ms", "--html", "p.html")
    assert (found["simulated"], found["model"], found["batch_size"]) == (False, "net:8", 8)
    assert "simulated" not in found["verdict"]["sentence"]
    assert "intensity" not in found["strategies"]
    single = sample_comparison(simulated=False).single
    assert found["strategies"]["single"]["within"]["energy_j"] == pytest.approx(single.energy_j)
    assert 'class="badge"' not in (home / "p.html").read_text(encoding="utf-8")


def test_a_model_of_pytorch_is_traced(home, capsys):
    pytest.importorskip("torch")
    (home / "net.py").write_text(
        "import torch\n\n\ndef make():\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))\n"
        "    return model, torch.zeros(4096, 512)\n"
    )
    found = document(capsys, "roofline", "--model", "net.py:make", "--gpu", "a4000")
    assert (found["model"], found["batch_size"]) == ("Sequential:4096", 4096)
    assert {layer["layer"].split("/")[0] for layer in found["layers"]} == {"forward", "backward", "optimizer"}
    planned = document(
        capsys, "plan", "--model", "net.py:make", "--gpu", "a4000", "--batch", "4096", "--switch-latency", "1ms"
    )
    assert planned["model"] == "Sequential:4096"
    assert "for a batch size of 4096, not 8" in complaint(
        capsys, "plan", "--model", "net.py:make", "--gpu", "a4000", "--batch", "8"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def other(): pass\n", "net.py has no function 'make'"),
        ("def make(): return 3\n", "make of net.py does not return (model, inputs)"),
        ("def make(): raise KeyError('weights')\n", "make of net.py failed: KeyError: 'weights'"),
        ("import nothing_like_this\n", "make of net.py failed: ModuleNotFoundError"),
        ("def make(:\n", "make of net.py failed: SyntaxError"),
    ],
)
def test_a_file_that_makes_no_model_is_named(home, capsys, text, words):
    pytest.importorskip("torch")
    (home / "net.py").write_text(text)
    assert words in complaint(capsys, "plan", "--model", "net.py:make", "--gpu", "a4000")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "resnet51", "--gpu", "a4000"), "there is no workload 'resnet51'"),
        (("--model", "resnet50", "--gpu", "a400"), "there is no simulated GPU 'a400'"),
        ((*NETWORK, "--switch-latency", "-5ms"), "--switch-latency -5ms: not a time of 0 or more"),
        ((*NETWORK, "--switch-latency", "soon"), "--switch-latency soon"),
        ((*NETWORK, "--switch-stall", "1parsec"), "--switch-stall 1parsec"),
        ((*NETWORK, "--max-slowdown", "-1%"), "'-1%' is no share"),
        ((*NETWORK, "--max-slowdown", "5"), "5 is a share of 500 %"),
        ((*NETWORK, "--table", "none.csv"), "cannot read none.csv"),
        ((*NETWORK, "--table", "part.csv"), "2 of 45 measurements are missing: optimizer at "),
        ((*NETWORK, "--table", "part.csv", "--strategy", "intensity"), "intensity needs the work of each layer"),
        ((*NETWORK, "--table", "part.csv", "--all-reduce", "2"), "--all-reduce is for simulated layers"),
        ((*NETWORK, "--out", "no/p.json"), "cannot write no/p.json"),
        ((*QUICK[1:], "--strategy", "ideal", "--out", "p.json"), "ideal is an upper bound that no GPU can play"),
        (
            (*PLAN[1:], "--strategy", "exhaustive", "--out", "p.json"),
            "no plan by exhaustive is within a slowdown of 5 %",
        ),
        (("--model", "net.py:make", "--gpu", "a4000"), "there is no file net.py"),
    ],
)
def test_what_cannot_be_planned_is_one_line_and_a_hint(home, capsys, arguments, words):
    measured(home / "part.csv", complete=False)
    assert words in complaint(capsys, "plan", *arguments)
    assert not (home / "p.json").exists()


def test_a_limit_of_nothing_allows_the_default(capsys):
    found = document(capsys, *QUICK, "--max-slowdown", "0%")
    assert found["verdict"]["slowdown_percent"] <= 1e-6
    assert found["strategies"]["single"]["within"]["time_s"] <= found["default"]["time_s"] * (1 + 1e-9)


# rooflines


def test_the_roofline_has_two_settings_and_every_layer(home, capsys):
    found = document(capsys, "roofline", *NETWORK, "--clocks", "1350,5001", "--svg", "r.svg", "--html", "r.html")
    assert [(one["sm_mhz"], one["mem_mhz"]) for one in found["settings"]][1] == (1350, 5001)
    assert (found["simulated"], found["svg"], found["html"]) == (True, "r.svg", "r.html")
    layer = found["layers"][0]
    assert layer["intensity"] == pytest.approx(layer["flops"] / layer["dram_bytes"])
    assert {place["limit"] for one in found["layers"] for place in one["at"]} <= {"compute", "memory", "launch"}
    root = ElementTree.fromstring((home / "r.svg").read_text(encoding="utf-8"))
    assert len(root.findall("{http://www.w3.org/2000/svg}svg")) == 2
    assert "simulated" in (home / "r.html").read_text(encoding="utf-8")


def test_names_of_layers_stay_whole_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["layers", "roofline", "--model", "resnet50", "--gpu", "a4000"]) == 0
    assert "forward/stage1/block1/shortcut-norm" in capsys.readouterr().out


def test_the_roofline_of_a_gpu_whose_memory_clock_is_fixed(capsys):
    found = document(capsys, "roofline", "--model", "vgg16", "--gpu", "a100", "--clocks", "1005")
    assert found["settings"][0]["mem_mhz"] == found["settings"][1]["mem_mhz"]


def test_people_read_what_limits_the_layers(capsys):
    assert run(["layers", "roofline", *NETWORK]) == 0
    text = capsys.readouterr().out
    assert "of the time is limited by compute" in text
    assert "ridge" in text
    assert all(len(line.rstrip()) <= 80 for line in text.split(":\n", 1)[1].splitlines())


@pytest.mark.parametrize(
    ("clocks", "words"),
    [
        ("1351,5001", "no core clock of 1351 MHz"),
        ("1350,4000", "no memory clock of 4000 MHz"),
        ("fast", "'fast' is not a pair of clocks"),
    ],
)
def test_clocks_that_the_gpu_lacks_are_refused(capsys, clocks, words):
    assert words in complaint(capsys, "roofline", *NETWORK, "--clocks", clocks)
