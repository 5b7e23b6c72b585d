# SPDX-License-Identifier: Apache-2.0
"""What a section of `compare` is made of, and the goals that figures are held to."""

from dataclasses import dataclass, field

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
    rows: list | None = None  # of the sections that have such rows; None: all

    def chosen(self, rows):
        return [row for row in rows if self.rows is None or row in self.rows]

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
