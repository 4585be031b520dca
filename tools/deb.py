#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Debian packages, with CMake and CPack, and looks into them with lintian where that is installed.

    deb.py --out dist [--build build/deb] [--cuda] [--kernels build/dev/libmillpond_host_kernels.a] [--jobs N]

Needs dpkg-deb, dpkg-shlibdeps, file and gzip (Debian: dpkg-dev file gzip). Times in the packages are SOURCE_DATE_EPOCH,
where it is set.
--cuda: fails where CUDA's headers are missing, instead of leaving the CUDA backend out.
--kernels: takes the emulated device's kernels, most of what there is to compile, from another build of this source.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_wheel import CUDA_MARK  # noqa: E402  (beside this file)

ROOT = Path(__file__).resolve().parent.parent
# What lintian says of packages that no archive of Debian has: there is no bug that asks for them.
LINTIAN = ["--fail-on", "error,warning", "--suppress-tags", "initial-upload-closes-no-bugs"]


def tool(name):
    """A program beside this Python, as requirements.txt installs them, or of the machine."""
    beside = Path(sys.executable).parent / name
    return beside if beside.exists() else shutil.which(name) or sys.exit(f"deb: no {name} on the path")


def quietly(command, folder):
    done = subprocess.run([str(word) for word in command], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"deb: {command[0]} failed\n{done.stdout}")


def build(folder, kernels, jobs, cuda):
    """Compiles, and returns the packages."""
    quietly([tool("cmake"), "--preset", "deb", "-B", folder, f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
             f"-DPython3_EXECUTABLE={sys.executable}", f"-DMILLPOND_HOST_KERNELS={kernels or ''}",
             f"-DMILLPOND_WITH_CUDA={'ON' if cuda else 'AUTO'}"], ROOT)
    quietly([tool("ninja"), "-j", jobs], folder)
    for old in folder.glob("*.deb"):
        old.unlink()
    os.umask(0o022)  # folders in a package are for everybody
    quietly([tool("cpack"), "-G", "DEB"], folder)
    return sorted(folder.glob("*.deb"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=ROOT / "build/deb")
    parser.add_argument("--cuda", action="store_true", help="the CUDA backend must be in it")
    parser.add_argument("--kernels", type=Path, help="archive of kernels that another build of this source made")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    for need in ("dpkg-deb", "dpkg-shlibdeps", "file", "gzip"):
        if shutil.which(need) is None:
            sys.exit(f"deb: no {need} on the path; install it (Debian: apt install dpkg-dev file gzip)")
    args.out.mkdir(parents=True, exist_ok=True)
    packages = build(args.build.resolve(), args.kernels and args.kernels.resolve(), args.jobs, args.cuda)
    for package in packages:
        shutil.copy2(package, args.out)
        print(f"# {package.name}: {package.stat().st_size / 1e6:.1f} MB")
    library = (args.build / "lib/libmillpond.so").read_bytes()
    print(f"# {'with' if CUDA_MARK in library else 'without'} the CUDA backend")
    if shutil.which("lintian") is None:
        print("# lintian is not installed; nothing was looked at")
        return 0
    return subprocess.run(["lintian", *LINTIAN, *map(str, packages)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
