# SPDX-License-Identifier: Apache-2.0
"""The layers of compare_layers.cpp in torch, forward and backward, and the steps of optimisers.

Each is made as (leaves, forward): tensors, of which some require grad, and a function that returns an output.
"""

import functools

import torch
from torch import nn
from torch.nn import functional as F

from saved_tensors import must_agree, read
from torch_models import Adam, AdamW, Transformer, numbers


def numbers_of(*shape):
    return torch.randn(shape, requires_grad=True)


def module(layer, x, call=lambda layer, x: layer(x)):
    return [*layer.parameters(), x], lambda: call(layer, x)


def function(call, *leaves):
    return list(leaves), lambda: call(*leaves)


def convolution(channels, out, size):
    x = numbers_of(128, channels, size, size).detach().requires_grad_(channels > 1)  # not of images
    return module(nn.Conv2d(channels, out, 3, padding=1, bias=False), x)


def cross_entropy(classes, *rows):
    target = numbers(rows, classes)
    return function(lambda x: F.cross_entropy(x, target), numbers_of(rows[0], classes, *rows[1:]))


def index_select():
    columns = numbers((256,), 512)
    return function(lambda x: torch.index_select(x, 1, columns), numbers_of(512, 512))


def attention(batch, length):
    operands = [numbers_of(batch, 4, length, 32) for _ in range(3)]
    return function(functools.partial(F.scaled_dot_product_attention, is_causal=True), *operands)


def recurrent(kind):
    return module(kind(128, 128), numbers_of(64, 64, 128), lambda layer, x: layer(x)[0])


def embedding():
    layer, text = nn.Embedding(256, 128), numbers((64, 64), 256)
    return [layer.weight], lambda: layer(text)


LAYERS = {
    "linear": lambda: module(nn.Linear(128, 512), numbers_of(4096, 128)),
    "conv2d_28": lambda: convolution(1, 16, 28),
    "conv2d_14": lambda: convolution(16, 16, 14),
    "conv2d_7": lambda: convolution(32, 32, 7),
    "conv2d_4": lambda: convolution(64, 64, 4),
    "batch_norm2d": lambda: module(nn.BatchNorm2d(16), numbers_of(128, 16, 28, 28)),
    "layer_norm": lambda: module(nn.LayerNorm(128), numbers_of(64, 64, 128)),
    "gelu": lambda: function(F.gelu, numbers_of(64, 64, 512)),
    "softmax": lambda: function(lambda x: F.softmax(x, -1), numbers_of(256, 64, 64)),
    "log_softmax": lambda: function(lambda x: F.log_softmax(x, -1), numbers_of(4096, 256)),
    "cross_entropy": lambda: cross_entropy(256, 4096),
    "cross_entropy_images": lambda: cross_entropy(10, 8, 64, 64),
    "binary_cross_entropy": lambda: function(
        F.binary_cross_entropy_with_logits, numbers_of(512, 512), torch.rand(512, 512)
    ),
    "one_row": lambda: module(nn.Linear(512, 512), numbers_of(1, 512)),
    "heads": lambda: function(lambda x: x.permute(0, 2, 1, 3).contiguous(), numbers_of(64, 64, 4, 32)),
    "cat": lambda: function(lambda *x: torch.cat(x, 1), numbers_of(512, 512), numbers_of(512, 512)),
    "index_select": index_select,
    "attention": lambda: attention(64, 64),
    "attention_1024": lambda: attention(4, 1024),
    "lstm": lambda: recurrent(nn.LSTM),
    "gru": lambda: recurrent(nn.GRU),
    "embedding": embedding,
}


def optimizer_step(optimizer):
    parameters = list(Transformer().parameters())
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return optimizer(parameters).step


OPTIMIZERS = {
    "adam": lambda: optimizer_step(Adam),
    "adamw": lambda: optimizer_step(AdamW),
}


def step_of(make):
    leaves, forward = make()
    gradient = torch.randn_like(forward())

    def step():
        forward().backward(gradient)
        for leaf in leaves:
            leaf.grad = None

    return step


def makers():
    layers = {f"layer/{name}": functools.partial(step_of, make) for name, make in LAYERS.items()}
    return {**layers, **{f"layer/{name}": make for name, make in OPTIMIZERS.items()}}


def check(name, path):
    """The output and the gradients must be lockstep's."""
    saved = {key: torch.from_numpy(array) for key, array in read(path).items()}
    leaves, forward = LAYERS[name]()
    with torch.no_grad():
        for number, leaf in enumerate(leaves):
            leaf.copy_(saved[f"leaf/{number}"])
    output = forward()
    output.backward(saved["gradient"])
    must_agree(f"torch's {name}", output.detach(), saved["output"])
    for number, leaf in enumerate(leaves):
        if leaf.requires_grad:
            must_agree(f"torch's {name}, gradient {number}", leaf.grad, saved[f"grad/{number}"])
