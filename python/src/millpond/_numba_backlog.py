# SPDX-License-Identifier: Apache-2.0
"""Freed blocks of Numba that wait until it is safe to allocate them again.

Numba tells a memory manager neither the stream that an array is used on nor the one it is freed on. Its streams are
blocking ones: whatever is put into the legacy default stream comes after all that they were given before, and before
all that they are given later. So blocks are allocated and freed on the legacy default stream, and between the free and
the next use something is put into it. One such fence covers all blocks freed before, so blocks are collected first.

A `Backlog` may be given blocks by finalizers: on any thread, in the middle of a garbage collection, at exit. So that
call takes no lock that it could wait for, and raises nothing.
"""

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

ROOM = 64 << 20  # bytes that may wait
BLOCK_COST = 1 << 20  # what each block counts beside its bytes, so that no more than 64 wait


class ContextGoneError(Exception):
    """The context that the blocks belong to was destroyed, and they with it."""


class Deferral:
    """Whether cleaning up is put off: true inside `cuda.defer_cleanup()`, which may be nested."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return self._count > 0

    def begin(self) -> None:
        with self._lock:
            self._count += 1

    def end(self) -> bool:
        """Whether this was the outermost one."""
        with self._lock:
            self._count -= 1
            return self._count == 0


class Backlog:
    """Collects freed blocks, and frees them for good some at a time.

    free(block): gives one back; what it raises is ignored, as there is nobody to tell.
    fence(): makes what was given so far safe to allocate again; returns whether it did.
    deferral: while it is true, blocks are only collected, however many; flush() frees them all the same.
    """

    def __init__(
        self, free: Callable[[Any], object], fence: Callable[[], bool], deferral: Deferral | None = None
    ) -> None:
        self._free = free
        self._fence = fence
        self._deferral = Deferral() if deferral is None else deferral
        self._blocks: deque[Any] = deque()
        self._append = self._blocks.append
        self._room = ROOM  # about: an update lost to another thread only makes the next flush late
        self._is_lost = False
        self._lock = threading.Lock()
        self._holder = 0

    def give(self, block: Any, size: int) -> None:
        """Takes a block of `size` bytes that its owner is done with. Never raises; threads: any."""
        try:
            self._append(block)
            self._room -= size + BLOCK_COST
            if self._room <= 0 and not self._deferral:
                self.flush()
        except Exception:  # there is nobody to raise it to; what is left waits for the next flush
            return

    def catch_up(self) -> None:
        """Frees what was given while that was put off, where it is more than may wait."""
        if self._room <= 0:
            self.flush(patient=True)

    def flush(self, *, patient: bool = False) -> int:
        """Frees what was given so far, and returns how many blocks.

        Where another thread does so already it leaves the blocks to that one, unless `patient`.
        """
        if self._holder == threading.get_ident() or not self._lock.acquire(patient):
            return 0
        try:
            self._holder = threading.get_ident()
            return self._flush()
        finally:
            self._holder = 0
            self._lock.release()

    def _flush(self) -> int:
        count = len(self._blocks)  # before the fence: what comes later is not behind it
        try:
            if count == 0 or (not self._is_lost and not self._fence()):
                return 0
        except ContextGoneError:
            self._is_lost = True
        except RuntimeError:  # a broken GPU: its next user is told
            return 0
        self._room = ROOM
        for _ in range(count):
            block = self._blocks.popleft()
            try:
                if not self._is_lost:
                    self._free(block)
            except Exception:  # freed by other means: the pool refuses what is not allocated
                continue
        return count

    def __len__(self) -> int:
        return len(self._blocks)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # then the driver's functions may be gone, and the process ends anyway
            with contextlib.suppress(Exception):  # the last array of a context that is gone has gone
                self.flush()


class Driver:
    """The few driver calls that are made outside of Numba's own, in the context `handle` whatever the thread's is.

    Streams of other libraries may be in the middle of a capture: the calls take no part in it.
    """

    def __init__(self, binding: Any, handle: Any) -> None:
        self._binding = binding
        self._handle = handle
        self._legacy = binding.CUstream(int(binding.CU_STREAM_LEGACY))
        self._event: Any = None
        self._gone = {
            int(getattr(binding.CUresult, name))
            for name in (
                "CUDA_ERROR_CONTEXT_IS_DESTROYED",
                "CUDA_ERROR_INVALID_CONTEXT",
                "CUDA_ERROR_DEINITIALIZED",
                "CUDA_ERROR_INVALID_HANDLE",
            )
        }

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The thread's context is ours inside."""
        self._check(*self._binding.cuCtxPushCurrent(self._handle))
        try:
            relaxed = self._binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            mode = self._check(*self._binding.cuThreadExchangeStreamCaptureMode(relaxed))
            try:
                yield
            finally:
                self._binding.cuThreadExchangeStreamCaptureMode(mode)
        finally:
            self._binding.cuCtxPopCurrent()

    def fence(self) -> bool:
        """Puts something into the legacy default stream: blocking streams keep to its two sides."""
        with self.entered():
            if self._is_captured():
                return False
            if self._event is None:
                flags = int(self._binding.CUevent_flags.CU_EVENT_DISABLE_TIMING)
                self._event = self._check(*self._binding.cuEventCreate(flags))
            self._check(*self._binding.cuEventRecord(self._event, self._legacy))
            self._check(*self._binding.cuStreamWaitEvent(self._legacy, self._event, 0))
        return True

    def wait(self) -> bool:
        """Waits for the work of all blocking streams; for memory that the host uses next."""
        with self.entered():
            if self._is_captured():
                return False
            self._check(*self._binding.cuStreamSynchronize(self._legacy))
        return True

    def wait_for_all(self) -> bool:
        """Waits for the work of all streams."""
        with self.entered():
            if self._is_captured():
                return False
            self._check(*self._binding.cuCtxSynchronize())
        return True

    def call(self, name: str, *args: Any) -> None:
        """Calls a driver function for its effect. Raises RuntimeError where it fails."""
        with self.entered():
            self._check(*getattr(self._binding, name)(*args))

    def ordinal_of(self, context: Any) -> int:
        """The driver's number of the device of a context. Raises RuntimeError where that is none."""
        self._check(*self._binding.cuCtxPushCurrent(context))
        try:
            return int(self._check(*self._binding.cuCtxGetDevice()))
        finally:
            self._binding.cuCtxPopCurrent()

    def is_blocking(self, stream: int) -> bool:
        """Whether a stream of the present context keeps to the sides of the legacy default stream."""
        result, flags = self._binding.cuStreamGetFlags(stream)
        return int(result) == 0 and not int(flags) & int(self._binding.CUstream_flags.CU_STREAM_NON_BLOCKING)

    def __del__(self) -> None:
        if getattr(self, "_event", None) is not None and not sys.is_finalizing():
            with contextlib.suppress(Exception):  # with the context gone, the event is gone too
                self.call("cuEventDestroy", self._event)

    def _is_captured(self) -> bool:
        """Whether a blocking stream is being captured, so that nothing may go into the legacy default stream."""
        result, status = self._binding.cuStreamIsCapturing(self._legacy)
        if int(result) == int(self._binding.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT):
            return True
        none = self._binding.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return int(self._check(result, status)) != int(none)

    def _check(self, result: Any, value: Any = None) -> Any:
        if int(result) == 0:
            return value
        if int(result) in self._gone:
            raise ContextGoneError
        raise RuntimeError(f"the driver answered {result.name}")
