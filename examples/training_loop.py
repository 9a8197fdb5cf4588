"""A training loop that reports joules per epoch and, from its second epoch on, holds a cheaper clock.

The GPU is simulated. On a real one, replace `gpu.run` by your step; whatever ends the program, the clock is given back.
"""

from wattune import Gpu, LeastEnergy, Setting, SettingRefused, Trial, make_workload, measured, open_gpu

CANDIDATES_MHZ = (1410, 1260, 1110, 960)
STEPS = 400


def profile(gpu: Gpu, load, clocks_mhz) -> Setting:
    """The clock of least energy within 10 % more time, from a few steps at each."""
    trials = []
    for sm_mhz in clocks_mhz:
        gpu.apply(Setting(sm_mhz=sm_mhz))
        with measured(gpu) as span:
            gpu.run(load, iterations=40)
        trials.append(Trial(Setting(sm_mhz=sm_mhz), span.measurement / 40))
    gpu.restore()
    return LeastEnergy(slowdown=0.10).choose(trials).choice


with open_gpu("sim:a100") as gpu:
    load = make_workload("resnet152:32")
    try:
        gpu.apply(Setting(sm_mhz=1234))
    except SettingRefused as refused:
        print(f"refused: {refused.message}; {refused.hint}")
    for epoch in range(3):
        if epoch == 1:
            gpu.apply(profile(gpu, load, CANDIDATES_MHZ))
        with measured(gpu) as span:
            for _step in range(STEPS):
                gpu.run(load)
        cost = span.measurement
        clock = gpu.read().sm_mhz
        print(f"epoch {epoch}: {cost.energy_j / 1000:4.1f} kJ in {cost.time_s:.0f} s at {clock} MHz (simulated)")
