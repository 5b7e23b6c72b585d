# SPDX-License-Identifier: Apache-2.0
"""What `compare` measures, section by section, and the goals that the figures are held to."""

import re
import subprocess
import tempfile
from dataclasses import dataclass, field

from compare_contenders import KEEP, NO_REUSE, Contender, Figure

MEMORY = ("kept", "fresh")


@dataclass
class Goal:
    """value: as measured, a ratio or µs; met: None where a figure is missing."""

    work: str
    memory: str
    goal: str
    value: str
    met: bool | None


@dataclass
class Tools:
    """Where the programs lie, and which peers there are."""

    build: str
    python: str
    peers: str  # the folder of the peers' sources
    have: set  # of "torch", "jax", "libtorch", "openmpi", "mpich", "valgrind"

    def program(self, name, *arguments):
        return [f"{self.build}/{name}", *arguments]

    def script(self, name, *arguments):
        return [self.python, f"{self.peers}/{name}", *arguments]


@dataclass
class Section:
    contenders: list
    groups: list  # of figures that take turns
    figures: dict = field(default_factory=dict)

    def __post_init__(self):
        self.figures.update({figure.key: figure for group in self.groups for figure in group})

    def us(self, *keys):
        """The least of the figures that there are, or None."""
        found = [self.figures[key] for key in keys if key in self.figures]
        return min((figure.us for figure in found if figure.rounds), default=None)

    def times_faster(self, work, memory, factor, ours, peer, *peers):
        mine, theirs = self.us(ours), self.us(peer, *peers)
        goal = f"{factor:g} × faster than {' and '.join(key.split('|')[-1] for key in (peer, *peers))}"
        if mine is None or theirs is None:
            return Goal(work, memory, goal, "not measured", None)
        return Goal(work, memory, goal, f"{theirs / mine:.2f} ×", theirs / mine >= factor)

    def at_most(self, work, memory, factor, ours, reference, what):
        mine, theirs = self.us(ours), self.us(reference)
        goal = f"at most {factor:g} × {what}"
        if mine is None or theirs is None:
            return Goal(work, memory, goal, "not measured", None)
        return Goal(work, memory, goal, f"{mine / theirs:.3f} ×", mine / theirs <= factor)

    def below(self, work, memory, most_us, ours):
        mine = self.us(ours)
        goal = f"at most {most_us:g} µs"
        if mine is None:
            return Goal(work, memory, goal, "not measured", None)
        return Goal(work, memory, goal, f"{mine:.3g} µs", mine <= most_us)


TRAINING = {
    "tiny": [("torch DDP", 100), ("JAX", 6), ("LibTorch, one thread", 5)],
    "mlp": [("torch DDP", 1.8), ("JAX", 1.1)],
    "cnn": [("torch DDP", 1.2), ("JAX", 1.2)],
}
BOUND = "DDP, two threads, each bound to a core"
JAX_WAYS = ("sharded", "shard_map", "pmap")
SPINS_S = 0.02  # OpenMP's threads


def training(tools):
    """Steps of the three models, on memory that is kept and on fresh memory."""
    contenders, groups = [], []
    for memory in MEMORY:
        env = KEEP if memory == "kept" else {}
        ours = tools.program("compare_training", "steps", memory)
        step = Contender("lockstep", ours)
        both = Contender("lockstep on each core", ours, cores=(0, 1))
        ranks = Contender("lockstep DDP", tools.program("compare_training", "ddp", memory))
        bound = Contender("lockstep DDP bound", tools.program("compare_training", "ddp_bound", memory))
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
        if "libtorch" in tools.have:
            libtorch = Contender("LibTorch", tools.program("libtorch", "1"), env=env)
            two = {**env, "OMP_NUM_THREADS": "2"}
            parallel = Contender("LibTorch parallel", tools.program("libtorch", "2"), env=two, rest_s=SPINS_S)
            contenders += [libtorch, parallel]
        for model in TRAINING:
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
            if "jax" in tools.have:
                group += [Figure(f"{key}JAX {way}", jax, f"{model}/{way}") for way in JAX_WAYS]
                group.append(Figure(key + "JAX, one device, both cores", alone, f"{model}/one"))
            if "libtorch" in tools.have:
                if model == "tiny":
                    group.append(Figure(key + "LibTorch, one thread", libtorch, "tiny/full"))
                group.append(Figure(key + "LibTorch, parallel_apply", parallel, f"{model}/parallel"))
            groups.append(group)
    return Section(contenders, groups)


