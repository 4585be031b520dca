#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the house's rules that a compiler does not: who may include and call whom, names, licences, pages, kernels.

    check_layers.py [--root DIR] [--circles]

src/ is layers: base < device < pool < kernel < op < graph < ep. RULES says what each folder may include; a folder that
is not a layer's own belongs to the layer it lies in. Files that call each other in a circle are CIRCLE_MAX at most;
--circles lists all circles there are. Each folder of src has a README.md, which names each file in it and no other.
Prints each breach as file:line.
"""

import argparse
import re
import sys
from pathlib import Path

# Folder of src/ -> what its files may include: "x/" any header below x, "x/y.h" that header alone.
# The most specific folder counts. DEVICE and POOL are what later layers may see of those two.
DEVICE = ["device/collective.h", "device/device.h", "device/kernel_record.h", "device/math.h", "device/profile.h"]
POOL = ["millpond/", "pool/pool_handle.h"]
RULES = {
    "base": ["base/", "millpond/status.h"],
    "device": ["base/", "device/"],
    "device/cuda": ["base/", *DEVICE, "device/staging.h", "device/rank/", "device/cuda/"],
    "device/host": ["base/", *DEVICE, "device/rank/", "device/host/"],
    "device/rank": ["base/", *DEVICE, "device/rank/"],
    "pool": ["base/", *DEVICE, "pool/", "millpond/"],
    # Kernel text is for two compilers and knows nothing of the host code; the table hands it to devices.
    "kernel": ["kernel/"],
    "op": ["base/", *DEVICE, *POOL, "kernel/", "op/"],
    "graph": ["base/", *DEVICE, "op/core/", "op/fused/expression.h", "graph/"],
    "ep": ["base/", *DEVICE, *POOL, "kernel/kernel_table.h", "op/", "graph/", "ep/", "millpond/"],
}
EXTRA = {  # file -> what it may include beside that
    "kernel/core/prelude.h": ["device/host/host_functions.h", "device/host/host_lane.h"],
    "kernel/kernel_table.h": ["device/device.h"],
}
VENDOR = [  # (headers of others, the folder that may include them)
    (re.compile(r"(cuda|nvrtc|cublas|cudnn|cufft|cupti|curand|nvml|driver_types|vector_types)[\w/]*\.h"),
     "device/cuda"),
    (re.compile(r"(core/session/)?onnxruntime\w*\.h"), "ep"),
]
PAGE = "README.md"  # of each folder of src
CIRCLE_MAX = 4  # files that call each other, one way or another
TEXT_OF_C = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.S)  # comments and strings
FUNCTION = re.compile(r"^(?!static\b)[A-Za-z_][\w \*]*?[ \*]((?:mp|k)_\w+)\([^;{]*\)\s*\{", re.M)
CONSTANT = re.compile(r"^(?:const )[\w ]+?\b(mp_\w+)(?:\[[^\]]*\])?\s*=", re.M)
SYMBOL = re.compile(r"\b(?:mp|k)_\w+")
NAMED_FILE = re.compile(r"`([\w/]+\.(?:c|h|cu|def|txt|js|css|html))`")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
SPDX = "SPDX-License-Identifier: Apache-2.0"
SPDX_WITHIN_LINES = 60  # the first comment of a file may be long
SPDX_LAST = {".c", ".h", ".cu", ".def"}  # here it is the last line of the first comment
FIRST_COMMENT = re.compile(r"\A/\*.*?\*/", re.DOTALL)
KERNEL_LIST = re.compile(r"\* Kernels?: ([\w/., \n*]*?\.cu)\.\n")
FAMILY = re.compile(r"^MP_OP_FAMILY\((\w+)\)", re.MULTILINE)
CODE = {".c", ".h", ".cu", ".def", ".py", ".sh", ".cmake", ".map"}
CODE_NAMES = {"CMakeLists.txt", "Makefile"}
CODE_FOLDERS = ["src", "include", "tests", "bench", "tools", "demo", "cmake", "python", ".ci"]


def rule_of(name):
    """The includes allowed to a file of src, by its path below src."""
    folder = name.rpartition("/")[0]
    while folder and folder not in RULES:
        folder = folder.rpartition("/")[0]
    return RULES.get(folder)


def includes_of(path):
    """Yields (line number, bracket, header)."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1), found.group(2)


def check_include(root, name, bracket, header):
    """What is wrong with one include of the file `name` of src, or None."""
    for pattern, owner in VENDOR:
        if pattern.fullmatch(header):
            if not name.startswith(owner + "/"):
                return f"only {owner}/ may include <{header}>"
            return None
    if bracket == "<":
        return None
    if not ((root / "src" / header).is_file() or (root / "include" / header).is_file()):
        return f'"{header}" is no file of src/ or include/; write the path from there'
    allowed = rule_of(name) + EXTRA.get(name, [])
    if not any(header == item or (item.endswith("/") and header.startswith(item)) for item in allowed):
        return f'may not include "{header}"; its folder may include: {" ".join(allowed)}'
    return None


def check_source(root, path, breaches):
    name = path.relative_to(root / "src").as_posix()
    if rule_of(name) is None:
        breaches.append(f"src/{name}:1: lies in no layer; layers are {' '.join(k for k in RULES if '/' not in k)}")
        return
    for number, bracket, header in includes_of(path):
        problem = check_include(root, name, bracket, header)
        if problem:
            breaches.append(f"src/{name}:{number}: {problem}")


def first_comment(path):
    found = FIRST_COMMENT.match(path.read_text(encoding="utf-8"))
    return found.group(0) if found else ""


