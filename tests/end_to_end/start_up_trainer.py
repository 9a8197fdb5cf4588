"""Train on the CPU after some seconds of start-up: start_up_trainer.py SECONDS STEPS."""

import sys
import time

import torch

time.sleep(float(sys.argv[1]))
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[2])):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
