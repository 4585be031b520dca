# SPDX-License-Identifier: Apache-2.0
"""The wheel as a user has it: built, looked into, installed into clean environments, and README.md's example run.

Needs scikit-build-core and a compiler; MILLPOND_WHEEL names one that is built. The emulated device's kernels come from
the build under test where that has them, since compiling them takes minutes.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"^## From Python$.*?^```python\n(.*?)^```", re.M | re.S)
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def run(*command, **variables):
    """Runs a command away from the source tree; returns what it printed."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MILLPOND_EP_LIBRARY")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd="/",
                          env=env | variables, timeout=1000)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist():
    """The folder of the wheel and the source archive."""
    given = os.environ.get("MILLPOND_WHEEL")
    if given:
        return Path(given).resolve().parent
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("scikit-build-core is not installed")
    out = ROOT / "build/dist"
    shutil.rmtree(out, ignore_errors=True)
    library = os.environ.get("MILLPOND_EP_LIBRARY")
    kernels = Path(library).resolve().parents[1] / "libmillpond_host_kernels.a" if library else None
    given = ["--kernels", kernels] if kernels and kernels.is_file() else []
    said = run(sys.executable, ROOT / "tools/wheel.py", "--out", out, *given)
    lines = [line for line in said.splitlines() if not line.startswith("#")]
    assert len(lines) < 20, said  # what it checks, and nothing of CMake and the compilers; files stand behind a #
    return out


@pytest.fixture(scope="module")
def wheel(dist):
    wheels = list(dist.glob("millpond-*.whl"))
    assert len(wheels) == 1, wheels
    return wheels[0]


def test_what_is_in_it(wheel):
    shown = run(sys.executable, ROOT / "tools/check_wheel.py", wheel)
    assert re.search(r"^\d+ passed, 0 failed", shown, re.M)


def broken_copies(wheel, folder):
    """Copies of the wheel, each with one fault that the check must see."""
    import zipfile

    def copy(name, drop="", add=(), change=None):
        target = folder / name / wheel.name
        target.parent.mkdir()
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w") as out:
            for item in source.infolist():
                data = source.read(item)
                if not drop or drop not in item.filename:
                    out.writestr(item, change(item.filename, data) if change else data)
            for extra in add:
                out.writestr(extra, "x")
        return target

    yield "instead of \\['\\$ORIGIN/lib'\\]", copy("runpath", change=lambda name, data: data.replace(
        b"$ORIGIN/lib\0", b"/usr/local/\0") if "_core" in name else data)
    yield "lacks \\['millpond/py.typed'\\]", copy("lacks", drop="py.typed")
    yield "has \\['millpond/more.txt'\\]", copy("more", add=["millpond/more.txt"])
    yield "RECORD has", copy("sums", change=lambda name, data: data + b"#" if name.endswith("__init__.py") else data)
    yield "requires onnxruntime", copy("requires", change=lambda name, data: data.replace(
        b"Requires-Dist: rich", b"Requires-Dist: onnxruntime") if name.endswith("METADATA") else data)
    yield "the file WHEEL", copy("tag", change=lambda name, data: data.replace(
        b"abi3", b"cp311") if name.endswith("/WHEEL") else data)


def test_the_check_sees_faults(wheel, tmp_path):
    for words, path in broken_copies(wheel, tmp_path):
        done = subprocess.run([sys.executable, str(ROOT / "tools/check_wheel.py"), str(path)], capture_output=True,
                              text=True, check=False)
        assert done.returncode == 1, path
        assert re.search(words, done.stdout), (words, done.stdout, done.stderr)


def test_the_source_archive(dist):
    """It has all that a build needs, and nothing that a build leaves."""
    archives = list(dist.glob("millpond-*.tar.gz"))
    if not archives and os.environ.get("MILLPOND_WHEEL"):
        pytest.skip("only a wheel was given")
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("src", "include", "cmake", "python/src"):
        files = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*")
                 if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.parts)}
        assert files <= names, sorted(files - names)
    assert {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "tools/kernel_gen.py"} <= names
    assert not [name for name in names if name.startswith((".git/", "build", ".venv", "dist")) or name.endswith(".so")]


def pythons():
    """The interpreters that are there, one a version, and the one that runs this."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for version in VERSIONS:
        program = shutil.which(f"python{version}")
        if program and version not in found:
            done = subprocess.run([program, "-c", "import ensurepip, sys; print(sys.base_prefix)"], capture_output=True,
                                  text=True, check=False)
            if done.returncode == 0:
                found[version] = program
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_readme_example_in_a_clean_environment(wheel, tmp_path, version):
    """Neither a compiler nor any other package is in reach."""
    python = pythons().get(version) or pytest.skip(f"no Python {version}")
    run(python, "-m", "venv", tmp_path / "venv")
    run(tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    example = EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8")).group(1)
    assert len([line for line in example.splitlines() if line and not line.startswith("import")]) <= 5
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    clean = {"PATH": str(tmp_path / "venv/bin"), "MILLPOND_DEVICE": "host"}
    shown = run(tmp_path / "venv/bin/python", tmp_path / "example.py", **clean)
    assert re.fullmatch(r"1 MiB of Millpond emulated device at 0x[0-9a-f]+: 1048576 bytes in use by all\n", shown)
    look = """
import pathlib, sys, millpond
folder = pathlib.Path(millpond.__file__).parent
assert str(folder).startswith(sys.prefix), folder
assert pathlib.Path(millpond.get_library_path()) == folder / "lib/libonnxruntime_providers_cuda_plugin.so"
assert (pathlib.Path(millpond.get_include()) / "millpond/millpond.h").is_file()
import ctypes
ctypes.CDLL(millpond.get_library_path())
with open("/proc/self/maps") as maps:
    loaded = {line.split()[-1] for line in maps if "/libmillpond.so" in line}
assert loaded == {str(folder / "lib/libmillpond.so.0")}, loaded
"""
    run(tmp_path / "venv/bin/python", "-c", look, **clean)


def test_a_program_in_c_builds_with_it(wheel, tmp_path):
    """The header and the library of the package serve C programs."""
    if shutil.which("cc") is None:
        pytest.skip("no cc")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    include = run(python, "-c", "import millpond; print(millpond.get_include())").strip()
    lib = Path(run(python, "-c", "import millpond; print(millpond.get_library_path())").strip()).parent
    run("cc", ROOT / "examples/pool.c", f"-I{include}", f"-L{lib}", "-lmillpond", f"-Wl,-rpath,{lib}", "-o",
        tmp_path / "pool")
    assert "1 MiB of device memory" in run(tmp_path / "pool", MILLPOND_DEVICE="host")
