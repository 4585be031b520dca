#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a built wheel: what is in it, what each library in it links, and that its tag tells the truth.

    check_wheel.py dist/millpond-*.whl [--cuda]

Needs nm and readelf (binutils).
"""

import argparse
import base64
import csv
import email
import hashlib
import io
import platform
import re
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_libraries import (  # noqa: E402
    POOL_NAME,
    PRIVATE_NODE,
    PUBLIC_HEADERS,
    SYSTEM_LIBRARIES,
    dynamic,
    exports,
    output,
)

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python/src/millpond"
GLIBC = (2, 34)  # the oldest that a wheel of Debian 12's compiler promises to work with
MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}  # as readelf has them
EXTENSION = "millpond/_core.abi3.so"
POOL = f"millpond/lib/{POOL_NAME}"
LINK = "millpond/lib/libmillpond.so"  # a text that leads linkers to it, since a wheel cannot hold symbolic links
PROVIDER = "millpond/lib/libonnxruntime_providers_cuda_plugin.so"
MANUAL = "data/share/man/man1/millpond.1"
RUNPATHS = {EXTENSION: ["$ORIGIN/lib"], PROVIDER: ["$ORIGIN"], POOL: []}
CUDA_MARK = b"cuMemAllocFromPoolAsync"  # a function that the backend asks the driver for by name


def tag(processor=None, glibc=GLIBC):
    """What wheels are built with; the checks here make sure that it is true."""
    return f"cp310-abi3-manylinux_{glibc[0]}_{glibc[1]}_{processor or platform.machine()}"


class Wheel:
    """An opened wheel and its libraries on disk, for binutils."""

    def __init__(self, path, folder):
        self.path = path
        self.zip = zipfile.ZipFile(path)
        self.names = self.zip.namelist()
        self.info = next(name.split("/")[0] for name in self.names if name.endswith(".dist-info/METADATA"))
        self.data = self.info.replace(".dist-info", ".data")
        promised = re.search(r"-manylinux_(\d+)_(\d+)_(\w+)\.whl$", self.path.name)
        self.glibc, self.processor = ((int(promised[1]), int(promised[2])), promised[3]) if promised else (GLIBC, "")
        self.libraries = {name: Path(self.zip.extract(name, folder)) for name in self.names
                          if ".so" in name and name != LINK}

    def text(self, name):
        return self.zip.read(name).decode()

    def headers(self, name):
        return email.message_from_string(self.text(f"{self.info}/{name}"))


def package_files():
    """What the source tree has of the package."""
    files = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".pyi", ".tsv"} or path.name == "py.typed"]
    return {f"millpond/{path.relative_to(PACKAGE).as_posix()}" for path in files}


def check_contents(wheel):
    headers = {f"millpond/include/millpond/{path.name}" for path in PUBLIC_HEADERS}
    info = {f"{wheel.info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    want = package_files() | headers | info | set(RUNPATHS) | {LINK, f"{wheel.data}/{MANUAL}"}
    found = {name for name in wheel.names if not name.endswith("/")}
    if found != want:
        return f"lacks {sorted(want - found)}; has {sorted(found - want)} beside what it must have"
    return None


def check_record(wheel):
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(wheel.text(f"{wheel.info}/RECORD"))) if row}
    for name in wheel.names:
        digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.zip.read(name)).digest()).rstrip(b"=").decode()
        if not name.endswith(("/", "/RECORD")) and rows.get(name) != f"sha256={digest}":
            return f"{name}: RECORD has {rows.get(name)}"
    return None


def check_tag(wheel):
    in_name = "-".join(wheel.path.stem.split("-")[-3:])
    in_file = wheel.headers("WHEEL").get_all("Tag")
    if in_file != [in_name]:
        return f"the name says {in_name}, the file WHEEL {in_file}"
    want = tag(wheel.processor, wheel.glibc)
    return None if in_name == want else f"is {in_name} instead of {want}"


def check_machine(wheel):
    want = MACHINES.get(wheel.processor)
    for name, library in wheel.libraries.items():
        found = re.search(r"Machine: +(.*)", output("readelf", "-hW", library))[1]
        if found != want:
            return f"{name} is for {found}"
    return None


def check_version(wheel):
    want = re.search(r'MILLPOND_VERSION "(.*)"', wheel.text("millpond/include/millpond/millpond.h")).group(1)
    found = wheel.headers("METADATA")["Version"]
    if found != want or f"-{want}-" not in wheel.path.name:
        return f"METADATA has {found}, the header {want}"
    nodes = set(re.findall(PRIVATE_NODE + r"[\w.]*", output("readelf", "-VW", wheel.libraries[EXTENSION])))
    return None if nodes == {PRIVATE_NODE + want} else f"the extension is linked to {sorted(nodes)}"


def check_requires(wheel):
    """Nobody is made to install a framework; OpenBLAS is what the emulated device multiplies with."""
    metadata = wheel.headers("METADATA")
    always = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    odd = [line for line in always if not re.match(r"(click|rich|scipy-openblas32)\b", line)]
    if odd:
        return f"requires {', '.join(odd)}"
    return None if metadata["Requires-Python"] == ">=3.10" else f"Requires-Python: {metadata['Requires-Python']}"


def check_linked(wheel):
    for name, library in wheel.libraries.items():
        others = [need for need in dynamic(library, "NEEDED") if not SYSTEM_LIBRARIES.fullmatch(need)]
        if others != ([] if name == POOL else [POOL_NAME]):
            return f"{name} is linked to {', '.join(others) or 'nothing of ours'}"
    return None


def check_runpath(wheel):
    for name, library in wheel.libraries.items():
        found = dynamic(library, "RUNPATH") + dynamic(library, "RPATH")
        if found != RUNPATHS[name]:
            return f"{name} looks for libraries in {found} instead of {RUNPATHS[name]}"
    return None


def check_glibc(wheel):
    newest = (0,)
    for name, library in wheel.libraries.items():
        for text in re.findall(r"\bGLIBC_([\d.]+)", output("readelf", "-VW", library)):
            version = tuple(int(part) for part in text.split("."))
            newest = max(newest, version)
            if version > wheel.glibc:
                return f"{name} needs glibc {text}"
    print(f"# glibc {'.'.join(map(str, newest))} is the newest that is needed")
    return None


def check_exports(wheel):
    """The extension shows its entry and the C functions that frameworks are given, and wants only Python's."""
    library = wheel.libraries[EXTENSION]
    odd = sorted(name for name in exports(library) if not re.match(r"PyInit__core$|millpond_", name))
    if odd:
        return f"exports {', '.join(odd[:5])}"
    undefined = [line.split()[-1] for line in output("nm", "-D", "--undefined-only", library).splitlines()]
    odd = [name for name in undefined if "@" not in name and not re.match(r"_?Py|_ITM_|__gmon_start__|__cxa_", name)]
    return f"wants {', '.join(odd[:5])} of nobody" if odd else None


