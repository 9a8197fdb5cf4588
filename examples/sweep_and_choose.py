"""The time-energy frontier of a workload, and the point that each of four wishes leads to."""

from wattune import (
    EnergyDelay,
    Frontier,
    Infeasible,
    Knob,
    LeastEnergy,
    Measurement,
    PowerBudget,
    Setting,
    make_workload,
    measured,
    open_gpu,
    sweep,
    sweep_settings,
)

with open_gpu("sim:a100") as gpu:
    load = make_workload("resnet50:64")

    def measure(_setting: Setting) -> Measurement:
        with measured(gpu) as span:
            gpu.run(load, iterations=100)
        return span.measurement / 100

    history = sweep(gpu, sweep_settings(gpu.spec, Knob.SM_CLOCK, points=16), measure)
    print(f"{load.name} on {gpu.spec.label}: {len(Frontier.of(history))} of {len(history)} trials on the frontier")

default = history[0].cost
wishes = {
    "at most 5 % slower": LeastEnergy(slowdown=0.05),
    "at most 20 % slower": LeastEnergy(slowdown=0.20),
    "least E·T²": EnergyDelay(power=2),
    "at most 250 W": PowerBudget(watts=250),
    "at most 20 W": PowerBudget(watts=20),
}
for wish, objective in wishes.items():
    try:
        best = objective.choose(history, reference=default)
    except Infeasible as error:
        print(f"{wish:<20} {error.message}")
        continue
    time = 100 * (best.cost.time_s / default.time_s - 1)
    energy = 100 * (best.cost.energy_j / default.energy_j - 1)
    print(f"{wish:<20} {best.choice!s:<15} time {time:+.0f} %, energy {energy:+.0f} %".replace("-", "−"))
