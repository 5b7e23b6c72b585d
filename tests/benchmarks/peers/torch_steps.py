# SPDX-License-Identifier: Apache-2.0
"""Torch's training steps on the models of compare_models.hpp, served to `compare`.

    torch_steps.py ddp RANK STORE   DistributedDataParallel over gloo, one of two processes: MODEL/DDP
    torch_steps.py one              one process of one thread: MODEL/full, MODEL/half, add, add_backward
"""

import os
import sys

import torch
from torch import nn

from served_steps import serve

BATCH = {"tiny": 30, "mlp": 256, "cnn": 128}


def layers(name):
    if name == "tiny":
        return [nn.Linear(5, 2)]
    if name == "mlp":
        return [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    convolutions = [nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return [*convolutions, nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)]


def training(name, rows, wrap=lambda model: model):
    model = wrap(nn.Sequential(*layers(name)) if name != "tiny" else layers(name)[0])
    tiny = name == "tiny"
    x = torch.randn(rows, *{"tiny": (5,), "mlp": (784,), "cnn": (1, 28, 28)}[name])
    y = torch.randn(rows, 2) if tiny else torch.arange(rows) * 7 % 10
    loss = nn.MSELoss() if tiny else nn.CrossEntropyLoss()
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.0 if tiny else 0.9)

    def step():
        sgd.zero_grad()
        loss(model(x), y).backward()
        sgd.step()

    return step


def add():
    a, b = torch.ones(2), torch.ones(2)
    return lambda: a + b


def add_backward():
    a, b, gradient = torch.ones(2, requires_grad=True), torch.ones(2), torch.ones(2)

    def step():
        (a + b).backward(gradient)
        a.grad = None

    return step


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    makers = {"add": add, "add_backward": add_backward}
    if sys.argv[1] == "ddp":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{sys.argv[3]}", rank=int(sys.argv[2]), world_size=2
        )
        ddp = nn.parallel.DistributedDataParallel
        for name, rows in BATCH.items():
            makers[f"{name}/DDP"] = lambda name=name, rows=rows: training(name, rows // 2, ddp)
    else:
        for name, rows in BATCH.items():
            makers[f"{name}/full"] = lambda name=name, rows=rows: training(name, rows)
            makers[f"{name}/half"] = lambda name=name, rows=rows: training(name, rows // 2)
    serve(makers)


if __name__ == "__main__":
    main()
