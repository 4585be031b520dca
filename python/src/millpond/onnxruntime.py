# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime on the pool: the execution provider, its sessions, and values shared with other libraries.

    import millpond.onnxruntime as mort

    session = mort.session("model.onnx")          # registers the provider; falls back to the CPU node by node
    outputs = mort.run(session, {"x": array})     # device arrays of Numba, CuPy, PyTorch, or millpond.Buffer
    tensor = torch.from_dlpack(outputs["y"])      # without a copy, in and out

Programs written for ONNX Runtime's own CUDA provider run on this one after two lines:

    import millpond.onnxruntime
    millpond.onnxruntime.register("CUDAExecutionProvider")

Works with onnxruntime and onnxruntime-gpu from 1.26. Importing this module imports ONNX Runtime; the provider is
registered when it is first needed, or by register().
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from millpond import _ort_register as _register
from millpond import get_ep_name, get_ep_names, get_library_path
from millpond._core import InvalidArgumentError
from millpond._log import flushed as _log_flushed
from millpond._ort_binding import Binding, bind, run
from millpond._ort_errors import translated as _translated
from millpond._ort_native import ort as _ort
from millpond._ort_options import HOST_KEY as _HOST_KEY
from millpond._ort_options import STRICT_KEY as _STRICT_KEY
from millpond._ort_options import effective_options
from millpond._ort_options import name_session as _name_session
from millpond._ort_placement import PlacedNode, Placement
from millpond._ort_placement import check_fallen_back as _check_fallen_back
from millpond._ort_placement import explained as _explained
from millpond._ort_placement import placement_of as _placement_of
from millpond._ort_register import Device, devices, is_registered, register, unregister
from millpond._ort_session import Session
from millpond._ort_shard import Sharded
from millpond._ort_values import DeviceArray, as_array, as_ortvalue

