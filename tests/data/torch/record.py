#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Records what PyTorch computes, for lockstep's tests to compare with.

    python3 -m venv venv && venv/bin/pip install torch numpy safetensors
    venv/bin/python tests/data/torch/record.py [FAMILY ...]

Writes FAMILY.safetensors beside this script for each family of layers (by default for all). Every
tensor is of f64, i64 or bool, and torch's version is in the file's metadata. A file holds several cases;
the tensors of a case are called

    CASE.input.0, ...            what forward takes
    CASE.state.weight, ...       the module's state_dict before
    CASE.output.0, ...           what forward gives, nested tuples flattened
    CASE.output_grad.0, ...      the gradients that backward starts from
    CASE.input_grad.0, ...       the gradients of the inputs of floating-point dtype
    CASE.grad.weight, ...        the gradients of the parameters
    CASE.state_after.mean, ...   the module's buffers afterwards

To add a family write a function that takes a Recorder and put @family before it; tests/nn/
torch_numbers.hpp reads the files.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn

FAMILIES = {}


def family(function):
    """Makes a function that records cases a family of its name."""
    FAMILIES[function.__name__] = function
    return function


def flattened(value):
    """The tensors in nested tuples and lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in flattened(part)]


class Recorder:
    """The cases of one family, with random numbers that only depend on their order."""

    def __init__(self):
        self.tensors = {}
        self.random = torch.Generator().manual_seed(20)

    def uniform(self, *shape, low=-1.0, high=1.0):
        return low + (high - low) * torch.rand(shape, generator=self.random, dtype=torch.float64)

    def case(self, name, module, *inputs, call=None):
        """Records `call(*inputs)`, or `module(*inputs)`, for a module or a function."""
        is_module = isinstance(module, nn.Module)
        if is_module:
            module.double()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.copy_(self.uniform(*parameter.shape))
        state = module.state_dict() if is_module else {}
        self.keep(name, "state", state)
        self.keep(name, "input", dict(enumerate(inputs)))

        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        outputs = flattened((call or module)(*leaves))
        grads = [self.uniform(*y.shape) for y in outputs]
        torch.autograd.backward(outputs, grads)
        self.keep(name, "output", dict(enumerate(outputs)))
        self.keep(name, "output_grad", dict(enumerate(grads)))
        self.keep(name, "input_grad", {i: x.grad for i, x in enumerate(leaves) if x.requires_grad})
        if is_module:
            self.keep(name, "grad", {key: p.grad for key, p in module.named_parameters()})
            self.keep(name, "state_after", dict(module.named_buffers()))

    def keep(self, case, kind, tensors):
        for key, tensor in tensors.items():
            name = f"{case}.{kind}.{key}"
            assert name not in self.tensors, name
            self.tensors[name] = tensor.detach().clone().contiguous()


@family
def linear(record):
    record.case("bias", nn.Linear(4, 3), record.uniform(5, 4))
    record.case("no_bias", nn.Linear(4, 3, bias=False), record.uniform(2, 3, 4))


@family
def conv(record):
    images = record.uniform(2, 4, 6, 5)
    record.case("plain", nn.Conv2d(4, 3, 3), images)
    record.case("stride", nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2)), images)
    record.case("groups", nn.Conv2d(4, 6, 3, padding=1, groups=2), images)
    record.case("depthwise", nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4, bias=False), images)


@family
def pooling(record):
    images = record.uniform(2, 3, 7, 6)
    record.case("max", nn.MaxPool2d(2), images)
    record.case("max_overlapping", nn.MaxPool2d((3, 2), stride=(2, 1), padding=1), images)
    record.case("avg", nn.AvgPool2d(2), images)
    overlapping = {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1}
    record.case("avg_overlapping", nn.AvgPool2d(**overlapping), images)
    record.case("avg_without_pad", nn.AvgPool2d(**overlapping, count_include_pad=False), images)


@family
def normalization(record):
    def with_statistics(norm):
        norm.running_mean.copy_(record.uniform(*norm.running_mean.shape))
        norm.running_var.copy_(record.uniform(*norm.running_var.shape, low=0.5, high=1.5))
        return norm.double()

    rows = record.uniform(6, 3)
    images = record.uniform(4, 3, 2, 3)
    for name, layer, x in (
        ("batch_norm1d", nn.BatchNorm1d, rows),
        ("batch_norm1d_length", nn.BatchNorm1d, record.uniform(4, 3, 5)),
        ("batch_norm2d", nn.BatchNorm2d, images),
    ):
        record.case(f"{name}_train", with_statistics(layer(3, momentum=0.3)), x)
        record.case(f"{name}_eval", with_statistics(layer(3)).eval(), x)
    record.case("batch_norm2d_plain", nn.BatchNorm2d(3, affine=False), images)
    record.case("layer_norm", nn.LayerNorm(3), rows)
    record.case("layer_norm_plane", nn.LayerNorm((2, 3), eps=1e-3), images)


@family
def embedding(record):
    indices = torch.tensor([[3, 0, 3], [1, 4, 0]])
    record.case("plain", nn.Embedding(5, 4), indices)
    record.case("padding", nn.Embedding(5, 4, padding_idx=3), indices)


@family
def activation(record):
    x = record.uniform(3, 4, 5, low=-3.0, high=3.0)
    record.case("relu", nn.ReLU(), x)
    record.case("tanh", nn.Tanh(), x)
    record.case("sigmoid", nn.Sigmoid(), x)
    record.case("softmax_last", nn.Softmax(-1), x)
    record.case("softmax_middle", nn.Softmax(1), x)
    record.case("log_softmax", nn.LogSoftmax(-1), x)
    record.case("gelu", nn.GELU(), x)
    record.case("gelu_tanh", nn.GELU("tanh"), x)


@family
def rnn(record):
    length, batch, features, width = 4, 3, 2, 3
    x = record.uniform(length, batch, features)

    def states(layers, count=1):
        return [record.uniform(layers, batch, width) for _ in range(count)]

    def lstm(*arguments, **options):
        layer = nn.LSTM(*arguments, **options)
        return layer, lambda x, h, c: layer(x, (h, c))

    record.case("tanh", nn.RNN(features, width), x)
    record.case("tanh_state", nn.RNN(features, width), x, *states(1))
    deep = nn.RNN(features, width, 2, nonlinearity="relu", bidirectional=True)
    record.case("relu_deep", deep, x, *states(4))
    record.case("lstm", nn.LSTM(features, width), x)
    layer, call = lstm(features, width)
    record.case("lstm_state", layer, x, *states(1, 2), call=call)
    layer, call = lstm(features, width, 2, bidirectional=True)
    record.case("lstm_deep", layer, x, *states(4, 2), call=call)
    layer, call = lstm(features, width, 2, bias=False, batch_first=True)
    record.case("lstm_batch_first", layer, record.uniform(batch, length, features), *states(2, 2),
                call=call)
    record.case("lstm_unbatched", nn.LSTM(features, width, 2), record.uniform(length, features))
    record.case("gru", nn.GRU(features, width), x)
    record.case("gru_deep", nn.GRU(features, width, 2, bidirectional=True), x, *states(4))
    record.case("gru_batch_first", nn.GRU(features, width, bias=False, batch_first=True),
                record.uniform(batch, length, features), *states(1))
    record.case("gru_unbatched", nn.GRU(features, width), record.uniform(length, features),
                record.uniform(1, width))


@family
def attention(record):
    length, keys, batch, width, heads = 3, 4, 2, 6, 2

    def itself(layer):
        return lambda x: layer(x, x, x)

    layer = nn.MultiheadAttention(width, heads)
    record.case("self", layer, record.uniform(length, batch, width), call=itself(layer))
    layer = nn.MultiheadAttention(width, heads, bias=False)
    record.case("unbatched", layer, record.uniform(length, width), call=itself(layer))
    others = [record.uniform(batch, size, width) for size in (length, keys, keys)]
    record.case("cross", nn.MultiheadAttention(width, heads, batch_first=True), *others)

    # (A padding of numbers too: torch wants both masks to be of one kind.)
    added = record.uniform(length, keys)
    padding = torch.zeros(batch, keys, dtype=torch.float64)
    padding[1, 2:] = -torch.inf
    layer = nn.MultiheadAttention(width, heads, batch_first=True)
    record.case("masks", layer, *others, added, padding,
                call=lambda q, k, v, mask, pad: layer(q, k, v, pad, attn_mask=mask))
    hidden = torch.rand(batch * heads, length, keys, generator=record.random) < 0.4
    hidden[:, :, 1] = False
    plain = nn.MultiheadAttention(width, heads, batch_first=True)
    record.case("mask_a_head", plain, *others, hidden,
                call=lambda q, k, v, mask: plain(q, k, v, attn_mask=mask,
                                                 average_attn_weights=False))

    function = nn.functional.scaled_dot_product_attention
    parts = [record.uniform(batch, heads, size, 3) for size in (length, keys, keys)]
    record.case("function", function, *parts)
    record.case("function_causal", function, *parts,
                call=lambda q, k, v: function(q, k, v, is_causal=True))


@family
def operation(record):
    """What losses and networks of one's own are made of."""
    x = record.uniform(3, 4, 5, low=-3.0, high=3.0)
    y = record.uniform(4, 5, low=-3.0, high=3.0)
    record.case("leaky_relu", nn.LeakyReLU(0.2), x)
    record.case("silu", nn.SiLU(), x)
    record.case("group_norm", nn.GroupNorm(2, 4), record.uniform(3, 4, 2, 3))

    halves = (x * 2).round() / 2  # some are equal
    others = (y * 2).round() / 2
    compared = (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)
    record.case("compare", lambda a, b: [f(a, b) * a + f(a, 0.5) * b for f in compared], halves, others)
    record.case("where", lambda a, b: [torch.where(a < b, a, b), torch.where(a < 1, a, 0.5)], x, y)
    # (An element on a bound passes its gradient or not by torch's version.)
    record.case("clamp", lambda a: [a.clamp(-1, 0.5), a.clamp(min=0.25), a.clamp(max=-0.5)], x)
    record.case("maximum", lambda a, b: [torch.maximum(a, b), torch.minimum(a, b)], halves, others)
    record.case("max", lambda a: [a.max(1)[0], a.min(-1, keepdim=True)[0], a.max(), a.min()], halves)
    record.case("var", lambda a: [a.var(), a.var((0, 2), keepdim=True), a.std(1, correction=0)], x)

    indices = torch.tensor([2, 0, 2])
    record.case("index", lambda a: [a[1], a[2][0], a[-1][3][2]], x)
    record.case("index_select", lambda a, i: a.index_select(1, i), x, indices)
    record.case("gather", lambda a, i: a.gather(2, i), x, torch.tensor([[[4, 0, 4], [1, 1, 2]]]))

    def reductions(loss, **options):
        return lambda a, *b: [loss(a, *b, reduction=how, **options) for how in ("none", "mean", "sum")]

    functions = nn.functional
    quarters = torch.tensor([[0, 1, 2, 3, 4], [4, 3, 0, 1, 2], [2, 2, 0, 4, 1], [0, 0, 3, 1, 4]])
    probabilities = record.uniform(4, 5, low=0.05, high=0.95)
    record.case("binary_cross_entropy", reductions(
        lambda a, b, **how: functions.binary_cross_entropy(a, b.double() / 4, **how)), probabilities, quarters)
    record.case("binary_cross_entropy_with_logits", reductions(
        lambda a, b, **how: functions.binary_cross_entropy_with_logits(a, b.double() / 4, **how)), y, quarters)
    near = y + record.uniform(4, 5)
    record.case("l1_loss", reductions(functions.l1_loss), y, near)
    record.case("smooth_l1_loss", reductions(functions.smooth_l1_loss, beta=0.5), y, near)
    record.case("label_smoothing", reductions(functions.cross_entropy, label_smoothing=0.2),
                y, torch.tensor([4, 0, 2, 2]))


def main(names):
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    print(f"torch {torch.__version__}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = pathlib.Path(__file__).resolve().parent
    for name in names or FAMILIES:
        recorder = Recorder()
        FAMILIES[name](recorder)
        path = folder / f"{name}.safetensors"
        # (One entry: the writer gives several of them in any order.)
        save_file(recorder.tensors, path, {"torch": torch.__version__})
        print(f"{path.name}: {len(recorder.tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
