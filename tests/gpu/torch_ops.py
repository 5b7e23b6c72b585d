# SPDX-License-Identifier: Apache-2.0

"""What op_benchmark.cpp does, with torch: torch_ops.py ROUNDS"""

import statistics
import sys
import time

import torch
from torch.nn import functional

ROUNDS = int(sys.argv[1])
ROWS = 8192
MATRIX = (ROWS, 4096)
IMAGES = (ROWS // 256, 64, 56, 56)
HEADS = (ROWS // 2048, 8, 1024, 64)

OPERATIONS = {
    "add": ([MATRIX, MATRIX], torch.add),
    "add-row": ([MATRIX, (4096,)], torch.add),
    "relu": ([MATRIX], torch.relu),
    "gelu": ([MATRIX], functional.gelu),
    "sum": ([MATRIX], torch.sum),
    "sum-rows": ([MATRIX], lambda x: x.sum(1)),
    "sum-columns": ([MATRIX], lambda x: x.sum(0)),
    "transpose": ([MATRIX], lambda x: x.t().contiguous()),
    "softmax": ([MATRIX], lambda x: x.softmax(1)),
    "layer_norm": ([MATRIX, (4096,), (4096,)], lambda x, w, b: functional.layer_norm(x, (4096,), w, b)),
    "matmul": ([(ROWS // 4, 2048), (2048, 2048)], torch.matmul),
    "linear": ([(ROWS, 1024), (1024, 1024), (1024,)], functional.linear),
    "conv2d": ([IMAGES, (64, 64, 3, 3), (64,)], lambda x, w, b: functional.conv2d(x, w, b, 1, 1)),
    "max_pool2d": ([IMAGES], lambda x: functional.max_pool2d(x, 2)),
    "attention": ([HEADS] * 3, functional.scaled_dot_product_attention),
}


def median_of(work):
    samples = []
    for index in range(-3, ROUNDS):
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if index >= 0:
            samples.append((time.perf_counter() - start) * 1e6)
    return statistics.median(samples)


def main():
    # f32 as lockstep has it: rounded to TF32 on request alone.
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    for name, (shapes, operation) in OPERATIONS.items():
        inputs = [torch.randn(shape, device="cuda", requires_grad=True) for shape in shapes]

        def forward():
            with torch.no_grad():
                return operation(*inputs)

        gradient = torch.randn(forward().shape, device="cuda")

        def both():
            operation(*inputs).backward(gradient)
            for tensor in inputs:
                tensor.grad = None

        print(f"{name}/forward\t{median_of(forward):.1f}")
        print(f"{name}/both\t{median_of(both):.1f}")


if __name__ == "__main__":
    main()
