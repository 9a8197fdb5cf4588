"""The joules of an interval of work, with their error. Runs on a simulated A100; use "auto" for a real GPU."""

from wattune import make_workload, measured, open_gpu

with open_gpu("sim:a100") as gpu:
    load = make_workload("resnet50:64")
    with measured(gpu) as span:
        gpu.run(load, iterations=500)  # on a real GPU: your training steps
    cost = span.measurement
    print(gpu.spec.label)
    error = 100 * cost.energy_error_j / cost.energy_j
    print(f"{cost.energy_j / 1000:.1f} kJ ± {error:.1f} % in {cost.time_s:.1f} s, {cost.power_w:.0f} W")
    print(f"{cost.energy_j / 500:.3g} J per iteration")
