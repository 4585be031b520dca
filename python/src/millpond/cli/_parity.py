# SPDX-License-Identifier: Apache-2.0
"""`millpond parity`: what the provider covers, beside ONNX Runtime's own CUDA provider, or of a model.

The table of the CUDA provider's kernels is of onnxruntime-gpu 1.31.1 and comes with the package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from millpond import _parity_table
from millpond._parity_table import TABLE_VERSION, Operator
from millpond.cli import FAILED, _options
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show

SCHEMAS_OF = (1, 31)  # the ONNX Runtime whose schemas have every type that the rows have


def runtime() -> tuple[int, ...]:
    import onnxruntime  # noqa: PLC0415  (the command line starts without it)

    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


@dataclass(frozen=True)
class Line:
    """An operator of a model. `why` is None where the provider has a kernel for this version of it."""

    operator: str
    version: int | None  # of its schema
    nodes: int
    why: str | None
    in_cuda: bool  # whether ONNX Runtime's CUDA provider has one


def title(operator: Operator) -> str:
    return ".".join(filter(None, operator))


# ---- the whole provider ----


def overview() -> dict[str, Any]:
    """Operators of both providers, by domain; and how the versions and types of those that both have differ."""
    from millpond._ort_placement import Kernels, Schemas

    kernels, schemas = Kernels(), Schemas()
    mine, other = _parity_table.ours(kernels.all), _parity_table.theirs()
    known = _parity_table.known(schemas.all)
    differences = _parity_table.compare(mine, other, known)

    def of(operators: Iterable[Operator], domain: str) -> list[str]:
        return sorted(name for where, name in operators if (where or "ai.onnx") == domain)

    return {
        "compared_with": TABLE_VERSION,
        "operators": len(mine),
        "theirs": len(other),
        "shared": len(mine.keys() & other.keys()),
        "domains": [
            {"domain": counts["domain"], "here": of(mine, counts["domain"]), "theirs": of(other, counts["domain"]),
             "missing": of(other.keys() - mine.keys(), counts["domain"]),
             "only_here": of(mine.keys() - other.keys(), counts["domain"]),
             **{state: counts[state] for state in ("covered", "partly", "wider")}}
            for counts in _parity_table.by_domain(differences)
        ],
        "versions": {title(operator): kernels.versions(*operator) for operator in sorted(mine)},
        "differences": {title(operator): _as_data(each) for operator, each in differences.items()
                        if each.state == "partly" or each.is_wider},
        "against_schemas": _parity_table.against_schemas(mine, known),
    }


def _as_data(difference: _parity_table.Difference) -> dict[str, Any]:
    def plain(table: dict[int, _parity_table.Types]) -> dict[str, dict[str, list[str]]]:
        return {str(version): {name: sorted(kinds) for name, kinds in types.items()}
                for version, types in table.items()}

    return {"state": difference.state,
            "missing_versions": difference.missing_versions, "missing_types": plain(difference.missing_types),
            "wider_versions": difference.wider_versions, "wider_types": plain(difference.wider_types)}


def _said(versions: list[int], types: dict[str, dict[str, list[str]]]) -> str:
    """ "versions 1, 7; T: int8 (14)" """
    parts = [f"versions {', '.join(map(str, versions))}"] if versions else []
    by_number = {int(version): {name: set(kinds) for name, kinds in each.items()} for version, each in types.items()}
    return "; ".join([*parts, *filter(None, [_parity_table.types_by_version(by_number)])])


def _show_overview(show: Show, found: dict[str, Any], with_missing: bool, with_wider: bool) -> None:
    show.line(f"The provider has kernels for {found['operators']} operators; the CUDA provider of {TABLE_VERSION} for "
              f"{found['theirs']}, of which {found['shared']} are here.")
    rows = [
        (each["domain"], len(each["theirs"]), each["covered"], each["partly"], len(each["missing"]), each["wider"],
         len(each["only_here"]))
        for each in found["domains"]
    ]
    columns = ["domain", "CUDA EP", "covered", "in part", "missing", "wider", "only here"]
    show.table(columns, rows, columns[1:])
    for sentence in found["against_schemas"]:
        show.line(sentence)
    for each in found["domains"] if with_missing else []:
        if each["missing"]:
            show.heading(f"Missing here, {each['domain']}")
            show.line(", ".join(each["missing"]))
    differences = found["differences"].items()
    if with_missing:
        show.heading("Here in part: what is missing of an operator")
        show.table(["operator", "missing"], [(name, _said(each["missing_versions"], each["missing_types"]))
                                             for name, each in differences if each["state"] == "partly"], [])
    if with_wider:
        show.heading("Wider here: what the CUDA provider lacks of an operator")
        show.table(["operator", "more"], [(name, said) for name, each in differences
                                          if (said := _said(each["wider_versions"], each["wider_types"]))], [])


# ---- a model ----


def static_lines(path: Path) -> list[Line]:
    """The operators of a model file as it is, before ONNX Runtime's optimisation."""
    from millpond import _onnx_file
    from millpond._ort_placement import NO_KERNEL, Reasons

    model, reasons, other = _onnx_file.read(path), Reasons(), _parity_table.theirs()
    lines = []
    for operator, nodes in Counter((node.domain, node.operator) for node in model.nodes).items():
        opset = model.opsets.get(operator[0])
        schema = reasons.schemas.find(*operator, opset) if opset is not None else None
        since = schema.since_version if schema is not None else None
        why = reasons.missing(*operator, opset)
        if operator in model.functions and why == NO_KERNEL:
            why = "a function of the model, whose nodes take its place"
        covered = any(row.has(since or 0) for row in other.get(operator, ()))
        lines.append(Line(title(operator), since, nodes, why, covered))
    return sorted(lines, key=lambda line: (line.why is None, -line.nodes, line.operator))


