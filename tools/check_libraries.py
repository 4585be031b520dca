#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the built libraries: what they export, what they need, how large they are.

    check_libraries.py --build build/dev

Needs nm, readelf and strip (binutils, which comes with gcc).
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from version import version  # noqa: E402  (beside this file)

ROOT = Path(__file__).resolve().parent.parent
EP_EXPORTS = {"CreateEpFactories", "ReleaseEpFactory", "RegisterCustomOps"}
EP_BYTES_MAX = 15_000_000
# Whatever else a library wants, it opens at run time: nothing is linked that may be absent.
SYSTEM_LIBRARIES = re.compile(r"lib(c|m|dl|pthread|rt|gcc_s)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+|linux-vdso\.so\.1")
PUBLIC_HEADERS = [ROOT / "include/millpond/millpond.h", ROOT / "include/millpond/status.h"]
POOL_NAME = "libmillpond.so.0"  # the number is that of the binary interface, as CMakeLists.txt has it
PRIVATE_NODE = "MILLPOND_PRIVATE_"  # and the version


def output(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def exports(library):
    """Symbol -> version node ("" where none) of everything the library defines for others."""
    found = {}
    for line in output("nm", "-D", "--defined-only", library).splitlines():
        kind, name = line.split()[-2:]
        name, _, node = name.partition("@")
        if not (kind == "A" and name == node.lstrip("@")):  # the nodes themselves are listed too
            found[name] = node.lstrip("@")
    return {name: node for name, node in found.items() if not name.startswith("MILLPOND_")}


def dynamic(library, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", output("readelf", "-dW", library))


def check_ep_exports(ep, _):
    names = set(exports(ep))
    if names != EP_EXPORTS:
        return f"exports {sorted(names)} instead of {sorted(EP_EXPORTS)}"
    return None


def check_ep_size(ep, _):
    with tempfile.TemporaryDirectory() as folder:
        stripped = Path(folder) / "stripped.so"
        output("strip", "-o", stripped, ep)
        size = stripped.stat().st_size
    print(f"# {ep.name}: {size / 1e6:.2f} MB without debug information")
    return f"is {size} bytes, more than {EP_BYTES_MAX}" if size >= EP_BYTES_MAX else None


def check_ep_finds_pool(ep, _):
    if POOL_NAME not in dynamic(ep, "NEEDED"):
        return f"does not name {POOL_NAME} as needed"
    runpath = dynamic(ep, "RUNPATH")
    if runpath != ["$ORIGIN"]:  # an empty part of it would be the working directory
        return f"its RUNPATH is {runpath} instead of $ORIGIN alone"
    return None


def check_needed(ep, pool):
    for library in (ep, pool):
        others = [n for n in dynamic(library, "NEEDED")
                  if n != POOL_NAME and not SYSTEM_LIBRARIES.fullmatch(n)]
        if others:
            return f"{library.name} is linked to {', '.join(others)}"
    return None


def check_stack(ep, pool):
    for library in (ep, pool):
        if re.search(r"GNU_STACK.*RWE", output("readelf", "-lW", library)):
            return f"{library.name} asks for an executable stack"
    return None


def check_pool_exports(_, pool):
    odd = sorted(name for name in exports(pool) if not re.match(r"(mp|k)_", name))
    return f"exports {', '.join(odd[:5])}" if odd else None


def declared_functions():
    """Names of the functions that the public headers declare."""
    names = set()
    for header in PUBLIC_HEADERS:
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        text = re.sub(r"\btypedef\b[^;{]*;", "", text)  # types of functions
        names |= set(re.findall(r"\b(mp_\w+)\s*\((?!\*)[^;{}]*\)[^;{}]*;", text))
    return names


def check_public_api(_, pool):
    """The headers' functions, and no others, are in the public version node."""
    declared = declared_functions()
    public = {name for name, node in exports(pool).items() if not node.startswith(PRIVATE_NODE)}
    if declared != public:
        return (f"declared but not in the map: {sorted(declared - public)}; "
                f"in the map but not declared: {sorted(public - declared)}")
    return None


def check_private_node(ep, pool):
    """What only libraries of one build may share carries their version."""
    want = PRIVATE_NODE + version()
    for library in (ep, pool):
        found = set(re.findall(PRIVATE_NODE + r"[\w.]*", output("readelf", "-VW", library)))
        if found != {want}:
            return f"{library.name} has the node {', '.join(sorted(found))} instead of {want}"
    return None


def check_names(_, pool):
    """A SONAME with the number of the interface, and in a build folder the version behind it, found through links."""
    if dynamic(pool, "SONAME") != [POOL_NAME]:
        return f"its SONAME is {dynamic(pool, 'SONAME')} instead of {POOL_NAME}"
    want = f"libmillpond.so.{version()}"
    return None if pool.resolve().name == want else f"is the file {pool.resolve().name} instead of {want}"


CHECKS = [
    ("the provider exports what ONNX Runtime looks up, and no more", check_ep_exports),
    ("the provider is under 15 MB", check_ep_size),
    (f"the provider finds {POOL_NAME} beside it", check_ep_finds_pool),
    ("only libc and its kin are linked", check_needed),
    ("no executable stack", check_stack),
    ("libmillpond.so exports only names of ours", check_pool_exports),
    ("the public headers and the version script agree", check_public_api),
    ("the private node carries the version", check_private_node),
    ("libmillpond.so has the SONAME and the file name that it should", check_names),
]


def compile_header(language, compiler, standard):
    """Whether the public header stands alone in a language; None where it does, a reason where not."""
    done = subprocess.run([compiler, "-x", language, f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra",
                           "-Wpedantic", "-Werror", "-I", str(ROOT / "include"), "-"],
                          input="#include <millpond/millpond.h>\n", capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True)
    build = parser.parse_args().build
    ep = build / "lib/libonnxruntime_providers_cuda_plugin.so"
    pool = build / "lib/libmillpond.so"
    results = [(what, check(ep, pool)) for what, check in CHECKS]
    for language, compiler, standard in (("c", "gcc", "c11"), ("c++", "g++", "c++11"), ("c++", "g++", "c++20")):
        if shutil.which(compiler):
            results.append((f"the public header compiles as {standard}",
                            compile_header(language, compiler, standard)))
    failed = 0
    for number, (what, problem) in enumerate(results, 1):
        print(f"{'ok' if problem is None else 'not ok'} {number} - {what}")
        if problem is not None:
            failed += 1
            print(f"# {problem}")
    print(f"{len(results) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
