# SPDX-License-Identifier: Apache-2.0
"""Makes a one-node model and its inputs from a row of op_cases, and its expected outputs on ONNX Runtime's CPU EP.

Where the CPU EP lacks an element type, the reference runs in a wider one and is rounded; bfloat16 and the types that
are only stored, which numpy and ONNX Runtime's Python interface cannot carry, are converted inside the model.
"""

import zlib

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from cases.kit import NEWEST, NUMBERS, UNSIGNED, D, K, P, R, V
from onnx import TensorProto, helper, numpy_helper
from registered import parameter_types, schema

NUMPY = {
    "float": np.float32,
    "float16": np.float16,
    "double": np.float64,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
}
# Types that travel as another, and the first opset whose Cast knows them.
FLOAT8 = {"float8e4m3fn": ml_dtypes.float8_e4m3fn, "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz}
FLOAT8 |= {"float8e5m2": ml_dtypes.float8_e5m2, "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz}
FLOAT4 = {"float4e2m1": ml_dtypes.float4_e2m1fn}
SCALE8 = {"float8e8m0": ml_dtypes.float8_e8m0fnu}
PACKED = {"int4": ("int8", 21), "uint4": ("uint8", 21), "int2": ("int8", 25), "uint2": ("uint8", 25)}
CARRIED = {"bfloat16": ("float", 13)} | dict.fromkeys(FLOAT8, ("float", 19)) | PACKED
CARRIED |= dict.fromkeys(FLOAT4, ("float", 23)) | dict.fromkeys(SCALE8, ("float", 24))
WIDER = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
WIDER |= {"float16": "float", "bfloat16": "float", "double": "float"}
TOLERANCE = {"float": 2e-6, "double": 1e-9, "float16": 2e-3, "bfloat16": 1.6e-2}
IR_VERSION = 10


def proto_type(name):
    return getattr(TensorProto, name.upper())


def carried(name):
    """The type that carries `name` between numpy and the model."""
    return CARRIED[name][0] if name in CARRIED else name


def cast_opset(kinds):
    """The first opset that can convert values of these types inside a model."""
    return max((CARRIED[kind][1] for kind in kinds if kind in CARRIED), default=1)


def imports(case, opset, kinds):
    """What a model of the case imports. Operators of other domains than ONNX's stand beside a new opset of it."""
    if case.domain:
        return [helper.make_opsetid("", max(NEWEST, cast_opset(kinds))), helper.make_opsetid(case.domain, opset)]
    return [helper.make_opsetid("", max(opset, cast_opset(kinds)))]


def round_bfloat16(x):
    """float32 values rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), x, rounded).astype(np.float32).reshape(x.shape)


def to_type(values, name):
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if name == "bfloat16":
            return round_bfloat16(values)
        if name in FLOAT8 | FLOAT4 | SCALE8:
            return values.astype((FLOAT8 | FLOAT4 | SCALE8)[name]).astype(np.float32)
        name = carried(name)
        return np.ascontiguousarray(values.astype(NUMPY[name])).reshape(values.shape)


def random_values(spec, name, generator):
    if name == "bool":
        return generator.integers(0, 2, spec.shape).astype(bool)
    if name in PACKED:
        low, high = (0, 3) if name in ("uint4", "uint2") else (-2, 1)
        return generator.integers(low, high + 1, spec.shape)
    if name in NUMBERS[4:]:
        low, high = (spec.low, spec.high) if name not in UNSIGNED else (max(spec.low, 0), spec.high + 3)
        return generator.integers(
            max(1, int(low)) if isinstance(spec, P) and spec.low > 0 else int(low), int(high) + 1, spec.shape
        )
    return generator.uniform(spec.low, spec.high, spec.shape)


def fits(case, name):
    """Given values such as NaN or -7 do not exist in every type."""
    for spec in case.inputs:
        if isinstance(spec, V):
            values = np.asarray(spec.values, np.float64)
            if name in FLOAT8:
                continue
            if name not in TOLERANCE and not np.isfinite(values).all():
                return False
            if name not in TOLERANCE and (values != np.round(values)).any():
                return False
            if name in UNSIGNED and (values < 0).any():
                return False
    return True


def input_types(case, name):
    """The element type of each input, None for one left out."""
    return [spec and (spec.type if isinstance(spec, (K, D)) else name) for spec in case.inputs]


def seed_of(case, specs):
    """Drawn from what the row says; kept beside the row, since its text takes longer than most of its tests."""
    if id(specs) not in case.known:
        case.known[id(specs)] = zlib.crc32(repr((case.op, case.attrs, specs)).encode())
    return case.known[id(specs)]


tried = {}  # of the case that was asked for last its arrays, which a test wants seven times


def arrays(case, name, specs):
    """(values, element type) of each input, None for one left out; the same for the same case."""
    if tried.get("case") is not case:
        tried.clear()
        tried["case"] = case
    if (name, id(specs)) not in tried:
        tried[name, id(specs)] = drawn(case, name, specs)
    return tried[name, id(specs)]


def drawn(case, name, specs):
    generator = np.random.default_rng(seed_of(case, specs))
    out = []
    for spec in specs:
        kind = spec.type if isinstance(spec, (K, D)) else name
        if spec is None:
            out.append(None)
            continue
        assert isinstance(spec, (K, D, V, R, P))
        values = random_values(spec, name, generator) if isinstance(spec, (R, P)) else spec.values
        out.append((to_type(values, kind), kind))
        out[-1][0].setflags(write=False)
    return out


def attributes(case):
    named = ("to", "output_dtype")
    return {key: proto_type(value) if key in named else value for key, value in case.attrs.items()}


def output_types(case, opset, name):
    """Element types of the outputs, by inference; they decide how a result travels and how close it must be."""
    if (opset, name) not in case.known:
        case.known[opset, name] = inferred_types(case, opset, name)
    return case.known[opset, name]


def inferred_types(case, opset, name):
    inputs, names = [], []
    values = arrays(case, name, case.inputs)
    for i, pair in enumerate(values):
        names.append("" if pair is None else f"x{i}")
        if pair is not None:
            inputs.append(helper.make_tensor_value_info(f"x{i}", proto_type(pair[1]), pair[0].shape))
    constants = [
        numpy_helper.from_array(pair[0], f"x{i}")
        for i, pair in enumerate(values)
        if isinstance(case.inputs[i], K) and pair[1] not in CARRIED
    ]
    node = helper.make_node(case.op, names, case.output_names(), domain=case.domain, **attributes(case))
    outputs = list(filter(None, case.output_names()))
    graph = helper.make_graph([node], "types", inputs, [onnx.ValueInfoProto(name=y) for y in outputs], constants)
    given = [pair[1] for pair in values if pair is not None]
    model = helper.make_model(graph, opset_imports=imports(case, opset, given), ir_version=IR_VERSION)
    known = case.domain in ("", "ai.onnx.ml")
    inferred = onnx.shape_inference.infer_shapes(model).graph.output if known else infer_own(model)
    kinds = [TensorProto.DataType.Name(y.type.tensor_type.elem_type).lower() for y in inferred]
    said = types_by_schema(case, opset, [pair and pair[1] for pair in values])
    return [kind if kind != "undefined" else said[i] or name for i, kind in enumerate(kinds)]


def types_by_schema(case, opset, given):
    """Of each output the type of the inputs that have the same constraint, or else the only one it allows; or None."""
    found = schema(case.op, opset, case.domain)
    allowed = {c.type_param_str: c.allowed_type_strs for c in found.type_constraints}
    typed = parameter_types(found.inputs, given)
    names = [getattr(y, "type_str", None) or y.typeStr for y in found.outputs]
    kinds = [[typed[name]] if name in typed else allowed.get(name, [name]) for name in names]
    kinds = [kind[0].removeprefix("tensor(").removesuffix(")") if len(kind) == 1 else None for kind in kinds]
    kinds += kinds[-1:] * (case.outputs - len(kinds))
    return [kind for i, kind in enumerate(kinds) if i not in case.absent]


def infer_own(model):
    """Outputs of a node of ONNX Runtime's own domains, as its CPU EP sees them; of no type where it has no kernel."""
    try:
        session = ort.InferenceSession(model.SerializeToString(), cpu_options(), providers=["CPUExecutionProvider"])
    except NOT_THERE:
        return model.graph.output
    kinds = [y.type.removeprefix("tensor(").removesuffix(")") for y in session.get_outputs()]
    return [helper.make_tensor_value_info(f"y{i}", proto_type(kind), None) for i, kind in enumerate(kinds)]


def given_dims(case, i, values):
    """Symbolic, so that one session takes several shapes; fixed for shape-like inputs that keep theirs."""
    if isinstance(case.inputs[i], D) and all(np.shape(specs[i].values) == values.shape for specs in case.input_sets()):
        return values.shape
    return [f"d{i}_{axis}" for axis in range(values.ndim)]


def model_bytes(case, opset, name, kinds):
    """The node between its graph inputs and outputs, types of CARRIED converted at both ends."""
    nodes, inputs, constants, names = [], [], [], []
    for i, pair in enumerate(arrays(case, name, case.inputs)):
        if pair is None:
            names.append("")
            continue
        values, kind = pair
        names.append(f"x{i}")
        given = f"x{i}_given" if kind in CARRIED else f"x{i}"
        if kind in CARRIED:
            nodes.append(helper.make_node("Cast", [given], [f"x{i}"], to=proto_type(kind), name=f"in{i}"))
        if isinstance(case.inputs[i], K):
            constants.append(numpy_helper.from_array(values, given))
        else:
            dims = given_dims(case, i, values)
            inputs.append(helper.make_tensor_value_info(given, proto_type(carried(kind)), dims))
    nodes.append(helper.make_node(case.op, names, case.output_names(), name="tested", domain=case.domain,
                                  **attributes(case)))
    outs = list(filter(None, case.output_names()))
    results, inner = [], []
    for i, kind in enumerate(kinds):
        name_out = outs[i]
        if kind in CARRIED:
            inner.append(helper.make_tensor_value_info(outs[i], proto_type(kind), None))
            name_out = f"{outs[i]}_given"
            to = proto_type(carried(kind))
            nodes.append(helper.make_node("Cast", [outs[i]], [name_out], to=to, name=f"out{i}"))
        results.append(helper.make_tensor_value_info(name_out, proto_type(carried(kind)), None))
    graph = helper.make_graph(nodes, "case", inputs, results, constants, value_info=inner)
    opsets = imports(case, opset, [*kinds, *(pair[1] for pair in arrays(case, name, case.inputs) if pair is not None)])
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()


def feed(case, name, specs):
    out = {}
    for i, pair in enumerate(arrays(case, name, specs)):
        if pair is not None and not isinstance(specs[i], K):
            out[f"x{i}_given" if pair[1] in CARRIED else f"x{i}"] = pair[0]
    return out


def cpu_options():
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


ORT_FAULTS = ort.capi.onnxruntime_pybind11_state
NOT_THERE = (ORT_FAULTS.NotImplemented, ORT_FAULTS.Fail, ORT_FAULTS.InvalidGraph)


def by_reference(case, name, kinds):
    sets = []
    for specs in case.input_sets():
        given = [pair and pair[0].copy() for pair in arrays(case, name, specs)]
        sets.append([to_type(y, kind) for y, kind in zip(case.reference(*given, **case.attrs), kinds, strict=True)])
    return sets, name


def expected(case, opset, name, kinds):
    """[[outputs] of each input set] on the CPU EP, and the element type it ran in: the case's own or a wider one."""
    if case.reference is not None:
        return by_reference(case, name, kinds)
    for kind in (name, WIDER.get(name), "float"):
        if kind is None or kind == "bfloat16":
            continue
        model = model_bytes(case, opset, kind, output_types(case, opset, kind))
        try:
            session = ort.InferenceSession(model, cpu_options(), providers=["CPUExecutionProvider"])
        except NOT_THERE:
            continue
        sets = []
        try:
            for specs in case.input_sets():
                outputs = session.run(None, widened(feed(case, name, specs), specs, kind))
                sets.append([to_type(y, narrow) for y, narrow in zip(outputs, kinds, strict=True)])
        except ORT_FAULTS.RuntimeException as fault:  # LSTM and GRU say only now that they lack double
            if "does not support" not in str(fault):
                raise
            continue
        return sets, kind
    raise RuntimeError(f"the CPU EP runs {case.op}-{opset} neither in {name} nor in a wider type")


def widened(inputs, specs, kind):
    """The inputs of a case in another element type; those of a fixed type stay as they are."""
    out = {}
    for key, value in inputs.items():
        name = key.removesuffix("_given")
        spec = specs[int(name.removeprefix("x"))]
        typed = isinstance(spec, (R, P, V))
        travels = (kind if typed else spec.type) in CARRIED
        out[f"{name}_given" if travels else name] = to_type(value, kind) if typed else value
    return out


def close(result, wanted, kind, reference, slack):
    """None, or what differs; `reference` is the element type the expected values were computed in.

    Floats may differ by a share of the largest magnitude, as sums in another order do.
    """
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return f"{result.dtype}{list(result.shape)} where {wanted.dtype}{list(wanted.shape)} is expected"
    if kind not in TOLERANCE:
        same = (result == wanted) | ((result != result) & (wanted != wanted))
        limit = 0.0
    else:
        got, want = result.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(want)
        scale = np.abs(want[finite]).max() if finite.any() else 0.0
        limit = max(TOLERANCE[kind], TOLERANCE.get(reference, 0.0)) * slack * max(scale, 1e-3)
        with np.errstate(invalid="ignore"):
            near = finite & np.isfinite(got) & (np.abs(got - want) <= limit)
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | near
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0]) if result.ndim else ()
    first = f"first at {list(at)}: {result[at]} where {wanted[at]} is expected"
    return f"{int((~same).sum())} of {same.size} differ, {first} (limit {limit:.1e})"


def check(session, case, opset, name):
    """Every input set of a case on `session`, made of its model, against the CPU EP."""
    kinds = output_types(case, opset, name)
    wanted, reference = expected(case, opset, name, kinds)
    for number, (specs, outputs) in enumerate(zip(case.input_sets(), wanted, strict=True)):
        results = session.run(None, feed(case, name, specs))
        for index, (result, want, kind) in enumerate(zip(results, outputs, kinds, strict=True)):
            result = to_type(result, kind) if kind == "bfloat16" else result
            fault = close(result, want, kind, reference, case.slack)
            assert fault is None, f"{case.note} {case.inputs} {case.attrs}, run {number}, output {index}: {fault}"
