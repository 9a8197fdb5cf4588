"""Sessions in virtual time of programs that report the phases of their steps."""

from functools import partial

import pytest
from run_fakes import Script

from wattune import tuned
from wattune.core.errors import NoPermission, SettingRefused
from wattune.core.gpu_spec import Switching
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose
from wattune.core.workload import Phase, Workload
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.layer.phase_policy import PhasePolicy
from wattune.levels.layer.switching import SwitchCost
from wattune.levels.run.report import report_of
from wattune.levels.run.session import RunSession, Tuning
from wattune.levels.run.view.words import state_words
from wattune.physics.catalog import load_model

MODEL = load_model("rtx-a4000")
COMPUTE = Workload(name="compute", phases=(Phase(name="compute", flops=1.2e11, launches=10),))
TRAFFIC = Workload(name="traffic", phases=(Phase(name="traffic", dram_bytes=3.8e9, launches=10),))
"""Both last about 10 ms on this GPU."""
SLICE_S = 0.1
TRIALS = (Setting(1740), Setting(1185), Setting(1590), Setting(1590))


class Program:
    """Runs phases on a simulated GPU, a slice at a time, so that the loop can read it meanwhile."""

    def __init__(self, *, switching=None, **phases):
        self.gpu = SimulatedGpu(MODEL, switching=switching or MODEL.spec().switching)
        self.phases = phases
        self.session = None
        self.refuse = lambda _: None
        self.apply, self.gpu.apply = self.gpu.apply, self._apply

    def _apply(self, setting):
        error = self.refuse(setting)
        if error is not None:
            raise error
        self.apply(setting)

    def run(self, tuning, steps):
        for _ in range(steps):
            for name, (workload, iterations) in self.phases.items():
                tuning.phase(name)
                self._work(workload, iterations)
            tuning.step()

    def _work(self, workload, iterations):
        self.gpu.play(workload)
        while self.gpu.iterations < iterations:
            self.gpu.wait(min(max(self.gpu._left_s(iterations), 1e-6), SLICE_S))
            self.session.loop.tick()


def unlike(**options):
    return Program(forward=(COMPUTE, 150), optimizer=(TRAFFIC, 150), **options)


def scripted(program, *, slowdown=0.05, inner=None):
    """A session whose policy inside measures three settings and holds the last."""
    spec = program.gpu.spec
    policy = PhasePolicy(inner or Script(TRIALS, seconds=10.0), slowdown, lambda: SwitchCost.of(spec))
    players = partial(policy.player, spec=spec)
    program.session = RunSession([program.gpu], objective=LeastEnergy(slowdown), policy=policy, phase_players=players)
    return program.session


def played(program, steps, **options):
    session = scripted(program, **options)
    with session:
        program.run(Tuning(session), steps)
    return Tuning(session)


def test_tuned_holds_a_setting_per_phase_where_that_pays():
    program = unlike()
    with tuned(program.gpu, slowdown=0.05) as tuning:
        program.session = tuning._session
        program.run(tuning, 90)
        assert "held per phase: forward" in " ".join(tuning.events)
        assert program.gpu.setting in tuning.held_by_phase.values()
    assert set(tuning.held_by_phase) == {"forward", "optimizer"}
    assert tuning.held_by_phase["optimizer"].sm_mhz < 1300
    assert program.gpu.setting == DRIVER_DEFAULT
    single = [one for one in tuning.windows if one.setting == tuning.held and not one.by_phase and one.unit]
    own = [one for one in tuning.windows if one.by_phase and one.unit]
    base = next(one for one in tuning.windows if one.purpose is Purpose.BASELINE and one.unit)
    assert own[-1].unit.energy_j < single[-1].unit.energy_j - 0.01 * base.unit.energy_j
    assert own[-1].step_time_s <= 1.05 * base.step_time_s
    measured = 1 - own[-1].unit.energy_j / base.unit.energy_j
    assert tuning.figures.held_saving.value == pytest.approx(measured, abs=0.01)
    assert tuning.figures.slowdown.value < 0.05


def test_what_is_held_per_phase_is_shown():
    program = unlike()
    session = scripted(program)
    with session:
        program.run(Tuning(session), 50)
        words = state_words(report_of(session, program="train.py", objective="energy:5%"))
    assert words.startswith("held per phase: forward 1")


