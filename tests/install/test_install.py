# SPDX-License-Identifier: Apache-2.0
"""`make install`, as docs/build.md has it: what is there, and programs of others that are built with it, by pkg-config,
by CMake, in C++."""

import re
import subprocess
import sys

import needs
import pytest
import version
from install_kit import C_WARNINGS, ROOT, done, run, tool

VERSION = version.version()
README_PROGRAM = re.compile(r"^## I write C$.*?^```c\n(.*?)^```", re.M | re.S)
SAID = r"1 MiB of device memory at 0x[0-9a-f]+\n"
STANDARDS = [(compiler, standard, "c") for compiler in ("gcc", "clang") for standard in ("c11", "c17")]
STANDARDS += [(compiler, standard, "c++") for compiler in ("g++", "clang++") for standard in ("c++17", "c++20")]

CPP_PROGRAM = """
#include <millpond/millpond.h>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

struct closer { void operator()(mp_pool *pool) const { mp_pool_close(pool); } };

int main() {
    mp_pool *opened = nullptr;
    const char *const options[] = {"arena.max_mem=4M", nullptr};
    if (mp_pool_open("host", MP_MEMORY_DEVICE, "c++", options, &opened) != MP_OK) {
        throw std::runtime_error(mp_error_message());
    }
    const std::unique_ptr<mp_pool, closer> pool(opened);
    std::vector<mp_addr> blocks(8);
    for (mp_addr &block : blocks) {
        if (mp_pool_alloc(pool.get(), 1000, nullptr, &block) != MP_OK) throw std::runtime_error(mp_error_message());
    }
    mp_addr more = 0;
    const bool refused = mp_pool_alloc(pool.get(), 1 << 30, nullptr, &more) == MP_OUT_OF_MEMORY;
    mp_pool_stats stats{};
    if (mp_pool_get_stats(pool.get(), &stats, sizeof stats) != MP_OK) return 1;
    std::printf("%s %d %d\\n", mp_version(), static_cast<int>(stats.requested), refused);
    for (const mp_addr block : blocks) mp_pool_free(pool.get(), block);
}
"""

CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.21)
project(consumer LANGUAGES C CXX)
find_package(Millpond @MINOR@ REQUIRED)
add_executable(in_c main.c)
target_link_libraries(in_c PRIVATE Millpond::millpond)
add_executable(in_cpp main.cpp)
target_compile_features(in_cpp PRIVATE cxx_std_17)
target_link_libraries(in_cpp PRIVATE Millpond::millpond)
file(WRITE ${CMAKE_BINARY_DIR}/found "${Millpond_VERSION} ${Millpond_PROVIDER}")
"""


@pytest.fixture
def program(tmp_path):
    """README's program in C, in a file."""
    source = tmp_path / "main.c"
    source.write_text(README_PROGRAM.search((ROOT / "README.md").read_text(encoding="utf-8")).group(1),
                      encoding="utf-8")
    return source


def test_what_is_installed(staged):
    libraries = staged / "usr/local/lib"
    assert [path.name for path in staged.iterdir()] == ["usr"]  # nothing but below PREFIX
    assert not (libraries / f"libmillpond.so.{VERSION}").is_symlink()
    assert (libraries / "libmillpond.so.0").readlink().name == f"libmillpond.so.{VERSION}"
    assert (libraries / "libmillpond.so").readlink().name == "libmillpond.so.0"
    dynamic = run("readelf", "-dW", libraries / "libmillpond.so")
    assert "[libmillpond.so.0]" in dynamic and "RUNPATH" not in dynamic and "RPATH" not in dynamic
    assert (libraries / "millpond/libmillpond.so.0").resolve() == (libraries / f"libmillpond.so.{VERSION}").resolve()
    headers = {path.name for path in (staged / "usr/local/include/millpond").iterdir()}
    assert headers == {path.name for path in (ROOT / "include/millpond").iterdir()}
    share = staged / "usr/local/share"
    for name in ("man/man1/millpond.1", "man/man3/millpond.h.3", "doc/millpond/LICENSE", "doc/millpond/README.md",
                 "doc/millpond/docs/memory.md", "doc/millpond/examples/pool.c"):
        assert (share / name).is_file(), name
    assert not (share / "doc/millpond/docs/man").exists()


def test_no_file_says_where_it_was_installed_or_built(staged):
    texts = [path for path in staged.rglob("*") if path.is_file() and (path.suffix in {".pc", ".cmake"})]
    assert len(texts) == 5, texts
    for path in texts:
        text = path.read_text(encoding="utf-8")
        assert str(ROOT) not in text and str(staged) not in text and "/usr/local" not in text, path


