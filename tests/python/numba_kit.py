# SPDX-License-Identifier: Apache-2.0
"""Numba's real classes over the emulated device: a context that has all but a GPU."""

import ctypes
import gc
import importlib
import importlib.util
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from millpond import _numba_manager

HERE = Path(__file__).resolve().parent
# Where this is set, numba.cuda is Numba's own CUDA target, though numba-cuda is installed, which takes its place.
OWN_TARGET = os.environ.get("MILLPOND_TEST_OWN_TARGET") == "1"
if OWN_TARGET:
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "NumbaCudaFinder"]
# numba-cuda-mlir is large: it is tested where it is installed.
PACKAGES = ["numba.cuda"] if importlib.util.find_spec("numba") else []
PACKAGES += ["numba_cuda_mlir.cuda"] if not OWN_TARGET and importlib.util.find_spec("numba_cuda_mlir") else []
PACKAGES = PACKAGES or ["numba.cuda"]  # which says then why it is skipped


def driver_of(package):
    """The driver module of a Numba; skips where it is not installed."""
    cuda = pytest.importorskip(package, reason=f"{package} is not installed")
    return sys.modules[cuda.BaseCUDAMemoryManager.__module__]


class FakeCoreDevice:
    """What Numba keeps of cuda.core's device, and other code of the thread has as well."""

    compute_capability = (9, 0)

    def __init__(self):
        self.memory_resource = "cuda.core's own"

    def allocate(self, size, stream=None):
        return self.memory_resource, size, stream


class FakeDevice:
    """What Numba's device object is made of here; a GPU whose context nobody may reset."""

    id = 0

    def __init__(self):
        self._dev = FakeCoreDevice()
        self.primary_context = None

    def get_device_identity(self):
        return {"pci_domain_id": 0, "pci_bus_id": 1, "pci_device_id": 2}


def would_reset(device):
    raise AssertionError("the GPU's context would be reset")


def make_device(driver):
    """A device object of Numba."""
    return type("Device", (FakeDevice, driver.Device), {})()


class Rig:
    """A context of Numba on the emulated device, and the manager that it made."""

    def __init__(self, driver):
        if not hasattr(driver, "_logger"):  # Numba makes it together with the driver
            driver._logger = driver.make_logger()
        self.driver = driver
        self.device = make_device(driver)
        self.core_device = self.device._dev
        self.open()

    def open(self):
        self.context = self.driver.Context(weakref.proxy(self.device), 1)
        self.device.primary_context = self.context
        self.manager = self.context.memory_manager

    @property
    def pool(self):
        return self.manager._pool

    def in_use(self):
        """Bytes that Numba holds of the pool, without those that wait to be given back."""
        gc.collect()
        self.manager.flush()
        return self.share("in_use")

    def share(self, figure):
        return sum(share[figure] for share in self.pool.clients() if share["name"] == "numba")


def environment(**variables):
    """That of a process which finds what this one finds, and the shim."""
    return dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE / "shim"), *sys.path]), **variables)


def run_python(code, *args, timeout=120, **variables):
    """Runs Python code in a process of its own; returns what it printed. Fails where it fails, or says anything on
    stderr."""
    done = subprocess.run([sys.executable, "-c", code, *args], env=environment(**variables), capture_output=True,
                          text=True, timeout=timeout, cwd=HERE, check=False)
    assert done.returncode == 0 and done.stderr == "", f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


# ---- fixtures; tests import them ----


@pytest.fixture(params=PACKAGES)
def package(request):
    driver_of(request.param)
    return request.param


@pytest.fixture
def driver(package, monkeypatch):
    found = driver_of(package)
    monkeypatch.setattr(found.Device, "reset", would_reset)  # in place of Numba's, which needs a GPU
    return found


@pytest.fixture
def rig(driver, monkeypatch):
    gc.collect()  # contexts of earlier tests
    monkeypatch.setattr(_numba_manager.Manager, "device_name", lambda self: "host:0")
    monkeypatch.setattr(_numba_manager, "settings", _numba_manager.Settings())
    monkeypatch.setattr(driver, "_memory_manager", _numba_manager.manager_class(driver))
    rig = Rig(driver)
    rig.context.prepare_for_use()
    yield rig
    rig.manager.retire()


def address_of(memory):
    return memory.device_pointer_value


def fill(memory, byte):
    ctypes.memset(address_of(memory), byte, memory.size)


def content(memory):
    return set(ctypes.string_at(address_of(memory), memory.size))
