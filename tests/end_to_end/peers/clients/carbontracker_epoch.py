"""The power samples that carbontracker takes in one epoch, the energy it makes of them, and the truth."""

import json
import sys

from bracket import Bracket, pass_time
from carbontracker.tracker import CarbonTracker

seconds = float(sys.argv[1])
bracket = Bracket()
tracker = CarbonTracker(epochs=2, components="gpu", update_interval=0.05, verbose=0, epochs_before_pred=0)
thread = tracker.tracker
bracket.around(tracker.epoch_start)
pass_time(bracket.node, seconds)
bracket.around(tracker.epoch_end)
(gpu,) = thread.components
found = {
    "devices": gpu.devices(),
    "power_w": gpu.power_usages[0],
    "energy_j": gpu.energy_usage(thread.epoch_times)[0] * 3.6e6,
}
tracker.stop()
print(json.dumps({**found, **bracket.document()}))
