"""The GPU energy that codecarbon finds in some seconds, and the truth."""

import json
import sys
import time

from bracket import Bracket, pass_time
from codecarbon import OfflineEmissionsTracker

seconds = float(sys.argv[1])
bracket = Bracket()
tracker = OfflineEmissionsTracker(
    country_iso_code="DEU", measure_power_secs=1, save_to_file=False, log_level="warning", allow_multiple_runs=True
)
bracket.around(tracker.start)
pass_time(bracket.node, seconds)
time.sleep(0.06)  # by its own clock, which is real, codecarbon measures nothing twice within 50 ms
bracket.around(tracker.stop)
found = tracker.final_emissions_data
print(json.dumps({"energy_j": found.gpu_energy * 3.6e6, "model": found.gpu_model, **bracket.document()}))
