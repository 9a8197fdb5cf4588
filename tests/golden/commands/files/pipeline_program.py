"""A pipeline of one rank on a simulated GPU, whose schedule is measured by `wattune pipeline profile`."""

from wattune.api import open_gpu
from wattune.control.ranks import Alone
from wattune.core.workload import Phase, Pipe, Workload
from wattune.integrations.pipeline_steps import profiled_steps
from wattune.plans.shape import PipelineShape


def work(name, flops):
    return Workload(name=name, phases=(Phase(name=name, flops=flops, pipe=Pipe.FP16, dram_bytes=1e9),))


shape = PipelineShape("1f1b", stages=1, microbatches=4)
with open_gpu("sim:v100") as gpu, profiled_steps(shape, gpu, rank=0, ranks=Alone()) as hooks:
    forward = hooks.forward(lambda: gpu.run(work("forward", 3e11)))
    backward = hooks.backward(lambda: gpu.run(work("backward", 6e11)))

    def schedule():
        for piece in shape.order[0]:
            {"forward": forward, "backward": backward}[piece.instruction]()

    train = hooks.iteration(schedule)
    while not hooks.listener.has_profile:
        train()
print("trained")
