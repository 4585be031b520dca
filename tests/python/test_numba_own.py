# SPDX-License-Identifier: Apache-2.0
"""millpond.numba with Numba's own CUDA target, which talks to the driver through ctypes.

Where numba-cuda is installed, it takes the place of that target; numba_kit.py stops it where
MILLPOND_TEST_OWN_TARGET is set, so the tests of the adapter run once more in a process of their own.
"""

import ctypes
import re
import subprocess
import sys
from types import ModuleType

import millpond
import pytest
from millpond._numba_backlog import ContextGoneError, Driver
from millpond._numba_binding import CtypesBinding, dialect_of
from numba_kit import HERE, OWN_TARGET, driver_of, environment

# The least that passes of each.
FILES = {"test_numba.py": 20, "test_numba_cleaning.py": 20, "test_numba_streams.py": 20, "test_numba_process.py": 10}


@pytest.mark.skipif(OWN_TARGET, reason="this is it")
@pytest.mark.parametrize("file", FILES)
def test_the_tests_of_the_adapter_with_numba_s_own_target(file, request):
    driver_of("numba.cuda")
    one_in = request.config.getoption("--cases")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--cases={one_in}", file]
    done = subprocess.run(command, env=environment(MILLPOND_TEST_OWN_TARGET="1"), capture_output=True, text=True,
                          timeout=500, check=False, cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= FILES[file] // one_in, done.stdout


def test_a_numba_that_has_none_gets_one_sentence():
    """Through use() and through the variable alike: both ask for the class."""
    for found in ({}, {"BaseCUDAMemoryManager": object}):
        old = ModuleType("old.driver")
        vars(old).update(found)
        with pytest.raises(millpond.UnsupportedError, match="^old.driver has no memory managers that Millpond knows: "):
            dialect_of(old)


# ---- the driver's functions through ctypes ----


class Library:
    """libcuda as ctypes has it; notes the calls."""

    OUTPUTS = {"cuCtxPopCurrent_v2": 0x11, "cuStreamIsCapturing": 0, "cuEventCreate": 0x22, "cuCtxGetDevice": 3,
               "cuStreamGetFlags": 1, "cuThreadExchangeStreamCaptureMode": 0}
    SECOND = ("cuStreamIsCapturing", "cuStreamGetFlags")

    def __init__(self):
        self.calls, self.results = [], {}
        void, number = ctypes.c_void_p, ctypes.c_uint
        for name, inputs in {
            "cuCtxPushCurrent_v2": [void], "cuCtxPopCurrent_v2": [void], "cuCtxSynchronize": [],
            "cuCtxGetDevice": [void], "cuStreamSynchronize": [void], "cuStreamWaitEvent": [void, void, number],
            "cuEventRecord": [void, void], "cuEventCreate": [void, number], "cuEventDestroy_v2": [void],
            "cuMemFree_v2": [ctypes.c_size_t], "cuMemFreeHost": [void], "cuMemHostUnregister": [void],
            "cuStreamIsCapturing": [void, void], "cuStreamGetFlags": [void, void],
            "cuThreadExchangeStreamCaptureMode": [void],
        }.items():  # fmt: skip
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *inputs)(self.answer(name)))

    def answer(self, name):
        def call(*words):
            if name in self.OUTPUTS:
                words = list(words)
                out = words.pop(1 if name in self.SECOND else 0)
                wide = name in ("cuCtxPopCurrent_v2", "cuEventCreate")
                ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p if wide else ctypes.c_int))[0] = self.OUTPUTS[name]
            self.calls.append((name, *words))
            return self.results.get(name, 0)

        return call


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def driver(library):
    return Driver(CtypesBinding(lambda: library), ctypes.c_void_p(0x99))


def test_constants_are_nvidia_s():
    theirs = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    kinds = [kind for kind in vars(CtypesBinding).values() if isinstance(kind, type)]
    found = [(kind.__name__, name, value) for kind in kinds for name, value in vars(kind).items() if name[0] != "_"]
    assert found == [(kind, name, int(getattr(getattr(theirs, kind), name))) for kind, name, _ in found]
    assert len(found) == 9 and int(theirs.CU_STREAM_LEGACY) == CtypesBinding.CU_STREAM_LEGACY


def test_fence(driver, library):
    assert driver.fence()
    assert library.calls == [
        ("cuCtxPushCurrent_v2", 0x99),
        ("cuThreadExchangeStreamCaptureMode",),
        ("cuStreamIsCapturing", 1),
        ("cuEventCreate", 2),
        ("cuEventRecord", 0x22, 1),
        ("cuStreamWaitEvent", 1, 0x22, 0),
        ("cuThreadExchangeStreamCaptureMode",),
        ("cuCtxPopCurrent_v2",),
    ]


def test_waits_and_calls(driver, library):
    assert driver.wait() and driver.wait_for_all() and driver.ordinal_of(ctypes.c_void_p(0x99)) == 3
    for name in ("cuMemFree", "cuMemFreeHost", "cuMemHostUnregister"):
        driver.call(name, 0x1000)
    names = [call[0] for call in library.calls]
    assert ("cuStreamSynchronize", 1) in library.calls and ("cuMemFree_v2", 0x1000) in library.calls
    assert {"cuCtxSynchronize", "cuMemFreeHost", "cuMemHostUnregister"} < set(names)
    assert names.count("cuCtxPushCurrent_v2") == names.count("cuCtxPopCurrent_v2")
    assert not driver.is_blocking(0x5000)  # the flag of the stand-in is 1


def test_failures(driver, library):
    library.results["cuEventRecord"] = 700
    with pytest.raises(RuntimeError, match="the driver answered CUDA error 700"):
        driver.fence()
    library.results["cuCtxPushCurrent_v2"] = 709
    with pytest.raises(ContextGoneError):
        driver.fence()
    library.results = {"cuStreamIsCapturing": 906}
    assert not driver.fence()
