# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a model may run on the CPU.

The rule: a node may be on the CPU only if it computes shapes. That is so if every tensor it gives out holds integers or
booleans, or if all it reads are shapes, constants and what such nodes made of them (a scale taken from a dimension).
Everything else belongs on the device.
"""

import onnx
from onnx import TensorProto

SHAPE_TYPES = {TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}
SHAPE_SOURCES = {"Shape", "Size"}
INLINE_MAX = 1024  # bytes; larger weights go to a file of their own, which nobody reads


def keep_graph(options, folder):
    """Makes a session save its optimised graph, the one whose nodes are assigned; gives the file's path."""
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    prefix = "session.optimized_model_external_initializers"
    options.add_session_config_entry(f"{prefix}_file_name", "weights")
    options.add_session_config_entry(f"{prefix}_min_size_in_bytes", str(INLINE_MAX))
    return options.optimized_model_filepath


def kept_graph(path):
    return onnx.load(path, load_external_data=False)


def element_types(model):
    """{value: element type}, by inference; 0 where it is not a tensor or not known."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except onnx.shape_inference.InferenceError:
        graph = model.graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output, *graph.value_info)}
    types.update({t.name: t.data_type for t in graph.initializer})
    return types


def shape_nodes(model):
    """Names of the nodes that compute shapes by the rule."""
    types = element_types(model)
    return _shape_nodes(model.graph, types, {t.name for t in model.graph.initializer})


def bodies(node):
    """The graphs within an If, Loop or Scan."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _shape_nodes(graph, types, known):
    """Those of a graph and of the graphs within; `known` are shapes and constants, to which it adds."""
    found = set()
    for node in graph.node:  # in an order in which values are made before they are read
        outputs = [name for name in node.output if name]
        inner = bodies(node)
        for body in inner:
            values = (*body.input, *body.output, *body.value_info)
            within = types | {v.name: v.type.tensor_type.elem_type for v in values}
            counted = {v.name for v in body.input[:2]} if node.op_type == "Loop" else set()  # number and condition
            found |= _shape_nodes(body, within, known | counted | {t.name for t in body.initializer})
        if inner:  # where nothing within belongs on the device, neither does it
            from_shapes = all(each.name in found for body in inner for each in body.node)
        else:
            from_shapes = node.op_type in SHAPE_SOURCES or all(name in known for name in node.input if name)
        if from_shapes:
            known.update(outputs)
        if from_shapes or all(types.get(name, 0) in SHAPE_TYPES for name in outputs):
            found.add(node.name)
    return found


def misplaced(nodes, model, cpu):
    """Of (provider, operator, node name), those that run on the CPU against the rule."""
    allowed = shape_nodes(model)
    return [f"{operator} ({name})" for provider, operator, name in nodes if provider == cpu and name not in allowed]
