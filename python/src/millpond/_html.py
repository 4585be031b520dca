# SPDX-License-Identifier: Apache-2.0
"""Tables for notebooks, which show the `_repr_html_` of what a cell ends with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from millpond._core import InvalidArgumentError

if TYPE_CHECKING:
    from millpond._core import Buffer, Pool


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


def buffer_table(buffer: Buffer) -> str:
    """Where a block is and whose; called by the extension."""
    pool = buffer.pool
    try:
        row = (f"{buffer.size:,}", hex(buffer.address), "none" if buffer.stream is None else hex(buffer.stream),
               pool.client, f"{pool.memory} memory of {pool.device}")
    except InvalidArgumentError:  # it is freed, perhaps by another thread just now
        return table((), (), repr(buffer))
    return table(("bytes", "address", "stream", "client", "memory"), [row], "Buffer")
