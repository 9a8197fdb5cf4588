"""A sample stage profile for `wattune pipeline plan`: Llama 3.2 3B in four stages on a simulated A100, as CSV."""

from wattune import make_workload
from wattune.levels.layer.costs import simulated_costs
from wattune.physics.catalog import load_model

STAGES = 4

print("stage,instruction,frequency,time,energy,simulated")
for stage in range(STAGES):
    costs = simulated_costs(load_model("a100"), make_workload(f"llama3.2-3b@{stage + 1}/{STAGES}:1")).by_pass
    for instruction in ("forward", "backward"):
        row = costs.names.index(instruction)
        for column, (sm_mhz, _) in enumerate(costs.clocks_mhz):
            if sm_mhz >= 800 and column % 4 == 0:
                time_s, energy_j = costs.time_s[row, column], costs.energy_j[row, column]
                print(f"{stage},{instruction},{sm_mhz},{time_s:.6f},{energy_j:.3f},yes")
