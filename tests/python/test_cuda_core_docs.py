# SPDX-License-Identifier: Apache-2.0
"""docs/cuda_core.md: its program runs on a GPU."""

import re
import subprocess
import sys
from pathlib import Path

import millpond
import pytest
from numba_kit import environment

PAGE = Path(__file__).resolve().parents[2] / "docs/cuda_core.md"


def test_the_program_runs():
    core = pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    compile(program, str(PAGE), "exec")
    try:
        millpond.Pool("cuda:0")
    except millpond.Error as error:
        pytest.skip(f"no GPU: {error}")
    if not hasattr(core, "MemoryResource"):
        program = program.replace("from cuda.core import", "from cuda.core.experimental import")
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True,
                          timeout=200, check=False)
    assert done.returncode == 0 and "'name': 'cuda.core'" in done.stdout, done.stdout + done.stderr
