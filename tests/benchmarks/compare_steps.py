# SPDX-License-Identifier: Apache-2.0
"""The sections of `compare` that take training steps, of models or of layers by themselves."""

import pathlib
import subprocess
import tempfile

from compare_contenders import KEEP, Contender, Figure
from compare_goals import MEMORY, Goal, Section

TRAINING = {
    "tiny": [("torch DDP", 100), ("JAX", 6), ("LibTorch, one thread", 5)],
    "mlp": [("torch DDP", 1.8), ("JAX", 1.1)],
    "cnn": [("torch DDP", 1.2), ("JAX", 1.2)],
}
BOUND = "DDP, two threads, each bound to a core"
JAX_WAYS = ("sharded", "shard_map", "pmap")
SPINS_S = 0.02  # OpenMP's threads


def steps_of(tools, program, rows, memories, jax_rows):
    """Steps of the models that a program serves, of lockstep and of all peers."""
    contenders, groups = [], []
    for memory in memories:
        env = KEEP if memory == "kept" else {}
        ours = tools.program(program, "steps", memory)
        step = Contender("lockstep", ours)
        both = Contender("lockstep on each core", ours, cores=(0, 1))
        ranks = Contender("lockstep DDP", tools.program(program, "ddp", memory))
        bound = Contender("lockstep DDP bound", tools.program(program, "ddp_bound", memory))
        contenders += [step, both, ranks, bound]
        if "torch" in tools.have:
            store = tempfile.mktemp(prefix="compare_store_")
            commands = [tools.script("torch_steps.py", "ddp", str(rank), store) for rank in (0, 1)]
            ddp = Contender("torch DDP", commands=commands, env=env)
            one = Contender("torch", tools.script("torch_steps.py", "1"), env=env)
            apart = Contender("torch on each core", tools.script("torch_steps.py", "1"), cores=(0, 1), env=env)
            two = {**env, "OMP_NUM_THREADS": "2"}
            threads = Contender("torch, two threads", tools.script("torch_steps.py", "2"), env=two, rest_s=SPINS_S)
            contenders += [ddp, one, apart, threads]
        if "jax" in tools.have:
            jax = Contender("JAX", tools.script("jax_steps.py", "2"), env=env)
            alone = Contender("JAX, one device", tools.script("jax_steps.py", "1"), env=env)
            contenders += [jax, alone]
        if "libtorch" in tools.have and program == "compare_training":
            libtorch = Contender("LibTorch", tools.program("libtorch", "1"), env=env)
            two = {**env, "OMP_NUM_THREADS": "2"}
            parallel = Contender("LibTorch parallel", tools.program("libtorch", "2"), env=two, rest_s=SPINS_S)
            contenders += [libtorch, parallel]
        for model in rows:
            key = f"{model}|{memory}|"
            group = [
                Figure(key + "DataParallel", step, f"{model}/DataParallel/2"),
                Figure(key + "DDP, two threads", ranks, f"{model}/DDP"),
                Figure(key + BOUND, bound, f"{model}/DDP"),
                Figure(key + "half the batch on each core", both, f"{model}/one/half"),
                Figure(key + "whole batch, one device", step, f"{model}/one/full"),
            ]
            if "torch" in tools.have:
                group.append(Figure(key + "torch DDP", ddp, f"{model}/DDP"))
                group.append(Figure(key + "torch, half the batch on each core", apart, f"{model}/half"))
                group.append(Figure(key + "torch, one thread", one, f"{model}/full"))
                group.append(Figure(key + "torch, two maths threads", threads, f"{model}/full"))
            if "jax" in tools.have and model in jax_rows:
                group += [Figure(f"{key}JAX {way}", jax, f"{model}/{way}") for way in JAX_WAYS]
                group.append(Figure(key + "JAX, one device, both cores", alone, f"{model}/one"))
            if "libtorch" in tools.have and program == "compare_training":
                if model == "tiny":
                    group.append(Figure(key + "LibTorch, one thread", libtorch, "tiny/full"))
                group.append(Figure(key + "LibTorch, parallel_apply", parallel, f"{model}/parallel"))
            groups.append(group)
    return Section(contenders, groups)


def training(tools):
    """Steps of the three small models, on memory that is kept and on fresh memory."""
    return steps_of(tools, "compare_training", tools.chosen(TRAINING), MEMORY, TRAINING)


def training_goals(section):
    for model, peers in TRAINING.items():
        if f"{model}|kept|DataParallel" not in section.figures:
            continue
        for memory in MEMORY:
            key = f"{model}|{memory}|"
            for ours in ("DataParallel", "DDP, two threads", BOUND):
                work = f"{model} step, {ours}"
                for peer, factor in peers:
                    keys = [f"{key}JAX {way}" for way in JAX_WAYS] if peer == "JAX" else [key + peer]
                    goal = section.times_faster(work, memory, factor, key + ours, *keys)
                    goal.goal = f"{factor:g} × faster than {peer}" + (", which is not bound" if ours == BOUND else "")
                    yield goal
                if model != "tiny":
                    what = "half the batch, the other core doing the same"
                    yield section.at_most(work, memory, 1.08, key + ours, key + "half the batch on each core", what)


