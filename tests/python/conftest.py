# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package: where it is found, and the fixtures that its tests share.

PYTHONPATH names the package; without it the newest one below build/ is taken.
"""

import gc
import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
os.environ.setdefault("MILLPOND_DEVICE", "host")


def newest_build():
    """The folder of the package that was built last; None where there is none."""
    built = sorted(ROOT.glob("build/*/python/millpond/_core.abi3.so"), key=lambda path: path.stat().st_mtime)
    return built[-1].parents[1] if built else None


if importlib.util.find_spec("millpond") is None:
    FOLDER = newest_build()
    if FOLDER is not None:
        sys.path.insert(0, str(FOLDER))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    else:  # all but the wheel's test need it
        collect_ignore_glob = [f"test_{letter}*.py" for letter in "abcdefghijklmnopqrstuv"]


@pytest.fixture
def pool():
    """A Pool of the device at hand; at its end nothing that the test allocated may be left."""
    import millpond

    gc.collect()  # what earlier tests in this process left may else go during this one
    pool = millpond.Pool(client="test")
    before = pool.stats()["in_use"]
    yield pool
    gc.collect()
    if not pool.closed:
        assert pool.stats()["in_use"] == before
        pool.close()


@pytest.fixture
def unraisable(monkeypatch):
    """A list of what was reported to sys.unraisablehook: (exception, object)."""
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append((report.exc_value, report.object)))
    return reported


@pytest.fixture
def gpu(pool):
    if pool.is_emulated:
        pytest.skip("needs a GPU: MILLPOND_DEVICE=cuda")
    return pool


@pytest.fixture
def host(pool):
    if not pool.is_emulated:
        pytest.skip("for the emulated device")
    return pool


# ---- for millpond.onnxruntime and the command line ----


@pytest.fixture
def adder():
    """A session of y = x + 1 over four floats."""
    import onnx_kit
    from ort_kit import EXACT, mort

    return mort.session(onnx_kit.add_one(), options=EXACT)


@pytest.fixture
def ort_pool():
    """A pool of the provider's device."""
    import millpond
    from ort_kit import device

    pool = millpond.Pool(device().spec, client="ort test")
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder of tiny models, for the commands that run them."""
    pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")
    from cli_kit import write_models

    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return folder
