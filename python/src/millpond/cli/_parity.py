# SPDX-License-Identifier: Apache-2.0
"""`millpond parity`: what the provider covers, beside ONNX Runtime's own CUDA provider, or of a model.

The table of the CUDA provider's kernels is of onnxruntime-gpu 1.31.1 and comes with the package.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

import millpond
from millpond.cli import FAILED, _options
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show

TABLE = Path(millpond.__file__).with_name("cuda_kernels.tsv")
TABLE_VERSION = "onnxruntime-gpu 1.31.1"
INSERTED = {"MemcpyFromHost", "MemcpyToHost"}  # ONNX Runtime puts these in; no model has them

Operator = tuple[str, str]  # domain, name


@dataclass(frozen=True)
class Line:
    """An operator of a model. `why` is None where the provider has a kernel for this version of it."""

    operator: str
    version: int | None  # of its schema
    nodes: int
    why: str | None
    in_cuda: bool  # whether ONNX Runtime's CUDA provider has one


def their_versions() -> dict[Operator, list[tuple[int, int | None]]]:
    """{operator: [(first, last) version]} of ONNX Runtime's CUDA provider; an open end is None."""
    from millpond._ort_placement import plain

    table: dict[Operator, list[tuple[int, int | None]]] = {}
    with open(TABLE, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            first, _, last = row["versions"].rstrip("+").partition("-")
            end = None if row["versions"].endswith("+") else int(last or first)
            if row["op"] not in INSERTED:
                table.setdefault((plain(row["domain"]), row["op"]), []).append((int(first), end))
    return table


def title(operator: Operator) -> str:
    return ".".join(filter(None, operator))


# ---- the whole provider ----


def overview() -> dict[str, Any]:
    """Operators of both providers, by domain."""
    from millpond._ort_placement import Kernels

    kernels = Kernels()
    mine = {operator for operator in kernels.all if operator[1] not in INSERTED}
    other = set(their_versions())
    domains = sorted({domain for domain, _ in mine | other})

    def of(operators: set[Operator], domain: str) -> list[str]:
        return sorted(name for where, name in operators if where == domain)

    return {
        "compared_with": TABLE_VERSION,
        "operators": len(mine),
        "theirs": len(other),
        "shared": len(mine & other),
        "domains": [
            {"domain": domain or "ai.onnx", "here": of(mine, domain), "theirs": of(other, domain),
             "missing": of(other - mine, domain), "only_here": of(mine - other, domain)}
            for domain in domains
        ],
        "versions": {title(operator): kernels.versions(*operator) for operator in sorted(mine)},
    }


def _show_overview(show: Show, found: dict[str, Any], with_missing: bool) -> None:
    show.line(f"The provider has kernels for {found['operators']} operators; the CUDA provider of {TABLE_VERSION} for "
              f"{found['theirs']}, of which {found['shared']} are here.")
    rows = [
        (each["domain"], len(each["here"]), len(each["theirs"]), len(each["missing"]), len(each["only_here"]))
        for each in found["domains"]
    ]
    columns = ["domain", "here", "CUDA EP", "missing here", "only here"]
    show.table(columns, rows, columns[1:])
    for each in found["domains"] if with_missing else []:
        if each["missing"]:
            show.heading(f"Missing here, {each['domain']}")
            show.line(", ".join(each["missing"]))


# ---- a model ----


def static_lines(path: Path) -> list[Line]:
    """The operators of a model file as it is, before ONNX Runtime's optimisation."""
    from millpond import _onnx_file
    from millpond._ort_placement import NO_KERNEL, Reasons

    model, reasons, other = _onnx_file.read(path), Reasons(), their_versions()
    lines = []
    for operator, nodes in Counter((node.domain, node.operator) for node in model.nodes).items():
        opset = model.opsets.get(operator[0])
        schema = reasons.schemas.find(*operator, opset) if opset is not None else None
        since = schema.since_version if schema is not None else None
        why = reasons.missing(*operator, opset)
        if operator in model.functions and why == NO_KERNEL:
            why = "a function of the model, whose nodes take its place"
        covered = any(first <= (since or 0) <= (last or since or 0) for first, last in other.get(operator, ()))
        lines.append(Line(title(operator), since, nodes, why, covered))
    return sorted(lines, key=lambda line: (line.why is None, -line.nodes, line.operator))


def examine(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """A model's operators, and where its nodes are in a session."""
    import millpond.onnxruntime as mort
    from millpond import _ort_placement
    from millpond.cli._run import reasons

    lines = static_lines(path)
    with _ort_placement.watched() as (prepared, explain):
        _options.quiet(prepared, given["threads"])
        device = _options.find_device(given["device"])
        options = _options.provider_options(given["options"])
        placement = explain(mort.session(str(path), device, options=options, session_options=prepared))
    uncovered = [node for node in placement.elsewhere if not node.is_shape_work]
    return {
        "model": str(path),
        "operators": [asdict(line) for line in lines],
        "nodes": placement.counts,
        "elsewhere": [{"operator": op, "reason": why, "nodes": count} for op, why, count in reasons(placement)],
        "on_device": len(placement.nodes) - len(placement.elsewhere),
        "shape_work": len(placement.elsewhere) - len(uncovered),
        "uncovered": len(uncovered),
    }


def _show_model(show: Show, path: Path, found: dict[str, Any]) -> None:
    show.heading(f"{path.name}: its operators")
    columns = ["operator", "version", "nodes", "here", "CUDA EP", ""]
    rows = [
        (each["operator"], each["version"] or "-", each["nodes"], "no" if each["why"] else "yes",
         "yes" if each["in_cuda"] else "no", each["why"] or "")
        for each in found["operators"]
    ]
    show.table(columns, rows, ["version", "nodes"])
    show.heading(f"{path.name}: its nodes in a session")
    show.line(f"{found['on_device']} on the device; {found['shape_work']} left to the CPU, as they work on shapes; "
              f"{found['uncovered']} not covered")
    show.table(["operator", "nodes", "reason"],
               [(each["operator"], each["nodes"], each["reason"]) for each in found["elsewhere"]], ["nodes"])


@click.command("parity")
@click.argument("models", nargs=-1, type=_options.MODEL)
@_options.session_options
@click.option("--missing", is_flag=True, help="Name the operators that are missing here.")
@json_option
def command(models: tuple[Path, ...], missing: bool, as_json: bool, **given: Any) -> None:
    """Say which operators the provider covers: of models, or of ONNX Runtime's CUDA provider.

    For a model: its operators as the file has them, then where its nodes are after ONNX Runtime's optimisation, and
    why not on the device. Ends with 1 where a node that does not work on shapes is not on the device.
    """
    show = Show(as_json)
    if not models:
        found = overview()
        _show_overview(show, found, missing)
        show.data(found)
        return
    results = []
    with show.progress(len(models), "loading") as step:
        for path in models:
            step(path.name)
            results.append(examine(path, given))
    for path, result in zip(models, results, strict=True):
        _show_model(show, path, result)
    show.data(results)
    uncovered = sum(result["uncovered"] for result in results)
    if uncovered:
        raise Finding(FAILED, f"nodes that are not covered: {uncovered}")
