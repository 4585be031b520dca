#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the documents say that a program can see: links, tables of variables and options, the C example.

Every MILLPOND_ variable that src/ reads, every key of src/ep/session/options.c and every key of the pool has a row in
README.md, those of the pool in docs/memory.md too, and the other way round; README.md shows examples/pool.c as it is;
links between documents lead to files and headings that are there. Prints each breach as file: what.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MEMORY = ROOT / "docs/memory.md"
EXAMPLE = ROOT / "examples/pool.c"
READ_BY_CODE = re.compile(r'(?:getenv|setting|read_switch)\("(MILLPOND_\w+)"')
OPTION_KEY = re.compile(r'(?:OPTION|FLAG|ADDRESS)\(([a-z]\w*),|ADDRESS\(([a-z]\w*)\)|\.alias = "(\w+)"')
POOL_KEY = re.compile(r"^ {4}(?:WORD|OPTION)\((\w+), ", re.MULTILINE)  # rows of the pool's table
FIRST_CELL = re.compile(r"^\| (`[^|]*`) \|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def documents():
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def text_of(path):
    """A document without its code blocks."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path):
    """The headings of a document as links name them."""
    headings = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path):
    for link in LINK.findall(text_of(path)):
        if re.match(r"\w+:", link):
            continue  # of the web
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            yield f"{path.relative_to(ROOT)}: link to {link}, which is not there"
        elif anchor and anchor not in anchors(target):
            yield f"{path.relative_to(ROOT)}: link to {link}, a heading which is not there"


def section(path, heading):
    """A document's text from a heading to the next."""
    text = path.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def rows(path, heading):
    """The names in the first cells of the tables of a section; a cell may hold several."""
    return {name for cell in FIRST_CELL.findall(section(path, heading)) for name in re.findall(r"`([\w.]+)`", cell)}


def differences(path, what, in_code, in_document):
    for name in sorted(in_code - in_document):
        yield f"{path.relative_to(ROOT)}: no row for the {what} {name}"
    for name in sorted(in_document - in_code):
        yield f"{path.relative_to(ROOT)}: a row for the {what} {name}, which the code does not read"


def example():
    """The example's code, without its first comment."""
    return EXAMPLE.read_text(encoding="utf-8").partition("*/\n")[2]


def breaches():
    for path in documents():
        yield from broken_links(path)
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.c"))]
    variables = {name for text in sources for name in READ_BY_CODE.findall(text)}
    listed = {name for name in rows(README, "Environment") if name.startswith("MILLPOND_")}
    yield from differences(README, "variable", variables, listed)
    options = (ROOT / "src/ep/session/options.c").read_text(encoding="utf-8")
    table = options[options.index("static const row rows[]") :]
    keys = {name for names in OPTION_KEY.findall(table) for name in names if name}
    pool_options = (ROOT / "src/pool/arena_option.c").read_text(encoding="utf-8")
    pool_keys = {f"arena.{name}" for name in POOL_KEY.findall(pool_options)}
    yield from differences(README, "option", keys | pool_keys, rows(README, "Options of a session"))
    memory = {name for name in rows(MEMORY, "Options") if name.startswith("arena.")}
    yield from differences(MEMORY, "option", pool_keys, memory)
    if f"```c\n{example()}```" not in README.read_text(encoding="utf-8"):
        yield f"README.md: the C program differs from {EXAMPLE.relative_to(ROOT)}"


def main():
    found = list(breaches())
    print("\n".join(found) or f"check_docs: {len(documents())} documents are sound")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
