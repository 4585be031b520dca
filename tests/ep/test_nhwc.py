# SPDX-License-Identifier: Apache-2.0
"""Channels last: with prefer_nhwc ONNX Runtime rewrites nodes for us, and results stay those of the CPU's provider.

Every row of `cases` for an operator that is converted is run here again, in the domain of the rewritten nodes; that
the node has really been rewritten and is ours is part of each test.
"""

import csv
import tempfile
from pathlib import Path

import millpond
import numpy as np
import onnx
import onnxruntime as ort
import op_model
import provider
import pytest
import test_op_cases
import tolerance
from onnx import TensorProto, helper, numpy_helper
from registered import registry, schema

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / ".cache" / "models" / "models"
DOMAIN = "com.ms.internal.nhwc"
OLDEST = 7  # ONNX Runtime rewrites no older opset, and with prefer_nhwc gives us none of its nodes
CONVERTED = {
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "ConvTranspose",
    "DepthToSpace",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GridSample",
    "LRN",
    "MaxPool",
    "SpaceToDepth",
}


def session_of(model, prefer="1", key="prefer_nhwc", level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL, **more):
    """A session that keeps its final graph: not every ONNX Runtime lists rewritten nodes with those it has assigned."""
    given = {"use_tf32": "0", key: prefer, **more}
    with tempfile.TemporaryDirectory() as folder:
        options = provider.session_options(threads=1, log_level=4)
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(Path(folder) / "final.onnx")
        session = provider.session(model, provider_options=given, options=options)
        session.final_nodes = list(onnx.load(options.optimized_model_filepath).graph.node)
    return session


def rewritten(session):
    """Operators of the nodes with channels last. ONNX Runtime refuses a graph in which one of them is not ours."""
    return [node.op_type for node in session.final_nodes if node.domain == DOMAIN]


# ---- what is converted, and what for ----


def newest_twin(name, since):
    """{constraint: types} of the kernel that a node of schema `since` would get, once rewritten; or None."""
    kernels = [k for k in registry().kernels[DOMAIN, name] if k.version_range[0] <= since]
    found = max(kernels, key=lambda kernel: kernel.version_range[0], default=None)
    return found and {constraint: set(types) for constraint, types in found.type_constraints.items()}


def test_every_operator_of_the_list_is_registered():
    assert {name for domain, name in registry().kernels if domain == DOMAIN} == CONVERTED


def test_rows_of_the_original_provider_are_covered():
    table = ROOT / "python" / "src" / "millpond" / "cuda_kernels.tsv"
    with table.open() as lines:
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["domain"] == DOMAIN]
    assert len(rows) > 30
    for row in rows:
        last = row["versions"].split("-")[-1]
        have = newest_twin(row["op"], 10**6 if last.endswith("+") else int(last))
        assert have, row
        for constraint, types in (part.split("=") for part in row["type_constraints"].split("; ")):
            assert have[constraint] >= {f"tensor({kind})" for kind in types.split(",")}, (row, have)


def small_conv():
    generator = np.random.default_rng(5)
    w = numpy_helper.from_array(generator.standard_normal((4, 3, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "conv", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("key", ["prefer_nhwc", "prefer_nhwc_layout"])
def test_nothing_is_converted_unless_asked_for(key):
    assert rewritten(session_of(small_conv(), prefer="1", key=key)) == ["Conv"]
    assert rewritten(session_of(small_conv(), prefer="0", key=key)) == []
    with pytest.raises(millpond.InvalidArgumentError, match="perhaps"):
        session_of(small_conv(), prefer="perhaps", key=key)


def test_without_cudnn_nothing_is_converted_that_is_not_ours():
    session = session_of(small_conv(), enable_cudnn="0")
    assert rewritten(session) == []
    assert set(provider.assignment(session)) == {provider.CPU}


def conv_and(second, extra):
    """A convolution that could be converted, and a second node behind it."""
    model = onnx.load_from_string(small_conv())
    model.graph.node[0].output[0] = "between"
    model.graph.node.extend([second])
    model.graph.initializer.extend(extra)
    return model.SerializeToString()


def test_a_node_that_cannot_be_converted_keeps_those_like_it():
    """Indices of maxima are numbers with channels first: all MaxPool nodes stay, the convolution does not."""
    pool = helper.make_node("MaxPool", ["between"], ["y", "indices"], name="pool", kernel_shape=[2, 2])
    model = onnx.load_from_string(conv_and(pool, []))
    model.graph.output.append(helper.make_tensor_value_info("indices", TensorProto.INT64, None))
    model.graph.node.append(helper.make_node("MaxPool", ["between"], ["z"], name="other", kernel_shape=[3, 3]))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    model = model.SerializeToString()
    session = session_of(model)
    assert rewritten(session) == ["Conv"]
    feed = {"x": np.random.default_rng(1).standard_normal((1, 3, 8, 8), np.float32)}
    expected = ort.InferenceSession(model, providers=[provider.CPU]).run(None, feed)
    for result, want in zip(session.run(None, feed), expected, strict=True):
        np.testing.assert_allclose(result, want, **tolerance.FLOAT32)


def test_a_rewritten_node_without_a_kernel_is_named(capfd):
    """Such a node can stand in a file, too; the session fails, and the log says what was missing."""
    model = onnx.load_from_string(small_conv())
    model.graph.node[0].domain = DOMAIN
    model.graph.node[0].op_type = "QLinearConv"
    model.graph.node[0].input[:] = ["x", "s", "z", "w8", "s", "z", "s", "z"]
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    del model.graph.initializer[:]
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((4, 3, 3, 3), np.uint8), "w8"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1), "s"))
    model.graph.initializer.append(numpy_helper.from_array(np.uint8(0), "z"))
    model.opset_import.append(helper.make_opsetid(DOMAIN, 17))
    options = provider.session_options(threads=1, log_level=2)
    with pytest.raises(Exception, match="QLinearConv"):
        provider.session(model.SerializeToString(), options=options)
    text = capfd.readouterr().err
    assert "no kernel for QLinearConv version 10 of domain com.ms.internal.nhwc with inputs of uint8, float" in text
    assert "(type constraints of its schema: T1, T2, T3, T4; of this provider's row: none)" in text