def check_kernel_lists(root, breaches):
    """The first comment of a file of operators names its kernels; each kernel is named by one at least."""
    kernels = {path.relative_to(root / "src/kernel").as_posix() for path in (root / "src/kernel").rglob("*.cu")}
    named = set()
    for path in sorted((root / "src/op").rglob("*.c")):
        lists = "".join(KERNEL_LIST.findall(first_comment(path)))
        own = set(re.findall(r"[\w/]+\.cu", lists))
        named |= own
        breaches += [f"{path.relative_to(root)}:1: names {name}, which is not a kernel file"
                     for name in sorted(own - kernels)]
        if "mp_plan_kernel(" in path.read_text(encoding="utf-8") and not own and path.name != "plan.c":
            breaches.append(f"{path.relative_to(root)}:1: the first comment does not name its kernels")
    breaches += [f"src/kernel/{name}:1: no file of operators names it in its first comment"
                 for name in sorted(kernels - named)]


def check_families(root, breaches):
    """The list of operators names files."""
    files = {path.stem for path in (root / "src/op").rglob("*.c")}
    for name in FAMILY.findall((root / "src/op/op_list.def").read_text(encoding="utf-8")):
        if name not in files:
            breaches.append(f"src/op/op_list.def:1: MP_OP_FAMILY({name}) has no file src/op/*/{name}.c")


def calls_between(sources):
    """Which C file uses a function or constant that which other one defines."""
    texts = {path: TEXT_OF_C.sub(" ", path.read_text(encoding="utf-8")) for path in sources if path.suffix == ".c"}
    owner = {found: path for path, text in texts.items() for pattern in (FUNCTION, CONSTANT)
             for found in pattern.findall(text)}
    return {path: {owner[word] for word in SYMBOL.findall(text) if owner.get(word, path) != path}
            for path, text in texts.items()}


def circles_of(calls):
    """The sets of files that reach each other, largest first (Tarjan's algorithm, without recursion)."""
    number, low, stack, found = {}, {}, [], []
    for start in calls:
        work = [(start, iter(calls[start]))] if start not in number else []
        while work:
            node, rest = work[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
            following = next((other for other in rest if other not in number or other in stack), None)
            if following is None:
                work.pop()
                if low[node] == number[node]:
                    at = stack.index(node)
                    found.append(stack[at:])
                    del stack[at:]
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
            elif following in number:
                low[node] = min(low[node], number[following])
            else:
                work.append((following, iter(calls[following])))
    return sorted((sorted(circle) for circle in found if len(circle) > 1), key=len, reverse=True)


def check_circles(root, sources, breaches, show):
    for circle in circles_of(calls_between(sources)):
        names = " ".join(path.relative_to(root / "src").as_posix() for path in circle)
        if show:
            print(f"circle of {len(circle)}: {names}")
        if len(circle) > CIRCLE_MAX:
            breaches.append(f"{circle[0].relative_to(root)}:1: {len(circle)} files call each other in a circle, more "
                            f"than {CIRCLE_MAX}: {names}")


def check_pages(root, breaches):
    """A folder's README.md against the files that lie in it."""
    folders = sorted({path.parent for path in (root / "src").rglob("*") if path.is_file()})
    breaches += [f"{folder.relative_to(root).as_posix()}:1: has no {PAGE} that names its files" for folder in folders
                 if not (folder / PAGE).is_file()]
    for page in sorted((root / "src").rglob(PAGE)):
        named = set(NAMED_FILE.findall(page.read_text(encoding="utf-8")))
        there = {path.name for path in page.parent.iterdir() if path.is_file() and path != page}
        name = page.relative_to(root).as_posix()
        breaches += [f"{name}:1: does not name `{missing}`, which lies beside it" for missing in sorted(there - named)]
        breaches += [f"{name}:1: names `{gone}`, which does not lie beside it" for gone in sorted(named - there)]


def is_code(path):
    return path.is_file() and (path.suffix in CODE or path.name in CODE_NAMES or path.parent.name == ".ci")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--circles", action="store_true", help="list the files that call each other")
    given = parser.parse_args()
    root = given.root.resolve()
    breaches = []
    sources = sorted(path for path in (root / "src").rglob("*") if path.is_file())

    first = {}
    for path in sources:
        if path.suffix in {".c", ".h", ".cu"}:
            check_source(root, path, breaches)
        other = first.setdefault(path.name, path)
        if other != path and path.name != PAGE:
            breaches.append(f"{path.relative_to(root)}:1: the name is taken by {other.relative_to(root)}")

    check_circles(root, sources, breaches, given.circles)
    check_pages(root, breaches)
    files = [path for folder in CODE_FOLDERS for path in sorted((root / folder).rglob("*")) if is_code(path)]
    files += [root / name for name in sorted(CODE_NAMES) if (root / name).is_file()]
    for path in files:
        head = path.read_text(encoding="utf-8").splitlines()[:SPDX_WITHIN_LINES]
        if not any(SPDX in line for line in head):
            breaches.append(f"{path.relative_to(root)}:1: the first comment lacks '{SPDX}'")
        elif path.suffix in SPDX_LAST and not first_comment(path).endswith(f"\n * {SPDX} */"):
            breaches.append(f"{path.relative_to(root)}:1: '{SPDX}' is not the last line of the first comment")
    check_kernel_lists(root, breaches)
    check_families(root, breaches)

    for breach in breaches:
        print(breach)
    print(f"check_layers: {len(sources)} files of src, {len(files)} files of code, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
