# SPDX-License-Identifier: Apache-2.0
"""Lets `millpond memory` look at this process's pools: off by default, and for processes of the same user only.

    millpond.monitor.start()     # or start the process with MILLPOND_MONITOR=1

Then `millpond memory PID` shows usage by client, live. A thread answers; it works only while a client asks.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from pathlib import Path

from millpond import _monitor
from millpond._core import Error

__all__ = ["is_running", "start", "stop"]

_lock = threading.Lock()
_server: _monitor.Server | None = None


def start() -> Path:
    """Starts to answer, and gives the path of the socket. Does nothing more the second time.

    Raises Error where the folder of sockets is not this user's own.
    """
    global _server
    with _lock:
        if _server is None:
            fresh = _monitor.Server()
            fresh.start()
            _server = fresh
        return _server.path


def stop() -> None:
    """Answers no more; the socket goes. Called at the end of the process."""
    global _server
    with _lock:
        server, _server = _server, None
    if server is not None:
        server.close()


def is_running() -> bool:
    """Whether this process answers."""
    return _server is not None


def start_if_asked() -> None:
    """Does what MILLPOND_MONITOR says; a program does not fail for it."""
    wish = os.environ.get("MILLPOND_MONITOR", "0")
    if wish in ("", "0"):
        return
    if wish != "1":
        warnings.warn(f"MILLPOND_MONITOR is {wish!r}; say 1 or 0", stacklevel=2)
        return
    try:
        start()
    except Error as error:
        warnings.warn(f"MILLPOND_MONITOR=1: {error}", stacklevel=2)


def _forget() -> None:
    """In a child of a fork: the socket is the parent's, and its thread is not here."""
    global _server, _lock
    _lock = threading.Lock()
    if _server is not None:
        _server.listener.close()
        _server = None


atexit.register(stop)
os.register_at_fork(after_in_child=_forget)
