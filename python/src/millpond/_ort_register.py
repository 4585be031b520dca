# SPDX-License-Identifier: Apache-2.0
"""The provider's registration with ONNX Runtime, and its devices.

A library may be registered once in a process under a name; devices are looked for at that moment. Sessions hold
pointers into the registration, so it must not end before they do.

Registered as CUDA_NAME the provider goes by the name of ONNX Runtime's own CUDA provider, else by NAME. An ONNX
Runtime that has that one lists devices under the same name, which are not ours.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import mmap
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millpond
from millpond._core import Error, InvalidArgumentError, NotFoundError, Pool
from millpond._log import flushed
from millpond._ort_native import ort, sentence

NAME = millpond.get_ep_name()
CUDA_NAME = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
CLIENT = "onnxruntime"  # as the provider calls itself in the pool's statistics

_lock = threading.RLock()
_mine: tuple[str, str] | None = None  # name and library of the registration that was made here
_pools: dict[str, Pool] = {}


@dataclass(frozen=True)
class Device:
    """A device that the provider offers."""

    spec: str  # "cuda:0", as millpond.Pool takes it
    name: str
    ordinal: int  # the driver's number of it
    is_emulated: bool
    compute_capability: tuple[int, int]
    memory_bytes: int
    driver: str
    reason: str  # why this device and no other
    provider: str  # the name that sessions know the provider by
    ort_device: Any = field(repr=False, compare=False)  # onnxruntime.OrtEpDevice


def metadata(ort_device: Any) -> dict[str, str]:
    """All that ONNX Runtime knows of a device."""
    return {**dict(ort_device.device.metadata), **dict(ort_device.ep_metadata)}


def _describe(ort_device: Any) -> Device:
    known = metadata(ort_device)
    ordinal = int(known["cuda_device_id"])
    is_emulated = known["emulated"] == "1"
    major, _, minor = known["cuda_compute_capability"].partition(".")
    return Device(
        spec=f"{'host' if is_emulated else 'cuda'}:{ordinal}",
        name=known["cuda_device_name"],
        ordinal=ordinal,
        is_emulated=is_emulated,
        compute_capability=(int(major), int(minor)),
        memory_bytes=int(known["memory_bytes"]),
        driver=known["driver"],
        reason=known["device_reason"],
        provider=ort_device.ep_name,
        ort_device=ort_device,
    )


def _is_ours(ort_device: Any) -> bool:
    return ort_device.ep_name in (NAME, CUDA_NAME) and "device_reason" in dict(ort_device.ep_metadata)


def listed() -> list[Device]:
    """The devices of the registrations there are, each once."""
    found = [_describe(each) for each in ort.get_ep_devices() if _is_ours(each)]
    return list({device.spec: device for device in reversed(found)}.values())[::-1]


def names() -> set[str]:
    """By which sessions know the provider now; its own where it is not registered."""
    return {device.provider for device in listed()} or {NAME}


def name_in(session: Any) -> str | None:
    """By which the session knows the provider; None for one that does not use it."""
    used = session.get_providers() or ()
    if NAME in used:
        return NAME
    return CUDA_NAME if CUDA_NAME in used and CUDA_NAME in names() else None


_COLLECTIVES = (b"AllReduce", b"AllGather", b"AllToAll")


def _names_collectives(model: Any) -> bool:
    """Whether the bytes of a model, or of its file, have the name of one of these operators."""
    if isinstance(model, bytes):
        return any(name in model for name in _COLLECTIVES)
    try:
        with Path(model).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(name) >= 0 for name in _COLLECTIVES)
    except (OSError, ValueError):  # ONNX Runtime says what is wrong with it
        return False


def schemas_into(options: Any, model: Any) -> None:
    """Gives options the schemas of operators between ranks, where this process is a rank and the model, a path or
    bytes, may have such: as com.microsoft's they would keep ONNX Runtime from its fusions in models without them."""
    is_rank = any(os.environ.get(name) for name in RANK_VARIABLES)
    if _mine is not None and is_rank and _names_collectives(model):
        options.register_custom_ops_library(_mine[1])


