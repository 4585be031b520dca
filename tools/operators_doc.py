#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/operators.md: what the provider registers, beside what ONNX Runtime's own CUDA provider does; and what
`millpond parity` prints of it into docs/command_line.md.

    operators_doc.py            write both anew
    operators_doc.py --check    exit status 1, and the lines that differ, where one is not current

What is listed is what the built library registers with the ONNX Runtime of requirements.txt: its schemas decide which
versions and types of a row of src/op exist. With another version the check is skipped (exit status 77). The table of
ONNX Runtime's own provider is python/src/millpond/cuda_kernels.tsv, which the wheel has too.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "demo"), str(ROOT / "tests" / "ep")]

PAGE = ROOT / "docs" / "operators.md"
COMMANDS_PAGE = ROOT / "docs" / "command_line.md"
PARITY = re.compile(r"(?<=```console\n\$ millpond parity\n).*?(?=```)", re.DOTALL)
SKIP_STATUS = 77
DIFFERENCES_MAX = 30
STATE_WORDS = {"covered": "covered", "partly": "in part", "only here": "only here"}
FLOATS = {"float", "double", "float16", "bfloat16"}
SIGNED = {"int8", "int16", "int32", "int64"}
UNSIGNED = {"uint8", "uint16", "uint32", "uint64"}
SETS = [  # the largest first
    ("all", FLOATS | SIGNED | UNSIGNED | {"bool"}),
    ("numbers", FLOATS | SIGNED | UNSIGNED),
    ("ints", SIGNED | UNSIGNED),
    ("floats", FLOATS),
    ("signed", SIGNED),
    ("unsigned", UNSIGNED),
]
HEAD = """\
# Operators

Written by `make docs` from the kernels that the provider registers with ONNX Runtime {version}; do not edit.

- *Versions*: schema versions with a kernel. Version 13 of `Abs` serves every opset from 13 until `Abs` changes again.
- *Types*: element types of the newest version, by the name that the schema gives the constraint; a star marks an
  operator whose older versions take fewer. `floats` is float, double, float16 and bfloat16; `signed` and `unsigned`
  are the integers of 8 to 64 bits, `ints` both, `numbers` floats and ints, `all` numbers and bool. `a` without `b` is
  written `a - b`.
- *In-tree CUDA EP*: the versions that the CUDA provider of onnxruntime-gpu 1.31.1 registers.
- *Beside it*: `covered`, where every version and type of the in-tree EP is here; `in part`, where some are missing;
  `wider`, where this provider has more. `millpond parity --missing --wider` says the same of an installed library.

A node that is not covered here runs on ONNX Runtime's CPU provider.
"""


def title(domain, name):
    return f"{domain}.{name}" if domain else name


def versions_text(ranges):
    """[(7, 7), (13, 13)] as "7, 13"; an open end is None."""
    parts = []
    for first, last in sorted(set(ranges), key=lambda pair: pair[0]):
        parts.append(str(first) if first == last else f"{first}+" if last is None else f"{first}-{last}")
    return ", ".join(parts)


def types_text(types):
    """A set of element types in the fewest words."""
    rest, words = set(types), []
    for name, members in SETS:
        if members <= rest:
            words.append(name)
            rest -= members
    for name, members in SETS:  # nearly a whole set
        missing = members - rest
        if not words and 0 < len(missing) <= 2 and len(rest & members) >= 2 * len(missing) + 1:
            words.append(f"{name} - {' - '.join(sorted(missing))}")
            rest -= members
    return ", ".join(words + sorted(rest))


def constraints_text(constraints):
    return "; ".join(f"{name}: {types_text(types)}" for name, types in sorted(constraints.items()))


def registered_and_known():
    """What the provider registers, as millpond._parity_table has it, and what ONNX Runtime's schemas allow."""
    from millpond import _ort_placement, _parity_table
    from registered import registry

    kernels = {("" if domain == "ai.onnx" else domain, name): found
               for (domain, name), found in registry().kernels.items()}
    return _parity_table.ours(kernels), _parity_table.known(_ort_placement.Schemas().all)


def row(key, versions, their_rows, difference):
    newest = versions[max(versions)]
    fewer = any(types.get(name, set()) < allowed for types in versions.values() for name, allowed in newest.items())
    cells = (
        title(*key),
        versions_text([(version, version) for version in versions]),
        constraints_text(newest) + (" *" if fewer else ""),
        versions_text([(row.first, row.last) for row in their_rows]) or "none",
        STATE_WORDS[difference.state] + (", wider" if difference.is_wider else ""),
    )
    return "| " + " | ".join(cells) + " |"


def said(versions, types):
    """Versions, and types of versions, in one line."""
    from millpond._parity_table import types_by_version

    parts = [f"versions {', '.join(map(str, versions))}"] if versions else []
    return "; ".join([*parts, *filter(None, [types_by_version(types, types_text)])])


def summary_lines(differences):
    from millpond._parity_table import by_domain

    lines = ["| Domain | Covered | In part | Missing | Wider | Only here |", "| --- | --- | --- | --- | --- | --- |"]
    for each in by_domain(differences):
        cells = (each[name] for name in ("domain", "covered", "partly", "missing", "wider", "only here"))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


