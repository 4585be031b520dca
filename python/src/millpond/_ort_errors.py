# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's errors as the package's own, where the provider is behind them.

ONNX Runtime says little of a failure: that an allocation failed, but not why. The library keeps the sentence of each
request for memory that failed, and counts them; so it is known whether one failed during a call.
"""

from __future__ import annotations

import ctypes
import re
from types import TracebackType

from millpond import _native
from millpond._core import Error, InvalidArgumentError, OutOfMemoryError, UnsupportedError, shortages

TEXT_MAX = 1024
BETWEEN_RANKS = ("AllReduce", "AllGather", "AllToAll")
ALLOCATION = ("allocation failed", "failed to allocate", "out of memory", "no memory")
_KINDS = {"INVALID_ARGUMENT": InvalidArgumentError, "NOT_IMPLEMENTED": UnsupportedError}  # in what ONNX Runtime says

_find = ctypes.CDLL(_native.PATH).mp_shortage_find
_find.restype = None
_find.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
_THREAD, _PROCESS = 0, 1


def _sentence(whose: int) -> str:
    text = ctypes.create_string_buffer(TEXT_MAX)
    _find(whose, text, TEXT_MAX)
    return text.value.decode(errors="replace")


def _of_shortage(said: str) -> Error | None:
    sentences = _sentence(_THREAD), _sentence(_PROCESS)
    for sentence in sentences:
        if sentence and sentence in said:
            return OutOfMemoryError(sentence)
    if any(words in said.lower() for words in ALLOCATION):
        return OutOfMemoryError(sentences[_PROCESS])
    return None


def _of_provider(said: str) -> Error | None:
    """What the provider itself has refused on this thread."""
    sentence = _native.last_sentence()
    if not sentence or sentence not in said:
        return None
    return next((kind(sentence) for code, kind in _KINDS.items() if code in said), None)


def _of_ranks(said: str) -> Error | None:
    """An operator between ranks, whose schema the provider brings to processes that are ranks."""
    named = any(f"{domain}:{name}(" in said for domain in ("ai.millpond", "com.microsoft") for name in BETWEEN_RANKS)
    if not named or "is not a registered" not in said:
        return None
    return UnsupportedError("the model is for one of several ranks, and nothing says which rank this process is; start "
                            "all ranks with torchrun or mpirun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT")


def _of_fork(said: str) -> Error | None:
    """A request for memory in a process that was forked from one with sessions; there is no shortage."""
    if not any(words in said.lower() for words in ALLOCATION):
        return None
    sentence = _native.last_sentence()
    return UnsupportedError(sentence) if sentence and "was forked from" in sentence else None


def _of_kernels(said: str) -> Error | None:
    """A node that no provider has a kernel for. With other providers than the CPU's, ONNX Runtime names it so only."""
    found = re.search(r"Provider type for (\S+) node with name '(.*)' is not set", said)
    if found is None:
        return None
    return UnsupportedError(
        f"no provider has a kernel for the node {found[2]!r} of the operator {found[1]}, in the version that the model "
        "asks for; most have kernels from opset 7 on, to which onnx.version_converter converts older models"
    )


def explain(error: BaseException, shortages_before: int, refusals: bool = False) -> None:
    """Raises the package's error in place of ONNX Runtime's where memory was short, and returns where it was not.

    shortages_before: what shortages() said before the call that failed.
    refusals: and where the provider has refused what it was asked for.
    """
    if isinstance(error, Error) or not isinstance(error, Exception):
        return
    said = str(error)
    short = _of_shortage(said) if shortages() != shortages_before else None
    if short is not None:
        raise short from error
    forked = _of_fork(said)
    if forked is not None:
        raise forked from error
    refused = (_of_ranks(said) or _of_kernels(said) or _of_provider(said)) if refusals else None
    if refused is not None:
        raise refused from None  # ONNX Runtime's error is the same sentence with functions and lines before it


class translated:  # noqa: N801  used as a function is; a generator would cost more than the rest of it
    """Within it, errors are explained. Runs of models call explain() themselves, which costs less where none fails."""

    __slots__ = ("_before", "_refusals")

    def __init__(self, refusals: bool = False) -> None:
        self._refusals = refusals

    def __enter__(self) -> None:
        self._before = shortages()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            explain(error, self._before, self._refusals)