def examine(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """A model's operators, and where its nodes are in a session."""
    import millpond.onnxruntime as mort
    from millpond import _ort_placement
    from millpond._ort_native import ort
    from millpond.cli._run import reasons

    lines = static_lines(path)
    device = _options.find_device(given["device"])
    options = _options.provider_options(given["options"])
    threads = given["threads"]

    def made(prepared: Any, more: dict[str, str]) -> Any:
        quiet = _options.quiet(prepared, threads)
        return mort.session(str(path), device, options={**options, **more}, session_options=quiet)

    placement = _ort_placement.explained(_ort_placement.placement_of(made(ort.SessionOptions(), {})), made)
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


# ---- many models ----


def models_in(paths: Iterable[Path]) -> list[Path]:
    """The models named, and those below folders named."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
        if not inside:
            raise click.BadParameter(f"there is no model (*.onnx) below {path}")
        found += inside
    return found


def examine_all(paths: list[Path], given: dict[str, Any], show: Show) -> list[dict[str, Any]]:
    """A report for each; where there are several, one that fails has its error in place of the rest."""
    results = []
    with show.progress(len(paths), "loading") as step:
        for path in paths:
            step(path.name)
            try:
                results.append(examine(path, given))
            except Exception as error:  # of ONNX Runtime, whose errors have no class in common
                if len(paths) == 1:
                    raise
                results.append({"model": str(path), "error": str(error).partition("\n")[0]})
    return results


def _show_sum(show: Show, results: list[dict[str, Any]]) -> None:
    """The models in one table, then why nodes of all of them are not on the device."""
    show.heading(f"{len(results)} models")
    show.table(["model", "on the device", "shapes", "not covered", ""],
               [(Path(each["model"]).name, each.get("on_device", "-"), each.get("shape_work", "-"),
                 each.get("uncovered", "-"), each.get("error", "")) for each in results],
               ["on the device", "shapes", "not covered"])
    reasons: Counter[tuple[str, str]] = Counter()
    for each in results:
        for line in each.get("elsewhere", ()):
            reasons[line["operator"], line["reason"]] += line["nodes"]
    show.table(["operator", "nodes", "reason"],
               [(operator, nodes, why) for (operator, why), nodes in reasons.most_common()], ["nodes"])


@click.command("parity")
@click.argument("models", nargs=-1, type=_options.MODEL_OR_FOLDER)
@_options.session_options
@click.option("--missing", is_flag=True, help="Name the operators, versions and types that are missing here.")
@click.option("--wider", is_flag=True, help="Name the versions and types that the CUDA provider lacks.")
@json_option
def command(models: tuple[Path, ...], missing: bool, wider: bool, as_json: bool, **given: Any) -> None:
    """Say which operators the provider covers: of models, of those in folders, or of ONNX Runtime's CUDA provider.

    Without a model each kernel is also checked against ONNX Runtime's schemas, and what no schema has ends with 1.

    For a model: its operators as the file has them, then where its nodes are after ONNX Runtime's optimisation, and
    why not on the device. Ends with 1 where a node that does not work on shapes is not on the device, or where one of
    several models cannot be loaded.
    """
    show = Show(as_json)
    if not models:
        found = overview()
        _show_overview(show, found, missing, wider)
        show.data(found)
        wrong = found["against_schemas"]
        if wrong and runtime() >= SCHEMAS_OF:  # an older one's schemas allow fewer types
            raise Finding(FAILED, f"registered for what no schema of ONNX Runtime has: {len(wrong)}")
        return
    results = examine_all(models_in(models), given, show)
    for result in results:
        if "error" not in result:
            _show_model(show, Path(result["model"]), result)
    if len(results) > 1:
        _show_sum(show, results)
    show.data(results)
    uncovered = sum(result.get("uncovered", 0) for result in results)
    failed = sum("error" in result for result in results)
    if uncovered or failed:
        said = [f"models that cannot be loaded: {failed}"] * bool(failed)
        raise Finding(FAILED, "; ".join(said + [f"nodes that are not covered: {uncovered}"] * bool(uncovered)))
