# SPDX-License-Identifier: Apache-2.0
"""The C extension: pools and their blocks. Everything here is also found in `millpond` itself."""

from collections.abc import Callable, Mapping
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, TypedDict, TypeVar, final, overload, type_check_only

from typing_extensions import Buffer as ReadableBuffer
from typing_extensions import CapsuleType, Self

_Target = TypeVar("_Target", bound=ReadableBuffer)

@type_check_only
class SupportsCudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

# None: no stream: the host uses the memory, or work in an order that the caller keeps; freeing it says that nothing
# uses it any more. An int: a native handle (0 and 1 are the legacy default stream, 2 is the thread's own).
Stream = int | SupportsCudaStream | None

class Error(RuntimeError):
    """What failed, with which value, and what to do, in one sentence."""

class OutOfMemoryError(Error, MemoryError):
    """The pool and its device have no memory left; the message lists usage by client."""

class InvalidArgumentError(Error, ValueError):
    """An argument is not what it must be."""

class NotFoundError(Error, LookupError):
    """There is no such device, block, hook or folder."""

class UnsupportedError(Error, NotImplementedError):
    """This pool, device or process cannot do what was asked for; in a child of a fork, anything."""

@type_check_only
class Stats(TypedDict):
    """The fields of mp_pool_stats; bytes and counts. `limit` is None where there is none."""

    limit: int | None
    in_use: int
    requested: int
    in_use_max: int
    total: int
    total_max: int
    alloc_size_max: int
    allocs: int
    frees: int
    reserves: int
    extensions: int
    shrinkages: int
    failures: int
    events: int
    waits: int

@type_check_only
class Share(TypedDict):
    """Usage by client or stream. `name` of a client; `stream` of a stream (None: without one)."""

    name: str
    stream: int | None
    in_use: int
    requested: int
    blocks: int
    free: int
    allocs: int

@type_check_only
class BlockInfo(TypedDict):
    address: int
    size: int
    requested: int
    region: int
    region_size: int
    stream: int | None
    client: str

