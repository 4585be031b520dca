# SPDX-License-Identifier: Apache-2.0
"""Environments with packages of their own above those of this Python."""

import subprocess
import sys
import sysconfig
from pathlib import Path


def pip(*words, **more):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run([str(word) for word in command], check=True, text=True, **more)


def environment(folder, *packages):
    """The Python of an environment in `folder` with these packages before all that this one has; made where it is
    missing. Raises subprocess.CalledProcessError where they cannot be had."""
    folder = Path(folder)
    python = folder / "bin/python"
    below, stamp = sysconfig.get_path("purelib") + "\n", folder / "packages.txt"
    known = "\n".join([below, *packages])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == known:
        return python
    print(f"installing {', '.join(packages)} into {folder.name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    pip("install", "--quiet", "--no-deps", "--target", own, *packages)
    (own / "packages.pth").write_text(below, encoding="utf-8")
    stamp.write_text(known, encoding="utf-8")
    return python
