"""Jobs and histories for several tests of views."""

from __future__ import annotations

import dataclasses
from math import ceil

from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.view.view_model import JobView

SIZES = (32, 64, 128, 256, 512)
LIMITS_W = (100.0, 150.0, 200.0, 250.0)
GPU = JobGpu(name="V100", simulated=False, max_power_w=250.0)
NEEDED = {32: 16, 64: 17, 128: 19, 256: 30, 512: 43}


def job(name: str = "nightly-bert", sizes: tuple[int, ...] = SIZES, **changes: object) -> Job:
    """A job whose owner uses the largest size."""
    fields = {"batch_sizes": sizes, "default_batch_size": sizes[-1], "target": 0.6, "max_epochs": 60, **changes}
    return Job(name=name, **fields)


def epoch(size: int, limit_w: float) -> Measurement:
    """What an epoch costs: slower at small sizes and low limits, cheapest between."""
    time_s = (20 + 2000 / size) * (1 + 0.6 * (1 - limit_w / 250) ** 2)
    return Measurement(time_s, time_s * (60 + 0.7 * limit_w))


def profile(size: int, gpu: JobGpu = GPU, limits_w: tuple[float, ...] = LIMITS_W) -> Profile:
    """A measured profile."""
    trials = tuple(Trial(Setting(power_limit_w=limit), epoch(size, limit)) for limit in limits_w)
    return Profile(gpu=gpu, batch_size=size, trials=trials)


def run(order: int, size: int, outcome: Outcome = Outcome.REACHED, **changes: object) -> JobRun:
    """A run of so many epochs as the size needs, or fewer where it was stopped."""
    epochs = int(changes.pop("epochs", ceil(NEEDED.get(size, 20) / (4 if outcome is Outcome.STOPPED else 1))))
    one = epoch(size, 200.0)
    fields = {
        "id": f"run{order}",
        "recurrence": order,
        "gpu": GPU,
        "why": f"tries {size} & more",
        "metrics": tuple(0.6 * (n + 1) / max(epochs, 1) for n in range(epochs)),
        "cost": Measurement(one.time_s * epochs, one.energy_j * epochs) if epochs else None,
        "setting": Setting(power_limit_w=200.0),
    }
    return JobRun(order=order, batch_size=size, outcome=outcome, **{**fields, **changes})


def memory() -> JobMemory:
    """Ten recurrences: the default, then others, one of them stopped and replaced; one run is out."""
    runs = [
        run(0, 512),
        run(1, 256),
        run(2, 32, Outcome.STOPPED, epochs=5),
        run(3, 256, recurrence=2),
        run(4, 128, recurrence=3, exploring=True),
        run(5, 64, Outcome.MISSED, recurrence=4, epochs=60),
        run(6, 128, recurrence=4),
        *(run(order, 128, recurrence=order - 2, epochs=18 + order % 3) for order in range(7, 11)),
        run(11, 128, Outcome.RUNNING, recurrence=9, epochs=7),
    ]
    return JobMemory(tuple(runs), tuple(profile(size) for size in (32, 128, 256, 512)))


PREDICTED = tuple(EpochsBand(size, epochs, epochs * 0.85, epochs * 1.25) for size, epochs in NEEDED.items())


def proposal(size: int) -> Proposal:
    return Proposal(size, exploring=True, why="19 ± 3 epochs expected.")


def view(name: str = "nightly-bert", **changes: object) -> JobView:
    """The job and its history, predicted epochs and next choice."""
    one = epoch(512, 250.0)
    fields = {"job": job(name), "memory": memory(), "gpu": GPU, "predicted": PREDICTED, "proposal": proposal(128)}
    figures = {"default_run": Measurement(one.time_s * 43, one.energy_j * 43)}
    return shown({**fields, **figures, **changes})


def shown(fields: dict[str, object]) -> JobView:
    """A view with these fields; figures that are computed otherwise are replaced."""
    own = {field.name for field in dataclasses.fields(JobView)}
    made = JobView(**{name: value for name, value in fields.items() if name in own})
    vars(made).update({name: value for name, value in fields.items() if name not in own})
    return made
