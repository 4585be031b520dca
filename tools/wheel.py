#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Python wheel and its source archive, and checks the wheel.

    wheel.py --out dist [--cuda] [--no-sdist] [--verbose] [--kernels build/dev/libmillpond_host_kernels.a]
             [--processor x86_64|aarch64]

Needs scikit-build-core, CMake and Ninja, which requirements.txt has, and Python's headers; nothing is fetched.
--cuda: fails where CUDA's headers are missing, instead of leaving the CUDA backend out.
Objects stay in build/wheel, so that a second build only compiles what has changed.
--processor: for that one and for glibc 2.28, as releases are, by a compiler that is installed into .venv/release;
without it by this machine's compiler for this machine.
--kernels: takes the emulated device's kernels, most of what there is to compile, from another build of this source.
"""

import argparse
import contextlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_wheel  # noqa: E402  (beside this file)
import zig  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def settings(args):
    """For scikit-build-core: the tag says what check_wheel.py makes sure of."""
    defines = {"MILLPOND_HOST_KERNELS": str(args.kernels.resolve()) if args.kernels else "",
               **({"MILLPOND_WITH_CUDA": "ON"} if args.cuda else {})}
    if args.processor is None:
        given = {"wheel.tags": check_wheel.tag()}
    else:
        folder = ROOT / "build" / f"wheel-{args.processor}"
        defines |= zig.toolchain(args.processor, folder / "bin")
        given = {"wheel.tags": check_wheel.tag(args.processor, zig.GLIBC), "build-dir": str(folder / "build"),
                 "install.strip": "false"}
    return given | {f"cmake.define.{name}": value for name, value in defines.items()}


def build(args):
    """Returns the wheel's path."""
    from scikit_build_core import build as backend

    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(len(os.sched_getaffinity(0))))
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    given = settings(args)
    with contextlib.chdir(ROOT):
        if not args.no_sdist:
            with quiet(args.verbose):
                name = backend.build_sdist(str(out))
            print(f"# {name}")
        with quiet(args.verbose):
            return out / backend.build_wheel(str(out), given)


@contextlib.contextmanager
def quiet(verbose):
    """Keeps back what CMake and the compilers write, some 1,300 lines; a build that fails writes it after all."""
    if verbose:
        yield
        return
    with tempfile.TemporaryFile() as log:
        sys.stdout.flush()
        sys.stderr.flush()
        kept = [(number, os.dup(number)) for number in (1, 2)]
        for number, _ in kept:
            os.dup2(log.fileno(), number)
        try:
            yield
        except BaseException:
            sys.stdout.flush()  # what the backend has printed goes into the log, too
            sys.stderr.flush()
            log.seek(0)
            os.write(kept[1][1], log.read())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in kept:
                os.dup2(old, number)
                os.close(old)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cuda", action="store_true", help="the CUDA backend must be in it")
    parser.add_argument("--no-sdist", action="store_true", help="the wheel only")
    parser.add_argument("--processor", choices=zig.PROCESSORS, help="for older systems, and this processor")
    parser.add_argument("--verbose", action="store_true", help="print what CMake and the compilers say")
    parser.add_argument("--kernels", type=Path, help="archive of kernels that another build of this source made")
    args = parser.parse_args()
    if importlib.util.find_spec("scikit_build_core") is None:
        sys.exit("wheel: scikit-build-core is not installed; `make setup` installs it where there is network")
    return check_wheel.check(build(args), args.cuda)


if __name__ == "__main__":
    sys.exit(main())