def training_goals(section):
    for model, peers in TRAINING.items():
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


def dispatch(tools):
    """Two empty replicas applied and joined, two threads made and joined, and other ways to another thread and back."""
    ours = Contender("lockstep", tools.program("compare_calls"))
    limits = Contender("two threads", tools.program("limits"))
    contenders = [ours, limits]
    places = ("free", "busy")
    groups = [
        [
            Figure(f"dispatch|{place}|two empty replicas", ours, f"dispatch/{place}"),
            Figure(f"dispatch|{place}|two std::threads", limits, f"threads/{place}"),
            Figure(f"dispatch|{place}|a condition variable and back", limits, f"condition_variable/{place}"),
        ]
        for place in places
    ]
    groups[0].append(Figure("dispatch|free|a spinning std::thread and back", limits, "handover/free"))
    if "torch" in tools.have:
        python = Contender("Python", tools.script("torch_steps.py", "1"))
        contenders.append(python)
        groups[0].append(Figure("dispatch|free|two Python threads", python, "threads"))
    return Section(contenders, groups)


def dispatch_goals(section):
    for place, most in (("free", 0.5), ("busy", 10)):
        mine = f"dispatch|{place}|two empty replicas"
        work = "dispatch and join, both cores free" if place == "free" else "dispatch and join, a busy neighbour"
        yield section.below(work, "kept", most, mine)
        if place == "free":
            yield section.times_faster(work, "kept", 100, mine, f"dispatch|{place}|two std::threads")


