# SPDX-License-Identifier: Apache-2.0
"""millpond.onnxruntime for the demo, the tests and the benchmarks, with the library and package of a build here."""

import importlib.util
import os
import sys
from pathlib import Path

import onnxruntime as ort
from built import LIBRARY, ROOT, newest


def library_path():
    """$MILLPOND_EP_LIBRARY, or the newest library under build/ of this checkout."""
    given = os.environ.get("MILLPOND_EP_LIBRARY")
    if given:
        if not Path(given).exists():
            raise FileNotFoundError(f"MILLPOND_EP_LIBRARY names {given}, which does not exist")
        return Path(given)
    found = newest()
    if found is None:
        raise FileNotFoundError(f"no {LIBRARY} under {ROOT / 'build'}: run `make`, or set MILLPOND_EP_LIBRARY")
    return found


def find_package():
    """Lets `import millpond` find the package that was built with the library; one installed will do as well."""
    folder = library_path().absolute().parents[1] / "python"
    if (folder / "millpond" / "_core.abi3.so").exists():
        sys.path.insert(0, str(folder))
    elif importlib.util.find_spec("millpond") is None:
        raise ImportError(f"{folder} has no package millpond, which is built where Python's headers are (Debian: apt "
                          "install python3-dev); then run `make` again")


find_package()

from millpond import _ort_register  # noqa: E402  (where it is found is known by now)
from millpond import onnxruntime as pond  # noqa: E402

NAME, CPU = os.environ.get("MILLPOND_EP_NAME", pond.get_ep_name()), _ort_register.CPU
metadata = _ort_register.metadata


def devices():
    """The EP's devices as ONNX Runtime lists them."""
    return [device for device in ort.get_ep_devices() if device.ep_name == NAME]


def register():
    """Registers the library once in this process and gives its devices."""
    pond.register(NAME, library=library_path())
    return devices()


def is_emulated(device):
    """Whether the device is a GPU or its emulation on the CPU."""
    return metadata(device)["emulated"] == "1"


def device_name(device):
    return metadata(device)["cuda_device_name"]


def why_this_device(device):
    return metadata(device)["device_reason"]


def pool_stats():
    """Figures of the pool that sessions on the first device live from."""
    return _ort_register.pool_of(pond.devices()[0]).stats()


def memory_info():
    """(bytes free, bytes in all) of the first device."""
    return _ort_register.pool_of(pond.devices()[0]).memory_info()


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
    first = pond.devices()[0]  # named, so that an emulated one is meant: who calls this says what it runs on
    return pond.session(model, first, options=provider_options, session_options=options, fall_back=fall_back)


def assigned_nodes(session):
    """(provider, operator, node name) of each node of the optimised graph."""
    return [(node.provider, node.title, node.name) for node in pond.placement(session).nodes]


def assignment(session):
    """{provider: {operator: nodes}}"""
    return pond.placement(session).counts
