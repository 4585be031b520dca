# SPDX-License-Identifier: Apache-2.0
"""One-node models that nobody would write: rows of `cases`, changed at random in what a model or its user decides.

A seed gives a model, inputs for two runs of it, and whether its values can be compared at all. Inputs have no shapes in
the model, so ranks, sizes and the values of index inputs arrive at run time only, unless they are constants.
"""

import functools
import math
from dataclasses import dataclass, field

import cases
import numpy as np
import onnx
import op_model
from onnx import helper, numpy_helper
from registered import parameter_types, registry, schema

INTS = (0, 1, 2, 3, 4, 7, -1, -2, -3, 100, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), float("-inf"), 1e38, 1e-40)
TEXTS = (b"", b"\xff\xfe", b"NOPE", b"linear", b"SAME_LOWER", b"VALID", b"sum", b"i,i->", b"a" * 300, b"line\nend")
ELEMENTS_MAX = 1 << 14  # of one input
CHANGES_MAX = 3
NATIVE = set(op_model.NUMPY)

# What has no one right value; a crash or a wrong shape counts all the same. So it is for models with numbers such as
# infinity in float inputs and attributes: rows marked "special" say what becomes of those.
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
RANDOM |= {"Multinomial", "Bernoulli", "Dropout"}
LSTMS = {"LSTM", "DynamicQuantizeLSTM"}
OVERFLOWS = {"Shrink"}  # by way of floats that no integer holds
ROUTED = {"MoE", "QMoE"}  # the CPU provider has no SparseMixer, and takes the last of equal scores
SHIFTED = {"AveragePool", "LpPool", "QLinearConv"}  # strides beyond the window make the CPU provider's SAME negative
INTEGERS = {"ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "QAttention", "QLinearConv", "QLinearMatMul"}
# With this attribute the CPU provider returns uninitialised memory.
LEFT_OPEN = {"Cast": "saturate", "CastLike": "saturate"}


@dataclass
class Model:
    seed: int
    op: str
    domain: str
    opset: int
    inputs: list  # (name, array, is a constant) or None
    outputs: list  # names, "" for one left out
    attributes: dict
    kind: str
    feeds: list = field(default_factory=list)
    changes: list = field(default_factory=list)
    comparable: bool = True  # else only the shapes count, where these are the same with every provider
    has_one_shape: bool = True

    def __str__(self):
        given = [
            "-" if x is None else f"{x[1].dtype}{list(x[1].shape)}{' constant' if x[2] else ''}"
            + (f"={x[1].tolist()}" if x[1].size <= 8 else "")
            for x in self.inputs
        ]
        name = f"{self.domain}.{self.op}" if self.domain else self.op
        return f"{name}-{self.opset} {self.attributes} {' '.join(given)}; {', '.join(self.changes) or 'as it is'}"

    def proto(self):
        names = ["" if x is None else x[0] for x in self.inputs]
        unique = {x[0]: x for x in self.inputs if x is not None}
        typed = {name: helper.np_dtype_to_tensor_dtype(x[1].dtype) for name, x in unique.items()}
        inputs = [helper.make_tensor_value_info(n, typed[n], None) for n, x in unique.items() if not x[2]]
        constants = [numpy_helper.from_array(np.asarray(x[1]), n) for n, x in unique.items() if x[2]]
        node = helper.make_node(self.op, names, self.outputs, name="tested", domain=self.domain)
        node.attribute.extend(attribute(name, value) for name, value in self.attributes.items())
        results = [onnx.ValueInfoProto(name=name) for name in self.outputs if name]
        graph = helper.make_graph([node], "hostile", inputs, results, constants)
        opsets = [helper.make_opsetid("", op_model.NEWEST if self.domain else self.opset)]
        opsets += [helper.make_opsetid(self.domain, self.opset)] if self.domain else []
        return helper.make_model(graph, opset_imports=opsets, ir_version=op_model.IR_VERSION).SerializeToString()


def attribute(name, value):
    """As helper.make_attribute, which does not know what an empty list is of."""
    if isinstance(value, list) and not value:
        return onnx.AttributeProto(name=name, type=onnx.AttributeProto.INTS)
    return helper.make_attribute(name, value)


def is_small(case):
    """Without drawing values, which each worker would have to."""
    def size(spec):
        return math.prod(spec.shape) if isinstance(spec, (op_model.R, op_model.P)) else np.size(spec.values)

    return all(spec is None or size(spec) <= ELEMENTS_MAX for spec in case.inputs)


@functools.cache
def rows():
    """{operator: [(case, opset, element type)]} of what is registered and NumPy can hold."""
    found = {}
    for case in cases.CASES:
        if case.note == "special":
            continue
        for opset in case.opsets:
            about = schema(case.op, opset, case.domain)
            for kind in case.types:
                if about is None or kind not in NATIVE or not op_model.fits(case, kind):
                    continue
                kinds = op_model.input_types(case, kind)
                if not set(filter(None, kinds)) <= NATIVE:
                    continue
                typed = parameter_types(about.inputs, kinds)
                if registry().covers(case.domain, case.op, about.since_version, typed) and is_small(case):
                    name = f"{case.domain}.{case.op}" if case.domain else case.op
                    found.setdefault(name, []).append((case, opset, kind))
                    break  # one type of a row is enough: types are tested elsewhere
    return found


class Maker:
    def __init__(self, seed, operators=None):
        self.random = np.random.default_rng(seed)
        known = sorted(operators or rows())
        case, self.opset, kind = self.pick(rows()[self.pick(known)])
        pairs = op_model.arrays(case, kind, case.inputs)
        constant = [isinstance(spec, op_model.K) for spec in case.inputs]
        self.model = Model(
            seed, case.op, case.domain, self.opset,
            [None if pair is None else (f"x{i}", pair[0], constant[i]) for i, pair in enumerate(pairs)],
            case.output_names(), op_model.attributes(case), kind,
        )
        self.about = schema(case.op, self.opset, case.domain)

    def pick(self, among):
        return among[int(self.random.integers(len(among)))]

    def chance(self, share):
        return self.random.random() < share

    # ---- attributes ----

    def hostile(self, value):
        if isinstance(value, bool | int | np.integer):
            return int(self.pick(INTS))
        if isinstance(value, float | np.floating):
            self.model.comparable = False
            return float(self.pick(FLOATS))
        if isinstance(value, str | bytes):
            return self.pick(TEXTS)
        return value

    def change_list(self, values):
        values = list(values)
        what = self.random.integers(4)
        if what == 0 and values:
            values.pop()
        elif what == 1 and values:
            values.append(values[0])
        elif values:
            at = int(self.random.integers(len(values)))
            values[at] = self.hostile(values[at])
        return values

    def change_attribute(self):
        """One that is given, or one that the schema knows."""
        attributes = self.model.attributes
        known = sorted(set(attributes) | set(self.about.attributes))
        if not known:
            return "no attribute"
        name = self.pick(known)
        if name in attributes and self.chance(0.15):
            del attributes[name]
            return f"{name} left out"
        value = attributes[name] if name in attributes else self.fresh(self.about.attributes[name])
        if value is None or isinstance(value, onnx.TensorProto | onnx.GraphProto):
            return f"{name} left alone"
        attributes[name] = self.change_list(value) if isinstance(value, list | tuple) else self.hostile(value)
        return f"{name} = {attributes[name]!r}"

    def fresh(self, about):
        """A value of the attribute's type."""
        kinds = {"INT": 1, "FLOAT": 1.0, "STRING": b"x", "INTS": [1, 2], "FLOATS": [1.0, 2.0], "STRINGS": [b"x"]}
        return kinds.get(str(getattr(about, "type", "")).rpartition(".")[2])

    # ---- inputs ----

    def change_shape(self, array):
        shape = list(array.shape)
        what = self.random.integers(7)
        at = int(self.random.integers(max(len(shape), 1)))
        if what <= 1 and shape:
            shape[at] = int(self.pick((0, 1, 2, 3, shape[at] + 1, max(shape[at] - 1, 0), 17)))
        elif what == 2:
            shape.insert(at, int(self.pick((0, 1, 1, 2))))
        elif what == 3 and shape:
            shape.pop(at)
        elif what == 4:
            shape = []
        elif what == 5 and shape:
            shape[at] = 0
        elif what == 6 and self.chance(0.3):
            shape = [1] * (9 - len(shape)) + shape
        if np.prod(shape) > ELEMENTS_MAX:
            return array
        return np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)

    def change_values(self, array):
        if array.size == 0:
            return array
        array = array.copy()
        flat = array.reshape(-1)
        for _ in range(1 + int(self.random.integers(3))):
            at = int(self.random.integers(flat.size))
            if array.dtype.kind in "iu":
                info = np.iinfo(array.dtype)
                flat[at] = min(max(int(self.pick(INTS)), info.min), info.max)
            elif array.dtype.kind == "f":
                self.model.comparable = False
                with np.errstate(over="ignore"):
                    flat[at] = self.pick(FLOATS)
            else:
                flat[at] = not flat[at]
        return array

    def change_input(self):
        inputs = self.model.inputs
        if not inputs:
            return "no input"
        at = int(self.random.integers(len(inputs)))
        what = self.random.integers(8)
        if inputs[at] is None:
            return f"input {at} is left out"
        name, array, constant = inputs[at]
        if what <= 2:
            inputs[at] = (name, self.change_shape(array), constant)
            return f"shape of {at}"
        if what <= 4 and (array.dtype.kind in "iub" or self.chance(0.2)):
            inputs[at] = (name, self.change_values(array), constant)
            return f"values of {at}"
        if what == 5:
            inputs[at] = (name, array, not constant)
            return f"{at} is {'no ' if constant else ''}constant"
        if what == 6:
            inputs[at] = None
            return f"{at} left out"
        if self.chance(0.5):
            inputs.append((f"x{len(inputs)}", array, constant))
            return "one input more"
        inputs[at] = self.pick([x for x in inputs if x is not None])
        return f"{at} is another"

    def change_outputs(self):
        outputs = self.model.outputs
        if len(outputs) > 1 and self.chance(0.5):
            outputs[int(self.random.integers(len(outputs)))] = ""
            return "an output left out"
        if len(outputs) > 1:
            outputs.pop()
            return "an output less"
        outputs.append(f"y{len(outputs)}")
        return "an output more"

    # ---- all ----

    def feed(self, shapes):
        unique = {x[0]: x[1] for x in self.model.inputs if x is not None and not x[2]}
        return {name: self.change_shape(x) if shapes and self.chance(0.4) else x for name, x in unique.items()}

    def has_one_result(self):
        model = self.model
        if model.op in RANDOM | OVERFLOWS or LEFT_OPEN.get(model.op) in model.attributes:
            return False
        if model.op == "TopK" and model.attributes.get("sorted", 1) != 1:
            return False
        if model.op == "DFT" and model.attributes.get("inverse") and model.attributes.get("onesided"):
            return False  # of less than half a spectrum, where NumPy and we take the rest for zeros
        if model.op in SHIFTED and str(model.attributes.get("auto_pad", "")).find("SAME") >= 0:
            return False
        if model.op == "DynamicQuantizeMatMul" and any(x is not None and x[1].ndim > 1 for x in model.inputs[2:3]):
            return False  # the CPU provider then multiplies the bias by the scale, too
        if model.op in ROUTED or (model.op == "MatMulBnb4" and not model.attributes.get("transB", 1)):
            return False
        if model.op == "MatMulNBits" and any(x is not None for x in model.inputs[4:5]):
            return False  # g_idx, which it does not heed with two bits or packed zero points
        if model.op in INTEGERS and self.may_saturate():
            return False
        if model.op == "Inverse":
            return False  # of a matrix that has none, it depends on the order of elimination what is not finite
        if model.op == "MeanVarianceNormalization" and any(x is not None and x[1].ndim != 4 for x in model.inputs):
            return False  # the CPU provider takes all dimensions behind the second for those of an image
        if model.op in LSTMS and self.is_empty_input():
            return False  # without a step the CPU provider leaves the third output as it was
        if model.op == "EmbedLayerNormalization" and any(x is not None for x in model.inputs[7:8]):
            return False  # of a mask it counts ones, as we and its CUDA provider look for the first zero
        if model.op == "FusedMatMul" and self.is_empty_input():
            return False  # sums of nothing are what was in memory there
        return self.has_one_shape()

    def may_saturate(self):
        """Without VNNI the CPU provider adds pairs of products of uint8 and int8 in 16 bits."""
        arrays = [x[1] for x in self.model.inputs if x is not None]
        arrays += [array for feed in self.model.feeds for array in feed.values()]
        large = (array for array in arrays if array.dtype == np.int8)
        return any(array.dtype == np.uint8 for array in arrays) and any(np.abs(a.astype(int)).max(initial=0) > 64
                                                                        for a in large)

    def is_empty_input(self):
        """Whether input 0 is empty in any run."""
        if not self.model.inputs or self.model.inputs[0] is None:
            return False
        name, array, _ = self.model.inputs[0]
        return array.size == 0 or any(feed.get(name, array).size == 0 for feed in self.model.feeds)

    def has_one_shape(self):
        """The CPU provider's reductions of nothing keep the shape, and a mean of nothing is 0 or not a number."""
        return not self.model.op.startswith(("Reduce", "Arg")) or not self.is_empty_input()

    def make(self):
        for _ in range(int(self.random.integers(1, CHANGES_MAX + 1))):
            where = self.random.random()
            if where < 0.35:
                change = self.change_attribute()
            else:
                change = self.change_input() if where < 0.95 else self.change_outputs()
            self.model.changes.append(change)
        while self.model.inputs and self.model.inputs[-1] is None:
            self.model.inputs.pop()
        self.model.feeds = [self.feed(False), self.feed(True)]
        self.model.comparable = self.model.comparable and self.has_one_result()
        self.model.has_one_shape = self.has_one_shape()
        return self.model


def model(seed, operators=None):
    return Maker(seed, operators).make()
