# SPDX-License-Identifier: Apache-2.0
"""Torch's training steps, layers and collectives, served to `compare`.

    torch_steps.py ddp RANK STORE   one of two processes over gloo: MODEL/DDP by DistributedDataParallel, OP/BYTES/kept
                                    and OP/BYTES/fresh of scatter, gather, broadcast and reduce_add, all_reduce/BYTES
    torch_steps.py THREADS          one process of so many maths threads: MODEL/full, MODEL/half, layer/LAYER, add,
                                    add_backward, threads (two Python threads made and joined, as parallel_apply does)
    torch_steps.py check FILE...    says if a MODEL or layer_LAYER is not what lockstep has saved in a file of its name

Collectives have the bytes of compare_calls.cpp.
"""

import functools
import os
import pathlib
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn

import torch_layers
import torch_models
from served_steps import serve
from torch_models import MODELS, training

def add():
    a, b = torch.ones(2), torch.ones(2)
    return lambda: a + b


def add_backward():
    a, b, gradient = torch.ones(2, requires_grad=True), torch.ones(2), torch.ones(2)

    def step():
        (a + b).backward(gradient)
        a.grad = None

    return step


def two_threads():
    def step():
        threads = [threading.Thread(target=lambda: None) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return step


def collective(operation, size, fresh, rank):
    whole, half = torch.zeros(size // 4), torch.zeros(size // 8)
    halves = list(whole.split(size // 8)) if rank == 0 else None
    results = []  # of one call; they go back to the system before the next

    def new(tensor):
        if not fresh:
            return tensor
        results.append(torch.empty_like(tensor))
        return results[-1]

    def gather():
        dist.gather(half, list(new(whole).split(size // 8)) if rank == 0 else None)

    def reduce_add():
        dist.reduce(whole, 0)  # which is in place

    step = {
        "scatter": lambda: dist.scatter(new(half), halves),
        "gather": gather,
        "broadcast": lambda: dist.broadcast(whole if rank == 0 else new(whole), 0),
        "reduce_add": reduce_add,
        "all_reduce": lambda: dist.all_reduce(whole),
    }[operation]
    return (step, results.clear) if fresh else step


def collectives(rank):
    for size in (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26):
        for operation in ("scatter", "gather", "broadcast", "reduce_add"):
            for fresh in (False, True):
                make = functools.partial(collective, operation, size, fresh, rank)
                yield f"{operation}/{size}/{'fresh' if fresh else 'kept'}", make
        yield f"all_reduce/{size}", functools.partial(collective, "all_reduce", size, False, rank)


def check(files):
    for file in files:
        name = pathlib.Path(file).stem
        if name.startswith("layer_"):
            torch_layers.check(name.removeprefix("layer_"), file)
        else:
            torch_models.check(name, file)


def main():
    torch.manual_seed(0)
    if sys.argv[1] == "check":
        check(sys.argv[2:])
        return
    torch.set_num_threads(1 if sys.argv[1] == "ddp" else int(sys.argv[1]))
    makers = {"add": add, "add_backward": add_backward, "threads": two_threads}
    if sys.argv[1] == "ddp":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        rank = int(sys.argv[2])
        dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=2)
        makers.update(collectives(rank))
        ddp = nn.parallel.DistributedDataParallel
        for name, model in MODELS.items():
            makers[f"{name}/DDP"] = functools.partial(training, name, model.batch // 2, ddp)
    else:
        makers.update(torch_layers.makers())
        for name, model in MODELS.items():
            makers[f"{name}/full"] = functools.partial(training, name, model.batch)
            makers[f"{name}/half"] = functools.partial(training, name, model.batch // 2)
    serve(makers)


if __name__ == "__main__":
    main()
