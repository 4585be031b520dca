# SPDX-License-Identifier: Apache-2.0
"""Says what memory is for, so that a trace of the pool can tell."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Literal

from millpond import _core

if TYPE_CHECKING:
    from types import TracebackType

Kind = Literal["weights", "activations", "workspace", "other"]


class label(contextlib.ContextDecorator):  # noqa: N801  (a word of the language it extends, as contextlib's own)
    """What this thread allocates inside, from any pool and through any library, bears this label in traces.

        with millpond.label("attention", kind="activations", tensor="scores"):
            scores = cupy.empty((4096, 4096))

    Also a decorator of functions. Labels nest, and the innermost counts; that of a node, which the execution provider
    sets while it runs one, is further in than the caller's. Coroutines that take turns on a thread share its label.
    """

    def __init__(self, name: str, *, kind: Kind = "other", tensor: str | None = None) -> None:
        self._number = _core.make_label(kind, name, tensor)
        self._scopes = threading.local()  # one label may be set by several threads, and twice by each

    def __enter__(self) -> None:
        before = _core.set_label(self._number)
        self._scopes.__dict__.setdefault("before", []).append(before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core.set_label(self._scopes.before.pop())
