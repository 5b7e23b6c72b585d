# SPDX-License-Identifier: Apache-2.0
"""JAX's training steps on the models of compare_models.hpp, served to `compare`.

    jax_steps.py 2   on two host devices: MODEL/sharded (jit of a sharded batch), MODEL/shard_map, MODEL/pmap, and
                     all_reduce/BYTES by psum, each device's bytes
    jax_steps.py 1   on one, which uses all cores: MODEL/one

The host waits for each step.
Images are NHWC and pooling is a maximum over a reshape, both what XLA is fastest with on a CPU.
"""

import functools
import os
import sys

DEVICES = int(sys.argv[1])
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from served_steps import serve  # noqa: E402

BATCH = {"tiny": 30, "mlp": 256, "cnn": 128}
INPUT = {"tiny": (5,), "mlp": (784,), "cnn": (28, 28, 1)}
WEIGHTS = {
    "tiny": [(5, 2)],
    "mlp": [(784, 512), (512, 512), (512, 10)],
    "cnn": [(5, 5, 1, 32), (5, 5, 32, 64), (1024, 512), (512, 10)],
}


def initial(name):
    keys = jax.random.split(jax.random.key(0), len(WEIGHTS[name]))
    weights = [(0.05 * jax.random.normal(k, s), jnp.zeros(s[-1])) for k, s in zip(keys, WEIGHTS[name])]
    return weights, None if name == "tiny" else jax.tree.map(jnp.zeros_like, weights)


def batch(name):
    key, rows = jax.random.key(1), BATCH[name]
    y = jax.random.normal(key, (rows, 2)) if name == "tiny" else jnp.arange(rows) * 7 % 10
    return jax.random.normal(key, (rows, *INPUT[name])), y


def convolution(x, weight, bias):
    x = jax.lax.conv_general_dilated(x, weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = jax.nn.relu(x + bias)
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


def loss(name, weights, x, y):
    if name == "cnn":
        x = convolution(convolution(x, *weights[0]), *weights[1]).reshape(x.shape[0], -1)
        weights = weights[2:]
    for weight, bias in weights[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    x = x @ weights[-1][0] + weights[-1][1]
    if name == "tiny":
        return jnp.mean((x - y) ** 2)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], axis=1))


def update(name, axis, state, x, y):
    weights, velocity = state
    gradients = jax.grad(functools.partial(loss, name))(weights, x, y)
    if axis:
        gradients = jax.lax.pmean(gradients, axis)
    if velocity is not None:
        gradients = velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradients)
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradients), velocity


def step_of(compiled, state, data):
    held = [jax.block_until_ready(state)]

    def step():
        held[0] = jax.block_until_ready(compiled(held[0], *data))

    return step


def placed():
    """A mesh of the two devices, and what puts a tree on both of them whole or in halves."""
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    return mesh, lambda tree: jax.device_put(tree, whole), lambda tree: jax.device_put(tree, split)


def sharded(name):
    _, whole, split = placed()
    compiled = jax.jit(functools.partial(update, name, None), donate_argnums=0)
    return step_of(compiled, whole(initial(name)), split(batch(name)))


def shard_map(name):
    mesh, whole, split = placed()
    everywhere, parts = PartitionSpec(), PartitionSpec("data")
    mapped = jax.shard_map(
        functools.partial(update, name, "data"),
        mesh=mesh,
        in_specs=(everywhere, parts, parts),
        out_specs=everywhere,
        check_vma=False,
    )
    return step_of(jax.jit(mapped, donate_argnums=0), whole(initial(name)), split(batch(name)))


def pmap(name):
    _, _, split = placed()
    mapped = jax.pmap(functools.partial(update, name, "data"), axis_name="data", donate_argnums=0)
    data = jax.tree.map(lambda leaf: leaf.reshape(2, leaf.shape[0] // 2, *leaf.shape[1:]), batch(name))
    return step_of(mapped, split(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), initial(name))), split(data))


def one(name):
    return step_of(jax.jit(functools.partial(update, name, None), donate_argnums=0), initial(name), batch(name))


def all_reduce(size):
    mesh, _, split = placed()
    parts = PartitionSpec("data")
    total = jax.shard_map(
        lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=parts, out_specs=parts, check_vma=False
    )
    return step_of(jax.jit(total, donate_argnums=0), split(jnp.zeros((2, size // 4))), ())


def main():
    assert jax.device_count() == DEVICES
    ways = {"sharded": sharded, "shard_map": shard_map, "pmap": pmap} if DEVICES == 2 else {"one": one}
    makers = {f"{name}/{way}": functools.partial(make, name) for name in BATCH for way, make in ways.items()}
    if DEVICES == 2:
        for size in (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26):
            makers[f"all_reduce/{size}"] = functools.partial(all_reduce, size)
    serve(makers)


if __name__ == "__main__":
    main()
