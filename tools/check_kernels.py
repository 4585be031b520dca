#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every kernel instance with NVRTC for a GPU architecture; needs no GPU, driver or toolkit.

    check_kernels.py [--archs 75,80,90,100] [--all | --sample N] [--jobs N] [--known FILE] [FILTER]

NVRTC comes from PyPI's nvidia-cuda-nvrtc or from a toolkit (CUDA_PATH, CUDA_HOME, /usr/local/cuda); without
either the check says so and ends with status 77, which counts as skipped. The instances and the text are those
of kernel_gen.py, the options those of src/device/cuda/cuda_jit.c. What compiled is remembered in the file --known
by the hash of all that went in, so that a second run compiles only what changed.

The first instance of each text is compiled to machine code for every architecture; the further ones, which differ in
types alone, take turns over them. With --sample N, for want of time, only one in N of the further ones is compiled, and
with more than 4 the first takes its turn, too. --all compiles every instance for each. The first instance is optimised
as at run time for the architecture whose turn it is, with more than 4 that of one text in N / 4; the others are
compiled in a fifth of the time, where NVRTC can do so.
"""

import argparse
import collections
import ctypes
import functools
import glob
import hashlib
import itertools
import multiprocessing
import os
import re
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import kernel_gen  # noqa: E402  (beside this file)

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
SKIP_STATUS = 77
MACHINE = "sm_"  # how the names of targets begin
ALONE = {"sm_90": "a"}  # compiled with what no other GPU has, as cuda_jit.c does
FAST = "--Ofast-compile=max"  # to machine code with few optimisations

Job = collections.namedtuple("Job", "kernel target fast")
SAMPLE_OF_ALL = 4  # with no larger one, an instance of every source is compiled for all architectures
Kernel = collections.namedtuple("Kernel", "name source defines")


class Failure(Exception):
    """What NVRTC says of a kernel that does not compile."""


def nvrtc_files():
    """Places where NVRTC may be, the pinned package first."""
    for folder in sys.path:
        yield from sorted(glob.glob(f"{folder}/nvidia/*/lib/libnvrtc.so.[0-9]*"))
    for folder in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if folder:
            yield from sorted(glob.glob(f"{folder}/lib64/libnvrtc.so.[0-9]*"))
    yield from ("libnvrtc.so.13", "libnvrtc.so.12")


def nvrtc_load():
    """(library, its file), or None."""
    for file in nvrtc_files():
        try:
            library = ctypes.CDLL(file)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library, file
    return None


def fixed_options():
    """The options that the runtime gives for every kernel."""
    text = (SRC / "device/cuda/cuda_jit.c").read_text(encoding="utf-8")
    found = re.search(r"options_fixed\[[^]]*\] = \{([^}]*)\}", text)
    if found is None:
        sys.exit("check_kernels: src/device/cuda/cuda_jit.c has no table options_fixed any more; mend this check")
    return re.findall(r'"([^"]+)"', found.group(1))


def c_strings(values):
    return (ctypes.c_char_p * len(values))(*(value.encode() for value in values))


class Compiler:
    """NVRTC and the kernel text, ready to compile."""

    def __init__(self):
        loaded = nvrtc_load()
        self.library, self.file = loaded if loaded else (None, None)
        self.options = fixed_options()
        folder = SRC / "kernel"
        self.texts = {path.relative_to(SRC).as_posix(): path.read_text(encoding="utf-8")
                      for path in kernel_gen.text_files(folder)}
        self.header_names = [name for name in self.texts if not name.endswith(".cu")]
        headers = "\0".join(self.texts[name] for name in self.header_names)
        self.headers_hash = hashlib.sha256(headers.encode()).hexdigest()

    def key(self, job):
        """A hash of all that decides whether the kernel compiles."""
        kernel = job.kernel
        parts = [self.version(), job.target, str(job.fast), kernel.name, *self.options, *kernel.defines,
                 self.texts[f"kernel/{kernel.source}"], self.headers_hash]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @functools.cache  # noqa: B019  (one compiler a process)
    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def call(self, function, *args):
        result = getattr(self.library, function)(*args)
        if result != 0:
            raise Failure(f"{function}: {self.library.nvrtcGetErrorString(result).decode()}")

    def log(self, program):
        size = ctypes.c_size_t()
        self.call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call("nvrtcGetProgramLog", program, text)
        return text.value.decode(errors="replace")

    def code(self, program):
        size = ctypes.c_size_t()
        self.call("nvrtcGetCUBINSize", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call("nvrtcGetCUBIN", program, data)
        return data.raw

    @functools.cache  # noqa: B019
    def can_be_fast(self):
        program, options = ctypes.c_void_p(), [FAST]
        self.call("nvrtcCreateProgram", ctypes.byref(program), b"", b"empty.cu", 0, None, None)
        taken = self.library.nvrtcCompileProgram(program, len(options), c_strings(options)) == 0
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return taken

    def compile(self, job):
        """Raises Failure unless the kernel compiles and its code has the kernel's symbol."""
        kernel = job.kernel
        target = job.target + ALONE.get(job.target, "")
        options = [f"--gpu-architecture={target}", *self.options, *(f"-D{define}" for define in kernel.defines)]
        if job.fast and self.can_be_fast():
            options.append(FAST)
        program = ctypes.c_void_p()
        headers = [self.texts[name] for name in self.header_names]
        source = f"kernel/{kernel.source}"
        self.call("nvrtcCreateProgram", ctypes.byref(program), self.texts[source].encode(), source.encode(),
                  len(headers), c_strings(headers), c_strings(self.header_names))
        try:
            try:
                self.call("nvrtcCompileProgram", program, len(options), c_strings(options))
            except Failure as failure:
                raise Failure(self.log(program) or str(failure)) from None
            if f"mp_k_{kernel.name}".encode() not in self.code(program):
                raise Failure(f"{source} has no kernel named mp_k_{kernel.name}")
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))


