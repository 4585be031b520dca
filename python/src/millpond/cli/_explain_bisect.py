# SPDX-License-Identifier: Apache-2.0
"""Finds the first rewrite of a model's islands that changes a result beyond rounding.

MILLPOND_PASSES==N lets the passes do N rewrites in all islands of a session together, so the rewrite is found by
halving: with N a result is as it is node by node, with N + 1 it is not. Graphs of the two are compared as texts.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millpond import _ort_beyond_numpy as beyond
from millpond.cli import _options

VARIABLE = "MILLPOND_PASSES"


@contextlib.contextmanager
def _passes(words: str) -> Iterator[None]:
    """For sessions made meanwhile; what the environment says besides stays."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ",".join(filter(None, [before, words]))
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


class Subject:
    """A model that is run with so many rewrites."""

    def __init__(self, path: Path, given: dict[str, Any], wishes: Any, tolerance: float | None) -> None:
        from millpond.cli import _inputs

        self.path, self.given, self.tolerance = path, given, tolerance
        self.device = _options.find_device(given["device"])
        self.options = _options.provider_options(given["options"])
        session = self._session(self.options | {"fusion": "0"})
        self.names = [output.name for output in session.get_outputs()]
        self.feeds = _inputs.feeds(session, wishes)
        self.expected = beyond.run(session, self.names, self.feeds)

    def _session(self, options: dict[str, str]) -> Any:
        import millpond.onnxruntime as mort
        from millpond import _ort_islands
        from millpond._ort_native import ort

        prepared = _options.quiet(ort.SessionOptions(), self.given["threads"])
        _ort_islands.ask(prepared)
        return mort.session(str(self.path), self.device, options=options, session_options=prepared)

    def islands(self, rewrites: int | None) -> tuple[list[dict[str, Any]], list[Any]]:
        """The islands with so many rewrites (None: all), and the outputs that differ from those without islands."""
        from millpond import _ort_islands
        from millpond.cli import _compare

        with _passes("" if rewrites is None else f"={rewrites}"):
            session = self._session({"fusion": "1"} | self.options)
        results = beyond.run(session, self.names, self.feeds)
        compared = (
            _compare.compare(name, result, expected, self.tolerance)
            for name, result, expected in zip(self.names, results, self.expected, strict=True)
        )
        return _ort_islands.islands_of(session)["islands"], [each for each in compared if not each.ok]


def _changes(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Any]:
    """What one rewrite does: the island, the pass, and the lines of its text that are others."""
    for old, new in zip(before, after, strict=True):
        if old["after"] != new["after"]:
            lines = difflib.unified_diff(old["after"].splitlines(), new["after"].splitlines(), lineterm="", n=0)
            return {"island": new["name"], "pass": new["last_pass"],
                    "lines": [line for line in lines if not line.startswith(("---", "+++", "@@"))]}
    return {"island": None, "pass": None, "lines": []}


def search(path: Path, given: dict[str, Any], wishes: Any, tolerance: float | None) -> dict[str, Any]:
    """What was found: {"agrees", "rewrites", "first", "island", "pass", "lines", "differences"}. `first` counts from
    1; 0 is for a difference that is there without any rewrite."""
    subject = Subject(path, given, wishes, tolerance)
    islands, wrong = subject.islands(None)
    total = sum(island["rewrites"] for island in islands)
    found = {"model": str(path), "rewrites": total, "agrees": not wrong, "first": None, "island": None, "pass": None,
             "lines": [], "differences": [asdict(each) for each in wrong]}
    if not wrong:
        return found
    before, also_wrong = subject.islands(0)
    if also_wrong:
        return found | {"first": 0}
    good, bad, after = 0, total, islands
    while bad - good > 1:
        middle = (good + bad) // 2
        islands, wrong = subject.islands(middle)
        if wrong:
            bad, after = middle, islands
        else:
            good, before = middle, islands
    return found | {"first": bad} | _changes(before, after)


def verdict(found: dict[str, Any]) -> str:
    outputs = ", ".join(each["output"] for each in found["differences"])
    if found["first"] == 0:
        return f"{outputs}: other results than node by node, also without any rewrite"
    return (f"{outputs}: other results from rewrite {found['first']} of {found['rewrites']} on, of the pass "
            f"{found['pass']}; MILLPOND_PASSES=-{found['pass']} leaves it out")


def words(found: dict[str, Any]) -> list[str]:
    if found["agrees"]:
        return [f"the results are the same with all {found['rewrites']} rewrites as node by node"]
    figures = [
        f"{each['output']}: largest difference {each['largest']:.3g}, relative {each['relative']:.3g}"
        if each["largest"] is not None else f"{each['output']}: {each['note'] or 'other values'}"
        for each in found["differences"]
    ]
    where = [f"rewrite {found['first']}, pass {found['pass']}, {found['island']}:"] if found["first"] else []
    return [*figures, *where, *found["lines"]]
