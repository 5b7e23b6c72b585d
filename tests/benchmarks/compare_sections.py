# SPDX-License-Identifier: Apache-2.0
"""What `compare` measures, section by section, and the goals that the figures are held to."""

import re
import subprocess
import tempfile

import compare_steps as steps
from compare_contenders import KEEP, NO_REUSE, Contender, Figure
from compare_goals import MEMORY, Goal, Section

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
    "training": (steps.training, steps.training_goals),
    "models": (steps.models, steps.models_goals),
    "layers": (steps.layers, steps.layers_goals),
    "growing": (steps.growing, steps.growing_goals),
    "dispatch": (dispatch, dispatch_goals),
    "collectives": (collectives, collectives_goals),
    "eager": (eager, eager_goals),
}

PROGRAMS = {  # others: compare_calls
    "training": "compare_training",
    "growing": "compare_training",
    "models": "compare_models",
    "layers": "compare_layers",
}
ROWS = {"training": tuple(steps.TRAINING), "models": steps.MODELS, "layers": steps.LAYERS}  # that may be chosen
