# SPDX-License-Identifier: Apache-2.0
"""What a worker of Dask keeps: arrays of the device beside all else, moved to the host when the pool asks for room.

`DeviceData` stands before the mapping that the worker had. Arrays of the device, and lists, tuples and dicts that hold
some, it keeps itself; all else, and the host's copies of those arrays, is the worker's mapping's, which may put it on
disk. A copy becomes an array of the device again when a task asks for it.
"""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from millpond._core import Buffer, OutOfMemoryError, Pool

logger = logging.getLogger("millpond")

CLIENT = "dask"
LOCK_S = 10.0  # how long a request that runs out of memory waits for a thread that is at the data
_ITEMS_MAX = 10_000  # of a list, tuple or dict that is looked into
_DEPTH_MAX = 4


# ---- what is an array of the device, and its copies ----


def _of_millpond(value: Any) -> bool:
    if isinstance(value, Buffer):
        return value.pool.memory == "device"
    return type(value).__name__ == "DeviceArray"


_KINDS: dict[str, Callable[[Any], bool]] = {  # package of a type: whether a value of it is an array of the device
    "millpond": _of_millpond,
    "cupy": lambda value: type(value).__name__ == "ndarray",
    "torch": lambda value: hasattr(value, "is_cuda") and value.is_cuda is True and value.is_leaf,
    "numba": lambda value: hasattr(value, "copy_to_host") and hasattr(value, "__cuda_array_interface__"),
}
_KINDS["numba_cuda"] = _KINDS["numba_cuda_mlir"] = _KINDS["numba"]


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def is_array(value: object) -> bool:
    """Whether it is an array of the device that can be copied to the host and back."""
    kind = _KINDS.get(_package(value))
    return kind is not None and kind(value)


def has_array(value: Any, depth: int = 0) -> bool:
    """Whether it is one, or a list, tuple or dict with one in it."""
    if type(value) not in (list, tuple, dict):
        return is_array(value)
    if depth == _DEPTH_MAX or len(value) > _ITEMS_MAX:
        return False
    return any(has_array(each, depth + 1) for each in (value.values() if type(value) is dict else value))


class HostCopy:
    """An array of the device as bytes of the host, which can be pickled, and what it is made from again."""

    __slots__ = ("about", "data", "kind")

    def __init__(self, kind: str, data: Any, about: tuple[Any, ...] = ()) -> None:
        self.kind, self.data, self.about = kind, data, about

    @property
    def nbytes(self) -> int:
        if self.kind == "torch":
            return self.data.numel() * self.data.element_size()
        return self.data.nbytes if hasattr(self.data, "nbytes") else len(self.data)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.kind, self.data, self.about

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.kind, self.data, self.about = state


class HostTree:
    """A list, tuple or dict whose arrays of the device are HostCopies."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getstate__(self) -> Any:
        return (self.value,)

    def __setstate__(self, state: Any) -> None:
        (self.value,) = state

    @property
    def nbytes(self) -> int:
        return _nbytes(self.value)


def _nbytes(value: Any) -> int:
    if type(value) in (list, tuple, dict):
        return sum(_nbytes(each) for each in (value.values() if type(value) is dict else value))
    return int(getattr(value, "nbytes", 0)) if isinstance(value, HostCopy) or is_array(value) else 0


def _copy_to_host(array: Any) -> HostCopy:
    """The device has ended its work by then: a pool waits for it before it asks for room."""
    package = _package(array)
    if isinstance(array, Buffer):
        return HostCopy("buffer", array.copy_to_host(), (array.pool.device,))
    if package == "millpond":
        return HostCopy("device_array", array.numpy(), (array.device.spec,))
    if package == "cupy":
        cupy = sys.modules["cupy"]
        with array.device:
            return HostCopy("cupy", cupy.asnumpy(array, order="A"), (array.device.id,))
    if package == "torch":
        return HostCopy("torch", array.detach().cpu(), (str(array.device), array.requires_grad))
    return HostCopy("numba", array.copy_to_host(), (type(array).__module__.partition(".cudadrv")[0],))


def to_buffer(data: Any, device: str) -> Buffer:
    """Bytes of the host as a block of the device's pool."""
    block = Pool(device, client=CLIENT).alloc(len(data))
    if len(data) > 0:
        block.copy_from_host(data)
    return block


