# SPDX-License-Identifier: Apache-2.0
"""`compare --against`: lockstep's own figures, by two states of it in alternation."""

import copy
import statistics

from compare_contenders import Figure, LeftOut
from compare_tables import number, table


def before(contender, build):
    """The contender that runs the other state's programs, which lie in the folder build."""
    twin = copy.copy(contender)
    twin.name, twin.processes, twin.broken = f"{contender.name} before", [], None
    twin.launches = [([f"{build}/{c[0].rpartition('/')[2]}", *c[1:]], core) for c, core in contender.launches]
    return twin


def is_ours(figure):
    return figure.contender.launches[0][0][0].rpartition("/")[2].startswith("compare_")


def ratios(now, then, rounds, round_s, quiet):
    """The ratio of the two in each round; which of them begins alternates."""
    for figure in (now, then):
        figure.calibrate(round_s)
    then.samples, then.calls = now.samples, now.calls
    for number_of_round in range(rounds):
        turns = (now, then) if number_of_round % 2 else (then, now)

        def measure():
            return {figure.key: figure.measure() for figure in turns}

        us, alone = quiet.run(measure)
        for figure in turns:
            figure.rounds.append(us[figure.key])
            figure.disturbed += not alone
    return [a / b for a, b in zip(now.rounds, then.rounds)]


def rows_of(section, build, rounds, round_s, quiet):
    """A row a figure: its name, µs before and now, the ratio's quartiles, how many rounds were disturbed."""
    twins = {contender: before(contender, build) for contender in section.contenders}
    rows = []
    try:
        for figure in filter(is_ours, section.figures.values()):
            now = Figure(figure.key, figure.contender, figure.step)
            then = Figure(figure.key + " before", twins[figure.contender], figure.step)
            work = figure.key.replace("|", ", ")
            try:
                low, middle, high = statistics.quantiles(ratios(now, then, rounds, round_s, quiet), n=4)
            except LeftOut as reason:
                rows.append([work, "–", "–", str(reason), ""])
                continue
            spread = f"{middle:.3f} [{low:.3f}–{high:.3f}]"
            rows.append([work, number(then.us), number(now.us), spread, now.disturbed or ""])
    finally:
        for contender in {*section.contenders, *twins.values()}:
            contender.stop()
    return rows


def markdown(machine, rows):
    head = ["work, µs", "before", "now", "now / before, median [quartiles]", "disturbed rounds"]
    return "".join(f"{key}: {value}\n\n" for key, value in machine.items()) + table(head, rows)