@final
class Buffer(ReadableBuffer):
    """A block allocated by a pool; freed with its last reference, in the order of its stream.

    Speaks `__cuda_array_interface__` (version 3) and DLPack as a flat array of bytes, and where the memory is the
    host's (the emulated device, pinned memory) the buffer protocol. Any thread may drop it, without a context and at
    exit too. A DLPack tensor or memoryview of it keeps the block; a user of `__cuda_array_interface__` keeps the
    Buffer.
    """

    @property
    def address(self) -> int:
        """Where it begins. Raises InvalidArgumentError once it is freed."""
    @property
    def size(self) -> int:
        """Bytes as asked for."""
    @property
    def nbytes(self) -> int:
        """The same as `size`, as arrays call it."""
    @property
    def stream(self) -> int | None:
        """Handle of the stream it was allocated on."""
    @property
    def pool(self) -> Pool: ...
    def record_use(self, stream: Stream, /) -> None:
        """Work queued on `stream`, another one, from now on uses it too: that comes after earlier users of the memory,
        which is allocated again only after it. Raises Error where the memory waits for a stream that is being captured
        without the pool's knowledge."""
    def free(self, stream: Stream = ...) -> None:
        """Gives it back now, in the order of `stream` (by default its own). A second call does nothing. Memory that
        DLPack has passed on goes back with its last user. Raises BufferError while there are memoryviews of it."""
    @overload
    def copy_to_host(self, target: None = None, stream: Stream = ...) -> bytearray:
        """Its bytes, or as many as `target` has room for, in memory of the host: in `target`, which has the buffer
        protocol and no gaps, or in a new bytearray. Returns that. Waits for what is queued on `stream`, by default its
        own, and for the copy."""
    @overload
    def copy_to_host(self, target: _Target, stream: Stream = ...) -> _Target: ...
    def copy_from_host(self, source: ReadableBuffer, stream: Stream = ...) -> None:
        """Copies `source`, which has the buffer protocol and no gaps, to its begin. Waits for what is queued on
        `stream`, by default its own, and for the copy."""
    def __int__(self) -> int:
        """The address."""
    def __index__(self) -> int: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...
    def __bytes__(self) -> bytes:
        """A copy of memory that the host can read; BufferError where it cannot."""
    def _repr_html_(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Frees it."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """AttributeError if the memory is the host's, as the protocol asks. `stream`: the one it was allocated on."""
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A capsule; the block stays allocated until the consumer lets go, on whatever thread.

        stream: the consumer's. It is made to wait for all that is queued on the buffer's stream, and counts as a
        further user of the block (record_use). -1 leaves both to the consumer. For memory of the host, None waits for
        the buffer's stream. Raises BufferError for another device or a copy.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """(2, N): "cuda:N"; (3, 0): pinned memory of a GPU; (1, 0): memory of the emulated device."""

@final
class Pool:
    """One user's handle on the pool of a device's memory, which all users of the process share.

    device: "cuda:N", "host:N" (the emulated device), "cuda", "host" or "auto" (the first GPU, else emulated).
    memory: "device", or "pinned" memory of the host for that device.
    client: whom statistics name; at most 31 bytes of UTF-8.
    options: arena options, with or without "arena."; see docs/memory.md. Bool becomes 0 or 1.
    Raises InvalidArgumentError, NotFoundError, Error. All methods may be called from any thread; none keeps the
    interpreter lock while it waits for the device or for another thread.
    """

    def __new__(
        cls,
        device: str = "auto",
        *,
        memory: Literal["device", "pinned"] = "device",
        client: str = "python",
        options: Mapping[str, object] | None = None,
    ) -> Self: ...
    @property
    def device(self) -> str:
        """ "cuda:0" """
    @property
    def device_name(self) -> str: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def is_emulated(self) -> bool: ...
    @property
    def memory(self) -> Literal["device", "pinned"]: ...
    @property
    def bus_id(self) -> str:
        """Where the GPU is on the PCI bus, the same in every process; "" for none."""
    @property
    def client(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def alloc(self, size: int, stream: Stream = None) -> Buffer:
        """Allocates `size` bytes for work queued on `stream` after this call. Raises OutOfMemoryError."""
    def reserve(self, size: int, /) -> Buffer:
        """Memory outside the arena, for what stays."""
    def alloc_address(self, size: int, stream: Stream = None, /) -> int:
        """As alloc, but an address that must be freed by hand: for adapters that keep their own objects."""
    def free_address(self, address: int, stream: Stream = ..., /) -> None:
        """Frees in the order of `stream`, by default the one it was allocated on."""
    def record_use(self, address: int, stream: Stream, /) -> None:
        """Work queued from now on on `stream`, not the one of the allocation, uses it too; as Buffer's."""
    def find(self, address: int, /) -> BlockInfo:
        """Describes the allocated block that contains `address`. Raises NotFoundError."""
    def stream_settled(self, stream: Stream, /) -> None:
        """All work queued on `stream` so far has ended: what was freed on it may be used on any stream."""
    def stream_gone(self, stream: Stream, /) -> None:
        """`stream` is about to be destroyed; waits for its work. Needed, since drivers use handles again."""
    def stream_mark(self, producer: Stream, /) -> int:
        """A number for this moment of `producer`; the caller records an event on it right after."""
    def stream_ordered(self, consumer: Stream, producer: Stream, mark: int) -> None:
        """`consumer` waits for the event recorded after `mark`: what `producer` freed before may be used on it."""
    def capture_begin(self, stream: Stream, capture: Capture | None = None) -> Capture:
        """`stream` is about to be captured into a graph, whose memory the Capture keeps apart from now on."""
    def capture_end(self, stream: Stream, /) -> None: ...
    def shrink(self) -> int:
        """Gives unused memory back to the device, which it waits for. Returns the bytes."""
    def add_hook(self, hook: Callable[[int], bool], /) -> None:
        """`hook(size)` is called before a request of `size` bytes fails; it returns whether it freed anything. What it
        raises is reported (sys.unraisablehook) and counts as False. It stays until remove_hook, close, or the end of
        this Pool; not more than 16 of a pool's users together."""
    def remove_hook(self, hook: Callable[[int], bool], /) -> None:
        """Returns after no thread runs in it. Raises NotFoundError; UnsupportedError inside a hook."""
    def stats(self) -> Stats: ...
    def reset_peaks(self) -> None: ...
    def clients(self) -> list[Share]: ...
    def streams(self) -> list[Share]: ...
    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the device itself."""
    def dump(self) -> str: ...
    def _repr_html_(self) -> str: ...
    def trace(self, capacity: int, stacks: int = 0) -> None:
        """Keeps the last `capacity` events; 0 stops and forgets. With `stacks`, up to that many Python frames (at most
        64) of each thread that asks for memory."""
    def write_trace(self, path: str | PathLike[str], format: Literal["html", "snapshot", "rmm"] | None = None) -> None:
        """By default the format that the name asks for: .html, .pickle, .csv."""
    def ipc_export(self, address: int, /) -> tuple[bytes, int]:
        """A handle of 64 bytes, and how far into its memory the block begins."""
    def ipc_open(self, handle: bytes, offset: int, size: int, /) -> Buffer:
        """Memory that another process has exported; closed with its last reference, after the device has ended what
        is queued. `millpond.open_ipc` finds the device, too. Raises InvalidArgumentError for a handle of this process,
        of one that has ended, or of memory that it has freed."""
    def enable_peer(self, ordinal: int, /) -> None:
        """The device `ordinal` of the same kind may use all memory that Millpond has of this pool's device, expandable
        regions too. Raises UnsupportedError where the two are not connected."""
    def close(self) -> None:
        """No more requests through it. Buffers stay valid. Called when the last reference goes."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Capture:
    """Memory set apart for a captured graph; released when the last reference goes, or by release()."""

    def release(self) -> None: ...

def version() -> str:
    """Of the C library that is loaded."""

def get_limit() -> int:
    """The most that all pools of the process may have together, in bytes; 0: no limit."""

def set_limit(bytes: int, /) -> None:
    """0: no limit. A limit below current usage only prevents growth."""

def log_start(receive: Callable[[int, str, str, int, float, int], bool], /) -> None:
    """From now on receive(level, text, file, line, seconds, thread) gets the log's lines; it returns whether it has
    kept one."""

def log_end() -> None:
    """Hands over the last lines."""

def shortages() -> int:
    """How many requests for memory have failed so far in this process."""

def log_flush() -> None:
    """Returns when the lines so far are handed over, or a second later."""

def log_threshold(level: int | None, /) -> int:
    """Sets the highest level that is written, from -1 (nothing) to 3 (debug); None only tells it."""

def make_label(kind: str, node: str | None, tensor: str | None, /) -> int:
    """The number of a label; see millpond.label."""

def set_label(label: int, /) -> int:
    """From now on this thread allocates under the label; returns the one before."""