def to_device_array(host: Any, device: str) -> Any:
    """A NumPy array as what a session of ONNX Runtime makes."""
    return as_device_array(to_buffer(host_bytes(host), device), host.dtype, host.shape)


def host_bytes(array: Any) -> memoryview:
    """The bytes of a NumPy array of any type."""
    return memoryview(array.reshape(-1).view("uint8"))


def as_device_array(block: Buffer, dtype: Any, shape: tuple[int, ...]) -> Any:
    """A block as what a session of ONNX Runtime makes, which keeps it."""
    from millpond import _ort_values

    return _ort_values.as_array(_ort_values.as_ortvalue(block, dtype=dtype, shape=shape, stream=None))


def _copy_to_device(copy: HostCopy) -> Any:
    if copy.kind == "buffer":
        return to_buffer(copy.data, *copy.about)
    if copy.kind == "device_array":
        return to_device_array(copy.data, *copy.about)
    if copy.kind == "cupy":
        cupy: Any = importlib.import_module("cupy")
        with cupy.cuda.Device(copy.about[0]):
            return cupy.asarray(copy.data)
    if copy.kind == "torch":
        return copy.data.to(copy.about[0]).requires_grad_(copy.about[1])
    cuda: Any = importlib.import_module(copy.about[0])
    return cuda.to_device(copy.data)


