"""A program on GPUs behind NVML on which things go wrong: the emulated library, in virtual time."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
from run_fakes import Moody, Script

from plain_program import PerfectModels, PlainProgram
from wattune.control import loop as run_loop
from wattune.control.state import Disabled
from wattune.core.objective import LeastEnergy
from wattune.core.setting import Setting
from wattune.core.window import Purpose
from wattune.devices.open import Surroundings, open_gpus, restore_abandoned
from wattune.levels.run.gpoeo.models import FEATURES
from wattune.levels.run.gpoeo.policy import GpoeoPolicy
from wattune.levels.run.policies import learn_beforehand, policy_named
from wattune.levels.run.session import RunSession
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

FOUND = Setting(None, None, 400.0)
LOW, LOWER = Setting(1200), Setting(1005)
NO_PERMISSION, INVALID_ARGUMENT, UNKNOWN = 4, 2, 999


class Tuned:
    """A session on an emulated node, whose time passes when a test says so."""

    def __init__(self, stack, node, folder, *, gpu="a100", policy=None, workload="resnet50"):
        self.node, self.around = node, Surroundings(folder, None)
        self.stack = stack.enter_context(ExitStack())
        node.play(0, tabulate(load_model(gpu), make_workload(workload)))
        gpus = self.stack.enter_context(open_gpus(("nvml:0",), self.around))
        policy = policy or Script((LOW, LOWER))
        self.session = RunSession(gpus, objective=LeastEnergy(0.05), policy=policy, program=Moody())
        self.stack.enter_context(self.session)

    def wait(self, seconds):
        for _ in range(round(seconds / 0.1)):
            self.node.advance(0.1)
            self.session.loop.tick()

    @property
    def said(self):
        return " | ".join(event.text for event in self.session.progress.events)

    def end(self):
        self.stack.close()


@pytest.fixture
def tuned(emulated_node, tmp_path):
    with ExitStack() as stack:
        yield lambda gpu="a100", **what: Tuned(stack, emulated_node(gpu), tmp_path / "state", gpu=gpu, **what)


def test_a_program_is_tuned_and_the_gpu_restored(tuned):
    run = tuned()
    run.wait(20)
    assert run.node.setting(0).sm_mhz == 1005
    run.end()
    assert run.node.setting(0) == FOUND
    assert run.said == ""


def test_sensors_that_fail_for_a_while(tuned):
    run = tuned()
    run.wait(4)
    run.node.fail(0, UNKNOWN)
    run.wait(2)
    run.node.fail(0, 0)
    run.wait(14)
    assert "could not be read" in run.said
    assert run.session.progress.windows[-1].purpose is Purpose.HOLD
    run.end()
    assert run.node.setting(0) == FOUND


def test_sensors_that_fail_for_good_end_the_tuning(tuned, monkeypatch):
    run = tuned()
    run.wait(5.6)
    assert run.node.setting(0).sm_mhz == 1200
    run.node.fail(0, UNKNOWN)
    monkeypatch.setattr(run_loop, "BLIND_S", -1.0)  # that time is the wall's
    run.wait(1)
    assert isinstance(run.session.progress.state, Disabled)
    run.node.fail(0, 0)
    run.end()
    assert "cannot be read any more" in run.said
    assert run.node.setting(0) == FOUND


def test_a_gpu_that_is_lost(tuned):
    run = tuned()
    run.wait(6)
    run.node.lose(0)
    run.wait(2)
    run.end()
    assert "fallen off the bus" in run.said
    assert isinstance(run.session.progress.state, Disabled)


def test_permission_that_is_lost_midway(tuned):
    run = tuned()
    run.wait(5.6)
    assert run.node.setting(0).sm_mhz == 1200
    run.node.refuse(0, NO_PERMISSION)
    run.wait(10)
    assert isinstance(run.session.progress.state, Disabled)
    assert "permission" in run.said
    assert "could not be restored, `wattune restore` will try again" in run.said
    run.node.refuse(0, 0)
    run.end()
    restore_abandoned(run.around)
    assert run.node.setting(0) == FOUND


def test_clocks_that_are_refused(tuned):
    run = tuned()
    run.node.refuse(0, INVALID_ARGUMENT)
    run.wait(20)
    assert "1200 MHz was refused and is not tried again" in run.said
    assert {window.setting for window in run.session.progress.windows} == {Setting()}
    run.node.refuse(0, 0)
    run.end()
    assert run.node.setting(0) == FOUND


def test_clocks_that_are_silently_not_applied(tuned):
    run = tuned()
    run.node.ignore(0)
    run.wait(25)
    assert "1200 MHz was asked for and" in run.said
    assert {window.setting for window in run.session.progress.windows} == {Setting()}
    run.end()
    assert run.node.setting(0) == FOUND


# counters


class Asked:
    """Models that write down what they are asked with."""

    def __init__(self, program):
        self.models, self.asked = PerfectModels(program), []
        self.reference = self.models.reference

    def predict(self, features, settings):
        self.asked.append(dict(features))
        return self.models.predict(features, settings)


def test_gpoeo_predicts_from_counters_where_the_gpu_has_them(tuned):
    models = Asked(PlainProgram(load_model("h100").spec()))
    run = tuned("h100", policy=GpoeoPolicy(learn=lambda _: models), workload="bert-base")
    run.wait(90)
    windows = run.session.progress.windows
    assert windows[0].purpose is Purpose.REFERENCE
    assert set(FEATURES) <= set(windows[0].features)
    assert models.asked[0]["tensor"] == pytest.approx(windows[0].features["tensor"], abs=0.02)
    assert "counters" not in run.said
    run.end()


def test_gpoeo_reports_missing_counters(tuned):
    run = tuned(policy="gpoeo")
    assert "gpoeo has no counters to go by" in run.said


def test_counted_work_gives_the_step_time_where_nothing_repeats(tuned):
    run = tuned("h100", policy=Script((Setting(1500), Setting(1200)), seconds=8.0), workload="bert-base")
    run.wait(50)
    base, slow, *_ = (window for window in run.session.progress.windows if window.step_time_s is not None)
    assert run.session.watch.unit == "unit of work"
    assert slow.step_time_s > 1.03 * base.step_time_s
    assert slow.features["tensor"] > 0.1


def test_a_gpu_outside_the_catalogue_has_no_training_data():
    spec = replace(load_model("h100").spec(), name="Unheard Of 9000")
    policies = {name: policy_named(name, LeastEnergy(0.05)) for name in ("gpoeo", "wattune")}
    (note,) = learn_beforehand(policies["gpoeo"], spec, on_learning=pytest.fail)
    assert "no Unheard Of 9000 in the catalogue" in note
    assert policies["gpoeo"].step((), spec).why == "counters and period"
    assert learn_beforehand(policies["wattune"], spec, on_learning=pytest.fail) == ()
