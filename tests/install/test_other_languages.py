# SPDX-License-Identifier: Apache-2.0
"""examples/onnxruntime.c and .cpp, which docs/other_languages.md shows: built, and run in ONNX Runtime of PyPI.

Its package has the library and no headers. MILLPOND_ORT_HEADERS names a folder with ONNX Runtime's own, of its release;
without it, what the programs include leads to our description of the same interface.
"""

import importlib.util
import os
import re
from pathlib import Path

import needs
import provider
import pytest
import small_models
from install_kit import C_WARNINGS, ROOT, done, run

CAPI = Path(importlib.util.find_spec("onnxruntime").origin).parent / "capi"
LIBRARY = next(iter(sorted(CAPI.glob("libonnxruntime.so.1*"))), None)
STAND_IN = """
#include "ep/abi/ort_abi.h"
#ifdef __cplusplus
extern "C"
#endif
const OrtApiBase *OrtGetApiBase(void);
"""
BUILDS = [("gcc", "c11", "c"), ("clang", "c17", "c"), ("g++", "c++17", "cpp"), ("clang++", "c++20", "cpp")]


@pytest.fixture
def built(tmp_path, request):
    """The program, with the library under the name that it is looked for by."""
    compiler, standard, suffix = request.param
    headers = os.environ.get("MILLPOND_ORT_HEADERS")
    if not headers:
        headers = tmp_path / "include"
        headers.mkdir()
        (headers / "onnxruntime_c_api.h").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "libonnxruntime.so.1").symlink_to(LIBRARY)
    run(needs.program(compiler), f"-std={standard}", *C_WARNINGS, "-isystem", headers, f"-I{ROOT / 'src'}",
        ROOT / f"examples/onnxruntime.{suffix}", tmp_path / "libonnxruntime.so.1", f"-Wl,-rpath,{tmp_path}", "-o",
        tmp_path / "program")
    return tmp_path / "program"


@pytest.mark.parametrize("built", BUILDS, indirect=True, ids=lambda each: " ".join(each))
def test_the_program_runs(built, tmp_path):
    (tmp_path / "model.onnx").write_bytes(small_models.add_chain(2))
    said = run(built, provider.library_path().resolve(), tmp_path / "model.onnx")
    assert said == "device: Millpond emulated device\ny = 3 4 5 6\n"


@pytest.mark.parametrize("built", BUILDS[::2], indirect=True, ids=lambda each: " ".join(each))
def test_what_goes_wrong_is_one_sentence(built, tmp_path):
    ended = done(built, tmp_path / "nothing.so", tmp_path / "model.onnx")
    assert ended.returncode == 1
    assert "nothing.so" in ended.stderr
    ended = done(built, provider.library_path().resolve(), tmp_path / "no_model.onnx")
    assert ended.returncode == 1
    assert "no_model.onnx" in ended.stderr
    assert done(built).returncode in (1, 2)


def test_the_page_shows_these_programs():
    """What docs/other_languages.md shows of them is in them; what it shows of others stands where it says so."""
    page = (ROOT / "docs/other_languages.md").read_text(encoding="utf-8")
    tested = page[:page.index("\n## What was not run here\n")]
    for language, suffix in (("c", "c"), ("cpp", "cpp")):
        shown = re.findall(rf"^```{language}\n(.*?)^```", tested, re.M | re.S)
        program = (ROOT / f"examples/onnxruntime.{suffix}").read_text(encoding="utf-8")
        assert shown
        assert [part for part in shown if part not in program] == []
