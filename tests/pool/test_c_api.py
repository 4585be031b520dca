# SPDX-License-Identifier: Apache-2.0
"""The public C API as a user has it: the header and libmillpond.so, no source of ours, a compiler of theirs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import needs
import provider
import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
COMPILERS = [("gcc", "c11", "c"), ("clang", "c11", "c"), ("g++", "c++11", "c++"), ("clang++", "c++20", "c++")]

# Every function is named, so that one which is declared and not exported shows.
USE_ALL = """
#include <millpond/millpond.h>
#include <stdio.h>
typedef void (*function)(void);
static const function all[] = {
%s};
int main(void) {
    const function *volatile used = all;
    mp_pool *pool = NULL;
    const char *const options[] = {"arena.max_mem=4M", NULL};
    mp_addr block = 0;
    mp_pool_stats stats;
    if (mp_pool_open("host", MP_MEMORY_DEVICE, "user", options, &pool) != MP_OK ||
        mp_pool_alloc(pool, 5000, MP_NO_STREAM, &block) != MP_OK ||
        mp_pool_get_stats(pool, &stats, sizeof stats) != MP_OK || mp_pool_free(pool, block) != MP_OK) {
        fprintf(stderr, "%%s\\n", mp_error_message());
        return 1;
    }
    if (mp_pool_free(pool, block) != MP_INVALID_ARGUMENT) {
        return 2;
    }
    mp_pool_close(pool);
    printf("%%s %%d %%u\\n", mp_version(), (int)stats.requested, (unsigned)(sizeof all / sizeof all[0]));
    return used[0] != NULL ? 0 : 3;
}
"""


def functions():
    """The names that the headers declare, in their order."""
    names = []
    for header in ("status.h", "millpond.h"):
        text = re.sub(r"/\*.*?\*/", "", (INCLUDE / "millpond" / header).read_text(encoding="utf-8"), flags=re.S)
        text = re.sub(r"\btypedef\b[^;{]*;", "", text)
        names += re.findall(r"\b(mp_\w+)\s*\((?!\*)[^;{}]*\)[^;{}]*;", text)
    return names


def build_and_run(compiler, standard, language, source, folder):
    program = folder / "program"
    lib = provider.library_path().parent
    built = subprocess.run([needs.program(compiler), f"-std={standard}", *WARNINGS, "-I", str(INCLUDE), "-x", language,
                            str(source), "-x", "none", "-L", str(lib), "-lmillpond", f"-Wl,-rpath,{lib}",
                            "-o", str(program)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    env = dict(os.environ, MILLPOND_DEVICE=os.environ.get("MILLPOND_DEVICE", "host"))
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("compiler", "standard", "language"), COMPILERS)
def test_every_function_links(compiler, standard, language, tmp_path):
    names = functions()
    assert len(names) > 25
    source = tmp_path / "all.c"
    source.write_text(USE_ALL % "".join(f"    (function){name},\n" for name in names), encoding="utf-8")
    version = re.search(r'MILLPOND_VERSION "(.*)"', (INCLUDE / "millpond/millpond.h").read_text(encoding="utf-8"))
    assert build_and_run(compiler, standard, language, source, tmp_path) == f"{version.group(1)} 5000 {len(names)}\n"


@pytest.mark.parametrize(("compiler", "standard", "language"), COMPILERS)
def test_the_example_runs(compiler, standard, language, tmp_path):
    shown = build_and_run(compiler, standard, language, ROOT / "examples/pool.c", tmp_path)
    assert re.fullmatch(r"1 MiB of device memory at 0x[0-9a-f]+\n", shown)


def test_the_example_is_ten_lines():
    text = (ROOT / "examples/pool.c").read_text(encoding="utf-8")
    body = text[text.index("{") + 1:text.rindex("}")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 10


def test_an_older_library_is_refused_by_name(tmp_path):
    """A library of another version says which node is missing, instead of failing at some call."""
    (tmp_path / "old.c").write_text("int mp_version; int mp_log_enabled;\n", encoding="utf-8")
    (tmp_path / "old.map").write_text("MILLPOND_0.1 { global: mp_version; };\n"
                                      "MILLPOND_PRIVATE_0.0.1 { global: mp_*; local: *; };\n", encoding="utf-8")
    ep = provider.library_path()
    subprocess.run([needs.program("gcc"), "-shared", "-fPIC", "-Wl,--version-script=old.map",
                    "-Wl,-soname,libmillpond.so.0", "old.c", "-o", "libmillpond.so.0"], cwd=tmp_path, check=True)
    shutil.copy(ep, tmp_path / ep.name)
    done = subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(tmp_path / ep.name)!r})"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "MILLPOND_PRIVATE_" in done.stderr
    assert "not found" in done.stderr
