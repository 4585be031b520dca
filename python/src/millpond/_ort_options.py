# SPDX-License-Identifier: Apache-2.0
"""What a session runs with.

A session gives itself a name by a configuration entry. The provider leaves the options that it settled on under that
name in the library, where they stay as long as the session does.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections import Counter
from typing import Any

from millpond import _native
from millpond._core import InvalidArgumentError

NAME_KEY = "millpond.session"
STRICT_KEY = "millpond.strict"  # "1": an option that is not taken is an error
HOST_KEY = "millpond.host"  # "1": the emulated device is meant
LEFT = "/left to the CPU"  # behind the name: the nodes that the provider leaves to the CPU on purpose

_numbers = itertools.count(1)
_find = ctypes.CDLL(_native.PATH).mp_note_find
_find.restype = ctypes.c_int
_find.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]


def name_session(options: Any) -> None:
    """Gives a session that will be made with these SessionOptions a name, unless it has one."""
    with contextlib.suppress(Exception):  # its error for an entry that is not there has no class of its own
        if options.get_session_config_entry(NAME_KEY):
            return
    options.add_session_config_entry(NAME_KEY, f"session {next(_numbers)}")


def _text_of(name: str) -> str | None:
    length = ctypes.c_size_t()
    if _find(name.encode(), None, 0, ctypes.byref(length)) != 0:
        return None
    while True:  # a text that is made when it is looked for may be longer the next time
        text = ctypes.create_string_buffer(length.value + 1)
        if _find(name.encode(), text, len(text), ctypes.byref(length)) != 0:
            return None
        if length.value < len(text):
            return text.value.decode()


def _name_of(session: Any) -> str | None:
    try:
        return session.get_session_options().get_session_config_entry(NAME_KEY)
    except Exception:  # noqa: BLE001  ONNX Runtime's errors have no class in common
        return None


def text_of(session: Any, behind: str) -> str | None:
    """What the provider has left under the session's name with this behind it; None for nothing."""
    name = _name_of(session)
    return _text_of(name + behind) if name else None


def nodes_left(session: Any) -> Counter[tuple[str, str, str]]:
    """{(operator, domain, name): how many} of the nodes that the provider leaves to the CPU on purpose."""
    text = text_of(session, LEFT)
    lines = (line.split("\t") for line in (text or "").split("\n") if line)  # names may hold other ends of lines
    return Counter((operator, domain, node) for operator, domain, node, *_ in lines)


def effective_options(session: Any) -> dict[str, str]:
    """The provider's options that a session runs with: what was given, wherever it was, and the defaults.

    The session has a name if session() made it, or if its SessionOptions have the configuration entry
    "millpond.session". Raises InvalidArgumentError for one without, and for one that is not on the provider.
    """
    name = _name_of(session)
    if name is None:
        raise InvalidArgumentError(
            f"the session has no name by which its options are found; make it with session(), or set the session "
            f"configuration entry {NAME_KEY}"
        )
    text = _text_of(name)
    if text is None:
        raise InvalidArgumentError(f"the session named {name!r} is not on the provider")
    return dict(line.split("=", 1) for line in text.splitlines())
