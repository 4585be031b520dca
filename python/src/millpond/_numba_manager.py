# SPDX-License-Identifier: Apache-2.0
"""The memory manager that Numba makes for each of its contexts.

`Manager` has the methods; `manager_class` joins it with the base class of one of the two Numbas. A manager holds a
handle on the pool of its device. Finalizers of arrays refer to that handle and to the backlog, never to the manager or
its context: so arrays outlive both, and a block always goes back to the pool that lent it.
"""

import contextlib
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

from . import _numba_ipc
from ._core import Error, NotFoundError, OutOfMemoryError, Pool
from ._numba_backlog import Backlog, Driver
from ._numba_close import share_contexts
from ._numba_native import NativeMemory

CLIENT = "numba"


@dataclass(frozen=True)
class Settings:
    """What `millpond.numba.configure` sets; see there."""

    streams: str = "fence"
    ipc: bool = False
    pinned: bool = True
    kernel_arguments: bool = True
    options: Mapping[str, object] = field(default_factory=dict)

    def pool_options(self) -> dict[str, object]:
        return {**self.options, **({"arena.ipc": True} if self.ipc else {})}


settings = Settings()
active: "weakref.WeakSet[Manager]" = weakref.WeakSet()  # those that have opened a pool, of contexts that live


class Manager:
    """Numba's interface for memory managers, version 1, over a pool."""

    _driver: ModuleType  # Numba's, that the class was made for; and what each allocation needs of it:
    _MemoryPointer: type
    _CUdeviceptr: type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Numba asks a manager without a context for its version, and gives one a context before there is a GPU.
        self._context = None if self.context is None else weakref.proxy(self.context)
        self._lock = threading.RLock()
        self._is_ready = False
        self._deferred = 0
        self._shrinks_later = False
        self._pool: Pool | None = None
        self._pinned: Pool | None = None
        self._alloc: Callable[[int, int], int] = self._open_and_alloc
        self._alloc_pinned: Callable[[int], int] = self._open_and_alloc_pinned
        self._give: Callable[[int, int], None]
        self._give_pinned: Callable[[int, int], None]
        self._backlogs: list[Backlog] = []
        self._gpu: Driver | None = None
        self._native: NativeMemory
        self._resource: Any = None
        self._resource_before: Any = None

    @property
    def interface_version(self) -> int:
        return 1

    def device_name(self) -> str:
        """The pool's name of the context's device."""
        device = self.context.device
        return f"cuda:{int(getattr(device, 'id', device))}"

    # ---- readiness ----

    def initialize(self) -> None:
        """Opens the pool and has NumPy arguments of kernels come from it. Numba calls this again and again."""
        if self._is_ready:
            return
        with self._lock:
            if self._is_ready:
                return
            self._open()
            self._take_arguments()
            share_contexts(self.context.device, *map(weakref.proxy, self._driver.driver.list_devices()))
            self._is_ready = True

    def _open(self) -> None:
        with self._lock:
            if self._pool is not None:
                return
            pool = Pool(self.device_name(), client=CLIENT, options=settings.pool_options())
            if not pool.is_emulated:
                self._gpu = Driver(self._driver.binding, self.context.handle)
            self._native = NativeMemory(self._gpu, partial(_may_clean, weakref.ref(self)))
            self._backlogs.append(self._native.backlog)
            self._give = self._giver(pool, is_pinned=False)
            self._alloc = pool.alloc_address
            self._pool = pool
            active.add(self)

    def _giver(self, pool: Pool, *, is_pinned: bool) -> Callable[[int, int], None]:
        """What finalizers of this pool's blocks call, with the address and the size."""
        if settings.streams == "fast":
            return partial(_free_now, pool.free_address)
        free: Callable[[int], None] = pool.free_address
        fence: Callable[[], bool] = _always
        if self._gpu is not None and settings.streams == "sync":
            fence = self._gpu.wait_for_all
            free = partial(_free_for_all, pool.free_address)
        elif self._gpu is not None:
            fence = self._gpu.wait if is_pinned else self._gpu.fence
        backlog = Backlog(free, fence)
        self._backlogs.append(backlog)
        pool.add_hook(partial(_flush_under_pressure, weakref.ref(backlog)))
        return backlog.give

    def _open_and_alloc(self, size: int, stream: int) -> int:
        self._open()
        return self._alloc(size, stream)

    def _open_and_alloc_pinned(self, size: int) -> int:
        with self._lock:
            if self._pinned is None:
                self._open()
                pool = Pool(self.device_name(), memory="pinned", client=CLIENT, options=settings.options)
                self._give_pinned = self._giver(pool, is_pinned=True)
                self._alloc_pinned = pool.alloc_address
                self._pinned = pool
        return self._alloc_pinned(size)

    # ---- device memory ----

    def memalloc(self, size: int) -> Any:
        """A block of the pool. Raises Numba's CudaAPIError with CUDA_ERROR_OUT_OF_MEMORY."""
        try:
            address = self._alloc(size, 0)
        except OutOfMemoryError:
            address = self._alloc_again(lambda: self._alloc(size, 0))
        give = partial(self._give, address, size)
        return self._MemoryPointer(self._context, self._CUdeviceptr(address), size, None, give)

    def _alloc_again(self, alloc: Callable[[], int]) -> int:
        """Tries again without arrays that only a reference cycle keeps."""
        gc.collect()
        self.flush()
        try:
            return alloc()
        except OutOfMemoryError as error:
            code = self._driver.binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY
            raise self._driver.CudaAPIError(code, str(error)) from error

    def record_use(self, memory: Any, stream: Any) -> None:
        """See `millpond.numba.record_use`."""
        self._open()
        address = self._pool.find(int(memory.handle))["address"]
        self._pool.record_use(address, stream)

    # ---- host memory ----

    def memhostalloc(self, size: int, mapped: bool = False, portable: bool = False, wc: bool = False) -> Any:
        """Page-locked memory: of the pinned pool, which is portable, where it need be neither mapped nor
        write-combined; of the driver otherwise. Raises CudaAPIError."""
        if mapped or wc or not settings.pinned:
            return self._memhostalloc_native(size, mapped, portable, wc)
        try:
            address = self._alloc_pinned(size)
        except OutOfMemoryError:
            address = self._alloc_again(lambda: self._alloc_pinned(size))
        give = partial(self._give_pinned, address, size)
        return self._driver.PinnedMemory(self._context, address, size, finalizer=give)

    def _memhostalloc_native(self, size: int, mapped: bool, portable: bool, wc: bool) -> Any:
        self._open()
        binding = self._driver.binding
        flags = (
            (binding.CU_MEMHOSTALLOC_DEVICEMAP if mapped else 0)
            | (binding.CU_MEMHOSTALLOC_PORTABLE if portable else 0)
            | (binding.CU_MEMHOSTALLOC_WRITECOMBINED if wc else 0)
        )
        address = int(self._ask_driver("cuMemHostAlloc", size, flags))
        finalizer = self._native.finalizer("cuMemFreeHost", address, size)
        if not mapped:
            return self._driver.PinnedMemory(self._context, address, size, finalizer=finalizer)
        return self._keep(self._driver.MappedMemory, address, size, finalizer)

    def mempin(self, owner: Any, pointer: int, size: int, mapped: bool = False) -> Any:
        """Page-locks memory of `owner` until the result goes; keeps the owner until then. Raises CudaAPIError."""
        self._open()
        binding = self._driver.binding
        self._ask_driver("cuMemHostRegister", pointer, size, binding.CU_MEMHOSTREGISTER_DEVICEMAP if mapped else 0)
        finalizer = self._native.unpin(int(pointer), owner)
        if not mapped:
            return self._driver.PinnedMemory(self._context, pointer, size, owner=owner, finalizer=finalizer)
        return self._keep(partial(self._driver.MappedMemory, owner=owner), pointer, size, finalizer)

    def memallocmanaged(self, size: int, attach_global: bool) -> Any:
        """Managed memory, of the driver. Raises CudaAPIError."""
        self._open()
        flags = self._driver.binding.CUmemAttach_flags
        attach = flags.CU_MEM_ATTACH_GLOBAL if attach_global else flags.CU_MEM_ATTACH_HOST
        pointer = self._ask_driver("cuMemAllocManaged", size, attach.value)
        finalizer = self._native.finalizer("cuMemFree", int(pointer), size)
        return self._keep(self._driver.ManagedMemory, pointer, size, finalizer)

    def _keep(self, kind: Callable[..., Any], pointer: Any, size: int, finalizer: Any) -> Any:
        try:
            memory = kind(self._context, pointer, size, finalizer=finalizer)
        except Exception:
            finalizer()
            raise
        return self._native.keep(memory, finalizer)

    def _ask_driver(self, function: str, *args: Any) -> Any:
        """Calls Numba's driver; where memory is short, once more after the pool has given back what it can."""
        call = getattr(self._driver.driver, function)
        try:
            return call(*args)
        except self._driver.CudaAPIError as error:
            if error.code != self._driver.binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise
        gc.collect()
        self.flush()
        self._shrink()
        return call(*args)

    # ---- other processes ----

    def get_ipc_handle(self, memory: Any) -> Any:
        """A handle of the region that `memory` lies in, with its place there. Memory of another library gets a handle
        as Numba makes it. Raises UnsupportedError where the pool's memory cannot be shared."""
        self._open()
        address = int(memory.handle)
        try:
            block = self._pool.find(address)
        except NotFoundError:
            return super().get_ipc_handle(memory)
        raw, offset = self._pool.ipc_export(block["address"])
        source = self.context.device.get_device_identity()
        return _numba_ipc.make_handle(self._driver, memory, raw, source, offset + address - block["address"])

    # ---- cleaning up ----

    def get_memory_info(self) -> Any:
        """Free and total bytes: what the device has left, and what the pool has of it and nobody uses."""
        self._open()
        self.flush()
        free, total = self._pool.memory_info()
        stats = self._pool.stats()
        return self._driver.MemoryInfo(free=min(free + stats["total"] - stats["in_use"], total), total=total)

    def flush(self) -> int:
        """Gives back all blocks that wait for it; returns how many."""
        return sum(backlog.flush(patient=True) for backlog in self._backlogs)

    def reset(self) -> None:
        """Gives back what is free: blocks to the pool, regions to the driver. Arrays that live stay valid."""
        self._is_ready = False
        self._return_arguments()
        if self._pool is None:
            return
        self.flush()
        if self._deferred > 0:
            self._shrinks_later = True
        else:
            self._shrink()

    def _shrink(self) -> None:
        for pool in (self._pool, self._pinned):
            if pool is not None:
                with contextlib.suppress(Error):  # during a capture, or with the GPU broken: a later time will do
                    pool.shrink()

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Inside, freed blocks go back to the pool, which nobody waits for; but nothing goes back to the driver."""
        with self._lock:
            self._deferred += 1
        try:
            yield
        finally:
            with self._lock:
                self._deferred -= 1
                is_over = self._deferred == 0
                shrinks, self._shrinks_later = self._shrinks_later and is_over, self._shrinks_later and not is_over
            if shrinks:
                self.flush()
                self._shrink()

    def retire(self) -> None:
        """The context is about to be forgotten."""
        active.discard(self)

    # ---- NumPy arguments of kernels ----

    def _take_arguments(self) -> None:
        """Numba gets memory for NumPy arguments from the device object of cuda.core, past its memory manager."""
        device = getattr(self.context.device, "_dev", None)
        if not settings.kernel_arguments or not hasattr(device, "memory_resource") or self._resource is not None:
            return
        try:
            from ._numba_arguments import ArgumentResource

            before = device.memory_resource
            resource = ArgumentResource(self._pool, self._give, self._gpu)
            device.memory_resource = resource
        except Exception:  # another version of cuda.core: arguments stay outside of the pool, as without this
            return
        self._resource, self._resource_before = resource, before

    def _return_arguments(self) -> None:
        resource, self._resource = self._resource, None
        if resource is None:
            return
        device = self.context.device._dev
        if device.memory_resource is resource:
            device.memory_resource = self._resource_before
        self._resource_before = None


# ---- what finalizers and hooks call; none of it refers to a manager ----


def _always() -> bool:
    """The fence of an emulated device, which Numba's kernels do not run on."""
    return True


