# SPDX-License-Identifier: Apache-2.0
"""`millpond compile`: the kernels of models, compiled for GPUs that are not here.

The models run once on the emulated device, with their graphs rewritten as for a GPU; the library notes which kernels
they ask for, and compiles them.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from millpond import _native
from millpond import _ort_beyond_numpy as beyond
from millpond.cli import FAILED, NOTHING, _kernel_files, _libraries, _options
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show

ARCHS_MAX = 128  # CUDA_ARCHS_MAX in src/device/cuda/cuda_jit.h
ARCH = re.compile(r"(?:sm_)?([0-9]{2,3})")
COUNTS = ("all", "ready", "cached", "compiled", "failed")
AS_ON_A_GPU = "gpu"  # the graphs are rewritten as a GPU's are, not as the emulated device's


class Counts(ctypes.Structure):
    """As src/device/cuda/cuda_ahead.h has it."""

    _fields_ = [(name, ctypes.c_int32) for name in COUNTS]


def _known(pool: ctypes.CDLL) -> list[int]:
    archs, count = (ctypes.c_int * ARCHS_MAX)(), ctypes.c_int()
    _native.check(pool.mp__cuda_compiler_archs(archs, ctypes.byref(count)))
    return sorted(archs[: count.value])


def _nvrtc(pool: ctypes.CDLL) -> str:
    """The version of the compiler, which the kernels are kept by, too."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _native.check(pool.mp__cuda_compiler_version(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def _archs(texts: Sequence[str], known: Sequence[int]) -> list[int]:
    """The architectures of --for, each once."""
    archs: dict[int, None] = {}
    for text in (part.strip() for given in texts for part in given.split(",")):
        found = ARCH.fullmatch(text)
        if found is None or int(found.group(1)) not in known:
            there = ", ".join(f"sm_{arch}" for arch in known)
            raise click.UsageError(f"--for {text}: NVRTC compiles for {there}")
        archs[int(found.group(1))] = None
    return list(archs)


def _pool() -> ctypes.CDLL:
    """The library, where it can compile and keep what it has compiled."""
    if not _libraries.has_cuda():
        raise Finding(NOTHING, "this build of Millpond has no CUDA backend; build it where a CUDA toolkit is installed")
    problem = _kernel_files.cache_problem(_kernel_files.cache_folder())
    if problem:
        raise Finding(NOTHING, f"there is no folder to compile into: {problem}")
    return _libraries.pool_library()


def _run(model: Path, given: dict[str, Any]) -> None:
    """Has the model ask for its kernels."""
    import millpond.onnxruntime as mort
    from millpond._ort_native import ort
    from millpond.cli import _inputs

    device = _options.find_device("host:0")
    quiet = _options.quiet(ort.SessionOptions(), 0)
    options = _options.provider_options(given["options"])
    session = mort.session(str(model), device, options=options, session_options=quiet)
    beyond.run(session, None, _inputs.feeds(session, _options.wishes_of(given)))


def _compile(pool: ctypes.CDLL, arch: int) -> tuple[dict[str, Any], str]:
    """What was done for an architecture, and what went wrong with the first kernel that failed."""
    counts = Counts()
    began = time.perf_counter()
    with _native.flushed():
        status = pool.mp__cuda_ahead(arch, ctypes.byref(counts))
    seconds = time.perf_counter() - began
    problem = _native.last_sentence() if status != 0 else ""
    return {"arch": arch, **{name: getattr(counts, name) for name in COUNTS}, "seconds": seconds}, problem


def _line(done: dict[str, Any]) -> str:
    failed = f", {done['failed']} failed" if done["failed"] else ""
    return (f"{done['all']} kernels for sm_{done['arch']}: {done['ready']} ready, {done['cached']} cached, "
            f"{done['compiled']} compiled in {done['seconds']:.1f} s{failed}")


@click.command("compile")
@click.argument("models", type=_options.MODEL, nargs=-1, required=True, metavar="MODEL...")
@click.option("--for", "archs", multiple=True, required=True, metavar="sm_90[,sm_80]",
              help="Architectures of the GPUs that are to find the kernels.")
@_options.input_options
@_options.provider_option
@json_option
def command(models: tuple[Path, ...], archs: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Compile the kernels of models for GPUs, without a GPU.

    Each model runs once on the emulated device; inputs that no file gives are made up. The kernels that it asks for
    are compiled into the folder of the cache, but for those that came with the package or lie in it.
    """
    show = Show(as_json)
    pool = _pool()
    nvrtc = _nvrtc(pool)
    wanted = _archs(archs, _known(pool))
    passes = os.environ.get("MILLPOND_PASSES")
    os.environ["MILLPOND_PASSES"] = f"{passes},{AS_ON_A_GPU}" if passes else AS_ON_A_GPU
    pool.mp_kernel_record_start()
    with show.progress(len(models) + len(wanted), f"running {models[0].name}") as step:
        for model in models:
            step(f"running {model.name}", 0)
            _run(model, given)
            step()
        results = []
        for arch in wanted:
            step(f"compiling for sm_{arch}", 0)
            results.append(_compile(pool, arch))
            step()
    for done, _ in results:
        show.line(_line(done))
    show.data({"folder": str(_kernel_files.cache_folder()), "nvrtc": nvrtc,
               "models": [str(model) for model in models], "kernels": [done for done, _ in results]})
    for _, problem in results:
        if problem:
            raise Finding(FAILED, problem)
