#!/usr/bin/env python3
"""Reads the commands of a page of docs/guide, so that what is tested is what is printed.

    guide.py blocks PAGE DIRECTORY
        writes each fenced block of the page to DIRECTORY/SECTION/NUMBER.LANGUAGE; SECTION is the heading above it
    guide.py shown BLOCK PRINTED
        compares a block of the language text, which shows what a command prints, with what it printed
    guide.py figures PAGE RESULTS
        checks that each figure of the page that is in a table with a column `from` is in the document that its row names

Owns what a page may look like: only fenced blocks, of a language that the test does something with. It runs nothing.
"""

import re
import sys
from pathlib import Path

# What the test does with a block is its own affair: it runs, installs, appends or compares it.
LANGUAGES = {"sh", "toml", "fstab", "text"}
# What `weir status` prints differs in numbers, and in the unit that it chooses for them.
UNITS = {"B", "KiB", "MiB", "GiB", "ns", "us", "µs", "ms", "s", "m", "min"}
FIGURE = re.compile(r"\d+(?:\.\d+)?x")


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def blocks(page):
    """(section, language, lines) of each fenced block."""
    section, language, lines = None, None, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            if language is None:
                language, lines = line[3:].strip(), []
                if language not in LANGUAGES:
                    fail(f"{page}:{number}: a block of the language '{language}'; there are {', '.join(sorted(LANGUAGES))}")
                if section is None:
                    fail(f"{page}:{number}: a block above the first section")
            else:
                yield section, language, lines
                language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("    ") and not line.lstrip().startswith(("-", "|")):
            fail(f"{page}:{number}: an indented line may be a command that is not tested; fence it")
        elif line.startswith("## "):
            section = line[3:].strip()
    if language is not None:
        fail(f"{page}: a block is not closed")


def write_blocks(page, directory):
    count = 0
    for section, language, lines in blocks(page):
        count += 1
        place = directory / section
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{count:02}.{language}").write_text("\n".join([*lines, ""]))
    if count == 0:
        fail(f"{page} has no commands")


def pattern(line):
    """What a shown line stands for: any number and any unit in the places of its own."""
    def word(one):
        if re.search(r"\d", one) or one.rstrip(",)") in UNITS:
            return r"\S+"
        return re.escape(one)
    return re.compile(r"\s*" + r"\s+".join(word(one) for one in line.split()) + r"\s*")


def compare(block, printed):
    wanted = [line for line in block.read_text().splitlines() if line.strip()]
    got = [line for line in printed.read_text().splitlines() if line.strip()]
    if len(wanted) != len(got) or not all(pattern(one).fullmatch(other) for one, other in zip(wanted, got)):
        fail("the page shows\n" + "\n".join(wanted) + "\nand this was printed\n" + "\n".join(got))


def rows(text):
    """The cells of each row of each table."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def check_figures(page, results):
    count = 0
    for cells in rows(page.read_text()):
        linked = re.search(r"\(\.\./results/([a-z-]+\.md)\)", cells[-1])
        if not linked:
            continue
        there = set(FIGURE.findall((results / linked[1]).read_text().replace(" x", "x")))
        # lane.md has the ratios of its tables without the sign.
        there |= {f"{cell}x" for row in rows((results / linked[1]).read_text()) for cell in row if re.fullmatch(r"\d+\.\d+", cell)}
        for figure in FIGURE.findall(" ".join(cells[:-1])):
            count += 1
            if figure not in there:
                fail(f"{page}: {figure} is not in {linked[1]}, of which '{cells[0]}' is said to be")
    if count == 0:
        fail(f"{page} has no figure that was measured")


def main():
    arguments = [Path(argument) for argument in sys.argv[2:]]
    commands = {"blocks": write_blocks, "shown": compare, "figures": check_figures}
    if len(sys.argv) != 4 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*arguments)


if __name__ == "__main__":
    main()