def pkg_config(prefix, *words):
    return run(needs.program("pkg-config"), *words, "millpond", PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig")).split()


def test_a_project_by_pkg_config(prefix, program, tmp_path):
    assert pkg_config(prefix, "--modversion") == [VERSION]
    flags = pkg_config(prefix, "--cflags", "--libs")
    run("cc", *C_WARNINGS, program, *flags, "-o", tmp_path / "main")
    alone = done(tmp_path / "main")
    assert alone.returncode != 0 and "libmillpond.so.0" in alone.stderr  # it is looked for by its SONAME
    said = run(tmp_path / "main", LD_LIBRARY_PATH=str(prefix / "lib"))
    assert re.fullmatch(SAID, said)


def configured(prefix, program, folder, minor=0):
    """A project that wants this minor version, or one so many later."""
    wanted = VERSION.split(".")
    project = CMAKE_PROJECT.replace("@MINOR@", f"{wanted[0]}.{int(wanted[1]) + minor}")
    (folder / "CMakeLists.txt").write_text(project, encoding="utf-8")
    (folder / "main.cpp").write_text(CPP_PROGRAM, encoding="utf-8")
    assert program.parent == folder
    return done(tool("cmake"), "-S", folder, "-B", folder / "build", "-G", "Ninja",
                f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-DCMAKE_PREFIX_PATH={prefix}")


def test_a_project_by_cmake(prefix, program, tmp_path):
    made = configured(prefix, program, tmp_path)
    assert made.returncode == 0, made.stderr
    run(tool("cmake"), "--build", tmp_path / "build")
    assert re.fullmatch(SAID, run(tmp_path / "build/in_c"))
    assert run(tmp_path / "build/in_cpp") == f"{VERSION} 8000 1\n"
    found, provider = (tmp_path / "build/found").read_text(encoding="utf-8").split()
    assert found == VERSION
    assert provider == str(prefix / "lib/millpond/libonnxruntime_providers_cuda_plugin.so")


def test_cmake_refuses_another_minor_version(prefix, program, tmp_path):
    made = configured(prefix, program, tmp_path, minor=1)
    assert made.returncode != 0
    assert f"version: {VERSION}" in made.stderr


@pytest.mark.parametrize(("compiler", "standard", "language"), STANDARDS)
def test_the_header_in_each_language(prefix, program, tmp_path, compiler, standard, language):
    if language == "c++":
        program.write_text(CPP_PROGRAM, encoding="utf-8")
    run(needs.program(compiler), f"-std={standard}", *C_WARNINGS, "-x", language, program, "-x", "none",
        *pkg_config(prefix, "--cflags", "--libs"), f"-Wl,-rpath,{prefix / 'lib'}", "-o", tmp_path / "main")
    said = run(tmp_path / "main")
    assert re.fullmatch(SAID if language == "c" else rf"{VERSION} 8000 1\n", said)


def test_the_provider_is_found_by_onnx_runtime(prefix):
    """It lies apart from the library, which it finds all the same; a program that has the library shares its pool."""
    plugin = run(needs.program("pkg-config"), "--variable=provider", "millpond",
                 PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig")).strip()
    code = f"""
import ctypes, os
import numpy as np, onnxruntime as ort
ctypes.CDLL({str(prefix / 'lib/libmillpond.so.0')!r})
ort.register_execution_provider_library("installed", os.path.abspath({plugin!r}))
device = next(each for each in ort.get_ep_devices() if each.ep_name == "CudaPluginExecutionProvider")
with open("/proc/self/maps") as maps:
    print(len({{line.split()[-1] for line in maps if "libmillpond.so" in line}}), device.ep_metadata["emulated"])
"""
    assert run(sys.executable, "-c", code) == "1 1\n"


def test_the_manual_pages_are_current_and_sound():
    env_python = [sys.executable, ROOT / "tools/man_pages.py", "--check"]
    ended = subprocess.run([str(word) for word in env_python], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    pages = sorted((ROOT / "docs/man").glob("*.[13]"))
    assert len(pages) == 2
    assert run(needs.program("mandoc"), "-Tlint", "-W", "warning", *pages) == ""
    shown = run("mandoc", "-Tutf8", pages[0])
    plain = re.sub(".\b", "", shown)
    assert "millpond explain" in plain
    table = (ROOT / "docs/settings.md").read_text(encoding="utf-8").partition("## Environment\n")[2]
    variables = set(re.findall(r"^\| `(MILLPOND_\w+)`", table, re.M))
    assert len(variables) > 15
    assert variables <= set(re.findall(r"^ +(MILLPOND_\w+)$", plain, re.M))
