# SPDX-License-Identifier: Apache-2.0
"""The rows of operators that benchmarks compare: their names differ, and ONNX Runtime takes a model of each kind."""

import sys
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench")]

import singles  # noqa: E402

FEW = ("rmsnorm_row", "qmoe4_1_rows", "dequantize_blocks", "ffn_12x384x1536", "resize_linear", "gatherblock",
       "embedlayernorm", "topk_sort_1m", "concat_40_small", "topk_10_f64", "quantizelinear_u16")
# behind, constants of several kinds, inputs that are left out, operator sets of their own, many inputs, other types


def test_no_name_is_there_twice():
    modules = [module for table in singles.TABLES for module in singles.modules_of(table)]
    names = set().union(*(module.CASES for module in modules))
    assert sum(len(module.CASES) for module in modules) == len(names)
    for module in modules:
        assert set(module.CASES) >= module.FLOAT_ONLY | getattr(module, "HALF_ONLY", set())


@pytest.mark.parametrize("name", FEW)
def test_a_model_is_valid(name):
    found = [row for table in singles.TABLES for row in singles.subjects(table, f"{name}_f", ("f32", "f16"))]
    assert found, "the row is there"
    for full, model, [(_, feed)] in found:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        inputs = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).get_inputs()
        assert {one.name: tuple(one.shape) for one in inputs} == {key: value.shape for key, value in feed.items()}, full


def test_outputs_are_left_out_or_lie_where_inputs_do():
    for name, outputs in (("skiprmsnorm_sum", ["y0", "", "", "y3"]),
                          ("paged_token_2k", ["y0", "x3.shared", "x4.shared"])):
        ((_, model, _),) = singles.subjects("contrib", name, ("f16",))
        graph = onnx.load_from_string(model).graph
        assert list(graph.node[0].output) == outputs
        assert [one.name for one in graph.output] == [output for output in outputs if output]


def test_bfloat16_is_a_kind():
    ((full, model, [(_, feed)]),) = singles.subjects("shapes", "add_small", ("bf16",))
    assert full == "add_small_bf16"
    assert {value.dtype.name for value in feed.values()} == {"bfloat16"}
    shapes = onnx.shape_inference.infer_shapes(onnx.load_from_string(model), strict_mode=True).graph.output
    assert [one.type.tensor_type.elem_type for one in shapes] == [onnx.TensorProto.BFLOAT16]