__all__ = [
    "Binding",
    "Device",
    "DeviceArray",
    "PlacedNode",
    "Placement",
    "Session",
    "Sharded",
    "as_array",
    "as_ortvalue",
    "bind",
    "devices",
    "effective_options",
    "get_ep_name",
    "get_ep_names",
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
        if isinstance(model, str) and (not model or "\0" in model):
            raise InvalidArgumentError(f"{model!r} is not the path of a model")
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


def _session_options(given: Any, is_host_meant: bool) -> Any:
    options = given if given is not None else _ort.SessionOptions()
    if options.has_providers():
        raise InvalidArgumentError("the SessionOptions have providers already; make new ones for each session")
    _set(options, "session.record_ep_graph_assignment_info", "1")
    _set(options, _STRICT_KEY, "1")
    _set(options, _HOST_KEY, str(int(is_host_meant)))
    _name_session(options)
    return options


def _made(model: Any, **arguments: Any) -> Session:
    with _log_flushed(), _translated(refusals=True):
        return Session(_model(model), enable_fallback=0, **arguments)


def _chosen_devices(wished: str | Sequence[str | int | Device]) -> list[Device]:
    """Those of `devices`, each once."""
    if isinstance(wished, str):
        if wished != "all":
            raise InvalidArgumentError(f'devices={wished!r} is not known; give "all", or a list such as ["cuda:0"]')
        return _register.devices()
    chosen = [_register.find(each) for each in wished]
    twice = [device.spec for i, device in enumerate(chosen) if device in chosen[:i]]
    if twice or not chosen:
        raise InvalidArgumentError(
            f"the device {twice[0]} is listed twice" if twice else "the list of devices is empty; name one at least"
        )
    return chosen


def _sharded(model: Any, wished: Any, batch: str | None, session_options: Any, **arguments: Any) -> Sharded:
    if session_options is not None and not callable(session_options):
        raise InvalidArgumentError(
            "sessions on several devices cannot share one SessionOptions; give a function that makes one for each"
        )
    chosen = _chosen_devices(wished)
    model = _model(model)
    made = [
        session(model, each, session_options=session_options() if session_options else None, **arguments)
        for each in chosen
    ]
    return Sharded(chosen, made, batch)


@overload
def session(
    model: Any,
    device: str | int | Device = "auto",
    *,
    options: Mapping[str, object] | None = None,
    session_options: Any = None,
    providers: Sequence[Any] = (),
    fall_back: bool = True,
) -> Session: ...
@overload
def session(
    model: Any,
    *,
    devices: str | Sequence[str | int | Device],
    batch: str | None = None,
    options: Mapping[str, object] | None = None,
    session_options: Callable[[], Any] | None = None,
    providers: Sequence[Any] = (),
    fall_back: bool = True,
) -> Sharded: ...


def session(
    model: Any,
    device: str | int | Device = "auto",
    *,
    devices: str | Sequence[str | int | Device] | None = None,
    batch: str | None = None,
    options: Mapping[str, object] | None = None,
    session_options: Any = None,
    providers: Sequence[Any] = (),
    fall_back: bool = True,
) -> Session | Sharded:
    """Makes an onnxruntime.InferenceSession on the provider, which is registered if necessary.

    model: a path, bytes, or an onnx.ModelProto.
    device: "auto" (the first), "cuda:1", "host", a number, or one of devices().
    devices: "all", or a list of devices; the result has a session on each, and its run() splits a batch among them.
    batch: the name of the dimension that is split; by default that of the first input that has one.
    options: of the provider, such as {"use_tf32": False}; docs/settings.md lists them.
    session_options: onnxruntime.SessionOptions, for this session only; with `devices` a function that makes them.
    providers: other providers, after this one and before the CPU provider, as InferenceSession takes them.
    fall_back: nodes that the provider cannot run do so on the CPU; without it such a node is an error. Shape
        arithmetic, which the provider leaves to the CPU on purpose, is allowed in any case.
    Raises NotFoundError for a missing device; InvalidArgumentError for an option that the provider does not have or
    cannot read, and for one of the pool ("arena.max_mem") that comes too late; UnsupportedError for nodes that would
    fall back; OutOfMemoryError; and what InferenceSession raises. An error of the provider is raised, and does not
    lead to a session on the CPU.
    """
    if devices is not None:
        if device != "auto":
            raise InvalidArgumentError("a session has `device` or `devices`, not both")
        return _sharded(
            model, devices, batch, session_options, options=options, providers=providers, fall_back=fall_back
        )
    if options is not None and not isinstance(options, Mapping):
        kind = type(options).__name__
        raise InvalidArgumentError(f"options is a {kind}; give a mapping such as {{'use_tf32': False}}")
    chosen = _register.find(device)
    texts = {str(key): _text(value) for key, value in (options or {}).items()}
    is_host_meant = isinstance(device, Device) or str(device).startswith("host")
    prepared = _session_options(session_options, is_host_meant)
    model = _model(model)
    _register.schemas_into(prepared, model)
    if providers:
        if len(_register.devices()) > 1:  # by this ONNX Runtime finds the device
            texts["device_id"] = str(chosen.ordinal)
        listed = [(chosen.provider, texts), *providers]
        if _register.CPU not in providers:
            listed.append(_register.CPU)
        made = _made(model, sess_options=prepared, providers=listed)
    else:
        prepared.add_provider_for_devices([chosen.ort_device], texts)
        made = _made(model, sess_options=prepared)
    if not fall_back:
        _check_fallen_back(made)
    return made


def placement(
    model: Any, device: str | int | Device = "auto", *, options: Mapping[str, object] | None = None
) -> Placement:
    """Where each node of a model runs, after ONNX Runtime's optimisation.

    model: an InferenceSession made by session(), or a model, for which a session is made. Only of a model it is known
    why all nodes that are not on the device are not: `node.reason`; of a session only of work on shapes.
    Raises InvalidArgumentError for a session that has not recorded it: one made otherwise must have the session
    configuration entry session.record_ep_graph_assignment_info set to 1.
    """
    if isinstance(model, _ort.InferenceSession):
        return _placement_of(model)

    def again(prepared: Any, more: Mapping[str, object]) -> Session:
        return session(model, device, options={**(options or {}), **more}, session_options=prepared)

    return _explained(_placement_of(session(model, device, options=options)), again)
