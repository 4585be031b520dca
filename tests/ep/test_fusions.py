# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's own fusions, which a provider named CUDAExecutionProvider gets: all have kernels, and are right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fused_by_ort
import pytest

SLACK = 3e-5  # sums of 32 products in another order, and erf beside its approximation by tanh


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    program = Path(fused_by_ort.__file__)
    done = subprocess.run(
        [sys.executable, program, tmp_path_factory.mktemp("optimised")],
        env=dict(
            os.environ, PYTHONPATH=os.pathsep.join(filter(None, [str(program.parent), os.environ.get("PYTHONPATH")]))
        ),
        check=False,
        text=True,
        stdout=subprocess.PIPE,
    )
    assert done.returncode == 0
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", fused_by_ort.MODELS)
def test_what_is_fused_runs_here(found, name):
    operators, difference, elsewhere = found[name]
    assert set(operators) >= fused_by_ort.MODELS[name][0], operators
    assert difference <= SLACK
    assert elsewhere == []