def register(name: str | None = None, *, library: str | os.PathLike[str] | None = None) -> list[Device]:
    """Registers the provider with ONNX Runtime, once in a process, and gives its devices.

    name: of the registration, by default the provider's. As "CUDAExecutionProvider" the provider goes by that name, so
    that programs written for ONNX Runtime's own CUDA provider run on this one as they are; under any other name
    sessions know it by its own.
    library: the provider's file, by default that of this package.
    Does nothing more where the provider is registered already, by this function or by other code. Raises Error where
    this function has registered it under another name or from another file, where ONNX Runtime refuses it, and where
    ONNX Runtime has a CUDAExecutionProvider of its own and `name` is that.
    """
    global _mine
    wanted = (name or NAME, str(Path(library or millpond.get_library_path()).absolute()))
    with _lock:
        if _mine is not None and ((name is not None and name != _mine[0]) or (library and wanted[1] != _mine[1])):
            raise Error(
                f"the provider is registered as {_mine[0]!r} from {_mine[1]}, and is not registered a second time as "
                f"{wanted[0]!r} from {wanted[1]}; call millpond.onnxruntime.unregister() first"
            )
        if not listed():
            _register(*wanted)
        return listed()


def _register(name: str, library: str) -> None:
    global _mine
    if not Path(library).is_file():
        raise NotFoundError(f"the provider's library {library} is not there")
    if name == CUDA_NAME and name in ort.get_available_providers():
        raise Error(
            f"this ONNX Runtime {ort.__version__} has a {CUDA_NAME} of its own, which sessions would get; install the "
            "package onnxruntime instead of onnxruntime-gpu, or register the provider by its own name"
        )
    try:
        with flushed():
            ort.register_execution_provider_library(name, library)
    except Exception as error:  # ONNX Runtime's errors have no class in common
        raise Error(f"ONNX Runtime {ort.__version__} refused {library}: {sentence(error)}") from error
    _mine = (name, library)
    if not listed():
        unregister()
        raise Error(f"{library} was registered but offers no device; ONNX Runtime's messages say why")


def is_registered() -> bool:
    """Whether the provider is registered, by this module or by other code."""
    return bool(listed())


def _uses_provider(candidate: object) -> bool:
    """Whether an object is a session on the provider, or a binding, which keeps its session alive."""
    native = candidate
    if issubclass(type(candidate), ort.IOBinding):
        native = getattr(candidate, "_session", None)
        if native is None:  # an older one does not tell whose it is
            return True
    elif not issubclass(type(candidate), ort.InferenceSession):
        return False
    with contextlib.suppress(Exception):  # one that is half made
        return name_in(native) is not None  # type: ignore[union-attr]
    return False


def live_sessions() -> int:
    """How many sessions and bindings of the process use the provider."""
    gc.collect()
    return sum(map(_uses_provider, gc.get_objects()))


def unregister() -> bool:
    """Ends the registration that register() made; False where there is none.

    Raises Error while sessions or bindings of the process use the provider, of any library: close those first. An
    output of millpond.onnxruntime.run() keeps its session.
    """
    global _mine
    with _lock:
        if _mine is None or not listed():  # other code has ended it
            _mine = None
            return False
        alive = live_sessions()
        if alive > 0:
            raise Error(
                f"{alive} sessions or bindings still use the provider; drop them and their outputs "
                "(del session) and call millpond.onnxruntime.unregister() again"
            )
        ort.unregister_execution_provider_library(_mine[0])
        _mine = None
        _pools.clear()
        return True


@atexit.register
def _end() -> None:
    """While the GPU's driver still works. With sessions alive it is left to ONNX Runtime, whose end comes after."""
    with contextlib.suppress(Exception):  # there is nobody left to tell
        unregister()


def devices() -> list[Device]:
    """The provider's devices, the first of them what "auto" means. Registers it where it is not yet.

    They are found once, at the registration: GPUs where there are some, else the emulated device; MILLPOND_DEVICE
    decides where it is set.
    """
    return listed() or register()


def find(device: str | int | Device = "auto") -> Device:
    """The device meant by "auto", "cuda:1", "host", a number, or a Device."""
    if isinstance(device, Device):
        return device
    there = devices()
    if device == "auto":
        return there[0]
    for each in there:
        if device in (each.spec, each.ordinal, each.spec.partition(":")[0]):
            return each
    if not isinstance(device, (str, int)):
        raise InvalidArgumentError(f'{device!r} is not a device; use "auto", "cuda:N", "host:N" or a number')
    raise NotFoundError(
        f"there is no device {device!r} in ONNX Runtime, only {', '.join(each.spec for each in there)} "
        f"({there[0].reason}); MILLPOND_DEVICE decides, before the provider is registered"
    )


def pool_of(device: Device) -> Pool:
    """The pool that sessions on the device have their memory from."""
    with _lock:
        if device.spec not in _pools:
            _pools[device.spec] = Pool(device.spec, client=CLIENT)
        return _pools[device.spec]
