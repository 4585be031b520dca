#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/op/core/signature.def: what ONNX Runtime's schemas say of the operators that have a row here.

    signatures.py [--check]

ONNX Runtime checks the nodes of a model by its schemas. The nodes of a compiled model's islands it does not see, so
src/op/core/signature.c checks them by this table. --check writes nothing, and fails where the file is not current.
"""

import re
import sys

import generated
from generated import ROOT
from onnxruntime.capi import onnxruntime_pybind11_state as ort

TABLE = ROOT / "src/op/core/signature.def"
DOMAINS = ("", "com.microsoft")
# As in base/dtype.h.
NUMBERS = {"float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
           "float16": 10, "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16, "float8e4m3fn": 17,
           "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4e2m1": 23,
           "uint2": 24, "int2": 25, "float8e8m0": 26}  # fmt: skip
# What the provider brings the schemas of, see src/ep/placement/brought.h.
FLOATS, MOVED = ["float", "float16", "double", "bfloat16"], ["int64", "bool"]
BROUGHT = {"AllReduce": FLOATS, "AllGather": FLOATS + MOVED, "AllToAll": FLOATS + MOVED}
BROUGHT_DOMAINS = ("ai.millpond", "com.microsoft")
HEAD = """/* signature.def - inputs, outputs and required attributes of operators, by ONNX Runtime's schemas;
 * signature.c says how to read it. Written by tools/signatures.py.
 * SPDX-License-Identifier: Apache-2.0 */
"""


def bits(types):
    found = (re.fullmatch(r"tensor\((\w+)\)", text) for text in types)
    return sum({1 << NUMBERS[match[1]] for match in found if match and match[1] in NUMBERS})


def parameter(schema, given):
    """A parameter: its constraint, the types that it allows, and whether it may be left out or come often."""
    constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    name = given.typeStr if given.typeStr in constraints else ""
    types = constraints.get(given.typeStr, [given.typeStr])
    kinds = type(given.option)
    often = given.option == kinds.Variadic
    mark = "?" if given.option == kinds.Optional else "" if not often else "*" if given.isHomogeneous else "~"
    return f"{name}:{bits(types):x}{mark}"


def signature(schema):
    inputs = " ".join(parameter(schema, one) for one in schema.inputs)
    outputs = " ".join(parameter(schema, one) for one in schema.outputs)
    required = "".join(f"!{name}" for name, about in sorted(schema.attributes.items()) if about.required)
    return f"{inputs}>{outputs}{required}"


def table():
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/op").rglob("*.[ch]")))
    named = set(re.findall(r'"(\w+)"', text)) | set(re.findall(r"\b[A-Z_]+\((\w+),", text))
    rows = {(s.domain, s.name, s.since_version): s for s in ort.get_all_operator_schema()
            if s.domain in DOMAINS and s.name in named and s.name not in BROUGHT and not s.deprecated}  # fmt: skip
    lines = [f'SIGNATURE("{domain}", "{name}", {since}, "{signature(schema)}")'
             for (domain, name, since), schema in sorted(rows.items())]  # fmt: skip
    for domain in BROUGHT_DOMAINS:
        for name, types in BROUGHT.items():
            port = f"T:{sum(1 << NUMBERS[kind] for kind in types):x}"
            lines.append(f'SIGNATURE("{domain}", "{name}", 1, "{port}>{port}")')
    return HEAD + "/* clang-format off */\n" + "\n".join(lines) + "\n/* clang-format on */\n"


def texts():
    return {TABLE: table()}


if __name__ == "__main__":
    sys.exit(generated.main(__doc__, texts, "what ONNX Runtime's schemas say"))
