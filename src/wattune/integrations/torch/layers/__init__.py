"""Layers of a PyTorch model: trace their work, play a plan of their clocks, measure them on a GPU; phases of a step.

workload = trace_layers(model, images)
costs = simulated_costs(load_model("rtx-a4000"), workload)      # or measure_layers(model, images, gpu, ...)
plan = plan_layers(costs, switching, "segments").within(1.05 * costs.default.time_s).choice
with played_layers(model, plan, gpu, switching=switching, optimizer=optimizer):
    ...                                                         # the training loop
"""

from wattune.integrations.torch.layers.measuring import TorchLayers, measure_layers
from wattune.integrations.torch.layers.phases import mark_phases
from wattune.integrations.torch.layers.playing import played_layers
from wattune.integrations.torch.layers.tracing import trace_layers

__all__ = ["TorchLayers", "mark_phases", "measure_layers", "played_layers", "trace_layers"]
