# SPDX-License-Identifier: Apache-2.0
"""Millpond's execution provider seen from Python: finding the library, registering it, sessions, what ran where."""

import ctypes
import os
import resource
import threading
from collections import Counter
from pathlib import Path

import onnxruntime as ort

NAME, CPU = "CudaPluginExecutionProvider", "CPUExecutionProvider"
LIBRARY = "libonnxruntime_providers_cuda_plugin.so"
ROOT = Path(__file__).resolve().parent.parent


def library_path():
    """$MILLPOND_EP_LIBRARY, or the newest library under build/ of this checkout."""
    given = os.environ.get("MILLPOND_EP_LIBRARY")
    if given:
        if not Path(given).exists():
            raise FileNotFoundError(f"MILLPOND_EP_LIBRARY names {given}, which does not exist")
        return Path(given)
    built = sorted(ROOT.glob(f"build/*/lib/{LIBRARY}"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise FileNotFoundError(f"no {LIBRARY} under {ROOT / 'build'}: run `make`, or set MILLPOND_EP_LIBRARY")
    return built[-1]


def devices():
    """The EP's devices as ONNX Runtime lists them."""
    return [device for device in ort.get_ep_devices() if device.ep_name == NAME]


def register():
    """Registers the library once in this process and gives its devices."""
    if not devices():
        ort.register_execution_provider_library(NAME, str(library_path()))
    found = devices()
    if not found:
        raise RuntimeError(f"{library_path()} was registered but offers no device; see its messages above")
    return found


def metadata(device):
    return {**dict(device.device.metadata), **dict(device.ep_metadata)}


def is_emulated(device):
    """The EP's metadata says whether the device is a GPU or its emulation on the CPU."""
    known = metadata(device)
    return any("emulated" in key.lower() and value.lower() in ("1", "true", "yes") for key, value in known.items())


def device_name(device):
    known = metadata(device)
    return known.get("cuda_device_name") or known.get("name") or device.device.vendor


def why_this_device(device):
    reason = metadata(device).get("device_reason")
    if reason:
        return reason
    if os.environ.get("MILLPOND_DEVICE"):
        return f"MILLPOND_DEVICE={os.environ['MILLPOND_DEVICE']} asks for it"
    return "no usable NVIDIA GPU was found" if is_emulated(device) else "an NVIDIA GPU was found"


def session_options(threads=0, log_level=3):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = log_level
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def session(model, name=NAME, provider_options=None, options=None, fall_back=True):
    """A session on the named provider, with the CPU's as the fall-back; `model` is a path or bytes.

    Without `fall_back`, a node that the provider does not take is an error.
    """
    options = options or session_options()
    if name == CPU:
        return ort.InferenceSession(model, options, providers=[CPU])
    register()
    providers = [(name, provider_options or {})]
    if fall_back:
        return ort.InferenceSession(model, options, providers=[*providers, CPU])
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(model, options, providers=providers)


def assigned_nodes(session):
    """(provider, operator, node name) of each node of the optimised graph."""
    for subgraph in session.get_provider_graph_assignment_info():
        for node in subgraph.get_nodes():
            operator = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
            yield subgraph.ep_name, operator, node.name


def assignment(session):
    """{provider: {operator: nodes}}"""
    table = {}
    for provider, operator, _ in assigned_nodes(session):
        table.setdefault(provider, Counter())[operator] += 1
    return table


class MemoryPeak:
    """The most device memory in use inside a `with` block, in bytes above its start.

    A GPU is asked through the driver every few milliseconds; the emulated device's memory is the process's own.
    """

    def __init__(self, emulated):
        self.source = "process memory" if emulated else "GPU memory"
        self.driver = None if emulated else ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        self.done = threading.Event()
        self.bytes = 0

    def used(self):
        if self.driver is None:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.cuCtxSetCurrent(self.context)
        self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    def watch(self):
        while not self.done.wait(0.005):
            self.bytes = max(self.bytes, self.used() - self.start)

    def __enter__(self):
        if self.driver is not None:
            self.driver.cuInit(0)
            self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0)
        self.start = self.used()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.bytes = max(self.bytes, self.used() - self.start)
        if self.driver is not None:
            self.driver.cuDevicePrimaryCtxRelease_v2(0)