OPERATIONS = ("scatter", "gather", "broadcast", "reduce_add")
SIZES = {"4 B": 8, "1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20, "16 MiB": 1 << 24, "64 MiB": 1 << 26}
MPI = {"Open MPI": "openmpi", "MPICH": "mpich"}


def kinds_of_memory(count):
    return MEMORY if count >= 1 << 16 else MEMORY[:1]


def collectives(tools):
    """Over two devices, beside both MPIs, gloo, JAX and two plain threads."""
    ours = Contender("lockstep", tools.program("compare_calls"))
    ranks = Contender("lockstep's ranks", tools.program("compare_calls", "ranks"))
    limits = Contender("two threads", tools.program("limits"))
    launch = {
        "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "-n", "2", "--bind-to", "core"],
        "mpich": ["mpiexec.mpich", "-n", "2", "-bind-to", "core"],
    }
    mpi = {
        name: Contender(name, [*launch[kind], *tools.program(f"mpi_{kind}")])
        for name, kind in MPI.items()
        if kind in tools.have
    }
    others = {memory: dict(mpi) for memory in MEMORY}
    for memory in MEMORY if "torch" in tools.have else ():
        store = tempfile.mktemp(prefix="compare_store_")
        commands = [tools.script("torch_steps.py", "ddp", str(rank), store) for rank in (0, 1)]
        env = KEEP if memory == "kept" else NO_REUSE
        others[memory]["gloo"] = Contender("gloo", commands=commands, env=env)
    groups = []
    for operation in OPERATIONS:
        plain = "add" if operation == "reduce_add" else "memcpy"
        for size, count in SIZES.items():
            for memory in kinds_of_memory(count):
                key, step = f"{operation}, {size}|{memory}|", f"{operation}/{count}/{memory}"
                group = [Figure(key + "lockstep", ours, step)]
                group += [Figure(key + name, contender, step) for name, contender in others[memory].items()]
                group.append(Figure(key + "two plain threads", limits, f"{plain}/{count}/{memory}"))
                groups.append(group)
    in_place = {"lockstep": ranks, **others["kept"]}
    if "jax" in tools.have:
        in_place["JAX"] = Contender("JAX", tools.script("jax_steps.py", "2"), env=KEEP)
    for size, count in SIZES.items():
        key, step = f"all_reduce in place, {size}|kept|", f"all_reduce/{count}"
        groups.append([Figure(key + name, contender, step) for name, contender in in_place.items()])
    contenders = {ours, limits, *in_place.values(), *others["fresh"].values()}
    return Section(contenders, groups)


def collectives_goals(section):
    for operation in OPERATIONS:
        for size, count in SIZES.items():
            for memory in kinds_of_memory(count):
                work, key = f"{operation}, {size}", f"{operation}, {size}|{memory}|"
                if count < 1 << 16:
                    yield section.below(work, memory, 0.5, key + "lockstep")
                    continue
                for name in MPI:
                    yield section.times_faster(work, memory, 2, key + "lockstep", key + name)
                if count >= 1 << 20:
                    what = "two threads of plain " + ("add" if operation == "reduce_add" else "memcpy")
                    goal = section.times_faster(work, memory, 0.9, key + "lockstep", key + "two plain threads")
                    goal.goal = f"90 % of {what}"
                    yield goal


def eager(tools):
    """One operation on two floats."""
    ours = Contender("lockstep", tools.program("compare_calls"))
    contenders, groups = [ours], []
    peers = {}
    if "libtorch" in tools.have:
        peers["LibTorch"] = Contender("LibTorch", tools.program("libtorch"))
    if "torch" in tools.have:
        peers["torch"] = Contender("torch", tools.script("torch_steps.py", "1"))
    contenders += peers.values()
    for step in ("add", "add_backward"):
        group = [Figure(f"{step}|kept|lockstep", ours, f"eager/{step}")]
        group += [Figure(f"{step}|kept|{name}", contender, step) for name, contender in peers.items()]
        groups.append(group)
    return Section(contenders, groups)


def eager_goals(section):
    yield section.below("one eager operation on two floats", "kept", 0.2, "add|kept|lockstep")
    yield section.below("the same recorded and run backward", "kept", 0.8, "add_backward|kept|lockstep")


def said(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


def memory(tools):
    """The bytes of the MLP's training with DataParallel, a row for each number of devices (0: plain)."""
    rows = {}
    for count in (0, 1, 2, 4, 8):
        held, peak, parameters = map(int, said(tools.program("compare_calls", "memory", str(count))).stdout.split())
        rows[count] = {"held": held, "peak": peak, "parameters": parameters}
    return rows


def memory_goals(rows):
    for count in list(rows)[2:]:
        allowed = (2 * count + 1) * rows[count]["parameters"]
        for what, name in (("held", "between steps"), ("peak", "at the most")):
            above = rows[count][what] - rows[0][what]
            goal = f"at most {allowed / 1e6:.1f} MB above the plain model"
            yield Goal(f"memory of DataParallel, {count} devices, {name}", "kept", goal, f"{above / 1e6:.1f} MB",
                       above <= allowed)  # fmt: skip


INSTRUCTIONS = {
    "add": "one eager operation on two floats",
    "add_backward": "the same recorded and run backward",
    "dispatch": "dispatch and join of two empty replicas, all threads",
    "tiny_step": "tiny step, DataParallel over one device",
    "tiny_step_2": "tiny step, DataParallel over two devices, all threads",
}


def instructions(tools):
    """Instructions a call, from two runs that differ in the number of calls."""
    rows = {}
    for what, text in INSTRUCTIONS.items():
        counts = []
        for times in (1000, 3000):
            program = tools.program("compare_calls_portable", "count", what, str(times))
            valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
            # Which knows no AVX-512.
            answer = said(["env", "-u", "OPENBLAS_CORETYPE", *valgrind, *program]).stderr
            counts.append(int(re.search(r"Collected : (\d+)", answer).group(1)))
        rows[text] = (counts[1] - counts[0]) / 2000
    return rows


MEASURED = {
    "training": (training, training_goals),
    "growing": (growing, growing_goals),
    "dispatch": (dispatch, dispatch_goals),
    "collectives": (collectives, collectives_goals),
    "eager": (eager, eager_goals),
}