def _mapped(value: Any, wanted: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    if type(value) is dict:
        return {key: _mapped(each, wanted, change) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(each, wanted, change) for each in value)
    return change(value) if wanted(value) else value


def to_host(value: Any) -> HostCopy | HostTree:
    """What has_array() says yes to, as something of the host."""
    if type(value) in (list, tuple, dict):
        return HostTree(_mapped(value, is_array, _copy_to_host))
    return _copy_to_host(value)


def to_device(copy: HostCopy | HostTree) -> Any:
    """What to_host() was given."""
    if isinstance(copy, HostTree):
        return _mapped(copy.value, lambda each: isinstance(each, HostCopy), _copy_to_device)
    return _copy_to_device(copy)


# ---- the mapping ----


def _references(values: MutableMapping[Any, Any], key: Any) -> int:
    value = values[key]
    return sys.getrefcount(value)


_UNUSED = _references(OrderedDict({0: object()}), 0)  # of a value that the mapping alone refers to


def _flush() -> None:
    """Numba collects what was freed; this gives it back."""
    numba = sys.modules.get("millpond.numba")
    if numba is not None:
        numba.flush()


class DeviceData(MutableMapping[Any, Any]):
    """A worker's data, before `host`, the mapping that it had: see above. Any thread may use it."""

    __hash__ = object.__hash__  # one is another, whatever they hold
    __eq__ = object.__eq__

    def __init__(self, host: MutableMapping[Any, Any], pool: Pool) -> None:
        self.host = host
        self._pool = pool
        self._device: OrderedDict[Any, Any] = OrderedDict()  # the one that was used last at the end
        self._copied: dict[Any, int] = {}  # bytes of each copy in `host`
        self._lock = threading.RLock()
        self.moved_to_host = self.moved_to_device = 0  # arrays and collections of them, ever

    def __getattr__(self, name: str) -> Any:
        """What else Dask asks its own mapping for: what is on disk, its counters."""
        if name == "host":  # before it is set
            raise AttributeError(name)
        return getattr(self.host, name)

    # What Dask does with a mapping.

    def __setitem__(self, key: Any, value: Any) -> None:
        with self._lock:
            if key in self:
                del self[key]
            if has_array(value):
                self._device[key] = value
            else:
                self.host[key] = value

    def __getitem__(self, key: Any) -> Any:
        with self._lock:
            if key in self._device:
                self._device.move_to_end(key)
                return self._device[key]
            value = self.host[key]
            if key not in self._copied:
                return value
            back = to_device(value)  # which may send others to the host
            del self.host[key]
            del self._copied[key]
            self._device[key] = back
            self.moved_to_device += 1
            return back

    def __delitem__(self, key: Any) -> None:
        with self._lock:
            if key in self._device:
                del self._device[key]
            else:
                del self.host[key]
                self._copied.pop(key, None)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._device or key in self.host

    def __len__(self) -> int:
        with self._lock:
            return len(self._device) + len(self.host)

    def __iter__(self) -> Iterator[Any]:
        with self._lock:
            return iter([*self._device, *self.host])

    def evict(self) -> int:
        """Dask runs out of the host's memory: sends something of the host to disk; -1 where it cannot."""
        with self._lock:
            evict: Callable[[], int] | None = getattr(self.host, "evict", None)
            return evict() if evict is not None else -1

    # What the pool asks for.

    @property
    def device_keys(self) -> list[Any]:
        """Keys whose values are on the device, the one that waits longest for its next use first."""
        with self._lock:
            return list(self._device)

    @property
    def bytes_on_host(self) -> int:
        """Bytes of arrays of the device that are on the host, or its disk, now."""
        with self._lock:
            return sum(self._copied.values())

    def make_room(self, size: int) -> bool:
        """Moves to the host what no task uses, until that many bytes of the pool are free or nothing is left to move.

        Gives whether anything was freed. A thread that cannot have the data's lock for some seconds gives up: whoever
        has it may wait for a lock of the library that asks here.
        """
        if not self._lock.acquire(timeout=LOCK_S):
            return False
        try:
            before = self._pool.stats()["in_use"]
            if not self._move_until(before - size):
                gc.collect()  # a task that failed keeps what it had in a cycle of its error and its frames
                self._move_until(before - size)
            return self._pool.stats()["in_use"] < before
        finally:
            self._lock.release()

    def _move_until(self, in_use: int) -> bool:
        """Moves what no task uses until no more than that is in use; whether it came to that."""
        for key in list(self._device):
            if self._pool.stats()["in_use"] <= in_use:
                break
            if _references(self._device, key) > _UNUSED:
                continue
            if not self._move(key):
                break
            _flush()
        return self._pool.stats()["in_use"] <= in_use

    def _move(self, key: Any) -> bool:
        """To the host; False where that has no room for it."""
        try:
            copy = to_host(self._device[key])
            nbytes = copy.nbytes
            self.host[key] = copy
        except (MemoryError, OutOfMemoryError, OSError) as error:
            logger.warning("%r stays on the device, since it cannot be copied to the host: %s", key, error)
            return False
        self._copied[key] = nbytes
        del self._device[key]
        self.moved_to_host += 1
        return True


# ---- before a request fails ----

_GREED = (1, 1 << 30)  # how many times the size of a request is made free, where that little did not help


class Pressure:
    """The hooks of a device's pool, by which it asks the data of this process's workers for room."""

    def __init__(self, device: str) -> None:
        self._pool = Pool(device, client=CLIENT)
        self._data: weakref.WeakSet[DeviceData] = weakref.WeakSet()
        self._hooks = [functools.partial(self._make_room, times) for times in _GREED]
        for hook in self._hooks:
            self._pool.add_hook(hook)

    def add(self, data: DeviceData) -> None:
        self._data.add(data)

    def discard(self, data: DeviceData) -> None:
        self._data.discard(data)

    def _make_room(self, times: int, size: int) -> bool:
        is_more = False
        for data in list(self._data):  # of each worker of this process
            is_more = data.make_room(size * times) or is_more
        return is_more


_pressures: dict[str, Pressure] = {}
_pressures_lock = threading.Lock()


def pressure_of(device: str) -> Pressure:
    """That of a device, as `Pool.device` names it; it stays until the process ends."""
    with _pressures_lock:
        if device not in _pressures:
            _pressures[device] = Pressure(device)
        return _pressures[device]
