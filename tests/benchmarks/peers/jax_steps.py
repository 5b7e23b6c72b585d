# SPDX-License-Identifier: Apache-2.0
"""JAX's training steps, served to `compare`.

    jax_steps.py 2   on two host devices: MODEL/sharded (jit of a sharded batch), MODEL/shard_map, MODEL/pmap, and
                     all_reduce/BYTES by psum, each device's bytes
    jax_steps.py 1   on one, which uses all cores: MODEL/one
    jax_steps.py check FILE...   says if a MODEL is not what lockstep has saved in a file of its name; passes over
                                 files of other names

The host waits for each step.
"""

import functools
import os
import pathlib
import sys

DEVICES = 1 if sys.argv[1] == "check" else int(sys.argv[1])
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from jax_models import MODELS, check, update  # noqa: E402
from served_steps import serve  # noqa: E402

def initial(name):
    weights = MODELS[name].weights()
    return weights, MODELS[name].optimizer[0](weights)


def batch(name):
    return MODELS[name].batch()


def stepped(name, axis, state, x, y):
    return update(name, axis, state, x, y)[0]


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
    compiled = jax.jit(functools.partial(stepped, name, None), donate_argnums=0)
    return step_of(compiled, whole(initial(name)), split(batch(name)))


def shard_map(name):
    mesh, whole, split = placed()
    everywhere, parts = PartitionSpec(), PartitionSpec("data")
    mapped = jax.shard_map(
        functools.partial(stepped, name, "data"),
        mesh=mesh,
        in_specs=(everywhere, parts, parts),
        out_specs=everywhere,
        check_vma=False,
    )
    return step_of(jax.jit(mapped, donate_argnums=0), whole(initial(name)), split(batch(name)))


def pmap(name):
    _, _, split = placed()
    mapped = jax.pmap(functools.partial(stepped, name, "data"), axis_name="data", donate_argnums=0)
    data = jax.tree.map(lambda leaf: leaf.reshape(2, leaf.shape[0] // 2, *leaf.shape[1:]), batch(name))
    return step_of(mapped, split(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), initial(name))), split(data))


def one(name):
    return step_of(jax.jit(functools.partial(stepped, name, None), donate_argnums=0), initial(name), batch(name))


def all_reduce(size):
    mesh, _, split = placed()
    parts = PartitionSpec("data")
    total = jax.shard_map(
        lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=parts, out_specs=parts, check_vma=False
    )
    return step_of(jax.jit(total, donate_argnums=0), split(jnp.zeros((2, size // 4))), ())


def main():
    if sys.argv[1] == "check":
        for file in sys.argv[2:]:
            if pathlib.Path(file).stem in MODELS:
                check(pathlib.Path(file).stem, file)
        return
    assert jax.device_count() == DEVICES
    ways = {"sharded": sharded, "shard_map": shard_map, "pmap": pmap} if DEVICES == 2 else {"one": one}
    makers = {f"{name}/{way}": functools.partial(make, name) for name in MODELS for way, make in ways.items()}
    if DEVICES == 2:
        for size in (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26):
            makers[f"all_reduce/{size}"] = functools.partial(all_reduce, size)
    serve(makers)


if __name__ == "__main__":
    main()
