#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels for GPUs ahead of time, so that a first run waits for no compiler.

    ready_kernels.py --build build/dev --out build/dev/lib/kernels [--archs 75,80,...] [--only TEXT] [--wheel dist]

Writes OUT/sm_<arch>.kernels for each architecture, in the form that src/device/cuda/cuda_ready.h describes; in the
folder `kernels` beside libmillpond.so they are found. The library takes those of an earlier architecture of the same
major version, too, so GPUs of 8.6, 8.7 and 8.9 run what is built for 8.0: the texts of the kernels ask for no more, and
code for 8.6 is as long, keeps as many values in registers and differs in how numbers are moved. All files together may
take SIZE_MAX. Needs NVRTC (nvidia-cuda-nvrtc), and nvFatbin (nvidia-nvfatbin), which packs code as the driver unpacks
it; neither GPU nor driver.
What is compiled stays in BUILD/ready, so that a second run compiles only what has changed. --wheel packs them into a
wheel of their own, millpond-kernels, which puts them beside the libraries of the package; pip install millpond[kernels]
brings it.
"""

import argparse
import base64
import ctypes
import glob
import hashlib
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run_tests  # noqa: E402  (beside this file; knows where the libraries of Python packages are)
from version import version  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ARCHS = (75, 80, 90, 100, 120)
SIZE_MAX = 60_000_000  # what a package of them may take
MAGIC = b"MPREADY1"
HEADER, ENTRY = struct.Struct("=8sII32s"), struct.Struct("=32s32sQQ")
PACKING = ("-64", "-compress=true", "-compress-all")
SMALLER = "-compress-mode=size"  # by a seventh; drivers know it since they know the first of these architectures
SMALLER_FROM = 100


class Failure(Exception):
    """What went wrong, in a sentence."""


class Packer:
    """nvFatbin: machine code as the driver takes it, compressed to a quarter."""

    def __init__(self):
        files = [file for folder in sys.path for file in glob.glob(f"{folder}/nvidia/*/lib/libnvfatbin.so.*")]
        for file in [*files, "/usr/local/cuda/lib64/libnvfatbin.so"]:
            try:
                self.library = ctypes.CDLL(file)
                self.library.nvFatbinGetErrorString.restype = ctypes.c_char_p
                return
            except OSError:
                continue
        raise Failure("there is no nvFatbin: install it with `pip install nvidia-nvfatbin`, or a CUDA toolkit")

    def call(self, function, *args):
        result = getattr(self.library, function)(*args)
        if result != 0:
            raise Failure(f"{function}: {self.library.nvFatbinGetErrorString(result).decode()}")

    def pack(self, code, arch):
        handle, size = ctypes.c_void_p(), ctypes.c_size_t()
        packing = (*PACKING, SMALLER) if arch >= SMALLER_FROM else PACKING
        options = (ctypes.c_char_p * len(packing))(*map(str.encode, packing))
        self.call("nvFatbinCreate", ctypes.byref(handle), options, len(options))
        try:
            self.call("nvFatbinAddCubin", handle, code, ctypes.c_size_t(len(code)), str(arch).encode(), b"kernel")
            self.call("nvFatbinSize", handle, ctypes.byref(size))
            packed = ctypes.create_string_buffer(size.value)
            self.call("nvFatbinGet", handle, packed)
        finally:
            self.library.nvFatbinDestroy(ctypes.byref(handle))
        return packed.raw


def compiled(build, arch, only):
    """{key: machine code} of the kernels, as hexadecimal digits and bytes."""
    folder = build / f"ready/sm_{arch}"
    folder.mkdir(parents=True, exist_ok=True)
    program = build / "tools/ready_kernels/compile_kernels"
    if not program.exists():
        raise Failure(f"there is no {program}: build it first, on a machine with CUDA's headers")
    env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, [*run_tests.wheel_libraries(),
                                                                  os.environ.get("LD_LIBRARY_PATH")])))
    done = subprocess.run([program, str(arch), folder, only], env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"kernels for sm_{arch} were not compiled; see above")
    keys = sorted(done.stdout.split())
    if not only:  # drop what no kernel has any more
        for file in folder.glob("*.cubin"):
            if file.stem not in keys:
                file.unlink()
    return {key: (folder / f"{key}.cubin").read_bytes() for key in keys}


def archive(codes, arch):
    """The bytes of a file; `codes` by keys in their order."""
    entries, offset = [], HEADER.size + len(codes) * ENTRY.size
    for key, code in codes.items():
        entries.append(ENTRY.pack(bytes.fromhex(key), hashlib.sha256(code).digest(), offset, len(code)))
        offset += len(code)
    index = b"".join(entries)
    header = HEADER.pack(MAGIC, arch, len(codes), hashlib.sha256(index).digest())
    return b"".join([header, index, *codes.values()])


def check_size(total):
    if total > SIZE_MAX:
        raise Failure(f"the files take {total / 1e6:.1f} MB, and a package of them may take {SIZE_MAX / 1e6:.0f}: "
                      "build fewer architectures, or fewer instances of kernels")


# ---- the wheel ----


METADATA = """Metadata-Version: 2.4
Name: millpond-kernels
Version: {version}
Summary: Kernels of Millpond for NVIDIA GPUs, compiled ahead of time
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.10
Description-Content-Type: text/markdown

The package millpond finds these kernels beside its libraries, so that the first run of a model does not wait for a
compiler. Machine code for {archs}; kernels of another version of millpond are not found here, and compiled.
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: millpond\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(files, out):
    """A wheel of the files, the same bytes each time; its path."""
    info = f"millpond_kernels-{version()}.dist-info"
    archs = ", ".join(sorted((file.stem for file in files), key=lambda name: int(name.removeprefix("sm_"))))
    entries = {f"millpond/lib/kernels/{file.name}": file.read_bytes() for file in sorted(files)}
    entries[f"{info}/METADATA"] = METADATA.format(version=version(), archs=archs).encode()
    entries[f"{info}/WHEEL"] = WHEEL.encode()
    entries[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = [f"{name},{digest(data)},{len(data)}" for name, data in entries.items()]
    entries[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"millpond_kernels-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, data)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="build folder, such as build/dev")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--archs", default=",".join(map(str, ARCHS)),
                        help="compute capabilities times ten (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only kernels with this in their names")
    parser.add_argument("--wheel", type=Path, metavar="FOLDER", help="put them into a wheel there, too")
    args = parser.parse_args()
    total, files = 0, []
    try:
        packer = Packer()
        args.out.mkdir(parents=True, exist_ok=True)
        for arch in sorted(map(int, args.archs.split(","))):
            codes = compiled(args.build.resolve(), arch, args.only)
            packed = {key: packer.pack(code, arch) for key, code in codes.items()}
            data = archive(packed, arch)
            fresh = args.out / f"sm_{arch}.kernels.new"
            fresh.write_bytes(data)
            files.append(fresh.rename(args.out / f"sm_{arch}.kernels"))
            total += len(data)
            print(f"sm_{arch}: {len(codes)} kernels, {sum(map(len, codes.values())) / 1e6:.1f} MB of machine code in "
                  f"{len(data) / 1e6:.1f} MB", flush=True)
        check_size(total)
    except Failure as failure:
        print(f"ready_kernels: {failure}", file=sys.stderr)
        return 1
    print(f"{total / 1e6:.1f} MB in {args.out}")
    if args.wheel:
        path = write_wheel(files, args.wheel)
        print(f"{path.stat().st_size / 1e6:.1f} MB: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
