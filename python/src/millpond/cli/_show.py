# SPDX-License-Identifier: Apache-2.0
"""What commands print: text and tables for people, or JSON. Progress and notes go to stderr.

Colours, and tables that fit the window, are for terminals only; NO_COLOR is heeded. What goes to a file or a pipe is
plain text in columns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

STYLES = {"ok": "green", "missing": "yellow", "problem": "bold red", "note": "yellow", "no": "bold red"}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float | None) -> str:
    """Bytes with a unit."""
    if count is None:
        return "-"
    for unit in UNITS[:-1]:
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {UNITS[-1]}"


def milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def cell(text: object) -> Text:
    words = str(text)
    return Text(words, style=STYLES.get(words, ""))


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=any(columns))
    for column in columns:  # numbers stay whole, texts make room for them
        is_number = column in right
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> Iterator[str]:
    """Lines of text in columns; columns without names have no line for them."""
    texts = [*([list(columns)] if any(columns) else []), *([str(each) for each in row] for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    for row in texts:
        cells = (
            text.rjust(width) if column in right else text.ljust(width)
            for text, width, column in zip(row, widths, columns, strict=True)
        )
        yield "  ".join(cells).rstrip()


class Show:
    """Where a command's results go."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.out = Console(highlight=False, markup=False, emoji=False)
        self.notes = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def line(self, text: str = "") -> None:
        if not self.as_json:
            self.out.print(text, soft_wrap=True)

    def heading(self, text: str) -> None:
        if not self.as_json:
            self.out.print()
            self.out.print(text, style="bold", soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> None:
        if self.as_json or not rows:
            return
        if self.out.is_terminal:
            self.out.print(rich_table(columns, rows, right))
            return
        for line in plain_table(columns, rows, right):
            self.out.print(line, soft_wrap=True)

    def note(self, text: str) -> None:
        """Something beside the results."""
        self.notes.print(f"millpond: {text}", style="yellow", soft_wrap=True)

    def data(self, value: Any, in_a_line: bool = False) -> None:
        """The whole result, for programs."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, indent=None if in_a_line else 2) + "\n")
            sys.stdout.flush()

    @contextmanager
    def progress(self, total: int, text: str) -> Iterator[Any]:
        """A bar on a terminal; the function given moves it on and says what is done next."""
        if not self.notes.is_terminal:
            yield lambda text="", steps=1: None
            return
        bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(),
            console=self.notes, transient=True,
        )
        with bar:
            task = bar.add_task(text, total=total)

            def move(text: str = "", steps: int = 1) -> None:
                bar.update(task, advance=steps, **({"description": text} if text else {}))

            yield move
