#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds or makes the Python, CMake and Ninja that the Makefile works with.

    setup.py --out build/env.mk [--venv .venv] [--requirements requirements.txt]

With network: a virtual environment with the pinned packages, made anew when the pins change.
Without, or with MILLPOND_OFFLINE=1: this Python and the programs on the path, if they suffice.
Python's headers come from Debian's package where they are not installed; without them all but the Python package is
built.
Writes their paths as make variables; the file's presence is the Makefile's stamp.
"""

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PYTHON_MIN = (3, 11)  # onnxruntime 1.31 has no wheel for older ones
MODULES_NEEDED = ("numpy", "onnxruntime", "onnx", "pytest")


def fail(message):
    sys.exit(f"setup: {message}")


def run(*command, folder=None):
    """Runs a command quietly; returns (worked, last lines of its output)."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, "\n".join(done.stdout.strip().splitlines()[-4:])


def make_venv(venv, requirements):
    """Makes the virtual environment anew unless its stamp fits. Returns None, or why it is not there."""
    python = venv / "bin" / "python"
    pins = requirements.read_bytes() + sys.version.encode() + str(venv.resolve()).encode()
    key = hashlib.sha256(pins).hexdigest()
    stamp = venv / "millpond.stamp"
    if stamp.is_file() and stamp.read_text() == key and python.exists():
        return None
    if importlib.util.find_spec("ensurepip") is None:
        return "this Python has no venv module; install it (Debian: apt install python3-venv)"
    print(f"setup: installing {requirements.name} into {venv} ...", flush=True)
    worked, output = run(sys.executable, "-m", "venv", "--clear", str(venv))
    if not worked:
        return f"python3 -m venv failed (Debian: apt install python3-venv):\n{output}"
    worked, output = run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                         "--retries", "2", "--no-compile", "--only-binary=:all:", "-r", str(requirements))
    if not worked:
        shutil.rmtree(venv, ignore_errors=True)
        return f"pip could not install {requirements.name}:\n{output}"
    stamp.write_text(key)
    return None


def headers(venv):
    """The folder of Python.h where it is not the installed one's: unpacked from Debian's package. "" where it is, or
    cannot be had."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folder = venv.resolve() / "headers"
    found = folder / "usr" / "include" / name
    if (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return ""
    if not (found / "Python.h").exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            return ""
        folder.mkdir(parents=True, exist_ok=True)
        run("apt-get", "download", f"lib{name}-dev", folder=folder)
        for package in folder.glob("*.deb"):
            run("dpkg", "-x", str(package), str(folder))
            package.unlink()
    return found if (found / "Python.h").exists() else ""


def installed_tools():
    """The tools of this machine as they are; None and what is missing where they do not suffice."""
    missing = [f"Python module {name}" for name in MODULES_NEEDED if importlib.util.find_spec(name) is None]
    cmake, ninja = shutil.which("cmake"), shutil.which("ninja")
    missing += [name for name, path in (("cmake", cmake), ("ninja", ninja)) if path is None]
    if missing:
        return None, ", ".join(missing)
    return {"PYTHON": sys.executable, "CMAKE": cmake, "NINJA": ninja}, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--requirements", type=Path, default=Path("requirements.txt"))
    args = parser.parse_args()

    if sys.version_info < PYTHON_MIN:
        fail(f"Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or newer is needed, this is {sys.version.split()[0]}; "
             "name a newer one with: make SYSTEM_PYTHON=/path/to/python3")
    offline = os.environ.get("MILLPOND_OFFLINE", "0") not in ("", "0")
    reason = "MILLPOND_OFFLINE is set" if offline else make_venv(args.venv, args.requirements)
    if reason is None:
        programs = args.venv.resolve() / "bin"
        tools = {"PYTHON": programs / "python", "CMAKE": programs / "cmake", "NINJA": programs / "ninja"}
    else:
        tools, missing = installed_tools()
        if tools is None:
            fail(f"{reason}\nsetup: and this machine lacks what would do instead: {missing}")
        first_line = reason.splitlines()[0].rstrip(":")
        print(f"setup: {first_line}; using {tools['PYTHON']} and {tools['CMAKE']} as they are")
    tools["PYTHON_HEADERS"] = "" if offline else headers(args.venv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("".join(f"{name} := {path}\n" for name, path in tools.items()))


if __name__ == "__main__":
    main()
