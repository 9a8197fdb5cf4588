"""A training loop that is measured and tuned, and logs the energy of its steps.

The GPU is simulated. On a real one, leave out `gpus`, and replace `gpu.run` by your step.
"""

from wattune import make_workload, open_gpu
from wattune.integrations.training import TrainingEnergy


def log(values, step):
    words = [f"{name.removeprefix('wattune_')} {value:.4g}" for name, value in values.items()]
    print(f"step {step}: {', '.join(words)}")


with open_gpu("sim:a100") as gpu:
    load = make_workload("resnet50")
    with TrainingEnergy(gpus=[gpu], max_slowdown=0.05, log=log, log_every=300, store=False, notify=print) as energy:
        for _epoch in range(2):
            for _step in range(450):
                gpu.run(load, iterations=1)
                energy.step()
            energy.pause()
            gpu.run(load, iterations=100)  # an evaluation, which is no step
            energy.resume()
