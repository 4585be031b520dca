# SPDX-License-Identifier: Apache-2.0
"""Tables for notebooks, which show the `_repr_html_` of what a cell ends with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond._core import Pool


def _row(tag: str, cells: Iterable[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """An HTML table of texts."""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(_row("td", row) for row in rows)
    return f"<table>{title}<thead>{_row('th', columns)}</thead><tbody>{body}</tbody></table>"


def pool_table(pool: Pool) -> str:
    """Usage of a pool by client; called by the extension."""
    if pool.closed:
        return table((), (), repr(pool))
    stats = pool.stats()
    caption = f"{pool.memory} memory of {pool.device}, {pool.device_name}: {stats['in_use']:,} bytes in use, " \
              f"{stats['total']:,} reserved from the device"
    rows = [(share["name"], f"{share['in_use']:,}", share["blocks"], share["allocs"]) for share in pool.clients()]
    return table(("client", "bytes in use", "blocks", "requests"), rows, caption)
