# SPDX-License-Identifier: Apache-2.0
"""A C compiler for Linux of another age and processor: zig's, which brings the C library's symbols of each version."""

import stat
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import setup  # noqa: E402  (beside this file)

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv" / "release"
PROCESSORS = ("x86_64", "aarch64")
GLIBC = (2, 28)  # RHEL 8, Debian 10, Ubuntu 18.10: what onnxruntime's own wheels want


def tools():
    """The folder of the programs of requirements-release.txt, installed where they are missing."""
    problem = setup.make_venv(VENV, ROOT / "requirements-release.txt")
    if problem is not None:
        sys.exit(f"zig: {problem}")
    return VENV / "bin"


def version():
    """Of the compiler, as it is pinned."""
    lines = (ROOT / "requirements-release.txt").read_text(encoding="utf-8").splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith("ziglang=="))


def wrapper(path, program, words=""):
    """CMake wants one path for a program; this gives the path of a program and its first words one."""
    path.write_text(f'#!/bin/sh\nexec "{program}" {words} "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


def toolchain(processor, folder):
    """What CMake is to be told (variable -> value) for that processor; its programs are written into `folder`."""
    (zig,) = VENV.glob("lib/python*/site-packages/ziglang/zig") if tools() else ()
    folder.mkdir(parents=True, exist_ok=True)
    target = f"{processor}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    return {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": processor,
        "CMAKE_C_COMPILER": str(wrapper(folder / "cc", zig, f"cc -target {target}")),
        "CMAKE_AR": str(wrapper(folder / "ar", zig, "ar")),
        "CMAKE_RANLIB": str(wrapper(folder / "ranlib", zig, "ranlib")),
        # The machine's own strip may not know the other processor.
        "CMAKE_SHARED_LINKER_FLAGS": "-s",
        "CMAKE_MODULE_LINKER_FLAGS": "-s",
        "MILLPOND_WERROR": "OFF",  # a compiler of another version warns of other things
    }