def test_phases_alike_are_held_at_one_setting():
    program = Program(forward=(COMPUTE, 150), backward=(COMPUTE, 150))
    tuning = played(program, 50)
    assert "would save less than 1 % more" in " ".join(tuning.events)
    assert tuning.held_by_phase == {}
    assert tuning.held == Setting(1590)


def test_short_phases_are_reported_once_and_change_nothing():
    program = Program(forward=(COMPUTE, 4), optimizer=(TRAFFIC, 4))
    tuning = played(program, 250, inner=Script((Setting(1590),)))
    found = [text for text in tuning.events if "a clock takes 80 ms to change" in text]
    assert len(found) == 1
    assert tuning.held == Setting(1590)
    assert not any(one.by_phase for one in tuning.windows)


def test_a_step_that_takes_too_long_goes_back_to_one_setting():
    program = unlike(switching=Switching(sm_s=0.7, mem_s=0.7))
    tuning = played(program, 90)
    said = " ".join(tuning.events)
    assert "held per phase" in said
    assert "longer: 1590 MHz is held throughout again" in said
    assert tuning.held_by_phase == {}
    assert tuning.windows[-1].by_phase == ()
    assert tuning.windows[-1].setting == Setting(1590)
    assert tuning.disabled is None


def test_a_clock_that_is_refused_goes_back_to_one_setting():
    program = unlike()
    program.refuse = lambda setting: SettingRefused("not that one") if (setting.sm_mhz or 9999) < 1180 else None
    tuning = played(program, 60)
    said = " ".join(tuning.events)
    assert "one setting is held instead of one per phase: not that one" in said
    assert tuning.disabled is None
    assert tuning.windows[-1].setting == Setting(1590)
    assert said.count("held per phase: forward") == 1
    assert program.gpu.setting == DRIVER_DEFAULT


def test_a_lost_permission_disables_tuning_and_restores_the_gpu():
    program = unlike()
    program.refuse = lambda setting: NoPermission("you may not") if (setting.sm_mhz or 9999) < 1180 else None
    session = scripted(program)
    with session:
        tuning = Tuning(session)
        program.run(tuning, 60)
        assert tuning.disabled == "you may not"
        assert program.gpu.setting == DRIVER_DEFAULT


def test_an_unknown_phase_goes_back_to_one_setting():
    program = unlike()
    session = scripted(program)
    with session:
        tuning = Tuning(session)
        program.run(tuning, 50)
        assert tuning.held_by_phase
        tuning.phase("evaluation")
        session.loop.tick()
        assert tuning.held_by_phase == {}
        assert program.gpu.setting == Setting(1590)
    assert "the model runs 'evaluation'" in " ".join(tuning.events)


def test_a_program_that_changes_is_measured_again_at_the_default():
    program = unlike()
    session = scripted(program)
    with session:
        tuning = Tuning(session)
        program.run(tuning, 60)
        assert tuning.held_by_phase
        program.phases = {"forward": (TRAFFIC, 90), "optimizer": (TRAFFIC, 90)}
        program.run(tuning, 60)
    assert "the program does something else" in " ".join(tuning.events)


def test_phases_are_ignored_without_a_slowdown_limit():
    program = unlike()
    with tuned(program.gpu, objective="edp") as tuning:
        program.session = tuning._session
        program.run(tuning, 3)
    assert sum(text.startswith("phases are not used") for text in tuning.events) == 1
    assert all(window.phases == () for window in tuning.windows)


def test_phases_are_ignored_with_several_ranks():
    class Rank:
        rank, size = 0, 2

        def broadcast(self, text):
            return text

        def sum_and_max(self, values):
            return tuple(values), tuple(values)

    gpu = SimulatedGpu(MODEL)
    gpu.play(COMPUTE)
    with tuned(gpu, slowdown=0.05, ranks=Rank()) as tuning:
        for _ in range(100):
            tuning.phase("forward")
            gpu.wait(0.05)
            tuning.step()
    assert sum(text.startswith("phases are not used") for text in tuning.events) == 1


def test_a_gpu_that_cannot_be_read_does_not_disturb_the_program():
    program = unlike()
    session = scripted(program)
    with session:
        program.gpu.count = None
        session.phase("forward")
    assert session.progress.windows == ()
