# SPDX-License-Identifier: Apache-2.0
"""tools/ready_kernels.py: files of kernels for GPUs, as the library reads them; needs NVRTC and no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ready_kernels

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MILLPOND_EP_LIBRARY", ROOT / "build/dev/lib/none")).resolve().parents[1]
UNIT_TESTS = BUILD / "tests/unit_tests"
SOME = "clip_f"  # kernels that are quick to compile


@pytest.fixture(scope="module", autouse=True)
def there_is_a_compiler():
    if not (BUILD / "tools/ready_kernels/compile_kernels").exists():
        pytest.skip("this build has no CUDA backend")
    try:
        ready_kernels.Packer()
    except ready_kernels.Failure as failure:
        pytest.skip(str(failure))


def make(out, *more):
    command = [sys.executable, ROOT / "tools/ready_kernels.py", "--build", BUILD, "--out", out, "--only", SOME, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def times():
    return {path: path.stat().st_mtime_ns for path in (BUILD / "ready/sm_90").glob("*.cubin")}


def test_the_library_finds_what_the_program_makes(tmp_path):
    done = make(tmp_path, "--archs", "90,80")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"sm_{arch}.kernels" for arch in (80, 90)]
    made = times()
    again = tmp_path / "again"
    assert make(again, "--archs", "90").returncode == 0
    assert times() == made  # nothing was compiled twice
    assert (again / "sm_90.kernels").read_bytes() == (tmp_path / "sm_90.kernels").read_bytes()
    env = dict(os.environ, MILLPOND_TEST_READY=str(tmp_path))
    done = subprocess.run([UNIT_TESTS, "cuda_ready_kernels_of_the_table"], env=env, capture_output=True, text=True,
                          check=False)
    assert "1 passed, 0 failed, 0 skipped" in done.stdout, done.stdout


def test_the_wheel_puts_them_beside_the_libraries(tmp_path):
    for folder in ("one", "two"):
        done = make(tmp_path / folder, "--archs", "90", "--wheel", str(tmp_path / folder))
        assert done.returncode == 0, done.stderr
    wheels = [next((tmp_path / folder).glob("millpond_kernels-*-py3-none-any.whl")) for folder in ("one", "two")]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    there = tmp_path / "there"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", there, wheels[0]]
    subprocess.run(pip, check=True, timeout=100)  # looks at the sums of the list of contents, too
    made = (tmp_path / "one" / "sm_90.kernels").read_bytes()
    assert (there / "millpond/lib/kernels/sm_90.kernels").read_bytes() == made


def test_what_cannot_be_compiled_is_said(tmp_path):
    done = make(tmp_path, "--archs", "20")
    assert done.returncode == 1 and "kernels for sm_20 were not compiled" in done.stderr
    assert not list(tmp_path.glob("*.kernels"))


def test_what_all_files_take_has_a_limit():
    ready_kernels.check_size(ready_kernels.SIZE_MAX)
    with pytest.raises(ready_kernels.Failure, match="take 60.1 MB, and a package of them may take 60"):
        ready_kernels.check_size(ready_kernels.SIZE_MAX + 100_000)
