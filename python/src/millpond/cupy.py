# SPDX-License-Identifier: Apache-2.0
"""CuPy's arrays, and its pinned memory, from the pool.

    import millpond.cupy
    millpond.cupy.install()

or for a part of a program, on one thread:

    with cupy.cuda.using_allocator(millpond.cupy.allocator()):
        ...

An array is allocated on the stream that is current where it is made, and freed in the order of that stream and of the
one that is current where its last reference goes. A request that finds no memory raises CuPy's OutOfMemoryError, with
the pool's sentence. Importing this module imports CuPy.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond import _native
from millpond._core import Buffer, Error, OutOfMemoryError, Pool
from millpond._cupy_graphs import CapturedGraph, Captures
from millpond._cupy_streams import Streams

if TYPE_CHECKING:
    from millpond._core import Stream

cupy: Any = _native.framework("cupy", "install it with: pip install cupy-cuda13x (or cupy-cuda12x)")
_memory = cupy.cuda.memory

__all__ = [
    "allocator",
    "as_array",
    "capture",
    "install",
    "is_installed",
    "pinned_allocator",
    "pool",
    "record_use",
    "uninstall",
]

_CLIENT = "cupy"
_GRANULE = 256  # sizes of blocks are multiples of it
_NO_MEMORY = 2  # cudaErrorMemoryAllocation, which CuPy has no name for

_lock = threading.RLock()
_pools: dict[tuple[int, str], Pool] = {}
_beside: list[Any] = []  # CuPy's own pools that give way
_before: list[Callable[[int], Any]] = []  # CuPy's allocator before install()
_prepared: list[Any] = []  # what lives as long as the process, in the order it was made


# ---- pools ----


def pool(device: int | None = None, memory: str = "device") -> Pool:
    """The pool that CuPy uses on `device`, by default the current one; "device" or "pinned" memory."""
    number = cupy.cuda.runtime.getDevice() if device is None else device
    found = _pools.get((number, memory))
    return found if found is not None else _open(number, memory)


def _open(number: int, memory: str) -> Pool:
    with _lock:
        if (number, memory) not in _pools:
            fresh = Pool(f"cuda:{number}", memory=memory, client=_CLIENT)  # type: ignore[arg-type]
            if memory == "device":
                with cupy.cuda.Device(number):  # CuPy's own calls take twice the time on a thread without a context,
                    cupy.cuda.runtime.free(0)  # which its pool would have set up here
                _native.open_device("millpond_cupy_open", number, fresh.device)
                fresh.add_hook(lambda size: _give_way(number))
            _pools[number, memory] = fresh
        return _pools[number, memory]


def _give_way(device: int) -> bool:
    """Before a request fails: frees what CuPy's own pools keep, and collects garbage. Whether anything was freed."""
    with cupy.cuda.Device(device):
        before = _kept_bytes() + _pools[device, "device"].stats()["in_use"]
        gc.collect()
        for own in (cupy.get_default_memory_pool(), *_beside):
            own.free_all_blocks()
        return _kept_bytes() + _pools[device, "device"].stats()["in_use"] < before


def _kept_bytes() -> int:
    return sum(own.total_bytes() for own in (cupy.get_default_memory_pool(), *_beside))


# ---- what the C functions ask for ----


def _raise_out_of_memory(sentence: str, size: int, device: int) -> None:
    stats = pool(device).stats()
    raise _with_sentence(_memory.OutOfMemoryError(size, stats["in_use"], stats["limit"] or 0), sentence)


def _with_sentence(error: Any, sentence: str) -> Any:
    error.args = (sentence,)
    return error


