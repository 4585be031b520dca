#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the C tests of the base, the emulated device and the pool on an emulated AArch64.

    check_aarch64.py [--build FOLDER] [--seeds N] [--shard I/N] [FILTER]

They are compiled with Debian's cross compiler (gcc-aarch64-linux-gnu, libc6-dev-arm64-cross) and run by QEMU
(qemu-user): the switch of fibers is written in assembly for each architecture, and the order of memory accesses is
another. Ends with status 77 where the tools are missing.
"""

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from version import version  # noqa: E402  (beside this file)

ROOT = Path(__file__).resolve().parent.parent
SKIP_STATUS = 77
COMPILER, EMULATOR, LIBRARIES = "aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu"
PAGE = ROOT / "src/pool/trace/page/trace_page.html"
FOREIGN = ("cuda", "nvtx")  # tests of libraries that are not there
FLAGS = ["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", f'-DMILLPOND_VERSION="{version()}"',
         f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}", f"-I{ROOT / 'tests'}", f"-ffile-prefix-map={ROOT}/="]


def sources():
    """The C files of the three layers without CUDA, and of their tests."""
    layers = [path for layer in ("base", "device", "pool") for path in sorted((ROOT / "src" / layer).rglob("*.c"))]
    tests = [path for folder in ("unit", "pool") for path in sorted((ROOT / "tests" / folder).glob("*.c"))]
    return [*(path for path in layers if "cuda" not in path.parts),
            *(path for path in tests if not path.name.startswith(FOREIGN) and not path.stem.endswith("_main"))]


def compile_one(source, folder):
    """Gives the object file."""
    made = folder / f"{source.stem}.o"  # names are unique
    done = subprocess.run([COMPILER, *FLAGS, "-c", source, "-o", made], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"check_aarch64: {source} does not compile:\n{done.stderr}")
    return made


def build(folder):
    """Gives the program."""
    folder.mkdir(parents=True, exist_ok=True)
    page, program = folder / "trace_page_text.c", folder / "unit_tests"
    subprocess.run([sys.executable, ROOT / "tools/page_gen.py", "--page", PAGE, "--out", page], check=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        objects = list(workers.map(lambda source: compile_one(source, folder), [*sources(), page]))
    done = subprocess.run([COMPILER, *objects, "-o", program, "-ldl", "-lpthread", "-lm"], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"check_aarch64: the tests are not linked:\n{done.stderr}")
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/aarch64")
    parser.add_argument("--seeds", default="2", help="of the adversarial mode (%(default)s)")
    parser.add_argument("--shard", metavar="I/N", help="the Ith of N equal parts of the tests")
    parser.add_argument("filter", nargs="?", default="", help="a part of the names of tests; by default all are run")
    given = parser.parse_args()
    missing = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
    if missing:
        print(f"no {' and no '.join(missing)}: apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user")
        return SKIP_STATUS
    program = build(given.build)
    # Tests that start the program again start it in the emulator, and what that cannot do they leave out.
    env = {**os.environ, "MILLPOND_TEST_EMULATOR": EMULATOR}
    command = [EMULATOR, "-L", LIBRARIES, program, "--seeds", given.seeds, "--jobs", str(os.cpu_count())]
    shard = ["--shard", given.shard] if given.shard else []
    command += ["--timeout", "300", *shard, *filter(None, [given.filter])]
    return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
