# SPDX-License-Identifier: Apache-2.0
"""A process's pools for `millpond memory` to look at: a Unix socket, off by default, for its owner only.

The socket lies in a folder that only the user can enter, and both ends check by the kernel whose process the other one
is. A connection is one request and one reply, each a line of JSON:

    {"op": "state"}                                             the figures of all pools
    {"op": "dump", "device": "cuda:0", "memory": "device"}      a page of text
    {"op": "trace", "device": ..., "memory": ..., "events": N, "stacks": M}
                                                                keep the last N events, with M Python frames; 0 stops
    {"op": "page", "device": ..., "memory": ...}                the HTML timeline, as a file in that folder

A reply has "ok": true, or false and a sentence under "error". Requests and replies have a size limit and a time limit,
so a peer that says nothing holds up nobody for long.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import socket
import stat
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

import millpond
from millpond import _native
from millpond._core import Error, NotFoundError, Pool

CLIENT = "monitor"  # in the pool's statistics, left out of replies
REQUEST_MAX = 4096
REPLY_MAX = 16 << 20
REQUEST_S = 2.0
REPLY_S = 10.0
PAGE_S = 300.0
EVENTS_MAX = 1 << 24
STACKS_MAX = 64  # Python frames of an event
SUFFIX = ".sock"
CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid

_pools = ctypes.PyDLL(_native.PATH).millpond_monitor_pools
_pools.restype = ctypes.py_object


# ---- the folder ----


def _candidate() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        with contextlib.suppress(OSError):
            if os.stat(runtime).st_uid == os.geteuid():
                return Path(runtime) / "millpond"
    return Path(f"/tmp/millpond-{os.geteuid()}")


def folder(make: bool = False) -> Path:
    """Where sockets lie: $XDG_RUNTIME_DIR/millpond, or /tmp/millpond-<uid>. Raises Error where it cannot be trusted."""
    path = _candidate()
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
        found = os.lstat(path)
    except FileNotFoundError:
        return path
    except OSError as error:
        raise Error(f"{path} cannot be used for the monitor: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Error(f"{path} is not a folder of this user that nobody else can enter (mode 0700); remove it")
    return path


def _peer(connection: socket.socket) -> int:
    """The user that the process at the other end runs as."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return CREDENTIALS.unpack(raw)[1]


def _read_line(connection: socket.socket, size_max: int, seconds: float) -> bytes:
    """A line without its end. Raises Error where it is too long, too late, or cut off."""
    until, pieces, size = time.monotonic() + seconds, [], 0
    while not pieces or b"\n" not in pieces[-1]:
        left = until - time.monotonic()
        if left <= 0 or size > size_max:
            raise Error("the line is too long" if size > size_max else f"nothing came in {seconds:g} s")
        connection.settimeout(left)
        try:
            piece = connection.recv(65536)
        except TimeoutError:
            continue
        if not piece:
            raise Error("the connection ended early")
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces).partition(b"\n")[0]


# ---- the server ----


def _open(request: dict[str, Any]) -> Pool:
    device, memory = request.get("device"), request.get("memory", "device")
    if (device, memory, False) not in _pools():
        raise NotFoundError(f"the process has no pool of {memory} memory of {device}")
    return Pool(str(device), memory=memory, client=CLIENT)


def _shares(shares: list[Any]) -> list[dict[str, Any]]:
    return [dict(share) for share in shares if share["name"] != CLIENT]


def _figures(device: str, memory: str, is_external: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"device": device, "memory": memory, "external": is_external}
    if is_external:  # only a holder of its table of functions can open it
        return about
    with Pool(device, memory=memory, client=CLIENT) as pool:  # type: ignore[arg-type]
        free, total = pool.memory_info()
        about.update(name=pool.device_name, emulated=pool.is_emulated, stats=dict(pool.stats()))
        about.update(clients=_shares(pool.clients()), streams=[dict(share) for share in pool.streams()])
        about.update(device_free=free, device_total=total)
    return about


def pool_figures() -> list[dict[str, Any]]:
    """What all pools of this process have in use; of an external one only that it is there."""
    return [_figures(*each) for each in _pools()]


def _state(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "millpond": millpond.version(),
        "pid": os.getpid(),
        "program": sys.argv[0] if sys.argv else "",
        "time": time.time(),
        "limit": millpond.get_limit() or None,
        "pools": pool_figures(),
    }


