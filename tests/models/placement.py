# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a model may run on the CPU.

The rule: a node may be on the CPU only if it computes shapes, that is, if every tensor it gives out holds integers or
booleans. Everything else belongs on the device.
"""

import onnx
from onnx import TensorProto, helper

SHAPE_TYPES = {TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}
INLINE_MAX = 1024  # bytes; larger weights say nothing about shapes


def light_graph(path):
    """The model with its large weights as inputs, so that type inference is quick."""
    model = onnx.load(path)
    large = [t for t in model.graph.initializer if t.ByteSize() > INLINE_MAX]
    inputs = {value.name for value in model.graph.input}
    for tensor in large:
        if tensor.name not in inputs:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        model.graph.initializer.remove(tensor)
    return onnx.shape_inference.infer_shapes(model)


def output_types(path):
    """{node name: element types of its outputs}; the type of an output that inference cannot tell is 0."""
    graph = light_graph(path).graph
    known = {v.name: v.type.tensor_type.elem_type for v in [*graph.value_info, *graph.output]}
    return {node.name: {known.get(name, 0) for name in node.output if name} for node in graph.node}


def misplaced(nodes, types, cpu):
    """Of (provider, operator, name), those that run on the CPU against the rule."""
    return [
        f"{operator} ({name})"
        for provider, operator, name in nodes
        if provider == cpu and not (name in types and types[name] <= SHAPE_TYPES)
    ]
