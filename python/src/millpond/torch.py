# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory from the pool, by one of two routes.

The whole process, before PyTorch first uses the GPU:

    import millpond.torch
    millpond.torch.install()

or a part of a program, at any time:

    with millpond.torch.use_pool():
        ...

By the first route every block of PyTorch is one of the pool. By the second PyTorch's own allocator stays in between: it
takes segments of 2 MiB and more from the pool and cuts them up. Either way a request that finds no memory raises
torch.OutOfMemoryError. Importing this module imports PyTorch, and starts nothing on the GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond import _native, _torch_stats
from millpond._core import Buffer, Error, NotFoundError, Pool, UnsupportedError

if TYPE_CHECKING:
    from millpond._core import Stream

torch: Any = _native.framework("torch", "see pytorch.org, or: pip install torch")

__all__ = [
    "as_tensor",
    "install",
    "is_installed",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_pool",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "pool",
    "record_use",
    "reset_peak_memory_stats",
    "use_pool",
]

_lock = threading.RLock()
_pools: dict[int, Pool] = {}
_allocators: dict[str, Any] = {}  # for good: PyTorch keeps no references to them
_mem_pools: dict[int, Any] = {}
_users: dict[int, int] = {}  # by device: how many use_pool() blocks are open
_is_installed = False

# What an exception can be, as torch_throw.c numbers it.
_NOTHING, _BAD_ALLOC, _ERROR, _OUT_OF_MEMORY = range(4)

# Setters of PyTorch's allocator, and the functions that they get.
_FUNCTIONS = {
    "set_reset_fn": "millpond_torch_empty_cache",
    "set_record_stream_fn": "millpond_torch_record_stream",
    "set_base_alloc_fn": "millpond_torch_base",
    "set_memory_fraction_fn": "millpond_torch_fraction",
    "set_begin_allocate_to_pool": "millpond_torch_graph_begin",
    "set_end_allocate_to_pool_fn": "millpond_torch_graph_end",
    "set_release_pool": "millpond_torch_graph_release",
}


def _index(device: Any) -> int:
    """A device's number, as every function of torch.cuda takes it."""
    if device is None:
        return torch.cuda.current_device()
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def pool(device: Any = None) -> Pool:
    """The pool that PyTorch uses on `device`, by default the current one."""
    number = _index(device)
    with _lock:
        if number not in _pools:
            _pools[number] = Pool(f"cuda:{number}", client=_torch_stats.CLIENT)
        return _pools[number]


# ---- the whole process ----


def _require_cuda() -> None:
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise UnsupportedError(f"PyTorch {torch.__version__} was built without CUDA; install a build with CUDA")


def _keep(name: str, made: Any) -> Any:
    """Keeps an object past the end of the interpreter: its C++ part may still be called then."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    _allocators[name] = made
    return made


def _make_allocator(name: str, alloc: str, free: str) -> Any:
    with _lock:
        if name not in _allocators:
            _keep(name, torch.cuda.memory.CUDAPluggableAllocator(_native.PATH, alloc, free))
        return _allocators[name]


def _current_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def _prepare_exceptions() -> None:
    """Finds how to raise PyTorch's errors from C."""
    folder = Path(torch.__file__).parent / "lib"
    prepare = ctypes.PyDLL(_native.PATH).millpond_torch_prepare
    prepare.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    best = prepare(str(folder / "libc10.so").encode(), str(folder / "libc10_cuda.so").encode())
    if best < _BAD_ALLOC:
        raise UnsupportedError(
            f"no way was found to raise errors in PyTorch {torch.__version__}; use millpond.torch.use_pool() instead"
        )


def _answer_statistics() -> None:
    """PyTorch's own functions refuse to answer for any allocator but its own."""
    replaced = {
        "_cuda_memoryStats": lambda device: _torch_stats.nested(pool(device)),
        "_cuda_resetPeakMemoryStats": lambda device: pool(device).reset_peaks(),
        "_cuda_resetAccumulatedMemoryStats": lambda device: None,
    }
    for name, function in replaced.items():
        setattr(torch._C, name, function)


def install(*, statistics: bool = True) -> None:
    """Makes the pool PyTorch's allocator of GPU memory in this process, for good.

    To be called before PyTorch first uses the GPU. Does nothing the second time.
    statistics: let torch.cuda.memory_stats and its kin, which would raise, answer with the pool's figures.
    Raises Error where PyTorch has used the GPU already, UnsupportedError for a PyTorch without CUDA.
    """
    global _is_installed
    _require_cuda()
    with _lock:
        if _is_installed:
            return
        _prepare_exceptions()
        _native.call_with_objects("millpond_torch_streams", _current_stream)
        allocator = _make_allocator("process", "millpond_torch_alloc", "millpond_torch_free")
        for setter, function in _FUNCTIONS.items():
            getattr(allocator.allocator(), setter)(_native.address(function))
        try:
            torch.cuda.memory.change_current_allocator(allocator)
        except RuntimeError as error:
            raise Error(
                "PyTorch has used the GPU already, and its allocator cannot be changed any more; call "
                "millpond.torch.install() first, or use millpond.torch.use_pool()"
            ) from error
        if statistics:
            _answer_statistics()
        _is_installed = True


def is_installed() -> bool:
    return _is_installed


