"""A policy of one's own: try lower clocks one after the other, and hold the lowest that is fast enough.

The GPU is simulated. For a program of yours: wattune run --policy own_policy:StepDown -- python train.py
"""

from wattune import GpuSpec, LeastEnergy, Order, Purpose, Setting, Window, make_workload, open_gpu, tuned


class StepDown:
    def __init__(self, objective: LeastEnergy) -> None:
        self.limit = 1 + objective.slowdown

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        if not windows:
            return Order(setting=Setting(), purpose=Purpose.BASELINE, least_s=5, most_s=20, precision=0.01)
        base, tried = windows[0], [window for window in windows if window.setting.sm_mhz in spec.sm_clocks_mhz]
        fast = [window.setting for window in tried if self.is_fast(window, base)]
        lower = [mhz for mhz in spec.sm_clocks_mhz[::-4] if all(mhz < window.setting.sm_mhz for window in tried)]
        if lower and base.step_time_s and len(fast) == len(tried):
            return Order(setting=Setting(sm_mhz=lower[0]), purpose=Purpose.TRIAL, least_s=4, most_s=15, precision=0.01)
        return Order(setting=min(fast, default=Setting()), purpose=Purpose.HOLD, least_s=60, most_s=60)

    def is_fast(self, window: Window, base: Window) -> bool:
        return bool(window.step_time_s and base.step_time_s) and window.step_time_s <= self.limit * base.step_time_s


if __name__ == "__main__":
    with open_gpu("sim:a100") as gpu:
        load = make_workload("resnet50")
        with tuned(gpu, slowdown=0.05, policy=StepDown(LeastEnergy(0.05))) as tuning:
            for _step in range(4000):
                gpu.run(load)
                tuning.step()
        print(f"{len(tuning.windows)} windows; held at the end: {tuning.held} (simulated)")
