"""What zeus's PowerMonitor, which polls from a process of its own, makes of some seconds; and the truth."""

import json
import sys
import time
from multiprocessing.synchronize import Event

from bracket import Bracket, pass_time
from zeus.monitor.power import PowerMonitor

if __name__ == "__main__":
    seconds = float(sys.argv[1])
    # zeus gives its process 10 s to start, which is too little on a busy machine.
    wait = Event.wait
    Event.wait = lambda event, timeout: wait(event)  # noqa: ARG005
    monitor = PowerMonitor(update_period=0.05, power_domains=["device_instant"])
    bracket = Bracket()
    start = bracket.around(time.time)
    pass_time(bracket.node, seconds)
    end = bracket.around(time.time)
    samples = monitor.get_power_timeline("device_instant", 0, start, end)[0]
    energy_j = monitor.get_energy(start, end)[0]
    monitor.stop()
    print(json.dumps({"power_w": [watts for _, watts in samples], "energy_j": energy_j, **bracket.document()}))
