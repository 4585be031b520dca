# SPDX-License-Identifier: Apache-2.0
"""The ONNX package's own tests of single operators, made to run on an execution provider of ONNX Runtime.

A case is covered where every node of its graph has a kernel of the EP for the node's schema version and element types.
ONNX's newest opsets are ahead of ONNX Runtime: such a model is stamped with the newest opset that is accepted, if it
means the same there. bfloat16 and the types of CARRIED do not pass through Python and are converted inside the model.
"""

import functools
import warnings
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
import placement
import provider
from onnx import TensorProto, helper, numpy_helper
from registered import parameter_types, registry, schema

OPSET_MAX, IR_MAX = 25, 11
RANDOM = {"Bernoulli", "RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Multinomial"}
PLAIN_TYPES = {
    TensorProto.DataType.Value(name)
    for name in (
        "FLOAT",
        "FLOAT16",
        "DOUBLE",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "BOOL",
    )
}
BFLOAT16 = TensorProto.BFLOAT16
# Types that travel as another; NumPy has them from ml_dtypes.
FLOAT8 = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ)
CARRIED = dict.fromkeys((BFLOAT16, *FLOAT8, TensorProto.FLOAT8E8M0, TensorProto.FLOAT4E2M1), TensorProto.FLOAT)
CARRIED |= {TensorProto.INT4: TensorProto.INT8, TensorProto.UINT4: TensorProto.UINT8}
CARRIED |= {TensorProto.INT2: TensorProto.INT8, TensorProto.UINT2: TensorProto.UINT8}
# Operators whose newest schema, ahead of ONNX Runtime, means the same for the types of the older one.
MORE_TYPES_ONLY = {"Cast", "BitShift", "Compress", "OneHot", "Unique", "SpaceToDepth", "DepthToSpace", "Celu"}
MORE_TYPES_ONLY |= {"ReduceLogSum", "ReduceLogSumExp", "ReverseSequence", "Einsum", "Range"}
# ONNX aligns corners by the size before it is cut to a whole number, ONNX Runtime by the size after; we follow it.
AS_ONNX_RUNTIME = {f"test_resize_downsample_scales_{mode}_align_corners" for mode in ("linear", "cubic")}
# ONNX numbers the elements by the shape that the windows give, ONNX Runtime by the output_shape that is given.
AS_ONNX_RUNTIME |= {"test_maxunpool_export_with_output_shape"}
# Each of their operators rounds to 16 bits, where ONNX's figures were rounded once: two units of the last place.
ROUNDED_OFTEN = {
    "test_attention_4d_causal_fp16_expanded": 2e-3,
    "test_attention_4d_causal_bf16_expanded": 1.6e-2,
}
# Their figures, of up to 90, carry the rounding of a transform in float where the value is 0: Fourier's, 2e-7, and of
# convolutions that cuDNN does by Winograd's, 1e-5.
ROUNDED_TO = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6, "test_convtranspose_group_2_image_3": 2e-5}
# Operators that ONNX Runtime replaces before it assigns nodes, and the operators it needs for that.
DISSOLVED = {"Constant": set(), "CastLike": {"Cast"}}


# Which elements they drop is the generator's choice.
DRAWN = {f"test_training_dropout{rest}" for rest in ("", "_mask", "_default", "_default_mask")}


@dataclass
class NodeTest:
    name: str
    model: onnx.ModelProto
    data: list
    relative: float
    absolute: float


@functools.cache
def collect():
    from onnx.backend.test import loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = loader.load_model_tests(kind="node")
    return [NodeTest(c.name, c.model, list(c.data_sets), c.rtol, c.atol) for c in sorted(cases, key=lambda c: c.name)]


def opset_of(model, domain=""):
    return max(
        (o.version for o in model.opset_import if o.domain in (domain, "ai.onnx" if domain == "" else domain)),
        default=0,
    )


def same_meaning(node, opset):
    old, new = schema(node.op_type, OPSET_MAX), schema(node.op_type, opset)
    if old is None or new is None or any(a.name not in old.attributes for a in node.attribute):
        return False
    return old.since_version == new.since_version or node.op_type in MORE_TYPES_ONLY


def restamped(model):
    """The model at an opset that ONNX Runtime takes, or None if a node means something else there."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    out.ir_version = min(out.ir_version, IR_MAX)
    opset = opset_of(model)
    if opset <= OPSET_MAX:
        return out
    for node in model.graph.node:
        if node.domain in ("", "ai.onnx") and not same_meaning(node, opset):
            return None
    for entry in out.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = OPSET_MAX
    return out


def kernel_missing(node, model, types):
    """None, or the words that say which kernel the EP lacks."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if node.op_type in DISSOLVED and DISSOLVED[node.op_type] <= {name for _, name in registry().operators()}:
        return None
    if (domain, node.op_type) not in registry().operators():
        return node.op_type
    found = schema(node.op_type, opset_of(model, domain), domain)
    if found is None or not any(True for _ in registry().types(domain, node.op_type, found.since_version)):
        return f"{node.op_type}-{found.since_version if found else '?'}"
    typed = parameter_types(found.inputs, known_types(node.input, types)) if node.input else {}
    if node.output:
        typed |= parameter_types(found.outputs, known_types(node.output, types))
    if registry().covers(domain, node.op_type, found.since_version, typed):
        return None
    return f"{node.op_type} of {', '.join(sorted({kind[7:-1] for kind in typed.values()}))}"


