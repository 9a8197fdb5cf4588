"""The guides for pipelines: their commands run as written, and their programs with stand-ins of the frameworks."""

import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fakes import FakeGpu
from pipelines import profile_csv
from wattune.cli.main import run
from wattune.control.ranks import Alone
from wattune.control.stamps import HostStamp
from wattune.core.setting import DRIVER_DEFAULT
from wattune.integrations.pipeline_steps import StepHooks
from wattune.levels.pipeline.plan_file import read_plan
from wattune.plans.schedules import FORWARD
from wattune.plans.shape import PipelineShape

ROOT = Path(__file__).parents[3]
GUIDE = "plan-megatron-or-deepspeed.md"
CLOCKS = (1410, 1005, 900)


def guide(name):
    return (ROOT / "docs" / "how-to" / name).read_text(encoding="utf-8")


def blocks(name, language):
    return re.findall(rf"```{language}\n(.*?)```", guide(name), re.DOTALL)


def commands(name):
    """Every `wattune pipeline` of a guide that needs no program, in blocks and in sentences, in their order."""
    found = re.findall(
        r"(?:^|`)(wattune pipeline (?:plan|show|export|import|verify) .*?)(?:`|$)", guide(name), re.MULTILINE
    )
    return [shlex.split(command)[1:] for command in found]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_guide_run_on_the_sample_profile(folder, capsys):
    sample = (ROOT / "examples" / "stage_profile.txt").read_text(encoding="utf-8")
    assert "simulated" in sample
    for file in ("stage_profile.csv", "new_profile.csv"):
        (folder / file).write_text(sample)
    words = commands("plan-a-pipeline.md")
    assert [own[1] for own in words] == ["plan", "show", "show", "export", "import", "verify"]
    for own in words:
        assert run(own) == 0, (own, capsys.readouterr().err)
    assert (folder / "plan.svg").exists()
    assert (folder / "schedules" / "freqs_pipeline_00000.py").exists()


class Megatron:
    """The modules that the guide imports, with a schedule that calls the steps of its own module."""

    def __init__(self, order):
        self.order, self.calls = order, 0
        self.schedules = ModuleType("megatron.core.pipeline_parallel.schedules")
        self.schedules.forward_step = self.schedules.backward_step = self._step
        self.schedules.forward_backward_pipelining_without_interleaving = self._iteration

    def _step(self):
        self.calls += 1

    def _iteration(self):
        for piece in self.order:
            (self.schedules.forward_step if piece.instruction == FORWARD else self.schedules.backward_step)()

    def pretrain(self, *_):
        self.schedules.forward_backward_pipelining_without_interleaving()

    def modules(self):
        rank = SimpleNamespace(
            get_pipeline_model_parallel_rank=lambda: 0, get_pipeline_model_parallel_group=lambda: None
        )
        core, parallel = ModuleType("megatron.core"), ModuleType("megatron.core.pipeline_parallel")
        core.parallel_state, parallel.schedules = rank, self.schedules
        return {
            "megatron": ModuleType("megatron"),
            "megatron.core": core,
            "megatron.core.parallel_state": rank,
            "megatron.core.pipeline_parallel": parallel,
            "megatron.core.pipeline_parallel.schedules": self.schedules,
        }


@pytest.fixture
def around(monkeypatch):
    """Stand-ins of a GPU, a process group and Megatron; the names that the guide takes for granted."""
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")
    gpu, megatron = FakeGpu(), Megatron(PipelineShape("1f1b", stages=8, microbatches=24).order[0])

    @contextmanager
    def open_gpu(*_):
        yield gpu
        gpu.restore()

    monkeypatch.setattr("wattune.open_gpu", open_gpu, raising=False)
    monkeypatch.setattr("wattune.integrations.torch_ranks.TorchRanks", lambda *_: Alone())
    monkeypatch.setattr("wattune.integrations.cuda_stamp.stamps_on", lambda *_: HostStamp.now)
    for name, module in megatron.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    torch = SimpleNamespace(device=lambda *_: "cuda:0")
    return SimpleNamespace(
        gpu=gpu, megatron=megatron, names={"torch": torch, "local_rank": 0, "pretrain": megatron.pretrain}
    )


def test_the_programs_of_the_guide_run_with_a_stand_in_of_megatron(folder, around, monkeypatch, capsys):
    measure, play, own_schedule = blocks(GUIDE, "python")
    applied, apply = [], around.gpu.apply
    monkeypatch.setattr(around.gpu, "apply", lambda setting: (applied.append(setting.sm_mhz), apply(setting)))
    measure = measure.replace("ranks=ranks,", 'ranks=ranks, out="measured.csv",')  # no command runs it here
    exec(compile(measure, "measure", "exec"), around.names)
    assert around.megatron.calls == 48
    assert applied[0] == 1410
    (folder / "stage_profile.csv").write_text(profile_csv(8, CLOCKS))
    (words,) = commands(GUIDE)
    assert run(words) == 0, capsys.readouterr().err
    assert len(read_plan(Path("plan.json")).plan.choice.ranks) == 8
    exec(compile(play, "play", "exec"), around.names)
    assert around.megatron.calls == 96
    assert around.gpu.setting == DRIVER_DEFAULT
    mine = {"my_forward": print, "my_backward": print, "my_schedule": print}
    exec(compile(own_schedule, "own", "exec"), around.names | mine)
    assert isinstance(around.names["hooks"], StepHooks)
    assert around.names["hooks"].actuator.disabled is None
