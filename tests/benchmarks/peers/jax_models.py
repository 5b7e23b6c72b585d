# SPDX-License-Identifier: Apache-2.0
"""Models of compare_models.hpp, and the ResNet and the transformer of compare_models.cpp, in JAX.

Images are NHWC, pooling is a maximum over a reshape and a text is a row, all what XLA is fastest with on a CPU.
BatchNorm keeps no running statistics, which saves JAX that work.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from saved_tensors import below, must_agree, read

LENGTH, CHARACTERS, WIDTH, HEADS = 64, 256, 128, 4


@dataclass
class Model:
    """loss(weights, x, y); optimizer: what makes its state of weights, and update(weights, state, gradients)."""

    weights: Callable
    batch: Callable
    loss: Callable
    optimizer: tuple


def normal(shape):
    return 0.05 * jax.random.normal(jax.random.key(sum(shape)), shape)


def sgd(momentum):
    def update(weights, velocity, gradients):
        if momentum:
            gradients = velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, gradients)
        return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradients), velocity

    return lambda weights: jax.tree.map(jnp.zeros_like, weights) if momentum else None, update


def adamw():
    def make(weights):
        return jnp.zeros(()), jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights)

    def update(weights, state, gradients):
        count, first, second = state
        count += 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        a, b = 1e-3 / (1 - 0.9**count), 1 - 0.999**count
        new = jax.tree.map(lambda w, m, v: w * (1 - 1e-5) - a * m / (jnp.sqrt(v / b) + 1e-8), weights, first, second)
        return new, (count, first, second)

    return make, update


def cross_entropy(scores, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), y[..., None], axis=-1))


def images(rows):
    return jax.random.normal(jax.random.key(1), (rows, 28, 28, 1)), jnp.arange(rows) * 7 % 10


def convolution(x, weight, stride=1, padding="VALID"):
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def max_pool(x):
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


def linears(weights, x):
    for weight, bias in weights[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    return x @ weights[-1][0] + weights[-1][1]


def with_biases(*shapes):
    return lambda: [(normal(shape), jnp.zeros(shape[-1])) for shape in shapes]


def tiny_batch():
    key = jax.random.key(1)
    return jax.random.normal(key, (30, 5)), jax.random.normal(key, (30, 2))


def mlp_batch():
    return jax.random.normal(jax.random.key(1), (256, 784)), jnp.arange(256) * 7 % 10


def cnn_loss(weights, x, y):
    for weight, bias in weights[:2]:
        x = max_pool(jax.nn.relu(convolution(x, weight) + bias))
    return cross_entropy(linears(weights[2:], x.reshape(x.shape[0], -1)), y)


BLOCKS = {"layer1": (16, 16, 1), "layer2": (16, 32, 2), "layer3": (32, 64, 2)}


def resnet_weights():
    convolutions = {"conv1": (3, 3, 1, 16)}
    norms = {"bn1": 16}
    for name, (channels, out, stride) in BLOCKS.items():
        convolutions.update({f"{name}.conv1": (3, 3, channels, out), f"{name}.conv2": (3, 3, out, out)})
        norms.update({f"{name}.bn1": out, f"{name}.bn2": out})
        if stride != 1:
            convolutions[f"{name}.downsample.0"], norms[f"{name}.downsample.1"] = (1, 1, channels, out), out
    weights = {f"{name}.weight": normal(shape) for name, shape in convolutions.items()}
    for name, size in norms.items():
        weights.update({f"{name}.weight": jnp.ones(size), f"{name}.bias": jnp.zeros(size)})
    return {**weights, "fc.weight": normal((64, 10)), "fc.bias": jnp.zeros(10)}


def resnet_loss(weights, x, y):
    def norm(name, x):
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        factor = jax.lax.rsqrt(variance + 1e-5) * weights[f"{name}.weight"]
        return x * factor + (weights[f"{name}.bias"] - mean * factor)

    def conv(name, x, stride=1):
        weight = weights[f"{name}.weight"]
        edge = weight.shape[0] // 2
        return convolution(x, weight, stride, ((edge, edge), (edge, edge)))

    x = max_pool(jax.nn.relu(norm("bn1", conv("conv1", x))))
    for name, (_, _, stride) in BLOCKS.items():
        change = jax.nn.relu(norm(f"{name}.bn1", conv(f"{name}.conv1", x, stride)))
        change = norm(f"{name}.bn2", conv(f"{name}.conv2", change))
        if stride != 1:
            x = norm(f"{name}.downsample.1", conv(f"{name}.downsample.0", x, stride))
        x = jax.nn.relu(change + x)
    return cross_entropy(x.mean((1, 2)) @ weights["fc.weight"] + weights["fc.bias"], y)


def transformer_weights():
    linear = {"out": (WIDTH, CHARACTERS)}
    norms = ["norm"]
    for name in ("blocks.0", "blocks.1"):
        linear.update({f"{name}.attention.out_proj": (WIDTH, WIDTH), f"{name}.fc1": (WIDTH, 4 * WIDTH)})
        linear[f"{name}.fc2"] = (4 * WIDTH, WIDTH)
        norms += [f"{name}.norm1", f"{name}.norm2"]
    weights = {"characters.weight": normal((CHARACTERS, WIDTH)), "positions.weight": normal((LENGTH, WIDTH))}
    for name in ("blocks.0.attention.in_proj", "blocks.1.attention.in_proj"):
        weights.update({f"{name}_weight": normal((WIDTH, 3 * WIDTH)), f"{name}_bias": jnp.zeros(3 * WIDTH)})
    for name, shape in linear.items():
        weights.update({f"{name}.weight": normal(shape), f"{name}.bias": jnp.zeros(shape[-1])})
    for name in norms:
        weights.update({f"{name}.weight": jnp.ones(WIDTH), f"{name}.bias": jnp.zeros(WIDTH)})
    return weights


def transformer_batch():
    text = (jnp.arange(LENGTH * 64) * 7919 % CHARACTERS).reshape(LENGTH, 64).T
    return text, text


def transformer_loss(weights, x, y):
    def linear(name, x, join="."):
        return x @ weights[f"{name}{join}weight"] + weights[f"{name}{join}bias"]

    def norm(name, x):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x = weights["characters.weight"][x] + weights["positions.weight"]
    for name in ("blocks.0", "blocks.1"):
        projected = linear(f"{name}.attention.in_proj", norm(f"{name}.norm1", x), "_")
        heads = projected.reshape(*x.shape[:2], 3, HEADS, WIDTH // HEADS)
        seen = jax.nn.dot_product_attention(heads[:, :, 0], heads[:, :, 1], heads[:, :, 2], is_causal=True)
        x = x + linear(f"{name}.attention.out_proj", seen.reshape(x.shape))
        inner = jax.nn.gelu(linear(f"{name}.fc1", norm(f"{name}.norm2", x)), approximate=False)
        x = x + linear(f"{name}.fc2", inner)
    return cross_entropy(linear("out", norm("norm", x)), y)


MODELS = {
    "tiny": Model(
        with_biases((5, 2)), tiny_batch, lambda weights, x, y: jnp.mean((linears(weights, x) - y) ** 2), sgd(0)
    ),
    "mlp": Model(
        with_biases((784, 512), (512, 512), (512, 10)),
        mlp_batch,
        lambda weights, x, y: cross_entropy(linears(weights, x), y),
        sgd(0.9),
    ),
    "cnn": Model(
        with_biases((5, 5, 1, 32), (5, 5, 32, 64), (1024, 512), (512, 10)),
        functools.partial(images, 128),
        cnn_loss,
        sgd(0.9),
    ),
    "resnet": Model(resnet_weights, functools.partial(images, 128), resnet_loss, sgd(0.9)),
    "transformer": Model(transformer_weights, transformer_batch, transformer_loss, adamw()),
}


def update(name, axis, state, x, y):
    model = MODELS[name]
    weights, moments = state
    loss, gradients = jax.value_and_grad(model.loss)(weights, x, y)
    if axis:
        gradients = jax.lax.pmean(gradients, axis)
    return model.optimizer[1](weights, moments, gradients), loss


def check(name, path):
    """Two steps with lockstep's first weights and data must have lockstep's losses."""

    def as_here(key, tensor):
        if tensor.ndim == 4:
            return tensor.transpose(2, 3, 1, 0)
        return tensor.T if tensor.ndim == 2 and not key.startswith(("characters", "positions")) else tensor

    saved, model = read(path), MODELS[name]
    weights = {key.removeprefix("net."): tensor for key, tensor in below(saved, "state/").items()}
    weights = {key: jnp.asarray(as_here(key, tensor)) for key, tensor in weights.items() if key in model.weights()}
    for key, tensor in model.weights().items():
        if weights[key].shape != tensor.shape:
            raise SystemExit(f"JAX's {name}, {key}: of shape {tensor.shape}, not {weights[key].shape} as lockstep's")
    data = saved["input"], saved["target"]
    data = (data[0].transpose(0, 2, 3, 1), data[1]) if name == "resnet" else (data[0].T, data[1].T)
    state = weights, model.optimizer[0](weights)
    for number in ("0", "1"):
        state, loss = update(name, None, state, *data)
        must_agree(f"JAX's {name}, loss {number}", loss, saved[f"loss/{number}"])
