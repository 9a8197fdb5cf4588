"""The energy of training loops on simulated GPUs, in virtual time: no framework, and ranks as threads."""

import sys
import threading
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest

from wattune import DeviceNotFound, InputError, make_workload, open_gpu
from wattune.api import SimulatedGpuWarning, warn_of_simulated
from wattune.core.errors import DeviceError
from wattune.core.measurement import Measurement
from wattune.devices.simulated import SimulatedGpu
from wattune.integrations.training import TrainingEnergy, job_gpus
from wattune.integrations.training.step_counter import StepCounter, StepsCost, steps_cost
from wattune.physics.catalog import load_model

LOAD = make_workload("resnet50:16")


@pytest.fixture(autouse=True)
def own_store(monkeypatch, tmp_path):
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))


@pytest.fixture
def gpu():
    with open_gpu("sim:a100") as opened:
        yield opened


class Logged:
    def __init__(self):
        self.rows, self.lines = [], []

    def log(self, values, step):
        self.rows.append((step, dict(values)))

    def energy(self, gpu, **options):
        return TrainingEnergy(gpus=[gpu], log=self.log, notify=self.lines.append, **options)


def train(gpu, energy, steps):
    for _ in range(steps):
        gpu.run(LOAD, iterations=1)
        energy.step()


def test_the_energy_of_steps_is_that_of_the_gpu_without_what_is_paused(gpu):
    seen = Logged()
    with seen.energy(gpu, log_every=100) as energy:
        before_j = gpu.truth_j
        train(gpu, energy, 200)
        spent_j = gpu.truth_j - before_j
        energy.pause()
        gpu.run(LOAD, iterations=500)  # an evaluation
        energy.resume()
        train(gpu, energy, 200)
    steps = [step for step, _ in seen.rows]
    assert steps == [100, 200, 300, 400]
    for _, row in seen.rows:
        assert row["wattune_simulated/step_energy_j"] == pytest.approx(spent_j / 200, rel=0.1)
    assert seen.rows[-1][1]["wattune_simulated/total_energy_j"] == pytest.approx(2 * spent_j, rel=0.05)
    assert energy.cost.energy_j == pytest.approx(gpu.truth_j - before_j, rel=0.05)
    assert len(seen.lines) == 1


def test_figures_that_are_not_known_are_left_out(gpu):
    seen = Logged()
    with seen.energy(gpu, log_every=1) as energy:
        train(gpu, energy, 150)
    for _, row in seen.rows:
        assert "wattune_simulated/step_energy_j" in row  # the counter moves every 100 ms: not in every step
        assert "wattune_simulated/saving_percent" not in row
        assert "wattune_simulated/sm_mhz" not in row
        assert all(value > 0 for value in row.values())
    assert 0 < len(seen.rows) < 150


def test_a_loop_is_tuned_and_its_saving_logged_once_compared(gpu):
    seen = Logged()
    with seen.energy(gpu, max_slowdown=0.05, log_every=100) as energy:
        train(gpu, energy, 3000)
    assert "wattune_simulated/saving_percent" not in seen.rows[0][1]
    last = seen.rows[-1][1]
    assert last["wattune_simulated/saving_percent"] > 3
    assert last["wattune_simulated/slowdown_percent"] < 5
    assert last["wattune_simulated/sm_mhz"] == energy.tuning.held.sm_mhz
    assert "energy −" in seen.lines[0]
    assert seen.lines[0].count("simulated") == 1
    assert "; catalogue error: time " in seen.lines[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_slowdown": 5}, "5 is a share of 500 %"),
        ({"max_slowdown": 0.05, "objective": "edp"}, "either a slowdown limit or an objective"),
        ({"log_every": 0}, "every 0 steps"),
    ],
)
def test_bad_options_are_refused_at_once(options, says):
    with pytest.raises(InputError, match=says):
        TrainingEnergy(**options)


class Fails:
    """A simulated GPU whose counter cannot be read any more after a while."""

    def __init__(self, gpu):
        self._gpu, self.lost = gpu, False

    def __getattr__(self, name):
        return getattr(self._gpu, name)

    def count(self):
        if self.lost:
            raise DeviceError("it fell off the bus", hint="")
        return self._gpu.count()