# ---- a part of a program ----


def _give_way(device: int) -> bool:
    """Before another user's request fails: PyTorch frees the segments that it does not use."""
    gc.collect()
    before = torch.cuda.memory_reserved(device)
    with _lock:
        if not _users.get(device):
            _mem_pools.pop(device, None)  # a pool that is there keeps its segments
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device) < before


def _open_segments(device: int) -> None:
    name = f"hook of {device}"
    if name not in _allocators:
        _native.open_device("millpond_torch_open", device, pool(device).device)
        pool(device).add_hook(_keep(name, lambda size: _give_way(device)))


def mem_pool(device: Any = None, *, use_on_oom: bool = False, no_split: bool = False) -> Any:
    """A torch.cuda.MemPool that takes its segments from the pool; for `torch.cuda.use_mem_pool` and captured graphs.

    It is PyTorch's own: statistics, record_stream, snapshots and out-of-memory errors are as ever. Segments go back
    to the pool when the object is gone and nothing uses them. use_on_oom, no_split: as of torch.cuda.MemPool.
    Raises UnsupportedError after install(), which leaves nothing to route, and for a PyTorch without CUDA.
    """
    _require_cuda()
    if _is_installed:
        raise UnsupportedError("after millpond.torch.install() all memory is the pool's, and PyTorch has no MemPool")
    number = _index(device)
    with _lock, torch.cuda.device(number):
        _open_segments(number)
        allocator = _make_allocator("segments", "millpond_torch_segment", "millpond_torch_segment_free")
        wishes = {name: True for name, wish in (("use_on_oom", use_on_oom), ("no_split", no_split)) if wish}
        return torch.cuda.MemPool(allocator.allocator(), **wishes)


@contextlib.contextmanager
def use_pool(device: Any = None, *, all_threads: bool = False) -> Iterator[None]:
    """Tensors made in this block have memory of the pool.

    device: the current one by default.
    all_threads: those of other threads too, such as gradients, which PyTorch makes on threads of its own; by default
    this thread's only.
    After install() it has nothing to do. Blocks may be nested, and left while tensors are still there.
    """
    if _is_installed:
        yield
        return
    number = _index(device)
    with _lock:
        shared = _mem_pools.get(number)
        if shared is None:
            shared = _mem_pools[number] = mem_pool(number)
        _users[number] = _users.get(number, 0) + 1
    try:
        with _route(shared, number, all_threads):
            yield
    finally:
        with _lock:
            _users[number] -= 1


@contextlib.contextmanager
def _route(shared: Any, device: int, all_threads: bool) -> Iterator[None]:
    if not all_threads:
        with torch.cuda.use_mem_pool(shared, device):
            yield
        return
    torch._C._cuda_beginAllocateToPool(device, shared.id)
    try:
        yield
    finally:
        torch._C._cuda_endAllocateToPool(device, shared.id)
        torch._C._cuda_releasePool(device, shared.id)


# ---- tensors ----


def as_tensor(buffer: Buffer, dtype: Any = None, shape: Any = None) -> Any:
    """The memory of a Buffer as a tensor, without a copy; the tensor keeps it alive.

    dtype, shape: what to take it for; by default all of it, in one dimension, as bytes. The current stream waits for
    the work of the Buffer's own stream, and the block is allocated again only after the current stream's work.
    """
    tensor = torch.from_dlpack(buffer)
    if dtype is not None:
        tensor = tensor.view(dtype)
    return tensor if shape is None else tensor.reshape(shape)


def record_use(tensor: Any, stream: Stream) -> None:
    """Declares that work queued on `stream` from now on uses the tensor, which was made on another stream.

    As `tensor.record_stream`, and for tensors made by as_tensor() as well, which PyTorch knows nothing of.
    """
    if tensor.data_ptr() == 0:
        return
    handle = stream if isinstance(stream, int) or stream is None else stream.__cuda_stream__()[1]
    if handle is None:
        raise ValueError("record_use needs a stream, not None")
    try:
        owner = pool(tensor.device)
        block = owner.find(tensor.data_ptr())
    except NotFoundError:
        block = None
    if block is not None and (_is_installed or block["client"] != _torch_stats.CLIENT):
        owner.record_use(block["address"], handle)
    else:  # a piece of a segment, or memory of PyTorch's own
        tensor.record_stream(torch.cuda.ExternalStream(handle, tensor.device))


# ---- statistics ----


def memory_stats(device: Any = None) -> dict[str, Any]:
    """As torch.cuda.memory_stats_as_nested_dict, of the pool: `memory_stats()["reserved_bytes"]["all"]["peak"]`."""
    return _torch_stats.nested(pool(device))


def memory_allocated(device: Any = None) -> int:
    """Bytes of the pool that PyTorch has: its tensors, or by use_pool() its segments."""
    return memory_stats(device)["allocated_bytes"]["all"]["current"]


def max_memory_allocated(device: Any = None) -> int:
    """The peak of allocated bytes, of all users of the pool."""
    return pool(device).stats()["in_use_max"]


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool has from the device."""
    return pool(device).stats()["total"]


def max_memory_reserved(device: Any = None) -> int:
    """The peak of bytes that the pool has reserved from the device."""
    return pool(device).stats()["total_max"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Sets the peaks to the present values."""
    pool(device).reset_peaks()