def known_types(names, types):
    """Element types as words, None for a value left out or of unknown type."""
    known = [types.get(name, 0) if name else 0 for name in names]
    return [TensorProto.DataType.Name(element).lower() if element else None for element in known]


def all_nodes(graph):
    """Those of the graphs within, too."""
    for node in graph.node:
        yield node
        for body in placement.bodies(node):
            yield from all_nodes(body)


def not_covered(test, model):
    """None, or why this case says nothing about the EP."""
    if model is None:
        return "opset newer than ONNX Runtime's"
    if test.name in AS_ONNX_RUNTIME:
        return "other results in ONNX Runtime"
    if not model.graph.node:
        return "no node"
    values = [*model.graph.input, *model.graph.output]
    if any(not v.type.HasField("tensor_type") for v in values):
        return "sequences, optionals and maps"
    if any(v.type.tensor_type.elem_type not in PLAIN_TYPES | set(CARRIED) for v in values):
        return "strings and complex numbers"
    types = placement.element_types(model)
    for node in all_nodes(model.graph):
        lacking = kernel_missing(node, model, types)
        if lacking:
            return f"no kernel: {lacking}"
    return None


def bridged(model):
    """The model with its inputs and outputs of CARRIED as the type that carries them, converted inside."""
    values = [v for v in (*model.graph.input, *model.graph.output) if v.type.tensor_type.elem_type in CARRIED]
    inner = {v.name: f"{v.name}__inner" for v in values}
    for node in model.graph.node:
        node.input[:] = [inner.get(name, name) for name in node.input]
        node.output[:] = [inner.get(name, name) for name in node.output]
    first = [
        helper.make_node("Cast", [v.name], [inner[v.name]], to=v.type.tensor_type.elem_type)
        for v in model.graph.input
        if v.name in inner
    ]
    last = [
        helper.make_node("Cast", [inner[v.name]], [v.name], to=CARRIED[v.type.tensor_type.elem_type])
        for v in model.graph.output
        if v.name in inner
    ]
    nodes = [*first, *model.graph.node, *last]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for value in values:
        value.type.tensor_type.elem_type = CARRIED[value.type.tensor_type.elem_type]
    return model


def as_array(value, element):
    value = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    return value.astype(helper.tensor_dtype_to_np_dtype(CARRIED[element])) if element in CARRIED else value


def make_session(model):
    """(session, whether the CPU was needed): first without the CPU to fall back on, then with it."""
    for fall_back in (False, True):
        options = provider.session_options(threads=1, log_level=4)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if not fall_back:  # ONNX Runtime's own way, to which work on shapes counts as well
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        try:
            return provider.session(model, provider.NAME, {"use_tf32": "0"}, options), fall_back
        except ort.capi.onnxruntime_pybind11_state.Fail as error:
            if fall_back or "fallback" not in str(error):
                raise
    raise AssertionError("unreachable")


def differs(result, want, test, element):
    if result.shape != want.shape:
        return f"shape {result.shape} where {want.shape} is expected"
    if want.dtype.kind != "f":
        return None if np.array_equal(result, want) else "other values"
    relative = max(test.relative, 1e-2) if element == BFLOAT16 else test.relative
    if test.name in ROUNDED_OFTEN:
        relative = ROUNDED_OFTEN[test.name]
    absolute = ROUNDED_TO.get(test.name, test.absolute)
    if np.allclose(result.astype(np.float64), want.astype(np.float64), relative, absolute, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        return f"off by up to {np.nanmax(np.abs(result.astype(np.float64) - want.astype(np.float64))):.3g}"


def run(test, model):
    """Raises AssertionError where the EP is wrong; gives whether shape computation stayed on the CPU."""
    elements_in = [v.type.tensor_type.elem_type for v in model.graph.input]
    elements_out = [v.type.tensor_type.elem_type for v in model.graph.output]
    for index, node in enumerate(all_nodes(model.graph)):
        node.name = node.name or f"node{index}"
    original = onnx.ModelProto()
    original.CopyFrom(model)
    session, on_cpu = make_session(bridged(model).SerializeToString())
    wrong = placement.misplaced(provider.assigned_nodes(session), original, provider.CPU) if on_cpu else []
    assert not wrong, f"on the CPU: {wrong}"
    names = [value.name for value in model.graph.input]
    for inputs, outputs in test.data:
        feed = {name: as_array(value, kind) for name, value, kind in zip(names, inputs, elements_in, strict=False)}
        for index, (result, want) in enumerate(zip(session.run(None, feed), outputs, strict=True)):
            want = as_array(want, elements_out[index])
            if test.name in DRAWN or any(node.op_type in RANDOM for node in model.graph.node):
                assert result.shape == want.shape
                continue
            fault = differs(result, want, test, elements_out[index])
            assert fault is None, f"output {index}: {fault}"
    return on_cpu
