"""Spans inside a span, and a decorator that adds up the calls of a function."""

from wattune import make_workload, measured, open_gpu

with open_gpu("sim:v100") as gpu:
    train, check = make_workload("bert-base:32"), make_workload("bert-base:8")

    @measured(gpu)
    def validate() -> None:
        gpu.run(check, iterations=50)

    with measured(gpu, name="training") as run:
        for epoch in range(2):
            with run.span(f"epoch {epoch}"):
                gpu.run(train, iterations=200)
            with run.span("validation"):
                validate()

print(f"on {gpu.spec.label}")
for part in (*run.children, run):
    cost = part.measurement
    print(f"{part.name:<12} {cost.energy_j / 1000:6.1f} kJ {cost.time_s:6.0f} s")
print(f"validate() was called {validate.calls} times and took {validate.total.energy_j / 1000:.1f} kJ in all")
