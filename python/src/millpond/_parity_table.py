# SPDX-License-Identifier: Apache-2.0
"""What the provider has registered beside what ONNX Runtime's own CUDA provider has: covered, missing, wider.

Compared is schema version by schema version, as ONNX Runtime knows them: a kernel serves a version of an operator's
schema with some element types for each of its type constraints. Used by `millpond parity` and by docs/operators.md.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("cuda_kernels.tsv")
TABLE_VERSION = "onnxruntime-gpu 1.31.1"
INSERTED = {"MemcpyFromHost", "MemcpyToHost"}  # ONNX Runtime puts these in; no model has them

# The provider brings these operators' schemas, where ONNX Runtime lacks them.
BROUGHT = {(domain, name) for domain in ("ai.millpond", "com.microsoft")
           for name in ("AllReduce", "AllGather", "AllToAll")}

Operator = tuple[str, str]  # domain, empty for ONNX's own; name
Types = dict[str, set[str]]  # {constraint: element types}


@dataclass(frozen=True)
class Row:
    """A row of the CUDA provider's table: versions of an operator's schema, an open end as None."""

    first: int
    last: int | None
    types: Types

    def has(self, version: int) -> bool:
        return self.first <= version <= (self.last or version)


@dataclass
class Difference:
    """One operator. Versions are those that schemas begin with; types are {version: {constraint: types}}."""

    here: bool
    theirs: bool
    missing_versions: list[int] = field(default_factory=list)
    missing_types: dict[int, Types] = field(default_factory=dict)
    wider_versions: list[int] = field(default_factory=list)
    wider_types: dict[int, Types] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """missing, partly, covered, only here"""
        if not self.theirs:
            return "only here"
        if not self.here:
            return "missing"
        return "partly" if self.missing_versions or self.missing_types else "covered"

    @property
    def is_wider(self) -> bool:
        return self.here and self.theirs and bool(self.wider_versions or self.wider_types)


def _types_of(text: str) -> Types:
    """ "T=float,double; T1=int32" """
    pairs = (part.strip().partition("=") for part in text.split(";") if "=" in part)
    return {name: set(kinds.split(",")) for name, _, kinds in pairs}


def theirs() -> dict[Operator, list[Row]]:
    """The CUDA provider's table."""
    table: dict[Operator, list[Row]] = {}
    with open(TABLE, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            first, _, last = row["versions"].rstrip("+").partition("-")
            end = None if row["versions"].endswith("+") else int(last or first)
            domain = "" if row["domain"] == "ai.onnx" else row["domain"]
            if row["op"] not in INSERTED:
                types = _types_of(row["type_constraints"] or "")
                table.setdefault((domain, row["op"]), []).append(Row(int(first), end, types))
    return table


def ours(kernels: Mapping[Operator, Iterable[Any]]) -> dict[Operator, dict[int, Types]]:
    """{operator: {version: types}} of kernel definitions as ONNX Runtime gives them."""
    table: dict[Operator, dict[int, Types]] = {}
    for (domain, name), definitions in kernels.items():
        if name in INSERTED:
            continue
        versions = table.setdefault((domain, name), {})
        for definition in definitions:
            types = versions.setdefault(definition.version_range[0], {})
            for constraint, texts in definition.type_constraints.items():
                types.setdefault(constraint, set()).update(map(_element, texts))
    return table


def known(schemas: Mapping[Operator, Iterable[Any]]) -> dict[Operator, dict[int, Types]]:
    """{operator: {version: types that the schema allows}} of ONNX Runtime's schemas."""
    return {
        operator: {
            schema.since_version: {each.type_param_str: set(map(_element, each.allowed_type_strs))
                                   for each in schema.type_constraints}
            for schema in found
        }
        for operator, found in schemas.items()
    }


def _element(text: str) -> str:
    """ "tensor(float)" as "float", "seq(tensor(float))" as "seq(float)" """
    return re.sub(r"tensor\((\w+)\)", r"\1", text)


def _more(left: Types, right: Types) -> Types:
    """The types of `left` that `right` lacks, by the constraints that both name."""
    return {name: more for name in sorted(left.keys() & right.keys()) if (more := left[name] - right[name])}


def _only(types: Types, allowed: Types) -> Types:
    """Without the types that the schema does not allow: no model has them."""
    return {name: kinds & allowed.get(name, kinds) for name, kinds in types.items()}


def _compare(mine: dict[int, Types], rows: list[Row], allowed: Mapping[int, Types]) -> Difference:
    difference = Difference(bool(mine), bool(rows))
    for version in sorted(allowed.keys() | mine.keys()):
        row = next((row for row in rows if row.has(version)), None)
        if row is None:
            if version in mine:
                difference.wider_versions.append(version)
        elif version not in mine:
            difference.missing_versions.append(version)
        else:
            if missing := _more(_only(row.types, allowed.get(version, {})), mine[version]):
                difference.missing_types[version] = missing
            if wider := _more(mine[version], row.types):
                difference.wider_types[version] = wider
    return difference


def compare(mine: dict[Operator, dict[int, Types]], other: dict[Operator, list[Row]],
            allowed: Mapping[Operator, Mapping[int, Types]]) -> dict[Operator, Difference]:
    """Every operator of the two; `allowed` is what known() gives."""
    return {
        operator: _compare(mine.get(operator, {}), other.get(operator, []), allowed.get(operator, {}))
        for operator in sorted(mine.keys() | other.keys())
    }


def against_schemas(mine: Mapping[Operator, Mapping[int, Types]],
                    allowed: Mapping[Operator, Mapping[int, Types]]) -> list[str]:
    """What kernels are registered for and no schema has, a sentence each: ONNX Runtime never chooses such a kernel, and
    its nodes run elsewhere without a word. `allowed` is what known() gives."""
    found = []
    for operator, versions in sorted(mine.items()):
        schemas = allowed.get(operator, {})
        if not schemas and operator in BROUGHT:
            continue
        title = ".".join(filter(None, operator))
        for version, types in sorted(versions.items()):
            if version not in schemas:
                found.append(f"{title}: no schema begins with version {version}")
                continue
            for name, kinds in sorted(types.items()):
                if name not in schemas[version]:
                    has = ", ".join(sorted(schemas[version])) or "none"
                    found.append(f"{title} version {version}: the schema has no type constraint {name}; it has {has}")
                elif more := kinds - schemas[version][name]:
                    found.append(f"{title} version {version}: the schema does not allow {', '.join(sorted(more))} "
                                 f"for {name}")
    return found


STATES = ("covered", "partly", "missing", "only here")


def by_domain(differences: Mapping[Operator, Difference]) -> list[dict[str, Any]]:
    """One row a domain: how many operators are in each state, and how many are wider here."""
    rows = []
    for domain in sorted({domain for domain, _ in differences}):
        inside = [difference for (where, _), difference in differences.items() if where == domain]
        counts = {state: sum(each.state == state for each in inside) for state in STATES}
        rows.append({"domain": domain or "ai.onnx", **counts, "wider": sum(each.is_wider for each in inside)})
    return rows


def types_by_version(table: Mapping[int, Types], written: Any = lambda kinds: ", ".join(sorted(kinds))) -> str:
    """"T: int8, int16 (14, 13); T1: ..." from {version: {constraint: types}}: versions that say the same together."""
    same: dict[str, list[int]] = {}
    for version in sorted(table, reverse=True):
        text = "; ".join(f"{name}: {written(kinds)}" for name, kinds in table[version].items())
        same.setdefault(text, []).append(version)
    return "; ".join(f"{text} ({', '.join(map(str, versions))})" for text, versions in same.items())
