# SPDX-License-Identifier: Apache-2.0
"""Dask: the GPU libraries of each worker on one pool, whose arrays move to the host before a request fails.

    import millpond.dask
    millpond.dask.install(client, limit=0.9)      # workers that are there and those that come

or without a change of the program, in the scheduler and the workers:

    dask scheduler --preload millpond.dask
    DASK_MILLPOND__LIMIT=0.9 dask worker --preload millpond.dask tcp://scheduler:8786

Importing this module imports `distributed`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millpond import _dask_dashboard as _dashboard
from millpond import _dask_data as _data
from millpond._core import Buffer, Error, InvalidArgumentError, Pool, set_limit

try:
    _dask: Any = importlib.import_module("dask")
    _sizeof: Any = importlib.import_module("dask.sizeof").sizeof
    _protocol: Any = importlib.import_module("distributed.protocol")
    if TYPE_CHECKING:

        class WorkerPlugin: ...

        class SchedulerPlugin: ...
    else:
        from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
except ImportError as _error:
    raise ImportError(
        f"millpond.dask needs distributed, which cannot be imported ({_error}); pip install 'dask[distributed]'"
    ) from _error

__all__ = ["DashboardPlugin", "PoolPlugin", "dask_setup", "install"]

_logger = logging.getLogger("millpond")
_LIBRARIES = {"numba": ("numba_cuda", "numba_cuda_mlir"), "cupy": ("cupy",), "torch": ("torch",), "rmm": ("rmm",)}


def _install_numba() -> None:
    from millpond import numba

    numba.use()


def _install_cupy() -> None:
    from millpond import cupy

    cupy.install()


def _install_torch() -> None:
    from millpond import torch

    torch.install()


def _install_rmm() -> None:
    from millpond import rmm

    rmm.install()


_INSTALL: dict[str, Callable[[], None]] = {
    "numba": _install_numba,
    "cupy": _install_cupy,
    "torch": _install_torch,
    "rmm": _install_rmm,
}


def _is_there(library: str) -> bool:
    """Whether a library of that name that can use a GPU is installed."""
    if not any(importlib.util.find_spec(name) is not None for name in _LIBRARIES[library]):
        return False
    if library == "torch":
        return hasattr(importlib.import_module("torch")._C, "_cuda_customAllocator")
    return True


class _TextOfErrors(logging.Filter):
    """Dask keeps a worker's log, and in it each error with its frames, and in those what a task has had as inputs. A
    text says the same, and keeps no memory of the device."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            record.exc_info = None
        return True


_text_of_errors = _TextOfErrors()


class PoolPlugin(WorkerPlugin):
    """Puts the GPU libraries of a worker on one pool.

    libraries: of "numba", "cupy", "torch" and "rmm" those that get their memory from the pool; "auto": all that are
    installed. On the emulated device there is none of them. A library that has used the GPU before keeps what it has;
    PyTorch then refuses, and the plugin with it.
    limit: the most that all pools of the worker may have: bytes, a text such as "8 GB", or a part of the device's
    memory up to 1.0.
    spill: before a request fails, arrays that wait for their next task are moved to the host, the one that has waited
    longest first, and from there to disk, as Dask does it.
    device: as for `millpond.Pool`. options: of the pool; "arena.expandable" unless it is set, so that memory that was
    freed in pieces serves a large request.
    """

    name = "millpond"

    def __init__(
        self,
        *,
        libraries: str | Sequence[str] = "auto",
        limit: float | str | None = None,
        spill: bool = True,
        device: str = "auto",
        options: Mapping[str, object] | None = None,
    ) -> None:
        named = () if libraries == "auto" else (libraries,) if isinstance(libraries, str) else tuple(libraries)
        for library in named:
            if library not in _LIBRARIES:
                raise InvalidArgumentError(f"there is no library {library!r} here; there are {', '.join(_LIBRARIES)}")
        self._libraries = None if libraries == "auto" else named
        self._limit = limit
        self._spill = spill
        self._device = device
        self._options = {"arena.expandable": True, **(options or {})}
        self._pool: Pool | None = None
        self._data: _data.DeviceData | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For the way to a worker: what a worker has made of it stays there."""
        return {**self.__dict__, "_pool": None, "_data": None}

    def setup(self, worker: Any) -> None:
        """What Dask calls in a worker."""
        pool = Pool(self._device, client=_data.CLIENT, options=self._options)
        if self._limit is not None:
            set_limit(_bytes_of(self._limit, pool))
        for library in self._wanted(pool):
            _INSTALL[library]()
        if self._spill:
            self._put_before(worker, pool)
        self._pool = pool
        worker.metrics.update(self._metrics())
        with contextlib.suppress(ImportError):
            from millpond import prometheus

            prometheus.register()

    def _wanted(self, pool: Pool) -> Sequence[str]:
        if pool.is_emulated:
            _logger.info("Dask's worker has the emulated device: %s", pool.device_name)
            return ()
        return [each for each in _LIBRARIES if _is_there(each)] if self._libraries is None else self._libraries

    def _put_before(self, worker: Any, pool: Pool) -> None:
        """The worker's data gets a place for arrays of the device, and the pool a way to have them moved."""
        data = worker.data
        if not isinstance(data, _data.DeviceData):
            data = _data.DeviceData(data, pool)
            worker.memory_manager.data = worker.state.data = data
        logging.getLogger("distributed.worker").addFilter(_text_of_errors)  # once, however often this is called
        _data.pressure_of(pool.device).add(data)
        self._data = data

    def teardown(self, worker: Any) -> None:
        """What Dask calls when the plugin, or the worker, goes. Libraries keep the pool, and data stays where it is."""
        if self._pool is not None and self._data is not None:
            _data.pressure_of(self._pool.device).discard(self._data)
        for name in self._metrics():
            worker.metrics.pop(name, None)
        self._pool = self._data = None

    def _metrics(self) -> dict[str, Callable[[Any], Any]]:
        """What a worker tells the scheduler with each heartbeat; numbers are columns of the dashboard's /workers."""
        return {
            "millpond": lambda _: self.figures(),
            "pool_in_use": lambda _: self.figures()["in_use"],
            "pool_reserved": lambda _: self.figures()["reserved"],
            "pool_on_host": lambda _: self.figures()["on_host"],
        }

    def figures(self) -> dict[str, Any]:
        """In a worker: what its pool has in use, by client, and what was moved to the host and back."""
        if self._pool is None:
            raise Error("the plugin has no pool")
        stats = self._pool.stats()
        return {
            "in_use": stats["in_use"],
            "in_use_max": stats["in_use_max"],
            "reserved": stats["total"],
            "failures": stats["failures"],
            "device": self._pool.device,
            "clients": {share["name"]: share["in_use"] for share in self._pool.clients()},
            "on_host": self._data.bytes_on_host if self._data is not None else 0,
            "moved_to_host": self._data.moved_to_host if self._data is not None else 0,
            "moved_to_device": self._data.moved_to_device if self._data is not None else 0,
        }


