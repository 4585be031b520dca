#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the manual pages: docs/man/millpond.1 from the command line's own parser and the variables of
docs/settings.md, docs/man/millpond.h.3 from the public header.

    man_pages.py [--check]

Needs the package millpond of a build (PYTHONPATH=build/dev/python). --check: says whether the pages are current, and
writes nothing.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import generated  # noqa: E402  (beside this file)
import header  # noqa: E402
from generated import ROOT  # noqa: E402
from header import comment_text, described  # noqa: E402
from version import version  # noqa: E402

FOLDER = ROOT / "docs/man"
SETTINGS = ROOT / "docs/settings.md"
DATE = "2026-11-23"  # when the form of the pages changed last; a page cannot do without one
SUMMARY = "one pool of GPU memory for all libraries of a process"


# ---- the language of manual pages ----


def escaped(text):
    """A text that means itself."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def plain(text):
    """A text of Markdown or of a comment, in a paragraph: code in bold, links without where they lead."""
    text = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())
    parts = re.split(r"`([^`]*)`|\*\*([^*]*)\*\*", text)
    made = [escaped(parts[0])]
    for code, strong, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        made.append(f"\\fB{escaped(code or strong or '').removeprefix(chr(92) + '&')}\\fR{escaped(rest)}")
    return "".join(made)


def lines_of(text):
    """One sentence a line, as manual pages are written; a line that begins with a mark of the language means itself."""
    return [("\\&" + line if line.startswith((".", "'")) else line) for line in re.split(r"(?<=[.:;]) +", text) if line]


def head(name, section, summary):
    return ['.\\" Written by tools/man_pages.py.', '.\\" SPDX-License-Identifier: Apache-2.0',
            f'.TH {name} {section} {DATE} "Millpond {version()}" "Millpond"', ".SH NAME",
            f"{name} \\- {escaped(summary)}"]


def paragraphs(text, first=False):
    for number, block in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number or not first:
            yield ".PP"
        yield from lines_of(plain(block))


# ---- millpond(1) ----


def options_of(command, context):
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and not getattr(parameter, "hidden", False):
            yield ".TP"
            yield f".B {escaped(record[0])}"
            yield from lines_of(plain(record[1] or ""))


def variables():
    """The rows of the tables of environment variables."""
    text = SETTINGS.read_text(encoding="utf-8")
    section = re.sub(r"\[(\w+\.md)\]", r"[docs/\1]", text[text.index("## Environment\n"):])
    for row in re.findall(r"^\| (`.*) \|$", section, re.M):
        names, values, default, meaning = (cell.strip() for cell in row.split("|"))
        yield ".TP"
        yield f".B {escaped(names.replace('`', ''))}"
        said = f"{meaning[0].upper()}{meaning[1:]}. Values: {values or 'any'}; " \
               f"default: {default or 'none'}."
        yield from lines_of(plain(said))


def command_page():
    import click
    from millpond.cli import _app

    group = _app.group
    top = click.Context(group, info_name="millpond")
    yield from head("millpond", 1, "look at a pool of GPU memory and a provider for ONNX Runtime")
    yield from [".SH SYNOPSIS", ".B millpond", ".RI [ options ]", ".I command", ".RI [ arguments ]", ".SH DESCRIPTION"]
    yield from paragraphs(group.help, first=True)
    yield from paragraphs("The command comes with the Python package; `python -m millpond` is the same. Examples, and "
                          "what the outputs mean, are in docs/command_line.md.")
    yield ".SH OPTIONS"
    yield from options_of(group, top)
    yield ".SH COMMANDS"
    for name in group.list_commands(top):
        command = group.get_command(top, name)
        context = click.Context(command, info_name=name, parent=top)
        yield f".SS {escaped(' '.join(['millpond', name, *command.collect_usage_pieces(context)]))}"
        yield from list(paragraphs(command.help or "", first=True))
        yield from options_of(command, context)
    yield ".SH ENVIRONMENT"
    yield from variables()
    yield from [".SH EXIT STATUS"]
    for code, meaning in ((0, "All is well."), (1, "It was done and something is wrong, or it failed."),
                          (2, "The command line, a model or an input is wrong."),
                          (3, "It cannot be done here: a library, a device or a process is not there.")):
        yield from [".TP", f".B {code}", meaning]
    yield from [".SH SEE ALSO", ".BR millpond.h (3)"]


# ---- millpond.h(3) ----


def shown_code(code):
    return [".nf", *(escaped(line) for line in code.strip("\n").split("\n")), ".fi"]


def function_page():
    yield from head("millpond.h", 3, SUMMARY)
    yield from [".SH SYNOPSIS", ".nf", ".B #include <millpond/millpond.h>", ".PP",
                r"cc program.c $(pkg\-config \-\-cflags \-\-libs millpond)", ".fi", ".SH DESCRIPTION"]
    for shown, block in header.introduction():
        yield ".PP"
        if shown:
            yield from [".RS 4", *shown_code(block), ".RE"]
        else:
            for piece in re.split(r"\n\s*(?=\d\. )", block):
                yield from [*([".PP"] if re.match(r"\d\. ", piece) else []), *lines_of(plain(piece))]
    for piece in header.pieces():
        if piece["section"]:
            yield f".SH {escaped(piece['section'].upper())}"
            if piece["intro"]:
                yield from lines_of(plain(comment_text(piece["intro"])))
            continue
        yield from [".PP", *shown_code(piece["code"] or piece["alone"])]
        if piece["comment"]:
            yield ".RS 4"
            yield from paragraphs(described(comment_text(piece["comment"])), first=True)
            yield ".RE"
    yield from [".SH ERRORS", "A function that can fail returns"]
    yield from [".IR mp_status ;", ".B mp_error_message()",
                "gives the sentence that the last failure of the thread left,", ".B mp_status_name()",
                "the name of a code."]
    for name, value, meaning in header.statuses():
        yield from [".TP", f".B MP_{name} ({value})", meaning[0].upper() + meaning[1:] + "."]
    yield from [".SH ENVIRONMENT", "docs/settings.md and", ".BR millpond (1)", "list the variables."]
    yield from [".SH SEE ALSO", ".BR millpond (1),", ".BR pkg\\-config (1)"]


PAGES = {"millpond.1": command_page, "millpond.h.3": function_page}


def texts():
    return {FOLDER / name: re.sub(r"^(\.S[HS] .*\n)\.PP\n", r"\1", "\n".join(page()) + "\n", flags=re.M)
            for name, page in PAGES.items()}


if __name__ == "__main__":
    sys.exit(generated.main(__doc__, texts, "what the command line and the header say"))
