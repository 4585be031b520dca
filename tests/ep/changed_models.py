# SPDX-License-Identifier: Apache-2.0
"""Models as exporters write them, after random changes by which what passes look for is there no more, or elsewhere."""

import numpy as np
import onnx
import random_changes
from onnx import TensorProto, helper, numpy_helper, shape_inference
from random_kit import BOOL, FLOAT, INT, WIDE, Net

KINDS = {TensorProto.FLOAT16: FLOAT, TensorProto.FLOAT: WIDE, TensorProto.INT64: INT, TensorProto.BOOL: BOOL}


def kind_of(elem_type):
    return KINDS.get(elem_type) or TensorProto.DataType.Name(elem_type).lower()


class Changed(Net):
    """`make` gives the bytes of a model in a type; what is float32 in the one of float16 stays so in any case."""

    def __init__(self, seed, make, feeds, changes=random_changes.CHANGES):
        super().__init__(seed)
        model = shape_inference.infer_shapes(onnx.load_from_string(make(np.float16)))
        graph = model.graph
        self.opset = max((entry.version for entry in model.opset_import if entry.domain == ""), default=17)
        self.given = list(feeds)
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.kinds = {t.name: kind_of(t.data_type) for t in graph.initializer}
        for t in onnx.load_from_string(make(np.float32)).graph.initializer:
            value = numpy_helper.to_array(t)
            if self.kinds.get(t.name) == FLOAT and value.size == 1 and np.abs(value) < 6e4:  # not rounded
                self.constants[t.name] = value
        for value in (*graph.input, *graph.value_info, *graph.output):
            self.kinds[value.name] = kind_of(value.type.tensor_type.elem_type)
        self.inputs = {value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
                       for value in graph.input}
        if self.chance():
            self.leave_open()
        for node in graph.node:
            self.take(node)
        self.outputs = [value.name for value in graph.output]
        for _ in range(self.any(0, 1, 2, 3, 5, 9)):
            self.any(*changes)(self)

    def leave_open(self):
        """No two dimensions of inputs need be the same, so some may be 1 where others are more."""
        self.inputs = {name: [f"{name}_{i}" if isinstance(dim, str) else dim for i, dim in enumerate(dims)]
                       for name, dims in self.inputs.items()}
        for feed in list(self.given):
            name = self.any(*feed)
            open_ = [i for i, dim in enumerate(self.inputs[name]) if isinstance(dim, str)]
            if open_:
                axis = self.any(*open_)
                self.given.append({**feed, name: feed[name].take([0], axis)})

    def take(self, node):
        if node.op_type == "Constant":
            value = numpy_helper.to_array(node.attribute[0].t)
            self.constants[node.output[0]] = value
            self.kinds[node.output[0]] = kind_of(helper.np_dtype_to_tensor_dtype(value.dtype))
            return
        for name in node.output:
            if name and name not in self.kinds:
                self.kinds[name] = self.result_kind(node.op_type, node.input)
        self.nodes.append(node)

    def feeds(self):
        made = []
        for feed in self.given:
            feed = {name: value.astype(np.float32) if value.dtype == np.float16 else value
                    for name, value in feed.items()}
            made.append({**feed, "one": np.ones((), np.float32)} if "one" in self.inputs else feed)
        return made