def test_a_gpu_that_is_lost_does_not_end_the_training(gpu):
    seen, failing = Logged(), Fails(gpu)
    with seen.energy(failing, log_every=10, max_slowdown=0.05) as energy:
        train(gpu, energy, 50)
        failing.lost = True
        train(gpu, energy, 50)
        energy.pause()
        energy.resume()
    assert energy.steps == 100
    assert energy.cost is None
    assert any("it fell off the bus; training goes on" in line for line in seen.lines)


def test_a_logger_that_fails_does_not_end_the_training(gpu):
    lines = []

    def log(values, step):
        raise OSError("no space left")

    with TrainingEnergy(gpus=[gpu], log=log, log_every=50, notify=lines.append) as energy:
        train(gpu, energy, 200)
    assert lines[0] == "figures are not logged: OSError: no space left; training goes on"
    assert len(lines) == 2


def test_an_error_of_the_training_is_passed_on(gpu):
    seen = Logged()
    energy = seen.energy(gpu)

    def fail():
        with energy:
            train(gpu, energy, 105)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert energy.cost.energy_j > 0
    assert "105 steps" in seen.lines[0]  # also those after the last figures


class ThreadRanks:
    """Ranks that are threads of this process."""

    def __init__(self, rank, size, barrier, slots):
        self.rank, self.size, self._barrier, self._slots = rank, size, barrier, slots

    def broadcast(self, text):
        raise NotImplementedError

    def sum_and_max(self, values):
        self._slots[self.rank] = tuple(values)
        self._barrier.wait()
        columns = list(zip(*self._slots, strict=True))
        self._barrier.wait()
        return tuple(map(sum, columns)), tuple(map(max, columns))


def as_ranks(size, work):
    """Call a function as each rank, and return the results."""
    barrier, slots, results = threading.Barrier(size), [()] * size, [None] * size

    def run(rank):
        results[rank] = work(ThreadRanks(rank, size, barrier, slots))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_values_of_all_ranks_are_gathered_in_their_order():
    found = as_ranks(3, lambda ranks: job_gpus.gathered(ranks, {"rank": ranks.rank, "text": "ä" * ranks.rank}))
    assert found == [tuple({"rank": rank, "text": "ä" * rank} for rank in range(3))] * 3


def test_each_gpu_has_one_first_rank():
    keys = [["a", "b"], ["b"], ["c", "a", "c"]]
    counted = [
        key for rank, own in enumerate(keys) for place, key in enumerate(own) if job_gpus.is_first(keys, rank, place)
    ]
    assert sorted(counted) == ["a", "b", "c"]


def test_the_place_on_a_host_counts_the_ranks_there():
    hosts = ["one", "two", "one", "two", "two"]
    assert [job_gpus.local_place(hosts, rank) for rank in range(5)] == [0, 0, 1, 1, 2]


def test_a_gpu_of_another_rank_is_read_and_not_set(gpu):
    from wattune import Setting, SettingRefused

    view = job_gpus.ReadOnlyGpu(gpu)
    view.apply(Setting(sm_mhz=1200))
    view.restore()
    assert gpu.setting.sm_mhz is None
    assert view.count().time_s == gpu.count().time_s == view.gpu_time_s()
    with pytest.raises(SettingRefused):
        view.apply(Setting(sm_mhz=1))


def test_a_rank_that_cannot_read_makes_the_figures_of_all_unknown():
    assert steps_cost(10, (float("inf"),) * 3, (1.0, 2.0, 3.0)) is None
    found = steps_cost(10, (2.0, 30.0, 4.0), (1.0, 20.0, 4.0))
    assert found == StepsCost(10, Measurement(1.0, 30.0, None, 2.0))
    assert found.is_certain
    assert not StepsCost(10, Measurement(1.0, 30.0, None, 4.0)).is_certain


def test_pauses_shorter_than_a_refresh_make_the_energy_uncertain():
    gpu = SimulatedGpu(load_model("a100"))
    counter = StepCounter([gpu])
    for _ in range(20):
        counter.resume()
        gpu.run(LOAD, iterations=1)
        counter.pause()
        gpu.run(LOAD, iterations=20)
    numbers, _ = counter.peek()
    assert not steps_cost(20, numbers, numbers).is_certain


