# SPDX-License-Identifier: Apache-2.0
"""Places of a header that can be changed, and the text that makes the change one of the run's choices."""

import dataclasses
import pathlib
import re

MUTATED = "::mutations::mutated"
OPERATOR = re.compile(r"(?<=[\w)\]}\"']) (<=|>=|==|!=|&&|\|\||<|>|\+|-|\*|/|%) (?=[\w(:*&!~+\-\"'])")
OTHER = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "+",
}  # fmt: skip
RETURNED = re.compile(r"\breturn (true|false);")
NUMBER = re.compile(r"(?<=[(\[=?:+\-,] )[01](?=[;,)\] ])|(?<=[(\[])[01](?=[;,)\]])|(?<=return )[01](?=;)")
STATEMENT = re.compile(r"^ *(?:[a-z_:][\w:]*(?:(?:\.|->|::)\w+|\([^;]*\)|\[[^\];]*\])*)\(.*\);$")
DECLARES = re.compile(r"^ *(?:return|throw|delete|using|new|co_\w+|case|static_assert|goto)\b")
# Lines that are no code to run, or are read by the compiler alone; and lambdas that could not refer to a constant.
LEFT_ALONE = re.compile(
    r"^ *#|\btemplate\b|\brequires\b|\bconcept\b|static_assert|\boperator\b|\bconstexpr\b|\bnoexcept\("
    r"|\[\]\(.* k[A-Z]|\.\.\. |\busing\b|\benum\b|\) = 0;|const = 0;|noexcept = 0;|LOCKSTEP_|\bcase\b|\basm\b|extern \"C\""
)
BRACED = re.compile(r"\{[^}]*$|\{.*\}")


@dataclasses.dataclass(frozen=True)
class Site:
    header: str
    line: int  # from 1
    begin: int
    end: int
    what: str
    text: str  # with {n} for the mutation's number

    def __str__(self):
        return f"{self.header}:{self.line}:{self.begin + 1}: {self.what}"


def code_of(text):
    """The text with what is in comments and literals blanked, of the same length."""

    def blank(match):
        found = match.group(0)
        if found.startswith("/"):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + "_" * (len(found) - 2) + found[-1]

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)


def end_of_group(code, opening):
    depth = 0
    for place in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return place
    return -1


def sites_of_line(line, before):
    """(begin, end, what, text) of each place in a line of code; `before` is the line of code before it."""
    if LEFT_ALONE.search(line):
        return
    for match in OPERATOR.finditer(line):
        sign, begin, end = match.group(1), match.start(1), match.end(1)
        if sign == "&&":
            yield begin, end, "&& is false", f"&& !{MUTATED}({{n}}) &&"
        elif sign == "||":
            yield begin, end, "|| is true", f"|| {MUTATED}({{n}}) ||"
        else:
            yield begin, end, f"{sign} is {OTHER[sign]}", f"{sign} ::mutations::Mutable<{{n}}>() {sign}"
    for match in RETURNED.finditer(line):
        value = match.group(1)
        yield match.start(1), match.end(1), f"{value} is returned negated", f"{MUTATED}({{n}}) != {value}"
    for match in re.finditer(r"\bif \(", line):
        end = end_of_group(line, match.end() - 1)
        condition = line[match.end() : end]
        if end > 0 and not re.search(r";| = |\{", condition):
            yield match.end(), match.end(), "if is negated", f"{MUTATED}({{n}}) != static_cast<bool>("
            yield end, end, None, ")"
    if not BRACED.search(line):
        for match in NUMBER.finditer(line):
            value = match.group(0)
            other = "1" if value == "0" else "0"
            text = f"::mutations::either({MUTATED}({{n}}), {other}, {value})"
            yield match.start(), match.end(), f"{value} is {other}", text
    whole = not before.strip() or before.rstrip()[-1] in ";{}"
    if whole and STATEMENT.match(line) and not DECLARES.match(line) and line.count("(") == line.count(")"):
        begin = len(line) - len(line.lstrip())
        yield begin, begin, "the call is left out", f"if ({MUTATED}({{n}})) {{}} else "


def sites_of(header, text):
    """The sites of a header, in order. One of two parts is a list of two."""
    before, in_requirement, open_braces = "", False, 0
    for number, line in enumerate(code_of(text).split("\n"), 1):
        in_requirement = in_requirement or re.search(r"\bconcept\b|\brequires requires\b", line)
        if in_requirement:
            open_braces += line.count("{") - line.count("}")
            in_requirement = open_braces > 0 or not line.rstrip().endswith((";", "}"))
            continue
        found = [Site(header, number, *place) for place in sites_of_line(line, before)]
        while found:
            site = found.pop(0)
            if found and found[0].what is None:
                yield [site, found.pop(0)]
            else:
                yield [site]
        if line.strip():
            before = line


def name_of(site, lines):
    """`HEADER | LINE OF CODE | WHAT`, for the lines of its header."""
    return f"{site[0].header} | {lines[site[0].line - 1].strip()} | {site[0].what}"


def known_survivors():
    """The names in survivors.txt, each of a line that ends with why it changes nothing."""
    text = (pathlib.Path(__file__).resolve().parent / "survivors.txt").read_text()
    rows = (line.split(" | ") for line in text.splitlines())
    return {" | ".join(row[:3]) for row in rows if len(row) == 4}


def changed(text, chosen):
    """The text with the parts of the chosen sites, {number: parts}, written into it."""
    lines = text.split("\n")
    parts = [(part, number) for number, site in chosen.items() for part in site]
    # Of two at one place the shorter lies within: an insertion, such as that of a statement, comes first.
    for part, number in sorted(parts, key=lambda p: (p[0].line, p[0].begin, p[0].end), reverse=True):
        line = lines[part.line - 1]
        inserted = part.text.replace("{n}", str(number))
        lines[part.line - 1] = line[: part.begin] + inserted + line[part.end :]
    return "\n".join(lines)
