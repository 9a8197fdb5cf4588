"""Search the partitions of a model on a simulated GPU and plan its pipeline with the best settings of each."""

from wattune.levels.overlap.baselines import MegatronComparison, megatron_profile
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import partition_model
from wattune.levels.overlap.searched_model import search_model, searched_profile, simulated_measure
from wattune.levels.pipeline.planned import Source, plan_profile
from wattune.physics.catalog import load_model

gpu, layout = load_model("a100-40gb"), ParallelLayout(tp=8, pp=2)
model = partition_model("llama3.2-3b", layout, microbatch_size=8, sequence=4096)
plain = partition_model("llama3.2-3b", layout, microbatch_size=8, sequence=4096, nanobatches=1)

# On real GPUs `measure` runs trials on all ranks: docs/how-to/plan-kernels.md.
searched = search_model(model, gpu, simulated_measure(gpu), search_name="random", budget=100)
for own in searched:
    print(f"{own.partition.name}: {len(own.history)} trials, {len(own.frontier)} on the frontier")


def planned(profile):
    source = Source("llama3.2-3b on a100-40gb", "", simulated=True)
    return plan_profile(profile, profile.shape("1f1b", 8), source=source, blocking_power_w=85)


ours = planned(searched_profile(model, gpu, searched, plain=plain))
megatron = planned(megatron_profile(plain, gpu))
gain = MegatronComparison(megatron.default, megatron.frontier, ours.frontier)
fastest_s, default_s = ours.frontier.fastest.cost.time_s, megatron.default.cost.time_s
print(f"fastest plan: {fastest_s:.2f} s, Megatron {default_s:.2f} s (simulated)")
print(f"energy at equal time: {gain.equal_time_energy_percent:+.0f} % against Megatron with Perseus (simulated)")