RANKS = """
## Ranks

Tensors have up to 16 dimensions. Kernels walk eight: neighbours that an operator treats alike are merged before, so
that what is left is nearly always less, and where it is more, the tensor is walked in parts, one launch each (65,536 at
most). What cannot be merged nor walked in parts is left to the CPU provider where the rank is known when the session is
made, and else refused in a sentence when it runs:

- `NonZero` of a rank above 8, and indices of `GatherND` and `ScatterND` with more than 8 parts;
- `GatherElements` and `ScatterElements` above rank 8 whose indices are shorter than the data along so many axes that
  more than 8 are left (a size that is not known counts as shorter);
- `Resize` and `Upsample` above rank 8: with a rank that is not known they run where at most 8 axes change;
- products of integers above rank 10, and `Col2Im` of more than 6 axes.

Every node with a tensor of a rank above 16 is left to the CPU provider, or refused when it runs.
"""


def page(mine, other, allowed, version):
    from millpond._parity_table import compare

    differences = compare(mine, other, allowed)
    shared = mine.keys() & other.keys()
    lines = [HEAD.format(version=version)]
    count = f"{len(mine)} operators, of which the in-tree CUDA EP has {len(shared)}; it has {len(other)} in all."
    lines += [count, "", *summary_lines(differences), ""]
    lines += ["| Operator | Versions | Types | In-tree CUDA EP | Beside it |", "| --- | --- | --- | --- | --- |"]
    lines += [row(key, mine[key], other.get(key, []), differences[key])
              for key in sorted(mine, key=lambda key: title(*key).lower())]
    lines += RANKS.splitlines()
    lines += ["", "## Covered in part", "", "What the in-tree CUDA EP has of an operator and this provider does not; "
              "versions of a type in brackets:", ""]
    lines += [f"- {title(*key)}: {said(each.missing_versions, each.missing_types)}"
              for key, each in differences.items() if each.state == "partly"]
    lines += ["", "## Wider", "", "What this provider has of an operator and the in-tree CUDA EP does not:", ""]
    lines += [f"- {title(*key)}: {said(each.wider_versions, each.wider_types)}"
              for key, each in differences.items() if each.is_wider]
    lines += ["", "## Not covered", "", "Operators that the in-tree CUDA EP has and this provider does not:", ""]
    for domain in sorted({domain for domain, _ in other}):
        names = sorted(name for key_domain, name in other if key_domain == domain and (domain, name) not in mine)
        if names:
            lines.append(f"- {domain or 'ai.onnx'} ({len(names)}): {', '.join(names)}{REASONS.get(domain, '')}")
    return "\n".join(lines) + "\n"


# Why what is left is left.
REASONS = {
    "": ". ONNX Runtime's interface for plugins has no sequences of tensors; it runs these on the CPU provider.",
    "com.microsoft":
        ". Each runs a graph of its own, a decoder, once a token. ONNX Runtime's interface for plugins lets a kernel "
        "do that for `If`, `Loop` and `Scan` only, so these run on the CPU provider. [onnxruntime-genai](genai.md) "
        "does the same searches outside of the model, with the decoder here.",
}


def commands_page():
    """docs/command_line.md with what `millpond parity` prints now."""
    import millpond

    env = dict(os.environ, PYTHONPATH=str(Path(millpond.__file__).parents[1]))
    command = [sys.executable, "-m", "millpond", "parity"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    text, count = PARITY.subn(lambda _: done.stdout, COMMANDS_PAGE.read_text(encoding="utf-8"))
    if count != 1:
        raise SystemExit(f"{COMMANDS_PAGE} has {count} examples of `millpond parity` instead of one")
    return text


def pinned_version():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return re.search(r"^onnxruntime==(\S+)", text, re.MULTILINE).group(1)


def check(path, fresh):
    name = path.relative_to(ROOT)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if old == fresh:
        print(f"{name} is current")
        return 0
    names = {"fromfile": str(name), "tofile": "as registered", "lineterm": ""}
    for line in list(difflib.unified_diff(old.splitlines(), fresh.splitlines(), n=0, **names))[:DIFFERENCES_MAX]:
        print(line)
    print(f"{name} is not current: run `make docs`")
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    args = parser.parse_args()
    os.environ.setdefault("MILLPOND_DEVICE", "host")
    import onnxruntime

    if onnxruntime.__version__ != pinned_version():
        print(f"this is onnxruntime {onnxruntime.__version__}; the page is written with {pinned_version()}")
        return SKIP_STATUS
    import provider  # noqa: F401  (finds the package, which goes with the library)
    from millpond import _parity_table

    mine, allowed = registered_and_known()

    fresh = {PAGE: page(mine, _parity_table.theirs(), allowed, onnxruntime.__version__), COMMANDS_PAGE: commands_page()}
    if args.check:
        return max([check(path, text) for path, text in fresh.items()])
    for path, text in fresh.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
