#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws some steps of one or several timelines, one above the other at one scale, as an SVG file.

  train_fashion_mnist --max-steps 25 --timeline a.json
  timeline.py -o timeline.svg "without prefetch=a.json" "with prefetch=b.json"

A timeline is what lockstep::profile::Profiler::export_chrome_trace writes. Its steps are the ranges
named by --range; of all stretches of so many steps, each from the end of the step before, the one of
median length is drawn. Needs nothing but Python 3.
"""

import argparse
import html
import json
import sys

# Colours that white and black text fields both carry; the rest of the picture is in one grey that
# is readable on white and on black.
GREY = "#768390"
COLOURS = {
    "apply": "#2f6fde",
    "backward": "#8250df",
    "optimizer": "#1a7f37",
    "copy": "#bc4c00",
    "scatter": "#0e7490",
    "gather": "#0891b2",
    "broadcast": "#be185d",
    "replicate": "#6e5494",
    "reduce": "#c9302c",
    "loader": "#7c6a0a",
    "prefetch": "#4d7c0f",
}
OTHERS = ["#57606a", "#3f6b6b", "#7a4b3a", "#5b5ea6"]
WIDTH, LEFT, RIGHT = 1000, 130, 14
LINE, GAP = 15, 5  # of a bar, between rows


class Unusable(Exception):
    pass


class Range:
    def __init__(self, name, begin, end, details):
        self.name, self.begin, self.end, self.details = name, begin, end, details
        self.depth = 0


def read(path):
    """The rows of a trace in their order: [(name, ranges by their begin)], times in microseconds."""
    try:
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        names, order, ranges = {}, {}, {}
        for event in events:
            row = event.get("tid")
            if event["ph"] == "X":
                end = event["ts"] + event["dur"]
                details = event.get("args", {})
                ranges.setdefault(row, []).append(Range(event["name"], event["ts"], end, details))
            elif event["name"] == "thread_name":
                names[row] = event["args"]["name"]
            elif event["name"] == "thread_sort_index":
                order[row] = event["args"]["sort_index"]
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{path} is not a timeline: {error!r}") from error
    for row in ranges.values():
        row.sort(key=lambda range_: (range_.begin, -range_.end))
    return [(names.get(row, str(row)), ranges[row]) for row in sorted(ranges, key=order.get)]


def stretch(path, rows, name, count):
    """Where so many steps begin and end: from the end of one step to that of another."""
    ends = sorted(range_.end for _, row in rows for range_ in row if range_.name == name)
    if len(ends) <= count:
        raise Unusable(f'{path} has {len(ends)} ranges "{name}", too few to draw {count} of them')
    stretches = sorted(zip(ends, ends[count:]), key=lambda ends_: ends_[1] - ends_[0])
    return stretches[len(stretches) // 2]


def cut(rows, begin, end, hidden):
    """What of each row lies in between, with how deep each range lies in others."""
    result = []
    for name, ranges in rows:
        kept, open_ = [], []
        for range_ in ranges:
            if range_.end <= begin or range_.begin >= end or range_.name == hidden:
                continue
            while open_ and open_[-1].end <= range_.begin:
                open_.pop()
            range_.depth = len(open_)
            open_.append(range_)
            kept.append(range_)
        if kept:
            result.append((name, kept))
    return result


def tick_of(length):
    """The smallest round number of microseconds of which at most a dozen fit."""
    decade = 1
    while True:
        for tick in (decade, 2 * decade, 5 * decade):
            if length <= 12 * tick:
                return tick
        decade *= 10


class Picture:
    def __init__(self, scale):
        self.scale = scale  # pixels a microsecond
        self.parts = []
        self.y = 8
        self.colours = {}

    def colour(self, name):
        if name not in self.colours:
            others = sum(1 for known in self.colours if known not in COLOURS)
            self.colours[name] = COLOURS.get(name, OTHERS[others % len(OTHERS)])
        return self.colours[name]

    def text(self, x, y, text, extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {extra}>{html.escape(text)}</text>')

    def timeline(self, label, rows, begin, end):
        length = end - begin
        if label:
            self.y += 14
            self.text(LEFT, self.y, f"{label}: {length / 1000:.1f} ms", 'class="label"')
            self.y += 8
        top = self.y
        for name, ranges in rows:
            lines = 1 + max(range_.depth for range_ in ranges)
            self.text(LEFT - 8, self.y + 11, name, 'class="row"')
            width = length * self.scale
            self.parts.append(
                f'<rect x="{LEFT}" y="{self.y}" width="{width:.1f}" height="{lines * LINE}" '
                f'fill="{GREY}" opacity="0.12"/>'
            )
            drawn = {}  # how far to the right, by depth
            for range_ in ranges:
                right = (min(range_.end, end) - begin) * self.scale
                if right < drawn.get(range_.depth, -1.0) + 0.5:
                    continue  # nobody could tell it from the one before
                drawn[range_.depth] = right
                self.bar(range_, begin, end)
            self.y += lines * LINE + GAP
        self.axis(top, length)

    def bar(self, range_, begin, end):
        x = LEFT + (max(range_.begin, begin) - begin) * self.scale
        width = max((min(range_.end, end) - max(range_.begin, begin)) * self.scale, 0.7)
        y = self.y + range_.depth * LINE
        took = f"{range_.name}: {(range_.end - range_.begin) / 1000:.3f} ms"
        details = "".join(f", {value} {key}" for key, value in range_.details.items())
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y + 0.5}" width="{width:.2f}" height="{LINE - 1}" '
            f'fill="{self.colour(range_.name)}"><title>{html.escape(took + details)}</title></rect>'
        )
        if width > 6.2 * len(range_.name) + 6:
            self.text(x + 4, y + 11, range_.name, 'class="bar"')

    def axis(self, top, length):
        tick = tick_of(length)
        for i in range(int(length // tick) + 1):
            x = LEFT + i * tick * self.scale
            self.parts.append(
                f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{self.y}" '
                f'stroke="{GREY}" opacity="0.35" stroke-width="0.7"/>'
            )
            text = f"{i * tick / 1000:g}" + (" ms" if i == 0 else "")
            self.text(x, self.y + 11, text, 'class="tick"')
        self.y += 24

    def legend(self):
        x = LEFT
        self.y += 4
        for name in sorted(self.colours, key=lambda name: (list(COLOURS) + [name]).index(name)):
            width = 24 + 6.8 * len(name)
            if x + width > WIDTH:
                x, self.y = LEFT, self.y + 18
            self.parts.append(
                f'<rect x="{x:.1f}" y="{self.y}" width="11" height="11" '
                f'fill="{self.colours[name]}"/>'
            )
            self.text(x + 15, self.y + 10, name, 'class="name"')
            x += width
        self.y += 20

    def svg(self):
        style = (
            f"text{{font:12px system-ui,sans-serif;fill:{GREY}}}"
            ".label{font-weight:600;font-size:13px}.row{text-anchor:end}"
            ".bar{fill:#fff;font-size:10.5px}.tick{text-anchor:middle;font-size:10.5px}"
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y}" '
                f'width="{WIDTH}" height="{self.y}">',
                f"<style>{style}</style>",
                *self.parts,
                "</svg>\n",
            ]
        )


def draw(traces, name, count):
    """The picture of [(label, path)]."""
    cuts = []
    for label, path in traces:
        rows = read(path)
        begin, end = stretch(path, rows, name, count)
        cuts.append((label, cut(rows, begin, end, name), begin, end))
    longest = max(end - begin for _, _, begin, end in cuts)
    picture = Picture((WIDTH - LEFT - RIGHT) / longest)
    for label, rows, begin, end in cuts:
        picture.timeline(label, rows, begin, end)
    picture.legend()
    return picture.svg()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("timelines", nargs="+", metavar="[LABEL=]FILE.json")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.svg")
    parser.add_argument("--steps", type=int, default=2, help="how many steps to draw (2)")
    parser.add_argument("--range", default="step", help="what a step's range is called (step)")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error("--steps needs a number of at least 1")
    try:
        traces = [given.rpartition("=")[::2] for given in arguments.timelines]
        svg = draw(traces, arguments.range, arguments.steps)
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(svg)
    except (Unusable, OSError) as error:
        sys.exit(f"timeline.py: {error}")


if __name__ == "__main__":
    main()
