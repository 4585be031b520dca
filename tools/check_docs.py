#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the documents say that a program can see: links, and the tables of variables and options.

Every MILLPOND_ variable that src/ reads and every key of src/ep/options.c has a row in README.md and the other way
round; links between documents lead to files and headings that are there. Prints each breach as file: what.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
READ_BY_CODE = re.compile(r'(?:getenv|setting)\("(MILLPOND_\w+)"\)')
OPTION_KEY = re.compile(r'\.name = "(\w+)",\s*\.kind')
TABLE_ROW = re.compile(r"^\| `(\w+)`", re.MULTILINE)
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


def section(heading):
    """README's text from a heading to the next."""
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def differences(what, in_code, in_readme):
    for name in sorted(in_code - in_readme):
        yield f"README.md: no row for the {what} {name}"
    for name in sorted(in_readme - in_code):
        yield f"README.md: a row for the {what} {name}, which the code does not read"


def breaches():
    for path in documents():
        yield from broken_links(path)
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.c"))]
    variables = {name for text in sources for name in READ_BY_CODE.findall(text)}
    listed = {name for name in TABLE_ROW.findall(section("Environment")) if name.startswith("MILLPOND_")}
    yield from differences("variable", variables, listed)
    options = (ROOT / "src/ep/options.c").read_text(encoding="utf-8")
    keys = set(OPTION_KEY.findall(options))
    yield from differences("option", keys, set(TABLE_ROW.findall(section("Options of a session"))))


def main():
    found = list(breaches())
    print("\n".join(found) or f"check_docs: {len(documents())} documents are sound")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
