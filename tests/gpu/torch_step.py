# SPDX-License-Identifier: Apache-2.0

"""What step_benchmark.cpp does, with torch: torch_step.py REPLICAS STEPS WARM_UP

REPLICAS times the first GPU in torch.nn.DataParallel. Prints the microseconds of each step.
"""

import sys
import time

import torch

replicas, steps, warm_up = (int(text) for text in sys.argv[1:4])
torch.manual_seed(0)
model = torch.nn.DataParallel(
    torch.nn.Sequential(
        torch.nn.Linear(784, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    ).cuda(),
    device_ids=[0] * replicas,
)
sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x = torch.randn(256, 784).cuda()
y = (torch.arange(256) % 10).cuda()


def step():
    loss = torch.nn.functional.cross_entropy(model(x), y)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    torch.cuda.synchronize()


for _ in range(warm_up):
    step()
for _ in range(steps):
    start = time.perf_counter()
    step()
    print(f"{(time.perf_counter() - start) * 1e6:.3f}")
