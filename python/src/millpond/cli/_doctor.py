# SPDX-License-Identifier: Apache-2.0
"""`millpond doctor`: what Millpond finds on this machine, and what to do about what it does not.

A thing that is missing is a problem only where something that is asked for does not work without it: NVIDIA's
libraries where there is a GPU, not on the emulated device.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

import click

import millpond
from millpond.cli import FAILED, _kernel_files, _libraries
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show, size

OK, MISSING, NOTE, PROBLEM = "ok", "missing", "note", "problem"


@dataclass(frozen=True)
class Check:
    part: str
    name: str
    state: str
    detail: str
    more: dict[str, Any] = field(default_factory=dict)


def _package() -> list[Check]:
    built = "with the CUDA backend" if _libraries.has_cuda() else "built without the CUDA backend"
    return [Check("Millpond", "version", OK, f"{millpond.__version__}, {built}; {os.path.dirname(millpond.__file__)}")]


def _gpus() -> list[Check]:
    version, found = _libraries.gpus()
    checks = [
        Check("GPUs", str(gpu["device"]), OK,
              f"{gpu['name']}, {size(gpu['memory_bytes'])}, compute capability {gpu['compute_capability']}",  # type: ignore[arg-type]
              gpu)
        for gpu in found
    ]
    if checks:
        return [Check("GPUs", "driver", OK, f"works with CUDA {version} and older"), *checks]
    return [Check("GPUs", "driver", MISSING, "no GPU is found; what needs one runs on the emulated device")]


def _nvidia(has_gpu: bool) -> list[Check]:
    if not _libraries.has_cuda():
        return []
    checks = []
    for library in _libraries.libraries():
        state = OK if library.path else PROBLEM if has_gpu else MISSING
        checks.append(Check("Libraries", library.name, state, library.path or library.why))
    return checks


def _blas() -> Check:
    found = _libraries.blas()
    if found:
        return Check("Libraries", "OpenBLAS", OK, f"{found} (for the emulated device)")
    return Check("Libraries", "OpenBLAS", MISSING,
                 "the emulated device multiplies matrices with plain loops; pip install scipy-openblas32 is faster")


def _device() -> list[Check]:
    try:
        with millpond.Pool(client="doctor") as pool:
            free, total = pool.memory_info()
            kind = "emulated on the CPU" if pool.is_emulated else "GPU"
            detail = f"{pool.device}, {pool.device_name} ({kind}), {size(free)} of {size(total)} free"
            return [Check("Device", "auto", OK, detail, {"device": pool.device, "emulated": pool.is_emulated})]
    except millpond.Error as error:
        return [Check("Device", "auto", PROBLEM, str(error))]


def _packages() -> list[Check]:
    checks = []
    for name, version in _libraries.packages():
        state = OK if version else MISSING
        checks.append(Check("Packages", name, state, version or "not installed", {"version": version}))
    return checks


def _onnxruntime() -> list[Check]:
    both = [name for name in ("onnxruntime", "onnxruntime-gpu") if _libraries.version_of(name)]
    if not both:
        return []
    checks = []
    if len(both) == 2:
        checks.append(Check("ONNX Runtime", "packages", PROBLEM,
                            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; "
                            "uninstall both and install one of them"))
    try:
        import millpond.onnxruntime as mort

        for device in mort.devices():
            checks.append(Check("ONNX Runtime", device.spec, OK, f"{device.name}, because {device.reason}",
                                {"device": device.spec, "reason": device.reason}))
    except (millpond.Error, ImportError) as error:
        checks.append(Check("ONNX Runtime", "provider", PROBLEM, str(error)))
    return checks


def _cache() -> Check:
    folder = _kernel_files.cache_folder()
    count, total = _kernel_files.cache_size(folder)
    more = {"folder": str(folder), "files": count, "bytes": total}
    problem = _kernel_files.cache_problem(folder)
    if problem:
        return Check("Kernels", "cache", NOTE, problem, more)
    there = f"{count} files, {size(total)}" if count else "nothing in it yet"
    return Check("Kernels", "cache", OK, f"{folder}: {there}", more)


def _ready() -> Check:
    folder = _kernel_files.ready_folder()
    found = sorted(_kernel_files.ready(folder))
    if not found:
        return Check("Kernels", "with the package", MISSING, "none; each is compiled when it is first needed")
    archs = ", ".join(f"sm_{arch}" for arch, _, _ in found)
    return Check("Kernels", "with the package", OK, f"{folder}: {archs}", {"archs": [arch for arch, _, _ in found]})


def _variables() -> list[Check]:
    return [
        Check("Environment", name, NOTE if wrong else OK, f"{value} ({wrong})" if wrong else value)
        for name, value, wrong in _libraries.variables()
    ]


def checks() -> list[Check]:
    """All there is to say, in the order it is shown."""
    onnxruntime = _onnxruntime()  # first: libraries are looked for beside those that are loaded
    gpus = _gpus()
    has_gpu = any(check.state == OK for check in gpus)
    return [*_package(), *gpus, *_nvidia(has_gpu), _blas(), *_device(), *_packages(), *onnxruntime, _ready(),
            _cache(), *_variables()]


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Say what is found on this machine, what is missing, and what to do about it.

    Ends with 1 where something that is there to be used cannot be used.
    """
    show = Show(as_json)
    found = checks()
    problems = [check for check in found if check.state == PROBLEM]
    show.data({"ok": not problems, "checks": [asdict(check) for check in found]})
    for part in dict.fromkeys(check.part for check in found):
        show.heading(part)
        show.table(["", "", ""], [(c.state, c.name, c.detail) for c in found if c.part == part])
    if problems:
        raise Finding(FAILED, f"what does not work here: {', '.join(check.name for check in problems)}")