def _dump(request: dict[str, Any]) -> dict[str, Any]:
    with _open(request) as pool:
        return {"text": pool.dump()}


def _trace(request: dict[str, Any]) -> dict[str, Any]:
    events = request.get("events")
    if not isinstance(events, int) or not 0 <= events <= EVENTS_MAX:
        raise Error(f"events is {events!r}; it must be a number from 0 to {EVENTS_MAX}")
    stacks = request.get("stacks", 0)
    if not isinstance(stacks, int) or not 0 <= stacks <= STACKS_MAX:
        raise Error(f"stacks is {stacks!r}; it must be a number from 0 to {STACKS_MAX}")
    with _open(request) as pool:
        pool.trace(events, stacks)
    return {"events": events}


def _page(request: dict[str, Any]) -> dict[str, Any]:
    name = f"{os.getpid()}-{secrets.token_hex(8)}.html"
    with _open(request) as pool:
        pool.write_trace(folder() / name, "html")
    return {"file": name}


OPERATIONS = {"state": _state, "dump": _dump, "trace": _trace, "page": _page}


def answer(line: bytes) -> dict[str, Any]:
    """The reply to a request."""
    try:
        request = json.loads(line)
        operation = OPERATIONS.get(request.get("op")) if isinstance(request, dict) else None
        if operation is None:
            raise Error(f"a request is a JSON object whose op is one of {', '.join(OPERATIONS)}")
        return {"ok": True, **operation(request)}
    except Exception as error:  # noqa: BLE001  nothing that is sent may end the thread
        return {"ok": False, "error": str(error)}


class Server(threading.Thread):
    """Answers requests, one at a time."""

    def __init__(self) -> None:
        super().__init__(name="millpond monitor", daemon=True)
        self.path = folder(make=True) / f"{os.getpid()}{SUFFIX}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()  # of a process that had this number before
            self.listener.bind(str(self.path))
            os.chmod(self.path, 0o600)
            self.listener.listen(8)
        except OSError as error:
            self.listener.close()
            raise Error(f"the monitor cannot listen on {self.path}: {error}") from None

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # it was shut down
                return
            with contextlib.suppress(OSError, Error), connection:  # it went away, or said nothing
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        if _peer(connection) != os.geteuid():
            return
        reply = json.dumps(answer(_read_line(connection, REQUEST_MAX, REQUEST_S))).encode()
        if len(reply) > REPLY_MAX:
            reply = json.dumps({"ok": False, "error": "the reply is too long"}).encode()
        connection.settimeout(REPLY_S)
        connection.sendall(reply + b"\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.join(REQUEST_S + REPLY_S)
        self.listener.close()


# ---- the client ----


def processes() -> list[int]:
    """Numbers of this user's processes that can be looked at, those whose socket answers."""
    found = []
    for path in sorted(folder().glob(f"*{SUFFIX}")):
        with contextlib.suppress(Error, ValueError):
            pid = int(path.stem)
            with _connect(pid):
                found.append(pid)
    return sorted(found)


def _connect(pid: int) -> socket.socket:
    path = folder() / f"{pid}{SUFFIX}"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(REQUEST_S)
        connection.connect(str(path))
        if _peer(connection) != os.geteuid():
            raise Error(f"{path} is answered by a process of another user")
    except (OSError, Error) as error:
        connection.close()
        if isinstance(error, ConnectionRefusedError):  # nobody listens there any more
            with contextlib.suppress(OSError):
                path.unlink()
        if isinstance(error, Error):
            raise
        raise NotFoundError(
            f"process {pid} cannot be looked at: start it with MILLPOND_MONITOR=1, or call millpond.monitor.start() "
            "in it"
        ) from None
    return connection


def ask(pid: int, op: str, **more: Any) -> dict[str, Any]:
    """The reply of a process. Raises NotFoundError where it is not there, Error with what it has to say."""
    seconds = PAGE_S if op == "page" else REPLY_S
    with _connect(pid) as connection:
        try:
            connection.sendall(json.dumps({"op": op, **more}).encode() + b"\n")
            reply = json.loads(_read_line(connection, REPLY_MAX, seconds))
        except (OSError, ValueError, Error) as error:
            raise Error(f"process {pid} gave no answer: {error}") from None
    if not isinstance(reply, dict) or not reply.pop("ok", False):
        raise Error(f"process {pid}: {reply.get('error') if isinstance(reply, dict) else 'its answer makes no sense'}")
    return reply
