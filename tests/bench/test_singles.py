# SPDX-License-Identifier: Apache-2.0
"""The rows of operators that benchmarks compare: their names differ, and ONNX Runtime takes a model of each kind."""

import sys
from pathlib import Path

import onnxruntime as ort
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench")]

import singles  # noqa: E402
import singles_contrib  # noqa: E402
import singles_shapes  # noqa: E402

FEW = ("rmsnorm_row", "qmoe4_1_rows", "dequantize_blocks", "ffn_12x384x1536", "resize_linear", "gatherblock",
       "embedlayernorm", "topk_sort_1m", "concat_40_small")
# behind, constants of several kinds, inputs that are left out, operator sets of their own, many inputs


def test_no_name_is_there_twice():
    tables = (singles.CASES, singles_contrib.CASES, singles_shapes.CASES)
    names = set().union(*tables)
    assert sum(len(table) for table in tables) == len(names)
    for kind in (singles.FLOAT_ONLY, singles_contrib.FLOAT_ONLY, singles_contrib.HALF_ONLY, singles_shapes.FLOAT_ONLY):
        assert kind <= names


@pytest.mark.parametrize("name", FEW)
def test_a_model_is_valid(name):
    found = [row for table in singles.TABLES for row in singles.subjects(table, f"{name}_f")]
    assert found, "the row is there"
    for full, model, [(_, feed)] in found:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        inputs = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).get_inputs()
        assert {one.name: tuple(one.shape) for one in inputs} == {key: value.shape for key, value in feed.items()}, full