@pytest.fixture
def no_driver(monkeypatch, emulated_library):
    for name in ("WATTUNE_NODE", "WATTUNE_DEVICE", "WATTUNE_REQUIRE_GPU"):
        monkeypatch.delenv(name, raising=False)
    warn_of_simulated.cache_clear()
    yield
    warn_of_simulated.cache_clear()


def test_a_simulated_gpu_in_place_of_a_missing_one_warns(no_driver):
    lines = []
    energy = TrainingEnergy(max_slowdown=0.05, notify=lines.append)
    with pytest.warns(SimulatedGpuWarning, match="every figure is simulated"):
        energy.begin()
    energy.resume()
    energy.step()
    energy.end()
    assert energy.steps == 1
    assert "(simulated)" in lines[-1]


def test_a_missing_gpu_is_an_error_before_the_first_step_where_one_is_required(no_driver, monkeypatch):
    monkeypatch.setenv("WATTUNE_REQUIRE_GPU", "1")
    with pytest.raises(DeviceNotFound, match="a GPU is required"), TrainingEnergy():
        pass


def test_a_driver_that_does_not_work_leaves_the_training_unmeasured(emulated_node):
    node = emulated_node("a100")
    node.inject("nvmlInit", code=999)
    lines = []
    with TrainingEnergy(notify=lines.append) as energy:
        energy.step()
    assert energy.cost is None
    assert len(lines) == 1
    assert lines[0].startswith("this training is not measured: ")


@pytest.fixture
def trainer_module(monkeypatch):
    """The callback of the Trainer, with a stand-in of transformers."""

    class Trainer:
        def __init__(self, *callbacks, steps=10):
            self.callback_handler = SimpleNamespace(callbacks=callbacks)
            self.steps, self.rows = steps, []

        def train(self):
            arguments, control = (
                SimpleNamespace(n_gpu=1),
                SimpleNamespace(should_log=True, should_evaluate=False, should_save=False),
            )
            (callback,) = self.callback_handler.callbacks
            callback.on_train_begin(arguments, None, control)
            for _ in range(self.steps):
                callback.on_step_begin(arguments, None, control)
                callback.work()
                callback.on_step_end(arguments, None, control)
                self.log({"loss": 1.0})
            raise ZeroDivisionError("in the training")

        def log(self, logs):
            self.rows.append(logs)

    stand_in = ModuleType("transformers")
    stand_in.Trainer, stand_in.TrainerCallback = Trainer, object
    monkeypatch.setitem(sys.modules, "transformers", stand_in)
    monkeypatch.delitem(sys.modules, "wattune.integrations.huggingface", raising=False)
    yield import_module("wattune.integrations.huggingface")
    sys.modules.pop("wattune.integrations.huggingface")


def test_an_exception_in_the_trainer_ends_the_callback_and_goes_on(gpu, trainer_module):
    seen = Logged()
    energy = trainer_module.TrainerEnergy(gpus=[gpu], notify=seen.lines.append, max_slowdown=0.05)
    energy.work = lambda: gpu.run(LOAD, iterations=10)
    trainer = trainer_module.Trainer(energy)
    with pytest.raises(ZeroDivisionError, match="in the training"):
        trainer.train()
    assert len(seen.lines) == 1
    assert "10 steps" in seen.lines[0]
    assert energy.cost.energy_j > 0
    assert len(trainer.rows) == 10
    assert any("wattune_simulated/step_energy_j" in row for row in trainer.rows)


def test_the_trainer_is_wrapped_once(trainer_module, monkeypatch):
    wrapped = trainer_module.Trainer.log, trainer_module.Trainer.train
    monkeypatch.delitem(sys.modules, "wattune.integrations.huggingface")
    again = import_module("wattune.integrations.huggingface")
    assert (again.Trainer.log, again.Trainer.train) == wrapped


@pytest.mark.parametrize(
    ("module", "frameworks"), [("huggingface", ["transformers"]), ("lightning", ["lightning", "pytorch_lightning"])]
)
def test_without_its_trainer_a_callback_says_what_to_install(monkeypatch, module, frameworks):
    monkeypatch.delitem(sys.modules, f"wattune.integrations.{module}", raising=False)
    for name in frameworks:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"pip install 'wattune\[{module}\]'"):
        import_module(f"wattune.integrations.{module}")