def _free_now(free: Callable[[int], None], address: int, size: int) -> None:
    try:  # contextlib.suppress would double what freeing costs
        free(address)
    except Exception:  # there is nobody to raise it to
        return


def _free_for_all(free: Callable[..., None], address: int) -> None:
    """All work has ended, so the block may serve any stream."""
    free(address, None)


def _may_clean(manager: "weakref.ref[Manager]") -> bool:
    """Whether memory may go back to the driver."""
    of = manager()
    return of is None or of._deferred == 0


def _flush_under_pressure(backlog: "weakref.ref[Backlog]", size: int) -> bool:
    """Whether blocks that waited could be given back, before a request of anybody fails."""
    waiting = backlog()
    return waiting is not None and waiting.flush(patient=True) > 0


# ---- the class ----


@functools.cache
def manager_class(driver: ModuleType) -> type:
    """The class of managers for one Numba, given its driver module."""
    bases = (Manager, driver.GetIpcHandleMixin, driver.BaseCUDAMemoryManager)
    members = {
        "_driver": driver,
        "_MemoryPointer": driver.MemoryPointer,
        "_CUdeviceptr": driver.binding.CUdeviceptr,
        "__module__": __name__,
        "__doc__": Manager.__doc__,
    }
    return type("MillpondMemoryManager", bases, members)
