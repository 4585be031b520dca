# SPDX-License-Identifier: Apache-2.0
"""The code blocks of the documents, and what the comment before each says of it:

    <!-- run -->                   tests/docs/test_blocks.py runs it, with the others of its page in one process
    <!-- run: alone -->            in a process of its own
    <!-- tested by FILE -->        another test runs it, or compares it with what it runs
    <!-- not run: WHY -->

tools/check_docs.py refuses a block without one.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = ("python", "sh", "console", "c")  # languages of blocks that can be run
BLOCK = re.compile(r"^(?P<before>[^\n]*)\n(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$",
                   re.MULTILINE | re.DOTALL)
MARK = re.compile(r"^ *<!-- (run: alone|run|tested by|not run:) ?(.*?) ?-->$")


@dataclass(frozen=True)
class Block:
    page: str  # a path of the tree
    line: int
    language: str
    code: str
    mark: str  # "" where it has none: see above
    said: str  # the file, or the reason

    @property
    def is_run(self):
        return self.mark in ("run", "run: alone")


def pages():
    """README.md and its like, and docs/*.md, as paths of the tree."""
    return [path.relative_to(ROOT).as_posix() for path in [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]]


def blocks_of(page):
    text = "\n" + (ROOT / page).read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        mark = MARK.match(found["before"])
        code = "".join(line.removeprefix(found["indent"]) for line in found["code"].splitlines(keepends=True))
        yield Block(page, text.count("\n", 0, found.start("indent")), found["language"], code,
                    *(mark.groups() if mark else ("", "")))


def faults_of(block):
    """What is wrong with how a block is marked."""
    if not block.mark:
        yield "no comment before the block says whether it is run: see tools/document_blocks.py"
    elif block.is_run and block.language not in RUN:
        yield f"a block of {block.language or 'no language'} cannot be run"
    elif block.mark == "tested by":
        if not (ROOT / block.said).is_file():
            yield f"the block is tested by {block.said}, which is not there"
        elif Path(block.page).name not in (ROOT / block.said).read_text(encoding="utf-8"):
            yield f"the block is tested by {block.said}, which does not name this page"
    elif block.mark == "not run:":
        if len(block.said) < 10:
            yield "the comment does not say why the block is not run"
        for name in re.findall(r"\b(?:tests|examples|\.ci)/[\w/.]*\w", block.said):
            if not (ROOT / name).exists():
                yield f"the comment names {name}, which is not there"
