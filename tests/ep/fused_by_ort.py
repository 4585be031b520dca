# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime itself fuses for a provider of the name CUDAExecutionProvider, as small models.

    fused_by_ort.py FOLDER

Runs each on the provider under that name, node by node, with ONNX Runtime's optimisation, and on the CPU provider
without; prints {model: [operators of the optimised model, largest difference, nodes elsewhere]} as JSON.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper, parser

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
NAME = "CUDAExecutionProvider"
HEAD = '<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
RANDOM = np.random.default_rng(5)


def floats(*dims):
    return RANDOM.standard_normal(dims).astype(np.float32) * np.float32(0.5)


ROWS, WIDTH = 6, 32
GELU = """
    a = Div (x, root)  b = Erf (a)  c = Add (b, one)  d = Mul (x, c)  y = Mul (d, half)"""
NORM = """
    m = ReduceMean <axes = [-1]> (x)  d = Sub (x, m)  q = Pow (d, two)  v = ReduceMean <axes = [-1]> (q)
    w = Add (v, small)  s = Sqrt (w)  n = Div (d, s)  o = Mul (n, scale)  y = Add (o, bias)"""
NUMBERS = {"root": 2**0.5, "one": 1, "half": 0.5, "two": 2, "small": 0.044715}
# name: (operators that must be there, text of nodes from x [, z] to y, weights, opset)
MODELS = {
    "gelu": ({"Gelu"}, GELU, {}, 17),
    "bias_gelu": ({"BiasGelu"}, "x = Add (p, offset)" + GELU, {"offset": floats(WIDTH)}, 17),
    "tanh_gelu": ({"Gelu"}, 'y = Gelu <approximate = "tanh"> (x)', {}, 20),
    "quick_gelu": (
        {"QuickGelu"},
        "a = Mul (x, factor)  b = Sigmoid (a)  y = Mul (x, b)",
        {"factor": np.float32(1.702)},
        17,
    ),
    "norm": ({"LayerNormalization"}, NORM, {"scale": floats(WIDTH), "bias": floats(WIDTH)}, 17),
    "rms_norm": (
        {"SimplifiedLayerNormalization"},
        """q = Pow (x, two)  v = ReduceMean <axes = [-1]> (q)  w = Add (v, small)  s = Sqrt (w)  n = Div (x, s)
           y = Mul (n, scale)""",
        {"scale": floats(WIDTH)},
        17,
    ),
    "skip_norm": (
        {"SkipLayerNormalization"},
        "a = Add (x, z)  y = LayerNormalization <axis = -1> (a, scale, bias)",
        {"scale": floats(WIDTH), "bias": floats(WIDTH)},
        17,
    ),
    "transposed_product": (
        {"FusedMatMul"},
        "t = Transpose <perm = [0, 2, 1]> (z)  y = MatMul (x, t)",
        {},
        17,
    ),
    "scaled_product": ({"FusedMatMul"}, "a = MatMul (x, w)  y = Mul (a, half)", {"w": floats(WIDTH, 8)}, 17),
    "bias_softmax": ({"BiasSoftmax"}, "a = Add (x, z)  y = Softmax <axis = -1> (a)", {}, 17),
    "product_and_bias": (
        {"Gemm"},
        "a = MatMul (x, w)  y = Add (a, offset)",
        {"w": floats(WIDTH, 8), "offset": floats(8)},
        17,
    ),
}


def model(name):
    """(model as bytes, feed)"""
    _, text, weights, opset = MODELS[name]
    first = "p" if name == "bias_gelu" else "x"
    dims = [ROWS, WIDTH] if name == "product_and_bias" else [2, ROWS, WIDTH]
    feed = {first: floats(*dims)}
    if "z" in text.replace("(", " ").replace(")", " ").replace(",", " ").split():
        feed["z"] = floats(*dims)
    inputs = ", ".join(f"float{list(value.shape)} {key}" for key, value in feed.items())
    made = parser.parse_model(f"{HEAD.format(opset=opset)} g ({inputs}) => (float y) {{ {text} }}")
    constants = {**{key: np.float32(value) for key, value in NUMBERS.items()}, **weights}
    used = {each for node in made.graph.node for each in node.input}
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items() if key in used
    )
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None))
    return made.SerializeToString(), feed


def main():
    import provider

    folder = Path(sys.argv[1])
    found = {}
    for name in MODELS:
        made, feed = model(name)
        plain = ort.SessionOptions()
        plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        expected = ort.InferenceSession(made, plain, providers=[provider.CPU]).run(None, feed)[0]
        options = provider.session_options(log_level=4)
        options.optimized_model_filepath = str(folder / f"{name}.onnx")
        session = provider.session(made, options=options, provider_options={"fusion": "0", "use_tf32": "0"})
        got = session.run(None, feed)[0]
        operators = sorted(node.op_type for node in onnx.load(folder / f"{name}.onnx").graph.node)
        elsewhere = [op for where, op, _ in provider.assigned_nodes(session) if where != NAME]
        found[name] = [operators, float(np.abs(got - expected).max()), elsewhere]
    print(json.dumps(found))


if __name__ == "__main__":
    os.environ["MILLPOND_EP_NAME"] = NAME
    main()
