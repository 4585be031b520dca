#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the documents say that a program can see: links, file names, tables of variables and options, counts.

Every MILLPOND_ variable that src/ and python/src/ read, every key of src/ep/session/options.c and every key of the pool
has a row in docs/settings.md, those of the pool in docs/memory.md too, and the other way round. README.md shows
examples/pool.c as it is, links to every document, and counts operators as docs/operators.md does. docs/testing.md has
the steps of tools/run_tests.py, docs/architecture.md every file of src/pool, and docs/add_an_operator.md lines that are
in the files it names. Each code block is run by a test, or a comment before it says why not
(tools/document_blocks.py). Links lead to files and headings that exist, and so do names of source files; pictures have
a text in their place. Prints each breach as file: what.
"""

import fnmatch
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import document_blocks  # noqa: E402  (beside this file)

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
SETTINGS = ROOT / "docs/settings.md"
MEMORY = ROOT / "docs/memory.md"
EXAMPLE = ROOT / "examples/pool.c"
OPERATORS = ROOT / "docs/operators.md"
ARCHITECTURE = ROOT / "docs/architecture.md"
GUIDE = ROOT / "docs/add_an_operator.md"
TESTING = ROOT / "docs/testing.md"
READ_BY_CODE = re.compile(r'(?:getenv|setting|read_switch|environ(?:\.get)?)[(\[]"(MILLPOND_\w+)"')
OPTION_KEY = re.compile(r'(?:OPTION|FLAG|ADDRESS)\(([a-z]\w*),|ADDRESS\(([a-z]\w*)\)|\.alias = "(\w+)"')
POOL_KEY = re.compile(r"^ {4}(?:WORD|OPTION)\((\w+), ", re.MULTILINE)  # rows of the pool's table
POOL_ALIAS = re.compile(r'^ {4}\{"(\w+)", ARENA "\w+"\},', re.MULTILINE)
FIRST_CELL = re.compile(r"^\| (`[^|]*`) \|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE_SPAN = re.compile(r"`([^`\n]+)`")
# What is a file of this tree where a code span names it; files that users have (memory.html) end otherwise.
FILE_NAME = re.compile(r"[\w.*/-]+\.(?:c|h|cu|def|py|cmake)")
TREE = ["src", "include", "python", "tests", "bench", "tools", "examples", "demo", "cmake"]
OF_OTHERS = {"onnxruntime_c_api.h", "torch/cuda/_memory_viz.py"}
STEP = re.compile(r'^        Step\("([\w-]+)", ', re.MULTILINE)
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


def pictures_without_text(path):
    for said, name in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", text_of(path)):
        if len(said) < 20:
            yield f"{path.relative_to(ROOT)}: the picture {name} has no text that says what it shows"


def tree_files():
    """Every file of the tree's own, by its path."""
    return [path.relative_to(ROOT).as_posix() for folder in TREE for path in (ROOT / folder).rglob("*")
            if path.is_file()]


def absent_files(path, files):
    """Names of source files that lead nowhere; a name may leave out the folders before it, and have stars."""
    for span in sorted(set(CODE_SPAN.findall(text_of(path)))):
        if (FILE_NAME.fullmatch(span) and span not in OF_OTHERS
                and not any(fnmatch.fnmatchcase("/" + name, "*/" + span) for name in files)):
            yield f"{path.relative_to(ROOT)}: names {span}, a file which is not there"


