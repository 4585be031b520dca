# SPDX-License-Identifier: Apache-2.0
"""The memory manager that Numba makes for each of its contexts.

`Manager` has the methods; `manager_class` joins it with the base class of one of the two Numbas. A manager holds a
handle on the pool of its device. Finalizers of arrays refer to that handle and to the backlog, never to the manager or
its context: so arrays outlive both, and a block always goes back to the pool that allocated it.
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

from . import _numba_binding as cuda
from . import _numba_ipc
from ._core import Error, NotFoundError, OutOfMemoryError, Pool
from ._numba_backlog import Backlog, Deferral, Driver
from ._numba_binding import Dialect, dialect_of
from ._numba_close import share_contexts
from ._numba_native import NativeMemory
from ._numba_streams import Order, current, free_in_order

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
pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()  # of device memory, that managers opened; arrays keep theirs


class Manager:
    """Numba's interface for memory managers, version 1, over a pool."""

    is_millpond = True

    context: Any  # Numba's base class has it
    _driver: ModuleType  # Numba's, that the class was made for; and what each allocation needs of it:
    _dialect: Dialect
    _MemoryPointer: type
    _device_pointer: Callable[[int], Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Numba asks a manager without a context for its version, and gives one a context before there is a GPU.
        self._context = None if self.context is None else weakref.proxy(self.context)
        self._lock = threading.RLock()
        self._is_ready = False
        self._deferral = Deferral()
        self._shrinks_later = False
        self._pool: Pool | None = None
        self._pinned: Pool | None = None
        # What allocates device memory, and on which stream; one value, as another thread may open the pool meanwhile.
        self._usual: tuple[Callable[[int, int | None], int], int | None] = (self._open_and_alloc, 0)
        self._alloc_pinned: Callable[[int], int] = self._open_and_alloc_pinned
        self._give: Callable[[int, int], None]
        self._give_pinned: Callable[[int, int], None]
        self._backlogs: list[Backlog] = []
        self._gpu: Driver | None = None
        self._native: NativeMemory
        self._peers: set[int] = set()  # devices whose memory Numba has opened to this one

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
            share_contexts(self._driver)
            self.context.enable_peer_access = partial(_enable_peer_access, weakref.ref(self))
            self._is_ready = True

    def _open(self) -> None:
        with self._lock:
            if self._pool is not None:
                return
            pool = Pool(self.device_name(), client=CLIENT, options=settings.pool_options())
            if not pool.is_emulated:
                self._gpu = Driver(self._dialect.binding, self.context.handle)
            self._native = NativeMemory(self._gpu, self._deferral)
            self._give = self._giver(pool, is_pinned=False)
            # With "sync" any stream may use a block at once, so it is allocated without one: nothing uses it any more.
            self._usual = (pool.alloc_address, None if settings.streams == "sync" else 0)
            self._pool = pool
            pools.add(pool)
            active.add(self)

    def _giver(self, pool: Pool, *, is_pinned: bool) -> Callable[[int, int], None]:
        """What finalizers of this pool's blocks call, with the address and the size."""
        waiting = [self._native.backlog]
        if settings.streams == "fast":
            give = partial(_free_now, pool.free_address)
        else:
            backlog = self._make_backlog(pool, is_pinned)
            self._backlogs.append(backlog)
            waiting.append(backlog)
            give = backlog.give
        pool.add_hook(partial(_flush_under_pressure, [weakref.ref(backlog) for backlog in waiting]))
        return give

    def _make_backlog(self, pool: Pool, is_pinned: bool) -> Backlog:
        free: Callable[[int], None] = pool.free_address
        fence: Callable[[], bool] = _always
        if self._gpu is not None and settings.streams == "sync":
            fence = self._gpu.wait_for_all
            free = partial(_free_for_all, pool.free_address)
        elif self._gpu is not None:
            fence = self._gpu.wait if is_pinned else self._gpu.fence
        return Backlog(free, fence, self._deferral)

    def _open_and_alloc(self, size: int, stream: int | None) -> int:
        self._open()
        alloc, stream = self._usual
        return alloc(size, stream)

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
        order = current.order
        if order is not None:
            return self._memalloc_in_order(size, order)
        alloc, stream = self._usual
        try:
            address = alloc(size, stream)
        except OutOfMemoryError:
            address = self._alloc_again(partial(alloc, size, stream))
        give = partial(self._give, address, size)
        return self._MemoryPointer(self._context, self._device_pointer(address), size, None, give)

    def _memalloc_in_order(self, size: int, order: Order) -> Any:
        """The same for a stream that the user has named, inside `millpond.numba.stream`."""
        if self._pool is None:
            self._open()
        pool = self._pool
        try:
            address = order.lend(pool, size)
        except OutOfMemoryError:
            address = self._alloc_again(partial(order.lend, pool, size))
        free = partial(free_in_order, pool, order.stream, address)
        return self._MemoryPointer(self._context, self._device_pointer(address), size, None, free)

    def _alloc_again(self, alloc: Callable[[], int]) -> int:
        """Tries again without arrays that only a reference cycle keeps."""
        gc.collect()
        self._flush_all()
        try:
            return alloc()
        except OutOfMemoryError as error:
            raise self._driver.CudaAPIError(self._dialect.error_code(cuda.OUT_OF_MEMORY), str(error)) from error

    # ---- host memory ----

    def memhostalloc(self, size: int, mapped: bool = False, portable: bool = False, wc: bool = False) -> Any:
        """Page-locked memory: of the pinned pool, which is portable, where it need be neither mapped nor
        write-combined; of the driver otherwise. Raises CudaAPIError."""
        if mapped or wc or not settings.pinned:
            return self._memhostalloc_native(size, mapped, portable, wc)
        try:
            address = self._alloc_pinned(size)
        except OutOfMemoryError:
            address = self._alloc_again(partial(self._alloc_pinned, size))
        give = partial(self._give_pinned, address, size)
        return self._driver.PinnedMemory(self._context, self._dialect.host_pointer(address), size, finalizer=give)

    def _memhostalloc_native(self, size: int, mapped: bool, portable: bool, wc: bool) -> Any:
        self._open()
        flags = (
            (cuda.HOST_MAPPED if mapped else 0)
            | (cuda.HOST_PORTABLE if portable else 0)
            | (cuda.HOST_COMBINED if wc else 0)
        )
        address = self._ask_driver(self._dialect.host_alloc, size, flags)
        finalizer = self._native.finalizer("cuMemFreeHost", address, size)
        pointer = self._dialect.host_pointer(address)
        if not mapped:
            return self._driver.PinnedMemory(self._context, pointer, size, finalizer=finalizer)
        return self._keep(self._driver.MappedMemory, pointer, size, finalizer)

    def mempin(self, owner: Any, pointer: Any, size: int, mapped: bool = False) -> Any:
        """Page-locks memory of `owner` until the result goes; keeps the owner until then. Raises CudaAPIError."""
        self._open()
        address = cuda.handle_of(pointer)
        self._ask_driver(self._dialect.host_register, address, size, cuda.HOST_MAPPED if mapped else 0)
        finalizer = self._native.unpin(address, owner)
        pointer = self._dialect.host_pointer(address)
        if not mapped:
            return self._driver.PinnedMemory(self._context, pointer, size, owner=owner, finalizer=finalizer)
        return self._keep(partial(self._driver.MappedMemory, owner=owner), pointer, size, finalizer)

    def memallocmanaged(self, size: int, attach_global: bool) -> Any:
        """Managed memory, of the driver. Raises CudaAPIError."""
        self._open()
        attach = cuda.ATTACH_GLOBAL if attach_global else cuda.ATTACH_HOST
        address = self._ask_driver(self._dialect.managed_alloc, size, attach)
        finalizer = self._native.finalizer("cuMemFree", address, size)
        return self._keep(self._driver.ManagedMemory, self._device_pointer(address), size, finalizer)

    def _keep(self, kind: Callable[..., Any], pointer: Any, size: int, finalizer: Any) -> Any:
        try:
            memory = kind(self._context, pointer, size, finalizer=finalizer)
        except Exception:
            finalizer()
            raise
        return self._native.keep(memory, finalizer)

    def _ask_driver(self, call: Callable[..., Any], *args: Any) -> Any:
        """Calls Numba's driver; where memory is short, once more after the pool has returned what it can."""
        try:
            return call(*args)
        except self._driver.CudaAPIError as error:
            if int(error.code) != cuda.OUT_OF_MEMORY:
                raise
        gc.collect()
        self._flush_all()
        self._shrink()
        return call(*args)

    # ---- other processes ----

    def get_ipc_handle(self, memory: Any) -> Any:
        """A handle of the region that `memory` lies in, with its place there. Memory of another library gets one of
        its own allocation. Raises UnsupportedError where the pool's memory cannot be shared."""
        self._open()
        address = memory.device_pointer_value or 0
        try:
            block = self._pool.find(address)
        except NotFoundError:
            return _numba_ipc.wrap_handle(self._driver, super().get_ipc_handle(memory))
        raw, offset = self._pool.ipc_export(block["address"])
        source = self.context.device.get_device_identity()
        return _numba_ipc.make_handle(self._driver, memory, raw, source, offset + address - block["address"])

    # ---- other devices ----

    def enable_peer_access(self, peer_context: Any, flags: int = 0) -> None:
        """As Numba's own of the context: this device may use the memory of the other one from now on; also that of the
        pool which the driver opens in other ways. Raises CudaAPIError, where Numba has opened it before too."""
        self._open()
        ordinal = self._gpu.ordinal_of(peer_context)
        try:
            type(self.context).enable_peer_access(self.context, peer_context, flags)
        except self._driver.CudaAPIError as error:
            if int(error.code) != cuda.PEER_ALREADY or ordinal in self._peers:
                raise  # otherwise another library has opened it, or the pool for ONNX Runtime
        kind = self._pool.device.partition(":")[0]
        Pool(f"{kind}:{ordinal}", client=CLIENT, options=settings.pool_options()).enable_peer(self._pool.ordinal)
        self._peers.add(ordinal)

    # ---- cleaning up ----

    def get_memory_info(self) -> Any:
        """Free and total bytes: what the device has left, and what the pool has of it and nobody uses."""
        self._open()
        if not self._deferral:
            self.flush()
        free, total = self._pool.memory_info()
        stats = self._pool.stats()
        return self._driver.MemoryInfo(free=min(free + stats["total"] - stats["in_use"], total), total=total)

    def flush(self) -> int:
        """Gives back all blocks that wait for it, but for the driver's while cleaning up is deferred; returns how
        many."""
        count = sum(backlog.flush(patient=True) for backlog in self._backlogs)
        return count if self._deferral or self._pool is None else count + self._native.backlog.flush(patient=True)

    def _flush_all(self) -> None:
        """The same when memory is short."""
        for backlog in (*self._backlogs, self._native.backlog):
            backlog.flush(patient=True)

    def reset(self) -> None:
        """Gives back what is free: blocks to the pool, regions to the driver. Arrays that live stay valid."""
        self._is_ready = False
        self._return_arguments()
        if self._pool is None:
            return
        if self._deferral:
            self._shrinks_later = True
            return
        self.flush()
        self._shrink()

    def _shrink(self) -> None:
        for pool in (self._pool, self._pinned):
            if pool is not None:
                with contextlib.suppress(Error):  # during a capture, or with the GPU broken: a later time will do
                    pool.shrink()

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Inside, freed blocks are only collected, so that nothing waits for the device: until the outermost one ends,
        or memory runs out."""
        self._deferral.begin()
        try:
            yield
        finally:
            if self._deferral.end() and self._pool is not None:
                self._clean_up()

    def _clean_up(self) -> None:
        """What was put off."""
        with self._lock:
            shrinks, self._shrinks_later = self._shrinks_later, False
        if shrinks:
            self.flush()
            self._shrink()
        else:
            for backlog in (*self._backlogs, self._native.backlog):
                backlog.catch_up()

    def retire(self) -> None:
        """The context is about to be forgotten."""
        active.discard(self)

    # ---- NumPy arguments of kernels ----

    def _take_arguments(self) -> None:
        """Numba gets memory for NumPy arguments from the device object of cuda.core, past its memory manager."""
        device = getattr(self.context.device, "_dev", None)
        if not settings.kernel_arguments or not hasattr(device, "memory_resource"):
            return
        try:
            from ._numba_arguments import ArgumentDevice, ArgumentResource

            resource = ArgumentResource(self._pool, self._usual[1], self._give, self._gpu)
        except Exception:  # another version of cuda.core: arguments stay outside of the pool, as without this
            return
        self.context.device._dev = ArgumentDevice(getattr(device, "millpond_device", device), resource)

    def _return_arguments(self) -> None:
        device = None if self.context is None else getattr(self.context.device, "_dev", None)
        if hasattr(device, "millpond_device"):
            self.context.device._dev = device.millpond_device


def _enable_peer_access(manager: "weakref.ref[Manager]", peer_context: Any, flags: int = 0) -> None:
    """What a context has in place of Numba's function."""
    manager().enable_peer_access(peer_context, flags)


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


def _flush_under_pressure(backlogs: "list[weakref.ref[Backlog]]", size: int) -> bool:
    """Frees memory that waited, before any request fails; returns whether there was any."""
    waiting = [backlog() for backlog in backlogs]
    return sum(backlog.flush(patient=True) for backlog in waiting if backlog is not None) > 0


# ---- the class ----


@functools.cache
def manager_class(driver: ModuleType) -> type:
    """The class of managers for one Numba, given its driver module. Raises UnsupportedError where it has none."""
    dialect = dialect_of(driver)
    bases = (Manager, driver.GetIpcHandleMixin, driver.BaseCUDAMemoryManager)
    members = {
        "_driver": driver,
        "_dialect": dialect,
        "_MemoryPointer": driver.MemoryPointer,
        "_device_pointer": staticmethod(dialect.device_pointer),
        "__module__": __name__,
        "__doc__": Manager.__doc__,
    }
    return type("MillpondMemoryManager", bases, members)
