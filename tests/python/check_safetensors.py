#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that Python and lockstep read each other's safetensors files.

    check_safetensors.py PROGRAM

PROGRAM is python_models, which writes and reads the other side of each file. Exits with 77 and a
reason where numpy or safetensors is missing. Where torch can be imported, its layers load the
weights that lockstep saved, and compute the same.
"""

import os
import subprocess
import sys
import tempfile

SKIPPED = 77

try:
    import numpy as np
    import safetensors
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(f"skipped: {sys.executable}: {error}")
    sys.exit(SKIPPED)


def numbers(shape, seed, positive=False):
    """The function of the same name in python_models.cpp."""
    mixed = (np.arange(int(np.prod(shape)), dtype=np.int64) * 7 + seed) % 23
    return ((mixed + 16 if positive else mixed - 11) / 64).reshape(shape)


def model_shapes():
    """Names and shapes as torch has them, of f32 but for the counter."""
    shapes = {}
    for layer, inputs in (0, 3), (1, 10):
        for direction in "", "_reverse":
            shapes[f"lstm.weight_ih_l{layer}{direction}"] = (20, inputs)
            shapes[f"lstm.weight_hh_l{layer}{direction}"] = (20, 5)
            shapes[f"lstm.bias_ih_l{layer}{direction}"] = (20,)
            shapes[f"lstm.bias_hh_l{layer}{direction}"] = (20,)
    shapes["attention.in_proj_weight"] = (24, 8)
    shapes["attention.in_proj_bias"] = (24,)
    shapes["attention.out_proj.weight"] = (8, 8)
    shapes["attention.out_proj.bias"] = (8,)
    shapes["convnet.conv.weight"] = (4, 2, 3, 3)
    for name in "weight", "bias", "running_mean", "running_var":
        shapes[f"convnet.norm.{name}"] = (4,)
    shapes["convnet.norm.num_batches_tracked"] = ()
    shapes["convnet.fc.weight"] = (3, 64)
    shapes["convnet.fc.bias"] = (3,)
    return shapes


def model_values(seed):
    """What set_values of python_models.cpp makes of the models."""
    values = {}
    for name, shape in model_shapes().items():
        if name.endswith("num_batches_tracked"):
            values[name] = np.array(3, dtype=np.int64)
        else:
            positive = name.endswith("running_var")
            values[name] = numbers(shape, seed + len(name), positive).astype(np.float32)
    return values


def expect(condition, *message):
    if not condition:
        sys.exit("check_safetensors.py: " + " ".join(str(part) for part in message))


def expect_same(found, wanted):
    """Same names, dtypes, shapes and values."""
    expect(found.keys() == wanted.keys(), "names differ:", sorted(found.keys() ^ wanted.keys()))
    for name, value in wanted.items():
        got = found[name]
        expect(got.dtype == value.dtype, name, "is of", got.dtype, "expected", value.dtype)
        expect(got.shape == value.shape, name, "has shape", got.shape, "expected", value.shape)
        expect(np.array_equal(got, value), name, "has other values")


def check_checkpoint(folder):
    path = os.path.join(folder, "checkpoint.safetensors")
    tensors = load_file(path)
    parts = {}
    for name, value in tensors.items():
        part, rest = name.split(".", 1)
        parts.setdefault(part, {})[rest] = value
    expect(parts.keys() == {"model", "optimizer", "random"}, "parts are", sorted(parts))
    expect_same(parts["model"], model_values(0))
    expect(parts["optimizer"]["param_groups.0.lr"] == 0.25, "the learning rate is another")
    expect(parts["random"]["generator"].dtype == np.uint8, "the generator is no text")
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    expect(
        metadata
        == {
            "by": "lockstep é\n",
            "lockstep.checkpoint": "1",
            "lockstep.epoch": "7",
            "lockstep.step": "1234567890123",
        },
        "the metadata is",
        metadata,
    )


def check_dtypes(folder):
    values = numbers((2, 3), 4)
    expect_same(
        load_file(os.path.join(folder, "dtypes.safetensors")),
        {
            "f64": values,
            "f32": values.astype(np.float32),
            "f16": values.astype(np.float16),
            "i64": np.array([-(2**62), 5]),
            "i32": np.array([-7, 8], dtype=np.int32),
            "u8": np.array([0, 255], dtype=np.uint8),
            "bool": np.array([True, False]),
            "scalar": np.array(-2.5, dtype=np.float32),
            "empty": np.zeros((0, 4), dtype=np.float32),
            "transposed": np.ascontiguousarray(values.T),
            'naïve "name"\n': np.ones(1, dtype=np.float32),
        },
    )


def write_files(folder):
    save_file(model_values(5), os.path.join(folder, "python.safetensors"))
    values = numbers((3, 2), 6)
    save_file(
        {
            "f64": values,
            "f32": values.astype(np.float32),
            "f16": values.astype(np.float16),
            "i64": np.array([2**52, -5]),
            "i32": np.array([7, -8], dtype=np.int32),
            "u8": np.array([254, 1], dtype=np.uint8),
            "bool": np.array([False, True]),
            "scalar": np.array(1.5, dtype=np.float32),
            "empty": np.zeros((4, 0), dtype=np.float32),
            'naïve "name"\n': np.zeros(2, dtype=np.float32),
        },
        os.path.join(folder, "python_dtypes.safetensors"),
        metadata={"by": "python é\n"},
    )


def make_torch_models(torch):
    class ConvNet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
            self.norm = torch.nn.BatchNorm2d(4)
            self.fc = torch.nn.Linear(64, 3)

        def forward(self, images):
            return self.fc(torch.relu(self.norm(self.conv(images))).flatten(1))

    class Models(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 5, num_layers=2, bidirectional=True)
            self.attention = torch.nn.MultiheadAttention(8, 2)
            self.convnet = ConvNet()

    return Models()


def check_torch(torch, folder):
    from safetensors.torch import load_file as load_torch

    bf16 = load_torch(os.path.join(folder, "bf16.safetensors"))["bf16"]
    expect(bf16.dtype == torch.bfloat16, "bf16 is of", bf16.dtype)
    expect(np.array_equal(bf16.double().numpy(), numbers((2, 3), 4)), "bf16 has other values")

    models = make_torch_models(torch).eval()
    tensors = load_torch(os.path.join(folder, "checkpoint.safetensors"))
    weights = {
        name.removeprefix("model."): value
        for name, value in tensors.items()
        if name.startswith("model.")
    }
    result = models.load_state_dict(weights, strict=True)
    expect(not result.missing_keys and not result.unexpected_keys, result)

    wanted = load_torch(os.path.join(folder, "forward.safetensors"))
    tokens = wanted["attention.input"]
    hidden = torch.ones(len(tokens), len(tokens), dtype=torch.bool).triu(1)
    with torch.no_grad():
        lstm, (h, c) = models.lstm(wanted["lstm.input"])
        attention, shown = models.attention(tokens, tokens, tokens, attn_mask=hidden)
        convnet = models.convnet(wanted["convnet.input"])
    for name, value in {
        "lstm.output": lstm,
        "lstm.h": h,
        "lstm.c": c,
        "attention.output": attention,
        "attention.weights": shown,
        "convnet.output": convnet,
    }.items():
        expect(value.shape == wanted[name].shape, name, "has shape", tuple(wanted[name].shape))
        error = (value - wanted[name]).abs().max().item()
        expect(error <= 1e-5, name, "differs by", error)
        print(f"torch: {name} differs by at most {error:.1e}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "write", folder], check=True)
        check_checkpoint(folder)
        check_dtypes(folder)
        print("Python reads what lockstep wrote")
        write_files(folder)
        subprocess.run([sys.argv[1], "read", folder], check=True)
        print("lockstep reads what Python wrote")
        try:
            import torch
        except ImportError as error:
            print(f"torch: not compared with its layers: {error}")
        else:
            check_torch(torch, folder)


if __name__ == "__main__":
    main()
