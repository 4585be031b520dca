# SPDX-License-Identifier: Apache-2.0
"""Which nodes go to the CPU: arithmetic of shapes, and nothing beside a node that we lack."""

import numpy as np
import onnx
import onnxruntime as ort
import provider
import pytest
import small_models
import tolerance
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as state
from registered import registry

COPIES = {"MemcpyFromHost", "MemcpyToHost"}


def plain(log_level=4):
    options = provider.session_options(threads=1, log_level=log_level)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def owners(session):
    return {name: ep for ep, _, name in provider.assigned_nodes(session)}


def check(model, feed):
    """Runs the model, compares it with the CPU provider's results, and gives {node: provider}."""
    session = provider.session(model, options=plain())
    wanted = ort.InferenceSession(model, plain(), providers=[provider.CPU]).run(None, feed)
    for got, want in zip(session.run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(got, want, **tolerance.FLOAT32)
    return owners(session)


def regressor(x, y):
    """An operator that no GPU provider has, on data."""
    return helper.make_node("LinearRegressor", [x], [y], name="lacking", domain="ai.onnx.ml",
                            coefficients=[0.5, -1.5, 2.0, 1.0])


def test_one_node_that_we_lack_takes_no_neighbour_along():
    chain = ["Relu", "Sigmoid", "Tanh", "Neg"]
    nodes = [regressor("x", "v0")]
    nodes += [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], name=op) for i, op in enumerate(chain)]
    nodes.append(helper.make_node("Add", ["v4", "one"], ["y"], name="Add"))
    model = small_models.model(nodes, {"x": ["n", 4]}, {"y": ["n", 1]}, {"one": np.ones(1, np.float32)})
    where = check(model, {"x": np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)})
    assert where.pop("lacking") == provider.CPU
    assert set(where.values()) == {provider.NAME}


