# SPDX-License-Identifier: Apache-2.0
"""The public header, taken apart for the documents that are made from it: the manual page and the site's reference."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from version import HEADER  # noqa: E402  (beside this file)

PIECE = re.compile(r"^/\* (?!----)(?P<comment>(?:(?!\*/).)*?) ?\*/\n(?P<code>.*?)(?=^/\*|^#(?!define)|\n\n|\Z)|"
                   r"^/\* ---- (?P<section>.*?) ----(?P<intro>(?:(?!\*/).)*?) ?\*/$|"
                   r"^(?P<alone>typedef .*?)(?=\n\n|\Z)", re.M | re.S)


def comment_text(comment):
    """A comment of C without what it is drawn with."""
    return re.sub(r"^ \* ?", "", comment, flags=re.M).strip()


def parts_of(comment):
    """Paragraphs of a comment and its drawings, which are indented and keep their lines."""
    for block in re.split(r"\n\s*\n", comment):
        lines = block.split("\n")
        shown = all(line.startswith("    ") for line in lines)
        yield shown, "\n".join(line[4:] for line in lines) if shown else block


def described(comment):
    """A contract in paragraphs: its fixed words begin one."""
    text = re.sub(r"\s*\b(Gives|Takes|Borrows|Fails|Threads|Blocks):", r"\n\n**\1:**", comment)
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    return "\n\n".join(re.sub(r"\n +(?=\d\. )", "\n\n", block) for block in blocks)


def introduction():
    """The first comment of the header, behind its first line: (whether it is a drawing, text)."""
    text = HEADER.read_text(encoding="utf-8")
    first = comment_text(re.match(r"/\*(.*?)SPDX-License-Identifier.*?\*/", text, re.S).group(1))
    return parts_of(first.partition("\n")[2].strip("\n"))


def pieces():
    """What the header declares, in its order: matches of PIECE."""
    text = HEADER.read_text(encoding="utf-8")
    return PIECE.finditer(text[text.index('extern "C" {'):text.rindex("#ifdef __cplusplus")])


def statuses():
    """(name, value, meaning) of each code of status.h."""
    text = (HEADER.parent / "status.h").read_text(encoding="utf-8")
    return re.findall(r'X\((\w+), (\d+), "(.*?)"\)', text)