def check_stack(wheel):
    for name, library in wheel.libraries.items():
        if re.search(r"GNU_STACK.*RWE", output("readelf", "-lW", library)):
            return f"{name} asks for an executable stack"
    return None


def has_cuda(wheel):
    return CUDA_MARK in wheel.zip.read(POOL)


def check_cuda(wheel):
    return None if has_cuda(wheel) else "the CUDA backend was left out; tools/wheel.py --cuda says what it lacks"


CHECKS = [
    ("it holds the package, its libraries and headers, and nothing else", check_contents),
    ("RECORD has the sum of each file", check_record),
    ("its tag", check_tag),
    ("one version in name, metadata, header and libraries", check_version),
    ("it requires no framework", check_requires),
    ("only libc and its kin are linked", check_linked),
    ("libraries are looked for in the package alone", check_runpath),
    ("the processor of its tag", check_machine),
    ("the glibc of its tag suffices", check_glibc),
    ("the extension exports its entry and millpond_*, and wants only Python's symbols", check_exports),
    ("no executable stack", check_stack),
]


def check(path, cuda):
    """Prints what came of each check; returns the exit status."""
    failed = 0
    checks = [*CHECKS, *([("the CUDA backend is in it", check_cuda)] if cuda else [])]
    with tempfile.TemporaryDirectory() as folder:
        wheel = Wheel(path, folder)
        for number, (what, function) in enumerate(checks, 1):
            problem = function(wheel)
            print(f"{'ok' if problem is None else 'not ok'} {number} - {what}")
            if problem is not None:
                failed += 1
                print(f"# {problem}")
        for item in wheel.zip.infolist():
            print(f"# {item.file_size:>9} {item.filename}")
        backend = "with the CUDA backend" if has_cuda(wheel) else "without the CUDA backend"
        print(f"# {path.name}: {path.stat().st_size / 1e6:.1f} MB, {backend}")
    print(f"{len(checks) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--cuda", action="store_true", help="the CUDA backend must be in it")
    args = parser.parse_args()
    return check(args.wheel, args.cuda)


if __name__ == "__main__":
    sys.exit(main())