compiler = None  # of one worker process


def start_worker():
    global compiler
    compiler = Compiler()


def check(job):
    """(the job, what is wrong with it or None)."""
    try:
        compiler.compile(job)
    except Failure as failure:
        if job.fast and compiler.can_be_fast():  # which does not know some instructions
            return job, check(job._replace(fast=False))[1]
        return job, str(failure).strip()
    return job, None


def jobs_of(kernels, archs, sample):
    """What is compiled for want of time to compile everything."""
    seen = set()
    optimised = max(sample // SAMPLE_OF_ALL, 1)  # of the first instances one in so many
    for kernel in kernels:
        turn = zlib.crc32(kernel.name.encode())  # by the name: a kernel more does not change all the others' turns
        mine = archs[turn % len(archs)]
        if kernel.source not in seen:
            seen.add(kernel.source)
            wanted = archs if sample <= SAMPLE_OF_ALL else [mine]
            fast = turn // len(archs) % optimised != 0
            yield from (Job(kernel, f"{MACHINE}{arch}", fast or arch != mine) for arch in wanted)
        elif turn // len(archs) % sample == 0:
            yield Job(kernel, f"{MACHINE}{mine}", True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("filter", nargs="?", default="", help="only kernels whose name contains this")
    parser.add_argument("--archs", default="75,80,90,100", help="compute capabilities times ten")
    parser.add_argument("--all", action="store_true", help="every instance for every architecture")
    parser.add_argument("--sample", type=int, default=1, help="one in so many of the further instances")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--known", type=Path, help="file that remembers what compiled")
    args = parser.parse_args()
    start_worker()
    if compiler.library is None:
        print("no NVRTC: install it with `pip install nvidia-cuda-nvrtc`, or set CUDA_PATH to a toolkit")
        return SKIP_STATUS
    archs = [int(arch) for arch in args.archs.split(",")]
    kernels = [Kernel(*row) for row in kernel_gen.instances(SRC / "kernel") if args.filter in row[0]]
    targets = [f"{MACHINE}{arch}" for arch in archs]
    everything = itertools.product(kernels, targets, [False])
    jobs = [Job(*row) for row in everything] if args.all else list(jobs_of(kernels, archs, args.sample))
    known = set(args.known.read_text().split()) if args.known and args.known.is_file() else set()
    left = [job for job in jobs if compiler.key(job) not in known]
    failed = collections.Counter()
    with multiprocessing.get_context("fork").Pool(args.jobs, start_worker) as pool:
        for job, problem in pool.imap_unordered(check, left, chunksize=8):
            name = job.kernel.name
            if problem is None:
                known.add(compiler.key(job))
                continue
            failed[name] += 1
            if failed[name] == 1 and len(failed) <= 10:  # the first ones tell enough
                print(f"not ok {name} for {job.target}")
                for line in problem.splitlines()[:12]:
                    print(f"# {line}")
    if args.known:
        if not args.filter:  # drop what no kernel has any more
            possible = itertools.product(kernels, targets, [False, True])
            known &= {compiler.key(Job(*row)) for row in possible}
        args.known.write_text("\n".join(sorted(known)) + "\n")
    wrong = sum(failed.values())
    print(f"summary: {len(kernels)} kernel instances for {', '.join(targets)} by NVRTC "
          f"{compiler.version()} of {compiler.file}; {len(jobs) - len(left)} of {len(jobs)} known from before")
    print(f"{len(jobs) - wrong} passed, {wrong} failed, 0 skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
