# SPDX-License-Identifier: Apache-2.0
"""A model of one operator, or of a few in a row, for the benchmarks to compare: how a row of their tables says it, and
the model of a row.

A row is a name, the operator, its inputs, and what else it has. An input is a shape, of random values of type float,
float16 or bfloat16 as the model's kind says, or an array, or what makes one; what is not the first input and no shape
is a constant, unless it is large. An array of floats gets the model's type too, but for the inputs that a table lists
as floats.
"""

import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

KINDS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
OPSET = 20
BFLOAT16_OPSET = 22  # from which on convolutions, pools and recurrence have it
VALUES_MAX = (1 << 20) - 3  # different ones; large tensors repeat them, at another place in each row
SHARED = ".shared"  # ends the name of an output that lies where the input of the name before does
CONSTANT_MAX = 1 << 16  # elements; of an array that is to be fed if it has more


class Weights:
    """A constant of random values."""

    def __init__(self, *shape, scale=0.05):
        self.shape, self.scale = shape, scale


class Constant:
    """An array that is a constant however large it is."""

    def __init__(self, value):
        self.value = value


def ints(*shape, most, seed=1, kind=np.int64):
    return np.random.default_rng(seed).integers(0, most, shape).astype(kind)


def numbers(*values, kind=np.int64):
    return np.array(values, kind)


def case(name, op, *inputs, outputs=1, domain="", opset=OPSET, floats=(), behind=(), shared=(), **attributes):
    """`outputs`: how many there are, or which; `floats`: the inputs that are floats whatever the kind; `behind`: the
    operators that follow, with constants; `shared`: outputs that are to lie where an input does, each with that one."""
    return name, (op, inputs, outputs, domain, opset, floats, behind, shared, attributes)


def array_of(given, dtype, random):
    if isinstance(given, Constant):
        given = given.value
    if isinstance(given, np.ndarray):
        return given.astype(dtype) if given.dtype == np.float32 else given
    shape, scale = (given.shape, given.scale) if isinstance(given, Weights) else (given, 1)
    count = min(int(np.prod(shape)), VALUES_MAX)
    return np.resize((random.standard_normal(count) * scale).astype(dtype), shape)


def is_constant(place, given):
    return isinstance(given, Constant) or place > 0 and (
        isinstance(given, Weights) or (isinstance(given, np.ndarray) and given.size < CONSTANT_MAX))


def following(behind, dtype, random, constants, made):
    """Nodes that follow the first one; what they read of constants is added to those."""
    for n, (op, *weights) in enumerate(behind):
        names = [f"w{n}_{i}" for i in range(len(weights))]
        constants += [numpy_helper.from_array(array_of(w, dtype, random), at)
                      for at, w in zip(names, weights, strict=True)]
        yield helper.make_node(op, [*made, *names], [f"z{n}"])
        made = [f"z{n}"]


def model_of(name, row, kind):
    """(the model's bytes, its inputs)."""
    op, inputs, outputs, domain, opset, floats, behind, shared, attributes = row
    random = np.random.default_rng(7)
    names, feed, constants, infos = [], {}, [], []
    for i, given in enumerate(inputs):
        names.append("" if given is None else f"x{i}")
        if given is None:
            continue
        if callable(given):
            given = given()
        dtype = np.float32 if i in floats else KINDS[kind]
        value = array_of(given, dtype, random)
        if is_constant(i, given):
            constants.append(numpy_helper.from_array(value, f"x{i}"))
        else:
            feed[f"x{i}"] = value
            element = helper.np_dtype_to_tensor_dtype(value.dtype)
            infos.append(helper.make_tensor_value_info(f"x{i}", element, value.shape))
    wanted = range(outputs) if isinstance(outputs, int) else outputs
    names_of = {i: f"y{i}" for i in wanted} | {output: f"x{place}{SHARED}" for output, place in shared}
    made = [names_of.get(i, "") for i in range(max(wanted) + 1)]
    node = helper.make_node(op, names, made, domain=domain, **attributes)
    nodes = [node, *following(behind, KINDS[kind], random, constants, made)]
    results = [helper.make_empty_tensor_value_info(y) for y in nodes[-1].output if y]
    graph = helper.make_graph(nodes, name, infos, results, constants)
    opset = max(opset, BFLOAT16_OPSET) if kind == "bf16" else opset
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), feed
