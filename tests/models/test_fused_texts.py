# SPDX-License-Identifier: Apache-2.0
"""The fused kernels of trained models compile for GPUs that are not here, by NVRTC, which needs none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_models import ON_DEVICE, PARTLY_ON_CPU

HERE = Path(__file__).resolve().parent
UNIT_TESTS = Path(os.environ["MILLPOND_EP_LIBRARY"]).parents[1] / "tests" / "unit_tests"
ARCHS = (75, 80, 86, 89, 90, 100, 120)
LIMIT_S = 600


@pytest.fixture(scope="module")
def lines(root, tmp_path_factory):
    """A file with a line for each kernel, with images as the models store them and with their channels last."""
    models = ON_DEVICE + PARTLY_ON_CPU
    missing = [name for name in models if not (Path(root) / "models" / f"{name}.onnx").exists()]
    if missing:
        pytest.skip(f"{missing[0]}.onnx is not in {root}: run tools/fetch_models.py")
    found = set()
    for passes, names in (("", models), ("+channels_last", [name for name in models if name != "kokoro_int8"])):
        env = dict(os.environ, MILLPOND_PASSES=passes, MILLPOND_DEVICE="host", MILLPOND_MODELS=str(root))
        done = subprocess.run(
            [sys.executable, HERE / "fused_texts.py", *names],
            env=env,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            timeout=LIMIT_S,
        )
        found.update(done.stdout.splitlines())
    file = tmp_path_factory.mktemp("fused") / "lines"
    file.write_text("".join(f"{line}\n" for line in sorted(found)))
    return file


@pytest.mark.parametrize("arch", ARCHS)
def test_fused_kernels_compile(lines, arch):
    assert lines.read_text()
    env = dict(os.environ, MILLPOND_FUSED_LINES=str(lines), MILLPOND_FUSED_ARCH=str(arch))
    done = subprocess.run(
        [UNIT_TESTS, "fused_lines_compile", "--timeout", str(LIMIT_S)],
        env=env,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
    )
    if "0 passed, 0 failed, 1 skipped" in done.stdout:
        pytest.skip(done.stdout.strip().splitlines()[0])
    assert done.returncode == 0 and "1 passed, 0 failed" in done.stdout, done.stdout
