"""Train with a batch size: reach an accuracy of 0.8 after two epochs, or never."""

import sys
import time

for epoch, accuracy in ((1, 0.5), (2, 0.8 if sys.argv[2] == "good" else 0.5)):
    time.sleep(0.1)
    print(f"batch size {sys.argv[1]} epoch {epoch} accuracy {accuracy}", flush=True)