def _call_hooks(name: str, device: int, size: int, address: int) -> None:
    """Calls CuPy's memory hooks. A block's address stands for the object that CuPy's pool would have."""
    given = {"device_id": device, "mem_size": -(-size // _GRANULE) * _GRANULE}
    if name.startswith("malloc"):
        given["size"] = size
    if name != "malloc_preprocess":
        given |= {"mem_ptr": address, "pmem_id": address}
    for hook in list(cupy.cuda.memory_hook.get_memory_hooks().values()):
        getattr(hook, name)(**given)


def _c_function(module: Any, name: str, signature: bytes) -> int:
    """Address of a C function of CuPy."""
    capsule = getattr(module, "__pyx_capi__", {}).get(name)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        return pointer(capsule, signature)
    except (ValueError, TypeError):
        version = f"CuPy {cupy.__version__}"
        raise Error(f"{version} has no C function {name}; use a version from 14 on") from None


def _watch_hooks() -> None:
    """Memory hooks are looked for from the first one on, since to look takes a tenth of the time of an array."""
    hooked = _c_function(cupy.cuda.memory_hook, "_has_memory_hooks", b"int (int __pyx_skip_dispatch)")
    base = cupy.cuda.MemoryHook
    enter = base.__enter__

    def __enter__(hook: Any) -> Any:
        _native.call_with_objects("millpond_cupy_watch_hooks", hooked)
        base.__enter__ = enter
        return enter(hook)

    base.__enter__ = __enter__
    if cupy.cuda.memory_hook._has_memory_hooks():
        _native.call_with_objects("millpond_cupy_watch_hooks", hooked)


def _prepare() -> Any:
    """Once in a process: CuPy's C functions are found, and its streams watched. Gives the allocator's object."""
    with _lock:
        if not _prepared:
            import cupy_backends.cuda.stream as streams

            current = _c_function(streams, "get_stream_ptr", b"intptr_t (int)")
            callables = (pool, _raise_out_of_memory, _call_hooks)
            if _native.call_with_objects("millpond_cupy_prepare", current, *callables) != 0:
                raise Error("no way was found to raise errors in CuPy: libstdc++.so.6 is not loaded")
            _watch_hooks()
            atexit.register(_native.call_with_objects, "millpond_cupy_end")
            functions = (_native.address("millpond_cupy_alloc"), _native.address("millpond_cupy_free"))
            _prepared.append(cupy.cuda.CFunctionAllocator(0, *functions, None))
            for watcher in (Captures(cupy, pool), Streams(cupy, pool)):
                watcher.watch()
                _prepared.append(watcher)
        return _prepared[0]


# ---- allocators ----


def allocator() -> Callable[[int], Any]:
    """For `cupy.cuda.set_allocator` and `using_allocator`: bytes to `cupy.cuda.MemoryPointer`.

    Device and stream are the current ones. 0 bytes give a null pointer. Raises cupy.cuda.memory.OutOfMemoryError.
    """
    return _prepare().malloc


class _PinnedBlock:
    """What `cupy.cuda.PinnedMemoryPointer` needs of its memory."""

    __slots__ = ("_buffer", "ptr", "size")

    def __init__(self, buffer: Buffer) -> None:
        self.ptr, self.size, self._buffer = buffer.address, buffer.size, buffer


def _allocate_pinned(size: int) -> Any:
    if size == 0:
        return cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(0), 0)
    try:
        return cupy.cuda.PinnedMemoryPointer(_PinnedBlock(pool(None, "pinned").alloc(size)), 0)
    except OutOfMemoryError as error:
        # CuPy answers this error by copying without pinned memory.
        raise _with_sentence(cupy.cuda.runtime.CUDARuntimeError(_NO_MEMORY), str(error)) from None


def pinned_allocator() -> Callable[[int], Any]:
    """For `cupy.cuda.set_pinned_memory_allocator`: bytes to `cupy.cuda.PinnedMemoryPointer`.

    The memory is that of the current device's pool. A block is allocated again as soon as nothing refers to it. Raises
    CUDARuntimeError (cudaErrorMemoryAllocation), which CuPy's own copies take for an order to do without.
    """
    return _allocate_pinned


def _allocate_beside(size: int) -> Any:
    """Memory of the device for a pool of CuPy's; if there is none, ours returns what it does not use."""
    try:
        return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status != _NO_MEMORY or pool().shrink() == 0:
            raise
    return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)


def install(*, pinned: bool = True, beside: bool = False) -> None:
    """Makes the pool CuPy's allocator in this process, for arrays made from now on.

    pinned: pinned memory too.
    beside: CuPy keeps a pool of its own, for programs that need its methods (`set_limit`, `free_all_blocks`); each
    of the two returns what it does not use when the other finds no memory.
    Does nothing the second time. Raises ValueError inside `cupy.cuda.using_allocator`, as CuPy does.
    """
    with _lock:
        if _before:
            return
        _prepare()
        before = cupy.cuda.get_allocator()
        if beside:
            own = cupy.cuda.MemoryPool(_allocate_beside)
            cupy.cuda.set_allocator(own.malloc)
            _beside.append(own)
        else:
            cupy.cuda.set_allocator(allocator())
        if pinned:
            cupy.cuda.set_pinned_memory_allocator(pinned_allocator())
        _before.append(before)


def uninstall() -> None:
    """Arrays made from now on come from where they came from before; those there are stay what they are."""
    with _lock:
        if _before:
            cupy.cuda.set_allocator(_before[0])
            cupy.cuda.set_pinned_memory_allocator(cupy.get_default_pinned_memory_pool().malloc)
            _before.clear()


def is_installed() -> bool:
    return bool(_before)


# ---- arrays, streams, graphs ----


def as_array(buffer: Buffer, dtype: Any = "uint8", shape: Any = None) -> Any:
    """The memory of a Buffer as an array, without a copy; the array keeps it alive.

    dtype, shape: what to take it for; by default all of it, in one dimension. The current stream waits for the work
    of the Buffer's own stream, and the block is allocated again only after the current stream's work.
    """
    array = cupy.from_dlpack(buffer).view(dtype)
    return array if shape is None else array.reshape(shape)


def record_use(array: Any, stream: Stream) -> None:
    """Declares that work queued on `stream` from now on uses the array, which was made on another stream.

    That work comes after earlier users of the array's memory, which is not allocated again before it has ended.
    Raises NotFoundError where the array's memory is not the pool's.
    """
    if array.data.ptr:  # an empty array has none
        owner = pool(array.device.id)
        owner.record_use(owner.find(array.data.ptr)["address"], stream)


def capture(stream: Any, mode: int | None = None, share: CapturedGraph | None = None) -> CapturedGraph:
    """Captures the work of a `with` block into a graph, on `stream`, a stream of CuPy's.

        with millpond.cupy.capture(stream) as graph:
            out = a + b
        graph.launch()

    What is allocated in the block comes from memory set apart for the graph, until `graph.close()` or the last
    reference goes. mode: as in `stream.begin_capture`. share: a captured graph that never runs at the same time; its
    memory is used by both, and freed when both are closed.
    """
    _prepare()
    return CapturedGraph(_prepared[1], stream, mode, share)
