# SPDX-License-Identifier: Apache-2.0
"""Kernels on disk: those that came with the package, and the cache of what was compiled here."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import millpond

KEY = re.compile(r"[0-9a-f]{64}|new-.*")  # names of the cache's files; others are not ours
SIZE_DEFAULT = "1G"
HEADER = struct.Struct("=8sII32s")  # of a file of kernels; src/device/cuda/cuda_ready.h describes it
MAGIC = b"MPREADY1"


# ---- the cache ----


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    given = os.environ.get("MILLPOND_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "millpond" / "kernels"


def cached(folder: Path) -> list[Path]:
    """The files of the cache."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if KEY.fullmatch(path.name) and path.is_file())


def cache_size(folder: Path) -> tuple[int, int]:
    """How many files there are, and their bytes."""
    files = cached(folder)
    return len(files), sum(path.stat().st_size for path in files)


def cache_limit() -> str:
    """What the cache keeps to, as it was given."""
    return os.environ.get("MILLPOND_CACHE_SIZE") or SIZE_DEFAULT


def cache_problem(folder: Path) -> str | None:
    """Why the cache is not used, where it is not."""
    if os.environ.get("MILLPOND_CACHE") == "off":
        return "MILLPOND_CACHE=off: kernels are compiled in every process"
    if not folder.is_absolute():
        return f"MILLPOND_CACHE_DIR is {folder}, which is no absolute path; kernels are compiled in every process"
    if not folder.exists():
        return None  # it is made when it is first needed
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        return f"{folder} belongs to another user or is open to others, so it is not used; chmod 700 it, or remove it"
    return None


def cache_clear(folder: Path) -> tuple[int, int]:
    """Removes the cache's files, and nothing else; how many, and their bytes."""
    count = total = 0
    for path in cached(folder):
        size = path.stat().st_size
        path.unlink(missing_ok=True)
        count, total = count + 1, total + size
    return count, total


# ---- what came with the package ----


def ready_folder() -> Path | None:
    """Where such kernels are looked for; None where MILLPOND_KERNELS says nowhere."""
    given = os.environ.get("MILLPOND_KERNELS")
    if given:
        return Path(given) if given.startswith("/") else None
    return Path(millpond.get_library_path()).resolve().parent / "kernels"


def ready(folder: Path | None) -> Iterator[tuple[int, int, int]]:
    """(architecture, how many kernels, bytes) of each file of them."""
    for path in sorted(folder.glob("sm_*.kernels")) if folder else []:
        with path.open("rb") as file:
            head = file.read(HEADER.size)
        if len(head) == HEADER.size and head.startswith(MAGIC):
            _, arch, count, _ = HEADER.unpack(head)
            yield arch, count, path.stat().st_size
