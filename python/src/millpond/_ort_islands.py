# SPDX-License-Identifier: Apache-2.0
"""What the islands of a session do: their nodes, passes, programs and kernels.

A session that is to be asked has an entry in its configuration. The provider then leaves a note under the session's
name, which is made when it is looked for, of the islands and the programs that there are by then.
"""

from __future__ import annotations

import json
from typing import Any

from millpond import _ort_options
from millpond._core import InvalidArgumentError

EXPLAIN_KEY = "millpond.explain"
ISLANDS = "/islands"  # behind the session's name


def ask(options: Any) -> None:
    """Sets SessionOptions up for a session whose islands will be looked at."""
    _ort_options.name_session(options)
    options.add_session_config_entry(EXPLAIN_KEY, "1")


def islands_of(session: Any) -> dict[str, Any]:
    """{"islands": [...], "outside": [...]} as src/ep/island/island_note.h describes it.

    Raises InvalidArgumentError for a session that was not made with ask().
    """
    text = _ort_options.text_of(session, ISLANDS)
    if text is None:
        raise InvalidArgumentError("the session was not asked to tell of its islands, or is not on the provider")
    found: dict[str, Any] = json.loads(text)
    return found
