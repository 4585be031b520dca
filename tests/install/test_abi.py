# SPDX-License-Identifier: Apache-2.0
"""The check of the binary interface: it passes here, and sees what would break programs."""

import shutil
import subprocess
import sys

import needs
import pytest
from install_kit import ROOT

CHECK = ROOT / "tools/check_abi.py"
BREAKS = {
    "a function is gone": ("void mp_pool_reset_peaks(mp_pool *pool);", ""),
    "a parameter is another": ("mp_status mp_pool_free(mp_pool *pool, mp_addr addr);",
                               "mp_status mp_pool_free(mp_pool *pool, uint32_t addr);"),
    "a field goes between others": ("    uint64_t frees;\n", "    uint64_t more;\n    uint64_t frees;\n"),
    "an array is longer": ("    char client[32];    /* that", "    char client[40];    /* that"),
    "a value of an enumeration is another": ("    MP_TRACE_SNAPSHOT, /*", "    MP_TRACE_SNAPSHOT = 1, /*"),
}


def checked(include):
    for program in ("abidw", "abidiff"):
        needs.program(program)
    return subprocess.run([sys.executable, str(CHECK), "--include", str(include)], capture_output=True, text=True,
                          check=False)


def changed(folder, before, after):
    """A copy of the headers with one change."""
    shutil.copytree(ROOT / "include", folder / "include")
    header = folder / "include/millpond/millpond.h"
    text = header.read_text(encoding="utf-8")
    assert text.count(before) == 1, before
    header.write_text(text.replace(before, after), encoding="utf-8")
    return folder / "include"


def test_the_header_as_it_is():
    found = checked(ROOT / "include")
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("what", BREAKS)
def test_what_breaks_programs_is_seen(what, tmp_path):
    found = checked(changed(tmp_path, *BREAKS[what]))
    assert found.returncode == 1, found.stdout
    assert "may not run with this library" in found.stdout


def test_a_new_function_is_fine(tmp_path):
    line = "void mp_pool_reset_peaks(mp_pool *pool);"
    found = checked(changed(tmp_path, line, line + "\nvoid mp_pool_new(mp_pool *pool);"))
    assert found.returncode == 0, found.stdout
