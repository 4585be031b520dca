# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime on the pool: the execution provider, its sessions, and values shared with other libraries.

    import millpond.onnxruntime as mort

    session = mort.session("model.onnx")          # registers the provider; falls back to the CPU node by node
    outputs = mort.run(session, {"x": array})     # device arrays of Numba, CuPy, PyTorch, or millpond.Buffer
    tensor = torch.from_dlpack(outputs["y"])      # without a copy, in and out

Works with onnxruntime and onnxruntime-gpu from 1.26. Importing this module imports ONNX Runtime; the provider is
registered when it is first needed, or by register().
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from millpond import _ort_register as _register
from millpond import get_ep_name, get_library_path
from millpond._core import InvalidArgumentError
from millpond._ort_binding import Binding, bind, run
from millpond._ort_native import ort as _ort
from millpond._ort_options import effective_options, name_session
from millpond._ort_placement import PlacedNode, Placement, placement_of, watched
from millpond._ort_register import Device, devices, is_registered, register, unregister
from millpond._ort_values import DeviceArray, as_array, as_ortvalue

__all__ = [
    "Binding",
    "Device",
    "DeviceArray",
    "PlacedNode",
    "Placement",
    "as_array",
    "as_ortvalue",
    "bind",
    "devices",
    "effective_options",
    "get_ep_name",
    "get_library_path",
    "is_registered",
    "placement",
    "register",
    "run",
    "session",
    "unregister",
]


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _model(model: Any) -> Any:
    """A path or bytes, as InferenceSession takes them; of an onnx.ModelProto, its bytes."""
    if isinstance(model, (str, bytes, os.PathLike)):
        return model
    if hasattr(model, "SerializeToString"):
        return model.SerializeToString()
    raise InvalidArgumentError(f"a {type(model).__name__} is not a model; give a path, bytes or an onnx.ModelProto")


def _set(options: Any, key: str, value: str) -> None:
    """Sets a configuration entry; ONNX Runtime warns of one that is set twice."""
    with contextlib.suppress(Exception):  # its error for an entry that is not there has no class of its own
        if options.get_session_config_entry(key) == value:
            return
    options.add_session_config_entry(key, value)


def _session_options(given: Any, fall_back: bool) -> Any:
    options = given if given is not None else _ort.SessionOptions()
    if options.has_providers():
        raise InvalidArgumentError("the SessionOptions have providers already; make new ones for each session")
    _set(options, "session.record_ep_graph_assignment_info", "1")
    name_session(options)
    if not fall_back:
        _set(options, "session.disable_cpu_ep_fallback", "1")
    return options


def session(
    model: Any,
    device: str | int | Device = "auto",
    *,
    options: Mapping[str, object] | None = None,
    session_options: Any = None,
    providers: Sequence[Any] = (),
    fall_back: bool = True,
) -> Any:
    """An onnxruntime.InferenceSession on the provider, which is registered where it is not yet.

    model: a path, bytes, or an onnx.ModelProto.
    device: "auto" (the first), "cuda:1", "host", a number, or one of devices().
    options: of the provider, such as {"use_tf32": False}; README.md lists them.
    session_options: onnxruntime.SessionOptions, for this session only.
    providers: others that come after this one and before the CPU's, as InferenceSession takes them.
    fall_back: nodes that the provider does not take run on the CPU; without it such a node is an error.
    Raises NotFoundError for a device that is not there, and what InferenceSession raises: an error of the provider is
    not passed over by a session on the CPU.
    """
    chosen = _register.find(device)
    texts = {str(key): _text(value) for key, value in (options or {}).items()}
    prepared = _session_options(session_options, fall_back)
    if not providers:
        prepared.add_provider_for_devices([chosen.ort_device], texts)
        return _ort.InferenceSession(_model(model), prepared, enable_fallback=0)
    if len(devices()) > 1:  # by this ONNX Runtime finds the device
        texts["device_id"] = str(chosen.ordinal)
    listed = [(get_ep_name(), texts), *providers]
    if fall_back and _register.CPU not in providers:
        listed.append(_register.CPU)
    return _ort.InferenceSession(_model(model), prepared, providers=listed, enable_fallback=0)


def placement(
    model: Any, device: str | int | Device = "auto", *, options: Mapping[str, object] | None = None
) -> Placement:
    """Where each node of a model runs, after ONNX Runtime's optimisation.

    model: an InferenceSession made by session(), or a model, for which a session is made. Only of a model it is known
    why nodes are not on the device: `node.reason`.
    Raises InvalidArgumentError for a session that has not recorded it: one made otherwise must have the session
    configuration entry session.record_ep_graph_assignment_info set to 1.
    """
    if isinstance(model, _ort.InferenceSession):
        return placement_of(model)
    with watched() as (prepared, explain):
        return explain(session(model, device, options=options, session_options=prepared))
