# SPDX-License-Identifier: Apache-2.0
"""What random networks are put together with."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, WIDE, INT, BOOL = "float", "wide", "int", "bool"  # what a value is; WIDE is float32 in any case
OF_BOOL = {"Equal", "Greater", "Less", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Not", "IsNaN"}


def kind_of(array):
    return {"i": INT, "u": INT, "b": BOOL}.get(array.dtype.kind, FLOAT)


class Net:
    """Nodes one behind the other; each call gives the name of its result, or a list of them."""

    def __init__(self, seed, opset=18):
        self.random, self.opset = np.random.default_rng(seed), opset
        self.count = 0
        self.off_share, self.off_share_halves = 0, 0  # of the results in float32 and float16 that may be far off
        self.coarse = 0  # how far any may be
        self.is_repeated = True  # each run gives the same to the last bit
        self.is_optimised = self.chance()  # by ONNX Runtime, whose own fusions are at times wrong
        self.nodes, self.constants, self.inputs, self.outputs, self.kinds = [], {}, {}, [], {}

    def any(self, *choices):
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, share=0.5):
        return self.random.random() < share

    def input(self, name, kind, *dims):
        self.inputs[name], self.kinds[name] = dims, WIDE if kind == FLOAT else kind
        return self.cast(name, FLOAT) if kind == FLOAT else name

    def constant(self, value, kind=None):
        name = f"c{len(self.constants)}"
        value = np.asarray(value)
        self.constants[name], self.kinds[name] = value, kind or kind_of(value)
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def weight(self, *dims, scale=None):
        spread = 1 / np.sqrt(dims[0]) if scale is None else scale
        return self.constant(self.random.standard_normal(dims) * spread)

    def number(self, value, like=None):
        """In one of the shapes that exporters write."""
        return self.constant(np.full(self.any((), (), (1,)), float(value)), self.kinds.get(like, FLOAT))

    def result_kind(self, op, inputs):
        if op in OF_BOOL:
            return BOOL
        if op in ("Shape", "ArgMax", "Size"):
            return INT
        return self.kinds[inputs[1 if op == "Where" else 0]]

    def __call__(self, op, *inputs, outputs=1, kind=None, domain="", **attributes):
        self.count += 1
        names = [f"v{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, names[0], domain=domain, **attributes))
        for name in names:
            self.kinds[name] = kind or self.result_kind(op, inputs)
        return names[0] if outputs == 1 else names

    def cast(self, x, kind):
        return self("Cast", x, kind=kind, to=0)  # which type that is follows when the model is written

    def axes(self, op, x, *axes, **attributes):
        """A node whose axes are an attribute, or an input since some opset."""
        since = 13 if op in ("Unsqueeze", "Squeeze", "ReduceSum") else 18
        if self.opset < since:
            return self(op, x, axes=list(axes), **attributes)
        return self(op, x, self.ints(*axes), **attributes)

    def split(self, x, count, axis, *sizes):
        if sizes or self.opset < 18:
            return self("Split", x, *([self.ints(*sizes)] if sizes else []), outputs=count, axis=axis)
        return self("Split", x, outputs=count, axis=axis, num_outputs=count)

    def slice(self, x, axis, begin, end, step=1):
        return self("Slice", x, *(self.ints(value) for value in (begin, end, axis, step)))

    # ---- the model ----

    def type_of(self, name, kind):
        return {FLOAT: helper.np_dtype_to_tensor_dtype(np.dtype(kind)), WIDE: TensorProto.FLOAT,
                INT: TensorProto.INT64}.get(self.kinds[name]) or getattr(TensorProto, self.kinds[name].upper())

    def tensor(self, name, kind):
        value = self.constants[name]
        if self.kinds[name] in (FLOAT, WIDE):
            with np.errstate(over="ignore"):
                halves = value.astype(np.float16)
            is_number = value.size == 1 and np.isfinite(halves).all()  # activations are known by their exact numbers
            value = (value if is_number else halves).astype(np.float32 if self.kinds[name] == WIDE else kind)
        return numpy_helper.from_array(value, name)

    def typed(self, node, kind):
        """Of a Cast, and of the values of bodies, types follow when the model is written."""
        out = type(node)()
        out.CopyFrom(node)
        if node.op_type == "Cast":
            del out.attribute[:]
            out.attribute.append(helper.make_attribute("to", self.type_of(node.output[0], kind)))
        for a in out.attribute:
            if a.type == a.TENSOR and a.t.data_type == TensorProto.FLOAT16:
                a.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(a.t).astype(kind)))
        for body in (a.g for a in out.attribute if a.type == a.GRAPH):
            for value in (*body.input, *body.output):
                value.type.tensor_type.elem_type = self.type_of(value.name, kind)
            inner = [self.typed(other, kind) for other in body.node]
            del body.node[:]
            body.node.extend(inner)
        return out

    def model(self, kind):
        info = helper.make_tensor_value_info
        ends = [[info(name, self.type_of(name, kind), self.inputs.get(name)) for name in names]
                for names in (self.inputs, self.outputs)]
        nodes = [self.typed(node, kind) for node in self.nodes]
        graph = helper.make_graph(nodes, "random", *ends, [self.tensor(name, kind) for name in self.constants])
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