GROWING = (1, 2, 4, 8, 16)


def growing(tools):
    """The tiny model's step over more and more host devices of the same cores."""
    contenders = [Contender("lockstep", tools.program("compare_training", "steps", memory)) for memory in MEMORY]
    groups = [
        [Figure(f"tiny, {k} devices|{memory}|lockstep", ours, f"tiny/DataParallel/{k}") for k in GROWING]
        for memory, ours in zip(MEMORY, contenders)
    ]
    return Section(contenders, groups)


def growing_goals(section):
    for memory in MEMORY:
        two = section.us(f"tiny, 2 devices|{memory}|lockstep")
        for count in GROWING[2:]:
            mine = section.us(f"tiny, {count} devices|{memory}|lockstep")
            met = None if mine is None or two is None else mine <= two + 10 * (count - 2)
            measured = "not measured" if met is None else f"T(2) + {(mine - two) / (count - 2):.3g} × {count - 2} µs"
            yield Goal(f"tiny step, {count} devices", memory, f"at most T(2) + 10 × {count - 2} µs", measured, met)


MODELS = ("resnet", "lstm", "transformer", "gru", "embedding")
JAX_MODELS = ("resnet", "transformer")
JAX_FIGURES = (*(f"JAX {way}" for way in JAX_WAYS), "JAX, one device, both cores")
BOTH_CORES = ("torch, two maths threads", "torch DDP", *JAX_FIGURES)


def check_networks(tools, program):
    """Ends the program if a peer has another network than lockstep's program of that name."""
    scripts = {"torch": "torch_steps.py", "jax": "jax_steps.py"}
    if not tools.have & set(scripts):
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(tools.program(program, "save", folder), check=True, timeout=300)
        files = sorted(str(file) for file in pathlib.Path(folder).iterdir())
        for module in tools.have & set(scripts):
            command = tools.script(scripts[module], "check", *files)
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                why = (done.stderr.strip().splitlines() or [module])[-1]
                raise SystemExit(f"compare: not the same networks: {why}")


def models(tools):
    """Steps of models that people train."""
    check_networks(tools, "compare_models")
    return steps_of(tools, "compare_models", tools.chosen(MODELS), ("kept",), JAX_MODELS)


def models_goals(section):
    for model in MODELS:
        key = f"{model}|kept|"
        if key + "DataParallel" not in section.figures:
            continue
        one = key + "whole batch, one device"
        yield section.times_faster(f"{model} step, one device", "kept", 1.15, one, key + "torch, one thread")
        for ours in ("DataParallel", "DDP, two threads"):
            work = f"{model} step, {ours}"
            goal = section.times_faster(work, "kept", 1.25, key + ours, *(key + peer for peer in BOTH_CORES))
            goal.goal = "1.25 × faster than the best of torch's two threads, torch DDP and JAX"
            yield goal
            what = "half the batch, the other core doing the same"
            yield section.at_most(work, "kept", 1.08, key + ours, key + "half the batch on each core", what)


LAYERS = (
    *("linear", "conv2d_28", "conv2d_14", "conv2d_7", "conv2d_4", "batch_norm2d", "layer_norm", "gelu", "softmax"),
    *("log_softmax", "cross_entropy", "cross_entropy_images", "binary_cross_entropy", "one_row", "heads", "cat"),
    *("index_select", "attention", "attention_1024", "lstm", "gru", "embedding", "adam", "adamw"),
)


def layers(tools):
    """Layers by themselves, forward and backward on one device, and steps of optimisers."""
    check_networks(tools, "compare_layers")
    contenders = {"lockstep, one device": Contender("lockstep", tools.program("compare_layers"))}
    if "torch" in tools.have:
        contenders["torch, one thread"] = Contender("torch", tools.script("torch_steps.py", "1"), env=KEEP)
    groups = [
        [Figure(f"{layer}|kept|{name}", contender, f"layer/{layer}") for name, contender in contenders.items()]
        for layer in tools.chosen(LAYERS)
    ]
    return Section(list(contenders.values()), groups)


def layers_goals(section):
    for layer in LAYERS:
        ours, peer = f"{layer}|kept|lockstep, one device", f"{layer}|kept|torch, one thread"
        if ours in section.figures:
            work = f"{layer}, a step" if layer in ("adam", "adamw") else f"{layer}, forward and backward"
            goal = section.times_faster(work, "kept", 1, ours, peer)
            goal.goal = "no slower than torch, one thread"
            yield goal
