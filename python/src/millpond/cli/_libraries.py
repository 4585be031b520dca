# SPDX-License-Identifier: Apache-2.0
"""What `millpond doctor` looks at: the driver, NVIDIA's libraries, packages of Python, the cache, the environment.

Libraries are opened by the same code that opens them for sessions, so what is said here is what a session will find.
"""

from __future__ import annotations

import ctypes
import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import millpond

# Order and numbers as the C library has them (src/device/cuda/cuda_load.h); those not used yet are left out.
LIBRARIES = (
    ("driver", "libcuda.so"),
    ("NVRTC", "libnvrtc.so"),
    ("cuBLASLt", "libcublasLt.so"),
    ("cuDNN", "libcudnn.so"),
)
COMPUTE_MAJOR, COMPUTE_MINOR = 75, 76  # attributes of the driver's devices

# Package -> what it is for; the first that is installed of a line counts.
PACKAGES = (
    ("onnxruntime", "onnxruntime-gpu"),
    ("numba-cuda", "numba-cuda-mlir"),
    ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    ("torch",),
    ("cuda-core",),
    ("numpy",),
    ("Pillow",),
)

VARIABLES = (
    "MILLPOND_BRANCHES", "MILLPOND_CACHE", "MILLPOND_CACHE_DIR", "MILLPOND_CACHE_SIZE", "MILLPOND_DEVICE",
    "MILLPOND_EP_LIBRARY", "MILLPOND_FUSION", "MILLPOND_HOST", "MILLPOND_HOST_BLAS", "MILLPOND_HOST_COMPILE_MS",
    "MILLPOND_HOST_DEVICES", "MILLPOND_HOST_IPC", "MILLPOND_HOST_MEMORY", "MILLPOND_HOST_MEMPOOLS",
    "MILLPOND_HOST_THREADS", "MILLPOND_KERNELS", "MILLPOND_LIMIT", "MILLPOND_LOG", "MILLPOND_MODELS",
    "MILLPOND_MONITOR", "MILLPOND_NUMBA_STREAMS", "MILLPOND_OFFLINE", "MILLPOND_PASSES", "MILLPOND_POOL",
    "MILLPOND_RANK_DIRECT", "MILLPOND_RANK_PORT", "MILLPOND_RANK_TIMEOUT", "MILLPOND_STAND_IN",
)
OTHER_VARIABLES = ("CUDA_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NUMBA_CUDA_MEMORY_MANAGER")


@dataclass(frozen=True)
class Library:
    name: str
    path: str | None  # None: it was not loaded
    why: str  # what to do, where it was not


def pool_library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(millpond.get_library_path()).with_name("libmillpond.so.0")))


def has_cuda() -> bool:
    """Whether this build of Millpond has the CUDA backend."""
    return hasattr(pool_library(), "mp__cuda_need")


def loaded_file(part: str) -> str | None:
    """Path of a library of this process whose file name begins with `part`."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith(part):
            return f"/{path}"
    return None


def libraries() -> Iterator[Library]:
    """Opens NVIDIA's libraries, as a session would."""
    pool = pool_library()
    pool.mp_error_message.restype = ctypes.c_char_p
    for number, (name, part) in enumerate(LIBRARIES):
        if pool.mp__cuda_need(number) == 0:
            yield Library(name, loaded_file(part), "")
        else:
            yield Library(name, None, pool.mp_error_message().decode(errors="replace"))


def blas() -> str | None:
    """The OpenBLAS that the emulated device uses; None where it has plain loops."""
    function = pool_library().mp__host_blas_file
    function.restype = ctypes.c_char_p
    found = function()
    return found.decode(errors="replace") if found else None


# ---- the driver ----


def driver_version(driver: ctypes.CDLL) -> str:
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def gpus() -> tuple[str | None, list[dict[str, object]]]:
    """The newest CUDA that the driver works with, and the GPUs that it shows; no context is made."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, []
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return driver_version(driver), []
    return driver_version(driver), [_gpu(driver, i) for i in range(count.value)]


def _gpu(driver: ctypes.CDLL, index: int) -> dict[str, object]:
    device, name, total = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    driver.cuDeviceGetAttribute(ctypes.byref(major), COMPUTE_MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), COMPUTE_MINOR, device)
    return {
        "device": f"cuda:{index}",
        "name": name.value.decode(errors="replace"),
        "memory_bytes": total.value,
        "compute_capability": f"{major.value}.{minor.value}",
    }


# ---- packages ----


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def packages() -> Iterator[tuple[str, str | None]]:
    """(name, version) of what is installed; of what is not, the first name and None."""
    for names in PACKAGES:
        there = [(name, version) for name in names if (version := version_of(name)) is not None]
        yield from there or [(names[0], None)]


# ---- the environment ----


def variables() -> Iterator[tuple[str, str, str | None]]:
    """(name, value, what is wrong with the name) of the variables that are set."""
    for name, value in sorted(os.environ.items()):
        if name in OTHER_VARIABLES or name in VARIABLES:
            yield name, value, None
        elif name.startswith("MILLPOND_"):
            near = difflib.get_close_matches(name, VARIABLES, 1)
            yield name, value, f"there is no such variable{f'; {near[0]} is meant?' if near else ''}"