def _bytes_of(limit: float | str, pool: Pool) -> int:
    """A limit in bytes. Raises InvalidArgumentError for what is none."""
    try:
        if isinstance(limit, str):
            is_number = limit.replace(".", "", 1).isdigit()
            limit = float(limit) if is_number else int(_dask.utils.parse_bytes(limit or "none"))
        whole = pool.memory_info()[1]
        found = int(limit * whole) if isinstance(limit, float) and limit <= 1 else int(limit)
    except (ValueError, TypeError, OverflowError):
        found = 0
    if found <= 0:
        raise InvalidArgumentError(
            f'the limit is {str(limit)[:80]!r}; it is bytes, a text such as "8 GB", or a part of the memory up to 1.0'
        )
    return found


class DashboardPlugin(SchedulerPlugin):
    """Adds the page /pool-memory to the scheduler's dashboard, where that has one."""

    name = "millpond-dashboard"
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """What Dask calls in the scheduler."""
        if not _dashboard.add_page(scheduler):
            _logger.info("Dask's scheduler has no dashboard; /pool-memory was not added")


def install(client: Any, **settings: Any) -> None:
    """Registers PoolPlugin, made with these settings, in all workers, and DashboardPlugin in the scheduler.

    client: a `distributed.Client`. The package must be installed where workers and scheduler run.
    Raises what PoolPlugin raises, here or in a worker.
    """
    client.register_plugin(PoolPlugin(**settings))
    client.register_plugin(DashboardPlugin())


async def dask_setup(server: Any) -> None:
    """What `--preload millpond.dask` does in a worker and in a scheduler. Settings of PoolPlugin are entries of Dask's
    configuration below `millpond`, such as DASK_MILLPOND__LIMIT."""
    if hasattr(server, "plugin_add"):
        settings = _dask.config.get("millpond", {}) or {}
        await server.plugin_add(PoolPlugin(**settings), catch_errors=False)
    else:
        await server.register_scheduler_plugin(plugin=DashboardPlugin(), idempotent=True)


# ---- Buffers and outputs of sessions on the way between processes ----


def _nbytes(value: Any) -> int:
    return int(value.nbytes)


def _buffer_to_frames(block: Buffer) -> tuple[dict[str, Any], list[Any]]:
    return {}, [block.copy_to_host()]


def _buffer_of_frames(header: Mapping[str, Any], frames: Sequence[Any]) -> Buffer:
    return _data.to_buffer(memoryview(frames[0]) if frames else b"", "auto")


def _array_to_frames(array: Any) -> tuple[dict[str, Any], list[Any]]:
    return {"dtype": array.dtype, "shape": array.shape}, [_data.host_bytes(array.numpy())]


def _array_of_frames(header: Mapping[str, Any], frames: Sequence[Any]) -> Any:
    return _data.as_device_array(_buffer_of_frames(header, frames), header["dtype"], tuple(header["shape"]))


def _register_array() -> None:
    """Called by Dask when it first meets a type of this package's that it does not know."""
    with contextlib.suppress(ImportError):  # without ONNX Runtime there are no such arrays
        from millpond._ort_values import DeviceArray

        _protocol.dask_serialize.register(DeviceArray, _array_to_frames)
        _protocol.dask_deserialize.register(DeviceArray, _array_of_frames)
        _sizeof.register(DeviceArray, _nbytes)


_protocol.dask_serialize.register(Buffer, _buffer_to_frames)
_protocol.dask_deserialize.register(Buffer, _buffer_of_frames)
for _kind in (Buffer, _data.HostCopy, _data.HostTree):
    _sizeof.register(_kind, _nbytes)
for _dispatch in (_protocol.dask_serialize, _protocol.dask_deserialize, _sizeof):
    _dispatch.register_lazy("millpond", _register_array)
