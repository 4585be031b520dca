# SPDX-License-Identifier: Apache-2.0
"""The C library's log as the logger "millpond" of Python's `logging`.

The logger's level decides what the library writes; MILLPOND_LOG is that level to begin with. A line that no handler
would get goes where it goes without Python: to ONNX Runtime's log once the provider is registered, else to stderr.
"""

import atexit
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millpond import _core

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)  # by the C library's numbers
_WORDS = {"off": -1, "error": 0, "warning": 1, "info": 2, "debug": 3}
_OFF = logging.CRITICAL + 1

_logger = logging.getLogger("millpond")
_asked = _WORDS.get(os.environ.get("MILLPOND_LOG", "").lower())


class _Levels(dict[int, bool]):
    """What the logger remembers of levels; `logging` forgets it whenever the level of any logger changes."""

    def clear(self) -> None:
        super().clear()
        follow()


def follow() -> None:
    """Has the C library write what the logger's level lets through; nobody says when `disabled` changes."""
    least = max(_logger.getEffectiveLevel(), _logger.manager.disable + 1)
    _core.log_threshold(sum(level >= least for level in _LEVELS) - 1)


def _thread_name(ident: int) -> str:
    return next((thread.name for thread in threading.enumerate() if thread.ident == ident), f"C-{ident:x}")


def _receive(level: int, text: str, file: str, line: int, created: float, thread: int) -> bool:
    """Hands a line to the logger; False where nobody has set up logging, and the line is worth a place elsewhere."""
    if not _logger.hasHandlers():
        return level > (_LEVELS.index(logging.WARNING) if _asked is None else _asked)
    if not _logger.isEnabledFor(_LEVELS[level]):
        return True
    record = _logger.makeRecord(_logger.name, _LEVELS[level], file, line, text, (), None)
    record.relativeCreated -= (record.created - created) * 1000
    record.created, record.msecs = created, created % 1 * 1000
    record.thread, record.threadName = thread, _thread_name(thread)
    _logger.handle(record)
    return True


@contextmanager
def flushed() -> Iterator[None]:
    """What the C library logs inside has been handed over at the end, unless a handler takes longer than a second."""
    try:
        yield
    finally:
        _core.log_flush()


def start() -> None:
    """Takes lines from now on, until the interpreter ends; `logging` is still there then."""
    if _asked is not None and _logger.level == logging.NOTSET:
        _logger.setLevel(_LEVELS[_asked] if _asked >= 0 else _OFF)
    if isinstance(getattr(_logger, "_cache", None), dict):
        _logger._cache = _Levels()  # type: ignore[attr-defined]
        follow()
    else:  # a Python where nobody says when levels change: _receive looks at the level of each line
        _core.log_threshold(len(_LEVELS) - 1)
    _core.log_start(_receive)
    atexit.register(_core.log_end)
