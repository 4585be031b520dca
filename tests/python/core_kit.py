# SPDX-License-Identifier: Apache-2.0
"""Helpers of the extension's tests: other processes, and streams of the device at hand."""

import ctypes
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import millpond

LIMIT_S = 120
ON_GPU = os.environ.get("MILLPOND_DEVICE", "").startswith("cuda")
HOST_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run_python(code, *arguments, status=0, quiet=True, **variables):
    """Runs a program of its own; returns what it printed. It must end with `status`, and say nothing else."""
    env = dict(os.environ, **variables)
    folders = [str(Path(millpond.__file__).parents[1]), str(Path(__file__).parent), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments],
                          capture_output=True, text=True, check=False, timeout=LIMIT_S, env=env)
    assert done.returncode == status, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    if quiet:
        assert done.stderr == "", done.stderr
    return done.stdout


class HostStream:
    """A stream of the emulated device, had from the library beneath as its own tests have them."""

    library = ctypes.CDLL(str(Path(millpond.get_library_path()).with_name("libmillpond.so.0")))

    def __init__(self):
        device, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.library.mp_device_get(0, 0, ctypes.byref(device)))
        self.check(self.library.mp__host_stream_create(device, ctypes.byref(stream)))
        self.device, self.handle, self.kept = device, stream.value, []

    def check(self, status):
        if status != 0:
            raise RuntimeError(f"status {status}")

    def __cuda_stream__(self):
        return 0, self.handle

    def call(self, function):
        """Queues a Python function, which the device runs on a thread of its own."""
        self.kept.append(HOST_CALL(lambda _: function()))
        self.check(self.library.mp__host_stream_call(self.device, ctypes.c_void_p(self.handle), self.kept[-1], None))

    def fill(self, address, value, size):
        """Queues a fill with a byte."""
        self.check(self.library.mp__host_fill(self.device, ctypes.c_void_p(self.handle), ctypes.c_void_p(address),
                                              value, ctypes.c_size_t(1), ctypes.c_size_t(size)))

    def copy(self, target, source, size):
        """Queues a copy; host memory must be pinned."""
        self.check(self.library.mp__host_copy(self.device, ctypes.c_void_p(self.handle), ctypes.c_void_p(target),
                                              ctypes.c_void_p(source), ctypes.c_size_t(size)))

    def follow(self, other):
        """Work queued here from now on comes after what is queued on `other`."""
        event = ctypes.c_void_p()
        self.check(self.library.mp__host_event_create(self.device, False, ctypes.byref(event)))
        self.check(self.library.mp__host_event_record(self.device, event, ctypes.c_void_p(other.handle)))
        self.check(self.library.mp__host_event_wait(self.device, event, ctypes.c_void_p(self.handle)))
        self.library.mp__host_event_destroy(self.device, event)

    def synchronize(self):
        self.check(self.library.mp__host_stream_synchronize(self.device, ctypes.c_void_p(self.handle)))

    def destroy(self):
        self.library.mp__host_stream_destroy(self.device, ctypes.c_void_p(self.handle))


class CudaStream:
    """A stream of the first GPU, had from the driver."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.driver.cuInit(0))
        self.check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.check(self.driver.cuCtxSetCurrent(context))
        self.check(self.driver.cuStreamCreate(ctypes.byref(stream), 1))  # non-blocking
        self.handle, self.kept = stream.value, []

    def check(self, result):
        if result != 0:
            raise RuntimeError(f"the driver's result is {result}")

    def __cuda_stream__(self):
        return 0, self.handle

    def call(self, function):
        self.kept.append(HOST_CALL(lambda _: function()))
        self.check(self.driver.cuLaunchHostFunc(ctypes.c_void_p(self.handle), self.kept[-1], None))

    def fill(self, address, value, size):
        self.check(self.driver.cuMemsetD8Async(ctypes.c_void_p(address), ctypes.c_ubyte(value), ctypes.c_size_t(size),
                                               ctypes.c_void_p(self.handle)))

    def copy(self, target, source, size):
        self.check(self.driver.cuMemcpyAsync(ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size),
                                             ctypes.c_void_p(self.handle)))

    def follow(self, other):
        event = ctypes.c_void_p()
        self.check(self.driver.cuEventCreate(ctypes.byref(event), 2))  # without times
        self.check(self.driver.cuEventRecord(event, ctypes.c_void_p(other.handle)))
        self.check(self.driver.cuStreamWaitEvent(ctypes.c_void_p(self.handle), event, 0))
        self.check(self.driver.cuEventDestroy_v2(event))

    def synchronize(self):
        self.check(self.driver.cuStreamSynchronize(ctypes.c_void_p(self.handle)))

    def destroy(self):
        self.check(self.driver.cuStreamDestroy_v2(ctypes.c_void_p(self.handle)))


def make_stream(pool):
    """A stream of the pool's device; the caller gives it up (`stream_gone`) and destroys it."""
    return HostStream() if pool.is_emulated else CudaStream()
