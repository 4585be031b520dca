# SPDX-License-Identifier: Apache-2.0
"""Models of single operators, by the tables that there are of them."""

import importlib

from single_case import model_of

# The modules of each. What they have of arrays takes seconds to make, so they are imported where they are asked for.
TABLES = {"operators": ("singles_operators", "singles_contrib"), "shapes": ("singles_shapes",),
          "kinds": ("singles_kinds",), "contrib": ("singles_contrib_more",)}


def modules_of(table):
    return [importlib.import_module(name) for name in TABLES[table]]


def subjects(table, only, kinds):
    """(name, model, pairs of label and feed) of each row of a table whose name holds `only` or a part between
    commas, by kinds."""
    for module in modules_of(table):
        left_out = {"f32": getattr(module, "HALF_ONLY", ()), "f16": module.FLOAT_ONLY, "bf16": module.FLOAT_ONLY}
        for name, row in module.CASES.items():
            for kind in kinds:
                full = f"{name}_{kind}"
                if any(part in full for part in only.split(",")) and name not in left_out[kind]:
                    model, feed = model_of(name, row, kind)
                    yield full, model, [("", feed)]
