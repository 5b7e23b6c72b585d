# SPDX-License-Identifier: Apache-2.0
"""The table of `compare`, as Markdown."""


def number(us):
    if us >= 999.5:
        return f"{us:,.0f}"
    return f"{us:.3g}"


def cell(figure):
    if not figure or "left_out" in figure:
        return "–"
    mark = "\\*" if figure["disturbed"] else ""
    return f"{number(figure['us'])} [{number(figure['least'])}–{number(figure['greatest'])}]{mark}"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(column) for column in line) + " |" for line in lines) + "\n"


def split(figures):
    """By work, then memory, then contender."""
    tree = {}
    for key, figure in figures.items():
        work, memory, who = key.split("|")
        tree.setdefault(work, {}).setdefault(memory, {})[who] = figure
    return tree


def by_contender(figures):
    """For each work a table: a contender a row, a kind of memory a column."""
    text = ""
    for work, kinds in split(figures).items():
        names = dict.fromkeys(name for contenders in kinds.values() for name in contenders)
        rows = [[name, *(cell(kinds[kind].get(name)) for kind in kinds)] for name in names]
        text += table([f"{work}, µs", *kinds], rows) + "\n"
    return text


def by_work(figures):
    """One table: a work and a kind of memory a row, a contender a column."""
    tree = split(figures)
    names = list(dict.fromkeys(name for kinds in tree.values() for each in kinds.values() for name in each))
    rows = [
        [work, kind, *(cell(contenders.get(name)) for name in names)]
        for work, kinds in tree.items()
        for kind, contenders in kinds.items()
    ]
    return table(["µs", "", *names], rows) + "\n"


def by_who(figures):
    """One table of works on one kind of memory: a contender a row, a work a column."""
    tree = {work: next(iter(kinds.values())) for work, kinds in split(figures).items()}
    names = dict.fromkeys(name for contenders in tree.values() for name in contenders)
    rows = [[name, *(cell(contenders.get(name)) for contenders in tree.values())] for name in names]
    return table(["µs", *tree], rows) + "\n"


TABLES = {"training": by_contender, "models": by_who}  # others: by_work


def markdown(result):
    text = "# Measured side by side\n\n"
    text += "".join(f"- {name}: {value}\n" for name, value in result["machine"].items())
    text += (
        "\nA figure is `median [least–greatest]` of the rounds' medians, in µs unless said; the contenders of a table"
        " took turns round by round. `*`: rounds among them during which other processes used more than a twentieth of"
        " a core. kept: memory that is freed is kept for reuse on both sides; fresh: it goes back to the system,"
        " lockstep's but for what shares a huge page with memory in use.\n"
    )
    for reason in result["left_out"]:
        text += f"\nLeft out: {reason}.\n"
    if result["goals"]:
        text += "\n## Goals\n\n"
        for memory in ("kept", "fresh"):
            met = [goal["met"] for goal in result["goals"] if goal["memory"] == memory and goal["met"] is not None]
            if met:
                text += f"With memory {memory} {sum(met)} of {len(met)} are met.\n"
        text += "\n"
        words = {True: "yes", False: "**no**", None: "–"}
        text += table(
            ["work", "memory", "goal", "measured", "met"],
            [[goal[k] for k in ("work", "memory", "goal", "value")] + [words[goal["met"]]] for goal in result["goals"]],
        )
    for name, figures in result["sections"].items():
        text += f"\n## {name.capitalize()}\n\n"
        text += TABLES.get(name, by_work)(figures)
    if "memory" in result:
        rows = [
            [count or "plain", *(f"{row[k] / 1e6:.1f}" for k in ("held", "peak", "parameters"))]
            for count, row in result["memory"].items()
        ]
        text += "\n## Memory of DataParallel, MLP\n\n"
        text += table(["devices", "between steps, MB", "sum of the devices' greatest, MB", "parameters, MB"], rows)
    if "instructions" in result:
        text += "\n## Instructions a call (callgrind)\n\n"
        text += table(["", "instructions"], [[k, f"{v:,.0f}"] for k, v in result["instructions"].items()])
    return text
