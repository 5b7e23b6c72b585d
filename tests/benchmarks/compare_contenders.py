# SPDX-License-Identifier: Apache-2.0
"""Contenders of `compare`: processes that serve rounds of steps, and how they take turns."""

import os
import selectors
import statistics
import subprocess
import tempfile
import time

# glibc then keeps what is freed, as lockstep's devices do.
KEEP = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "268435456",
}
# What is freed of 32 KiB and more goes back to the system.
NO_REUSE = {"MALLOC_MMAP_THRESHOLD_": "32768"}
COMMON = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class LeftOut(Exception):
    """A figure that cannot be had, and why."""


class Contender:
    """One process, or several that get the same orders; the slowest one's answer is the contender's.

    command: arguments; cores: if given, one process for each, held to it; commands: in its place a list of them.
    rest_s: how long it may go on using cores after an answer, as OpenMP's threads do, which spin for some ms.
    """

    def __init__(self, name, command=None, commands=None, cores=None, env=None, patience_s=120, rest_s=0):
        self.name, self.patience_s, self.rest_s, self.processes = name, patience_s, rest_s, []
        self.env = {**os.environ, **COMMON, **(env or {})}
        self.launches = [(c, None) for c in commands or []] or [(command, core) for core in cores or [None]]
        self.broken = None
        self.complaints = tempfile.TemporaryFile()  # a pipe would fill up

    def start(self):
        for command, core in self.launches:
            held = (lambda core=core: os.sched_setaffinity(0, {core})) if core is not None else None
            self.processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints, bufsize=0,
                    env=self.env, preexec_fn=held,
                )  # fmt: skip
            )

    def ask(self, step, samples, calls):
        """The median time of a call of the step in µs."""
        if not self.processes:
            self.start()
        if self.broken:
            raise LeftOut(self.broken)
        order = f"{step} {samples} {calls}\n".encode()
        answers = []
        try:
            for process in self.processes:
                process.stdin.write(order)
            for process in self.processes:
                answers.append(self._answer(process))
        except OSError as error:
            self._break(f"{error}")
        time.sleep(self.rest_s)
        for answer in answers:
            if answer.startswith("error:"):
                raise LeftOut(f"{self.name}: {answer[6:].strip()}")
        return max(float(answer) for answer in answers)

    def _answer(self, process):
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self.patience_s):
                self._break(f"no answer within {self.patience_s} s")
        line = process.stdout.readline().decode().strip()
        if not line:
            self.complaints.seek(0)
            said = self.complaints.read().decode(errors="replace").strip()
            self._break((said.splitlines() or ["it ended"])[-1])
        return line

    def _break(self, why):
        self.broken = f"{self.name}: {why}"
        self.stop()
        raise LeftOut(self.broken)

    def stop(self):
        for process in self.processes:
            for stream in (process.stdin, process.stdout):
                stream.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []


TICKS = os.sysconf("SC_CLK_TCK")


def machine_cpu_s():
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, soft, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / TICKS


def processes():
    """By process id: its parent and the processor seconds that it has used."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
    return found


def own_cpu_s():
    """Of this process and all that come from it."""
    known, total = processes(), 0.0
    for process in known:
        ancestor = process
        while ancestor in known and ancestor != os.getpid():
            ancestor = known[ancestor][0]
        if ancestor == os.getpid():
            total += known[process][1]
    return total


def others_run():
    """Whether processes run at this moment although no contender was asked for anything."""
    for _ in range(3):
        with open("/proc/loadavg") as load:
            if int(load.read().split()[3].split("/")[0]) <= 1:
                return False
        time.sleep(0.001)
    return True


class Quiet:
    """Repeats what was measured while other processes used the cores, within a budget of waiting.

    Others used them if they run just before or just after the round, which is all that can be seen of short rounds,
    or if they took more than a twentieth of a core during it.
    """

    def __init__(self, budget_s):
        self.budget_s = budget_s

    def run(self, measure):
        """Returns what measure() does, and whether it was left alone."""
        while True:
            waited = time.perf_counter()
            while (before := others_run()) and self.budget_s > time.perf_counter() - waited:
                time.sleep(0.02)
            start, machine, own = time.perf_counter(), machine_cpu_s(), own_cpu_s()
            value = measure()
            end = time.perf_counter()
            # A process's time and the machine's are counted differently: two and a half ticks of slack.
            others = machine_cpu_s() - machine - (own_cpu_s() - own)
            quiet = not before and not others_run() and others < 2.5 / TICKS + 0.05 * (end - start)
            self.budget_s -= start - waited
            if quiet or self.budget_s <= 0:
                return value, quiet
            self.budget_s -= end - start


class Figure:
    """What one contender takes for one step, in µs: the median of the rounds' medians."""

    def __init__(self, key, contender, step):
        self.key, self.contender, self.step = key, contender, step
        self.rounds, self.disturbed, self.left_out = [], 0, None
        self.samples = self.calls = 1

    def calibrate(self, round_s):
        ask = self.contender.ask
        ask(self.step, 1, 1)  # makes the step
        us = ask(self.step, 3, 1)
        self.calls = max(1, min(10000, round(20 / max(us, 1e-3))))
        start = time.perf_counter()
        ask(self.step, 3, self.calls)
        each = (time.perf_counter() - start) / 3
        self.samples = max(3, min(3000, round(round_s / each)))

    def measure(self):
        return self.contender.ask(self.step, self.samples, self.calls)

    @property
    def us(self):
        return statistics.median(self.rounds)

    def as_json(self):
        if self.left_out:
            return {"left_out": self.left_out}
        return {
            "us": self.us,
            "least": min(self.rounds),
            "greatest": max(self.rounds),
            "rounds": len(self.rounds),
            "disturbed": self.disturbed,
        }


def take_turns(figures, rounds, round_s, quiet):
    """Measures the figures round by round, one after the other in each."""

    def attempt(figure, action):
        if figure.left_out:
            return None
        try:
            return action()
        except LeftOut as reason:
            figure.left_out = str(reason)
            return None

    for figure in figures:
        attempt(figure, lambda: figure.calibrate(round_s))
    for _ in range(rounds):
        for figure in figures:
            us, alone = quiet.run(lambda: attempt(figure, figure.measure))
            if us is not None:
                figure.rounds.append(us)
                figure.disturbed += not alone
