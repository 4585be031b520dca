# SPDX-License-Identifier: Apache-2.0
"""`millpond bench --compare`: the rows of this bench beside those of an earlier one."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from millpond.cli._show import Show, milliseconds

ALIKE = {"device": "device", "onnxruntime": "version of ONNX Runtime", "bind": "--bind"}
Key = tuple[str, str]  # model and provider


class Earlier:
    """What `bench --json` or `--output` has written. Raises UsageError for a file that is something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.result: dict[str, Any] = _read(path)
        self.rows: defaultdict[Key, list[dict[str, Any]]] = defaultdict(list)  # models may have a name in common
        for row in self.result["rows"]:
            self.rows[row["model"], row["provider"]].append(row)

    def check_shared(self, keys: Sequence[Key]) -> None:
        """Before any work: something that will be timed is there."""
        if not any(key in self.rows for key in keys):
            there = ", ".join(f"{model} on {provider}" for model, provider in self.rows) or "nothing"
            raise click.UsageError(f"--compare {self.path}: it has none of what is to be timed; it has {there}")


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("model"), str) or not isinstance(row.get("provider"), str):
        return False
    return all(row.get(key) is None or _is_time(row[key]) for key in ("median", "least", "most"))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--compare {path}: it is not JSON: {error}") from None
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise click.UsageError(f"--compare {path}: it is not what `millpond bench --output` writes")
    return found


def _pair(now: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """A row of the comparison. Where the turns of both reach into each other, chance may be all there is."""
    pair: dict[str, Any] = {"model": now["model"], "provider": now["provider"], "before": None, "now": now["median"],
                            "ratio": None, "overlap": None}
    if before is None or before.get("median") is None or now["median"] is None:
        return pair
    pair["before"] = before["median"]
    pair["ratio"] = now["median"] / before["median"]
    if before.get("least") is not None and before.get("most") is not None:
        pair["overlap"] = now["least"] <= before["most"] and before["least"] <= now["most"]
    return pair


def compare(earlier: Earlier, result: dict[str, Any]) -> dict[str, Any]:
    """Each row of `result` beside the earlier one of that model and provider."""
    left = {key: list(rows) for key, rows in earlier.rows.items()}
    rows: list[dict[str, Any]] = []
    for row in result["rows"]:
        others = left.get((row["model"], row["provider"]))
        rows.append(_pair(row, others.pop(0) if others else None))
    gone = [{"model": model, "provider": provider} for (model, provider), others in left.items() for _ in others]
    unlike = [word for key, word in ALIKE.items() if earlier.result.get(key) != result[key]]
    return {"file": str(earlier.path), "unlike": unlike, "rows": rows, "gone": gone}


def _verdict(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return "was not timed then" if row["now"] is not None else "was not timed now"
    if row["overlap"]:
        return "turns overlap"
    return "slower" if row["ratio"] > 1 else "faster" if row["ratio"] < 1 else ""


def show(to: Show, compared: dict[str, Any]) -> None:
    to.heading(f"Beside {compared['file']}")
    if compared["unlike"]:
        to.line(f"not alike: {', '.join(compared['unlike'])}")
    lines = [
        (row["model"], row["provider"], milliseconds(row["before"]), milliseconds(row["now"]),
         "-" if row["ratio"] is None else f"{row['ratio']:.2f}", _verdict(row))
        for row in compared["rows"]
    ]
    lines += [(each["model"], each["provider"], "-", "-", "-", "is only there") for each in compared["gone"]]
    to.table(["model", "provider", "before ms", "now ms", "now / before", ""], lines,
             ["before ms", "now ms", "now / before"])


def slower(compared: dict[str, Any], percent: float) -> str:
    """A sentence for what takes longer than before by more than `percent`, or cannot be told; empty where nothing."""
    rows = [row for row in compared["rows"] if row["ratio"] is not None]
    if not rows:
        return "nothing could be compared"
    late = [row for row in rows if row["ratio"] > 1 + percent / 100]
    named = ", ".join(f"{row['model']} on {row['provider']} by {(row['ratio'] - 1) * 100:.0f} %" for row in late)
    return f"slower by more than {percent:g} %: {named}" if late else ""
