"""Print so many steps, twenty in a second, and end with a code."""

import sys
import time

for step in range(int(sys.argv[1])):
    time.sleep(0.05)
    print("step", step + 1, flush=True)
sys.exit(int(sys.argv[2]))
