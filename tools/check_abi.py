#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that programs which were built with the last release still run with this libmillpond.so.

    check_abi.py [--write] [--include DIR]

The binary interface is what the public header says: functions with their types, structures, values of enumerations.
They are made into a library of empty functions with the SONAME of CMakeLists.txt, and abidiff compares that with
tests/data/libmillpond.abi, which abidw made of the last release's. (That the real library exports the header's
functions and no others, check_libraries.py sees.) What is new is fine. Of what has changed or is gone there are two
kinds:

- A structure that callers give with its size (mp_pool_stats, mp_pool_device) may grow at its end. --write then accepts
  it, and a reviewer sees the change of the file.
- All else breaks programs: undo it, or raise SOVERSION in CMakeLists.txt, and then --write.

A release is made with --write, too, so that what was new is part of it. Needs abidw and abidiff (Debian: abigail-tools)
and a C compiler; ends with status 77 where they are missing.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "tests/data/libmillpond.abi"
HEADERS = ("status.h", "millpond.h")
PROTOTYPE = re.compile(r"^(?!typedef\b)([a-z][\w ]*[ *]mp_\w+\([^;{}]*\));", re.M)
NEEDED = ("abidw", "abidiff", "cc")
SKIP_STATUS = 77


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def soname():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return f"libmillpond.so.{re.search(r'PROPERTIES SOVERSION ([0-9]+)', text).group(1)}"


def stand_in(include, folder):
    """A library with the header's functions, which do nothing, and all that a debugger knows of their types."""
    source, library = folder / "stand_in.c", folder / soname()
    prototypes = []
    for header in HEADERS:
        text = (include / "millpond" / header).read_text(encoding="utf-8")
        prototypes += PROTOTYPE.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    body = "\n".join(f"{each} {{ __builtin_trap(); }}" for each in prototypes)
    source.write_text(f"#include <millpond/millpond.h>\n{body}\n", encoding="utf-8")
    done = run("cc", "-std=c11", "-g", "-O0", "-shared", "-fPIC", "-I", include, f"-Wl,-soname,{library.name}",
               source, "-o", library)
    if done.returncode != 0:
        sys.exit(f"check_abi: the header does not compile\n{done.stderr}")
    return library, len(prototypes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="what there is now becomes what is compared with")
    parser.add_argument("--include", type=Path, default=ROOT / "include", help="the folder of the header")
    args = parser.parse_args()
    for need in NEEDED:
        if shutil.which(need) is None:
            print(f"check_abi: no {need} on the path; install it (Debian: apt install abigail-tools gcc)")
            return SKIP_STATUS
    with tempfile.TemporaryDirectory() as folder:
        library, count = stand_in(args.include.resolve(), Path(folder))
        if args.write:
            made = run("abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", library)
            if made.returncode != 0:
                sys.exit(f"check_abi: abidw failed\n{made.stderr}")
            BASELINE.write_text(re.sub(r" path='[^']*'", "", made.stdout), encoding="utf-8")
            print(f"check_abi: {BASELINE.relative_to(ROOT)} has {count} functions")
            return 0
        found = run("abidiff", "--no-added-syms", BASELINE, library)
    if found.returncode == 0:
        print(f"check_abi: {count} functions; nothing of {BASELINE.relative_to(ROOT)} has changed or is gone")
        return 0
    print(f"{found.stdout}{found.stderr}check_abi: programs that were built with the last release may not run with "
          "this library; see tools/check_abi.py for what to do")
    return 1


if __name__ == "__main__":
    sys.exit(main())