def unnamed_files(files):
    """Files of the pool that the page on the architecture leaves out; those of the trace stand there as a folder."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    for name in files:
        if re.fullmatch(r"src/pool/((arena|mempool)/)?\w+\.c", name) and f"{name.rpartition('/')[2]}`" not in text:
            yield f"docs/architecture.md: does not say what {name} is for"


def guide_lines():
    """Lines that the guide to operators says to write into a file: they are in one that the step names."""
    text = GUIDE.read_text(encoding="utf-8")
    block = r"^\d\. ((?:(?!^\d\. ).)*?)^ +```\w+\n +([^\n]+)\n +```"
    for step, line in re.findall(block, text, re.MULTILINE | re.DOTALL):
        names = [ROOT / name for name in CODE_SPAN.findall(step) if (ROOT / name).is_file()]
        if not any(line in path.read_text(encoding="utf-8") for path in names):
            yield f"{GUIDE.relative_to(ROOT)}: shows the line {line}, which none of the files named before it has"


def operator_counts():
    """README.md's figures of operators, as the table of docs/operators.md has them."""
    table = re.search(r"^\| ai\.onnx \| (\d+) \| (\d+) \| (\d+) \| \d+ \| (\d+) \|",
                      OPERATORS.read_text(encoding="utf-8"), re.MULTILINE)
    covered, partly, missing, ours = (int(figure) for figure in table.groups())
    wanted = f"of the {covered + partly + missing} operators of `ai.onnx` that ONNX Runtime's own CUDA provider has, " \
             f"{covered} in full and {partly} in part, and {ours} more"
    if wanted not in " ".join(README.read_text(encoding="utf-8").split()):
        yield f'README.md: should say "{wanted}", as docs/operators.md counts them'


def section(path, heading):
    """A document's text from a heading to the next."""
    text = path.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def rows(path, heading):
    """The names in the first cells of the tables of a section; a cell may hold several."""
    return {name for cell in FIRST_CELL.findall(section(path, heading)) for name in re.findall(r"`([\w.-]+)`", cell)}


def differences(path, what, in_code, in_document):
    for name in sorted(in_code - in_document):
        yield f"{path.relative_to(ROOT)}: no row for the {what} {name}"
    for name in sorted(in_document - in_code):
        yield f"{path.relative_to(ROOT)}: a row for the {what} {name}, which the code does not read"


def example():
    """The example's code, without its first comment."""
    return EXAMPLE.read_text(encoding="utf-8").partition("*/\n")[2]


def breaches():
    files = tree_files()
    for path in documents():
        yield from broken_links(path)
        yield from absent_files(path, files)
        yield from pictures_without_text(path)
    for page in document_blocks.pages():
        for block in document_blocks.blocks_of(page):
            yield from (f"{page}:{block.line}: {fault}" for fault in document_blocks.faults_of(block))
    yield from unnamed_files(files)
    yield from guide_lines()
    yield from operator_counts()
    for path in sorted((ROOT / "docs").glob("*.md")):
        if f"]({path.relative_to(ROOT).as_posix()}" not in README.read_text(encoding="utf-8"):
            yield f"README.md: no link to {path.relative_to(ROOT)}"
    steps = set(STEP.findall((ROOT / "tools/run_tests.py").read_text(encoding="utf-8")))
    yield from differences(TESTING, "step", steps, rows(TESTING, "The kinds"))
    sources = [path.read_text(encoding="utf-8") for folder in ("src", "python/src") for end in ("c", "py")
               for path in sorted((ROOT / folder).rglob(f"*.{end}"))]
    variables = {name for text in sources for name in READ_BY_CODE.findall(text)}
    tables = rows(SETTINGS, "Environment") | rows(SETTINGS, "The emulated device")
    listed = {name for name in tables if name.startswith("MILLPOND_")}
    yield from differences(SETTINGS, "variable", variables, listed)
    options = (ROOT / "src/ep/session/options.c").read_text(encoding="utf-8")
    table = options[options.index("static const row rows[]") :]
    keys = {name for names in OPTION_KEY.findall(table) for name in names if name}
    pool_options = (ROOT / "src/pool/arena_option.c").read_text(encoding="utf-8")
    pool_keys = {f"arena.{name}" for name in POOL_KEY.findall(pool_options)}
    aliases = set(POOL_ALIAS.findall((ROOT / "src/ep/session/memory.c").read_text(encoding="utf-8")))
    yield from differences(SETTINGS, "option", keys | pool_keys | aliases, rows(SETTINGS, "Options of a session"))
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