def test_a_rewritten_node_of_a_type_that_the_row_lacks(capfd):
    """The warning says which constraints the schema has, and what the row has for them."""
    image = helper.make_tensor_value_info("x", TensorProto.INT32, None)
    grid = helper.make_tensor_value_info("grid", TensorProto.FLOAT, None)
    result = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], "sample", domain=DOMAIN)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 17)]
    model = helper.make_model(
        helper.make_graph([node], "sampled", [image, grid], [result]), opset_imports=opsets, ir_version=8
    )
    with pytest.raises(Exception, match="GridSample"):
        provider.session(model.SerializeToString(), options=provider.session_options(threads=1, log_level=2))
    text = capfd.readouterr().err
    assert "with inputs of int32, float (type constraints of its schema: T1, T2; of this provider's row: T1 of " in text


# ---- results ----


def variants():
    for label, case, opset, name in (param_of(p) for p in test_op_cases.variants()):
        if case.op in CONVERTED and case.domain == "" and rank_of(case) > 2 and opset >= OLDEST:
            yield pytest.param(case, opset, name, id=label)


def param_of(parameter):
    return (parameter.id, *parameter.values)


def rank_of(case):
    return len(case.inputs[0].shape)


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case, opset, name", list(variants()))


def is_converted(case, opset, name):
    """Indices are numbers of elements with channels first; and internal schemas lag behind in their types."""
    twin = newest_twin(case.op, schema(case.op, opset).since_version)
    return case.outputs == 1 and f"tensor({name})" in twin.get("T", twin.get("T1"))


def test_case(case, opset, name):
    """Whether it can be converted or not, the node runs on the device and the result is right."""
    kinds = op_model.output_types(case, opset, name)
    session = session_of(op_model.model_bytes(case, opset, name, kinds))
    assert rewritten(session) == ([case.op] if is_converted(case, opset, name) else [])
    assert {node: ep for ep, _, node in provider.assigned_nodes(session)}.get("tested", provider.NAME) == provider.NAME
    op_model.check(session, case, opset, name)


def microsoft_grid_sample(mode, opset):
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], domain="com.microsoft", mode=mode)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 5, 7])
    grid = helper.make_tensor_value_info("grid", TensorProto.FLOAT, [2, 4, 5, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 4, 5])
    graph = helper.make_graph([node], "sample", [x, grid], [y])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("opset", [12, 17, 20])
@pytest.mark.parametrize("prefer", ["0", "1"])
def test_grid_sample_of_microsofts_domain(mode, opset, prefer):
    model = microsoft_grid_sample(mode, opset)
    generator = np.random.default_rng(7)
    feed = {
        "x": generator.standard_normal((2, 3, 5, 7), np.float32),
        "grid": generator.uniform(-1.3, 1.3, (2, 4, 5, 2)).astype(np.float32),
    }
    session = session_of(model, prefer=prefer)
    assert rewritten(session) == (["GridSample"] if prefer == "1" and opset >= 16 else [])
    assert provider.CPU not in provider.assignment(session)
    expected = ort.InferenceSession(model, providers=[provider.CPU]).run(None, feed)
    np.testing.assert_allclose(session.run(None, feed)[0], expected[0], **tolerance.FLOAT32)


# ---- models ----


def feed_of(session):
    generator = np.random.default_rng(3)
    fixed = {i: 48 if i > 1 else 1 for i in range(4)}
    return {
        value.name: generator.uniform(
            -1, 1, [d if isinstance(d, int) else fixed[i] for i, d in enumerate(value.shape)]
        ).astype(np.float32)
        for value in session.get_inputs()
    }


@pytest.mark.parametrize("name", ["mtcnn_onet", "ppocr_cls"])
def test_model_gives_the_same(name):
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there; tests/models says how to get it")
    everything = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    plain, last = (session_of(str(path), prefer=prefer, level=everything) for prefer in ("0", "1"))
    assert rewritten(plain) == []
    assert len(rewritten(last)) > 5
    feed = feed_of(plain)
    for result, expected in zip(last.run(None, feed), plain.run(None, feed), strict=True):
        np.testing.assert_allclose(result, expected, **tolerance.OTHER_ALGORITHMS)