def test_a_node_that_we_lack_with_integers_takes_none_along_either():
    """What the CPU makes of data is data, whatever its type."""
    nodes = [
        helper.make_node("ArrayFeatureExtractor", ["x", "at"], ["picked"], name="lacking", domain="ai.onnx.ml"),
        helper.make_node("Mul", ["picked", "two"], ["doubled"], name="Mul"),
        helper.make_node("Sub", ["doubled", "two"], ["y"], name="Sub"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "integers", [info("x", TensorProto.INT64, ["n", 4])], [info("y", TensorProto.INT64, None)],
        [numpy_helper.from_array(np.array([1, 2]), "at"), numpy_helper.from_array(np.array([2]), "two")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    where = check(model, {"x": np.arange(12).reshape(3, 4)})
    assert where == {"lacking": provider.CPU, "Mul": provider.NAME, "Sub": provider.NAME}


def test_a_slice_with_an_input_that_no_schema_has_is_the_cpus():
    inputs = [numpy_helper.from_array(np.array([value]), name) for name, value in
              (("starts", 0), ("ends", 4), ("axes", 0), ("steps", 2))]
    node = helper.make_node("DynamicSlice", ["x", *(one.name for one in inputs)], ["y"], name="slice")
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], inputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=8).SerializeToString()
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    assert check(model, {"x": x})["slice"] == provider.CPU


def test_shapes_are_the_cpus_also_through_nodes_that_we_lack():
    """A string in the middle of shape arithmetic: only the CPU has the node, and what it gives is a shape still."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="Shape"),
        helper.make_node("Gather", ["shape", "first"], ["rows"], name="Gather"),
        helper.make_node("Cast", ["rows"], ["text"], name="to_text", to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["again"], name="from_text", to=TensorProto.INT64),
        helper.make_node("Mul", ["again", "two"], ["long"], name="Mul"),
        helper.make_node("Concat", ["long", "two"], ["target"], name="Concat", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="Reshape"),
    ]
    model = small_models.model(nodes, {"x": ["n", 4]}, {"y": [None, None]},
                               {"first": np.array([0]), "two": np.array([2])})
    where = check(model, {"x": np.ones((3, 4), np.float32)})
    ours = {name for name, ep in where.items() if ep == provider.NAME}
    assert ours == {"Shape", "Reshape"}


@pytest.mark.parametrize("odd", ["a\tb", "a\nb", "a\x85b", "a\u2028b"])
def test_odd_names_do_not_spoil_the_list_of_work_on_shapes(odd):
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="Shape"),
        helper.make_node("Add", ["shape", "one"], ["more"], name=odd),
        helper.make_node("Add", ["more", "one"], ["target"], name="plain"),
        helper.make_node("ConstantOfShape", ["target"], ["y"], name="made"),
    ]
    text = small_models.model(nodes, {"x": ["n", 4]}, {"y": [None, None]}, {"one": np.array([1])})
    model = onnx.load_from_string(text)
    model.graph.name = odd
    session = provider.session(model.SerializeToString(), options=plain())
    found = {node.name: node.is_shape_work for node in provider.pond.placement(session).nodes}
    assert found == {"Shape": False, odd: odd[1] not in "\t\n", "plain": True, "made": False}


# ---- copies in a saved model ----


def with_copies(nodes):
    return small_models.model(nodes, {"x": [3]}, {"y": [3]}, {"one": np.ones(3, np.float32)})


@pytest.mark.parametrize("back", [False, True])
def test_copies_of_a_model_are_claimed(back):
    nodes = [
        helper.make_node("MemcpyFromHost", ["x"], ["there"], name="up"),
        helper.make_node("Add", ["there", "one"], ["sum"], name="add"),
        helper.make_node("Neg", ["sum"], ["z" if back else "y"], name="negative"),
    ]
    if back:
        nodes.append(helper.make_node("MemcpyToHost", ["z"], ["y"], name="down"))
    session = provider.session(with_copies(nodes), options=plain())
    [y] = session.run(None, {"x": np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(y, [-2, -3, -4])
    assert set(owners(session).values()) == {provider.NAME}


def test_a_graph_that_was_saved_runs_again(tmp_path):
    """The graph of a session with a node of the CPU's holds copies each way."""
    options = provider.session_options(threads=1, log_level=4)
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    feed = small_models.mixed_feed(5)
    wanted = provider.session(small_models.mixed(), options=options).run(None, feed)
    session = provider.session(str(tmp_path / "saved.onnx"), options=plain())
    for got, want in zip(session.run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(got, want, **tolerance.FLOAT32)
    where = {(operator, ep) for ep, operator, _ in provider.assigned_nodes(session)}
    assert {operator for operator, _ in where} & COPIES
    assert {operator for operator, ep in where if ep == provider.CPU} == {"ai.onnx.ml.LinearRegressor"}


# ---- operators that nobody has ----


def without_a_kernel():
    """Names of com.microsoft that neither the CPU provider nor we have, for any type."""
    have = {kernel.op_name for kernel in state.get_all_opkernel_def() if kernel.domain == "com.microsoft"}
    have |= {name for domain, name in registry().operators() if domain == "com.microsoft"}
    return sorted({s.name for s in state.get_all_operator_schema() if s.domain == "com.microsoft"} - have)


def listed():
    text = (provider.ROOT / "src/ep/placement/lacking.c").read_text(encoding="utf-8")
    lines = text.partition("names[] = {")[2].partition("};")[0].splitlines()
    return [line.strip(' ",') for line in lines if '"' in line]


def test_operators_that_no_provider_has_are_listed():
    assert set(without_a_kernel()) <= set(listed())
    if ort.__version__.startswith("1.31."):  # another version may have another set
        assert without_a_kernel() == listed()


def test_an_operator_that_no_provider_has_is_named(capfd):
    node = helper.make_node("GemmFastGelu", ["x", "w"], ["y"], name="the_node", domain="com.microsoft")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node, helper.make_node("GemmFastGelu", ["y", "w"], ["z"], name="another", domain="com.microsoft")], "lacking",
        [info("x", TensorProto.FLOAT, [2, 3]), info("w", TensorProto.FLOAT, [3, 3])],
        [info("z", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    with pytest.raises(Exception, match="GemmFastGelu"):
        provider.session(model, options=plain(log_level=2))
    told = [line for line in capfd.readouterr().err.splitlines() if "com.microsoft.GemmFastGelu" in line]
    assert len(told) == 1
    assert "node 'the_node' is com.microsoft.GemmFastGelu, which neither this provider nor" in told[0]
