"""Policies that users write: loading them, and what becomes of a run when they fail."""

import gc
import json
import sys
from dataclasses import replace

import pytest

from wattune.api import open_gpu, tuned
from wattune.cli.main import run
from wattune.core.errors import InputError
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose
from wattune.levels.run import policy_process
from wattune.levels.run.own_policy import GROUP
from wattune.levels.run.policies import policy_named
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload

LIMIT = LeastEnergy(0.05)
BASE = Order(setting=DRIVER_DEFAULT, purpose=Purpose.BASELINE, least_s=1.0, most_s=2.0)
HOLD = replace(BASE, setting=Setting(sm_mhz=1200), purpose=Purpose.HOLD)

MODULE = """
import os
import sys
import time

import numpy

from wattune import Order, Purpose, Setting

class Fixed:
    def __init__(self, objective):
        self.slowdown = objective.slowdown
    def step(self, windows, spec):
        purpose = Purpose.HOLD if windows else Purpose.BASELINE
        setting = Setting(sm_mhz=spec.sm_clocks_mhz[-9]) if windows else Setting()
        return Order(setting=setting, purpose=purpose, least_s=5.0, most_s=5.0)

class Broken(Fixed):
    def __init__(self, objective):
        raise KeyError("weights")

class Late(Fixed):
    def step(self, windows, spec):
        return super().step(windows, spec) if len(windows) < 2 else 1 / 0

class Nothing:
    def __init__(self, objective): ...

class Exits(Fixed):
    def step(self, windows, spec):
        return super().step(windows, spec) if len(windows) < 2 else sys.exit(3)

class Interrupts(Fixed):
    def step(self, windows, spec):
        if len(windows) == 2:
            raise KeyboardInterrupt
        return super().step(windows, spec)

class Vanishes(Fixed):
    def step(self, windows, spec):
        return super().step(windows, spec) if len(windows) < 2 else os._exit(3)

class Hangs(Fixed):
    def step(self, windows, spec):
        while windows:
            time.sleep(0.01)
        return super().step(windows, spec)

class Numbers(Fixed):
    def step(self, windows, spec):
        print("a policy may print")
        clock = numpy.array(spec.sm_clocks_mhz)[-9]
        return Order(setting=Setting(sm_mhz=clock), purpose=Purpose.HOLD, least_s=numpy.float32(5), most_s=5)

class VanishesAtOnce:
    def __init__(self, objective):
        os._exit(0)

number = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    (tmp_path / "their_policies.py").write_text(MODULE)
    (tmp_path / "broken_module.py").write_text("import no_such_module_at_all")
    (tmp_path / "leaving_module.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "vanishing_module.py").write_text("import os; os._exit(0)")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_policy_is_found_in_the_current_folder_by_its_path():
    path = list(sys.path)
    policy = policy_named("their_policies:Fixed", LIMIT)
    assert policy.name == "their_policies:Fixed"
    assert (policy.tunes, policy.uses_history, policy.needs_counters) == (True, False, False)
    assert policy.step((), load_model("a100").spec()).purpose is Purpose.BASELINE
    assert sys.path == path


def entries(monkeypatch, folder, value):
    """Install a package that names its policy."""
    about = folder / "theirs-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\ntheirs = {value}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_policy_is_found_by_its_entry_point(monkeypatch, folder):
    entries(monkeypatch, folder, "their_policies:Fixed")
    assert policy_named("theirs", LIMIT).name == "theirs"
    with pytest.raises(InputError) as caught:
        policy_named("thiers", LIMIT)
    assert "theirs" in caught.value.hint


def test_an_entry_point_that_leads_nowhere_is_an_input_error(monkeypatch, folder):
    entries(monkeypatch, folder, "gone:Fixed")
    with pytest.raises(InputError, match="cannot be imported: ModuleNotFoundError"):
        policy_named("theirs", LIMIT)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("best", "there is no policy 'best'"),
        ("missing_module:Fixed", "cannot be imported: ModuleNotFoundError"),
        ("broken_module:Fixed", "No module named 'no_such_module_at_all'"),
        ("their_policies:Missing", "is not there"),
        ("their_policies:", "is not there"),
        (":Fixed", "cannot be imported"),
        ("their_policies:number", "cannot be called"),
        ("their_policies:Broken", "cannot be made: KeyError: 'weights'"),
        ("their_policies:Nothing", "has no method step"),
        ("leaving_module:Fixed", "cannot be imported: SystemExit: 3"),
        ("vanishing_module:Fixed", "ended with exit code 0 while it was loaded"),
        ("their_policies:VanishesAtOnce", "ended with exit code 0 while it was loaded"),
    ],
)
def test_what_cannot_be_loaded_is_one_line_and_a_hint(name, message, capfd):
    assert run(["run", "--device", "sim:a100", "--policy", name, "--", "echo", "ran"]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    error, hint = captured.err.splitlines()
    assert message in error
    assert hint.startswith("hint: ")


class Script:
    """A policy that follows a list, whose last entry goes on; an entry may be an error to raise."""

    def __init__(self, *entries):
        self.entries = entries

    def step(self, windows, spec):
        entry = self.entries[min(len(windows), len(self.entries) - 1)]
        if isinstance(entry, BaseException):
            raise entry
        return entry


def played(policy, steps=400):
    load = make_workload("resnet50")
    with open_gpu("sim:a100") as gpu, tuned(gpu, slowdown=0.05, policy=policy) as tuning:
        during = set()
        for _ in range(steps):
            gpu.run(load)
            tuning.step()
            during.add(gpu.setting)
        return tuning, during, gpu.setting


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
        (SystemExit(3), "SystemExit: 3"),
        (None, "Script returned None, which is no Order"),
        (replace(HOLD, most_s=float("nan")), "an order of 1 to nan s"),
        (replace(HOLD, least_s=9.0), "above its longest"),
        (replace(HOLD, most_s=-1.0, least_s=-2.0), "an order of -2 to -1 s"),
    ],
)
def test_a_policy_that_fails_while_it_runs_disables_tuning_and_restores_the_gpu(bad, words):
    tuning, during, after = played(Script(BASE, HOLD, bad))
    assert HOLD.setting in during
    assert words in tuning.disabled
    assert after == DRIVER_DEFAULT
    assert any("the GPU is as it was found" in event for event in tuning.events)


def test_a_policy_that_asks_for_what_the_gpu_lacks_ends_the_tuning():
    tuning, during, after = played(Script(BASE, replace(HOLD, setting=Setting(sm_mhz=1201))))
    assert "insists on 1201 MHz, which was refused" in tuning.disabled
    assert (during, after) == ({DRIVER_DEFAULT}, DRIVER_DEFAULT)


def test_a_good_policy_of_ones_own_is_followed():
    tuning, *_ = played(Script(BASE, HOLD))
    assert tuning.disabled is None
    assert tuning.held == Setting(sm_mhz=1200)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Late", "their_policies:Late raised ZeroDivisionError: division by zero"),
        ("Exits", "their_policies:Exits raised SystemExit: 3"),
        ("Interrupts", "KeyboardInterrupt"),
        ("Vanishes", "the process of the policy their_policies:Vanishes ended with exit code 3"),
    ],
)
def test_code_of_a_policy_that_ends_its_process_ends_the_tuning_alone(name, words):
    tuning, during, after = played(f"their_policies:{name}")
    assert words in tuning.disabled
    assert len(during) == 2
    assert after == DRIVER_DEFAULT


def test_a_policy_that_does_not_answer_ends_the_tuning(monkeypatch):
    monkeypatch.setattr(policy_process, "DECIDE_S", 0.2)
    tuning, during, _ = played("their_policies:Hangs")
    assert "their_policies:Hangs did not answer within 0.2 s" in tuning.disabled
    assert during == {DRIVER_DEFAULT}


def test_a_policy_has_the_time_for_loading_to_learn_before_its_first_order(monkeypatch):
    monkeypatch.setattr(policy_process, "DECIDE_S", 0.0)
    order = policy_named("their_policies:Fixed", LIMIT).step((), load_model("a100").spec())
    assert order.purpose is Purpose.BASELINE


def test_numbers_of_numpy_come_through_and_what_a_policy_prints_is_no_output(capfd):
    order = policy_named("their_policies:Numbers", LIMIT).step((), load_model("a100").spec())
    assert (order.setting, order.least_s) == (Setting(sm_mhz=load_model("a100").spec().sm_clocks_mhz[-9]), 5.0)
    assert type(order.setting.sm_mhz) is int
    out, err = capfd.readouterr()
    assert (out, err) == ("", "a policy may print\n")


def test_the_process_of_a_policy_ends_with_it():
    policy = policy_named("their_policies:Fixed", LIMIT)
    process = policy._process
    assert process.poll() is None
    del policy
    gc.collect()
    assert process.poll() is not None


def test_an_object_without_step_is_refused():
    with (
        open_gpu("sim:a100") as gpu,
        pytest.raises(InputError, match="has no method step"),
        tuned(gpu, slowdown=0.05, policy=object()),
    ):
        pass


def test_rows_of_the_bench_accept_a_policy_of_ones_own(capfd):
    words = ["bench", "run", "--hours", "0.05", "--workload", "text-to-text", "--processes", "1", "--json"]
    code = run([*words, "--policy", "their_policies:Fixed", "--policy", "default"])
    assert code in (0, 1)
    rows = json.loads(capfd.readouterr().out)["rows"]
    assert {row["policy"] for row in rows} == {"their_policies:Fixed", "default"}
    assert run(["bench", "run", "--policy", "their_policies:Missing"]) == 1
    assert "is not there" in capfd.readouterr().err
