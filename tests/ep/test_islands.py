# SPDX-License-Identifier: Apache-2.0
"""Islands: groups of nodes as one program, for changing shapes, addresses and threads, beside runs node by node."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import provider
import pytest
from onnx import TensorProto, helper, numpy_helper

WIDTH, ROUNDS = 48, 5


def model(nodes, inputs, outputs, constants=(), full=True):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if full:
        onnx.checker.check_model(made)
    return made.SerializeToString()


def floats(name, *dims):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def block(branches=1):
    """A product with a bias, shapes computed from shapes, a view, a residual, two reads of one value."""
    rng = np.random.default_rng(1)
    nodes, constants = [], [("shape_end", np.array([WIDTH // 4], np.int64)), ("zero", np.array([0], np.int64)),
                            ("two", np.array([2], np.int64)), ("minus", np.array([-1], np.int64))]
    last = "x"
    for i in range(branches):
        constants += [(f"w{i}", rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8),
                      (f"b{i}", rng.standard_normal(WIDTH).astype(np.float32))]
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"p{i}"], f"product{i}"),
            helper.make_node("Add", [f"p{i}", f"b{i}"], [f"q{i}"], f"bias{i}"),
            helper.make_node("Shape", [f"q{i}"], [f"s{i}"]),
            helper.make_node("Slice", [f"s{i}", "zero", "two"], [f"t{i}"]),
            helper.make_node("Concat", [f"t{i}", "minus", "shape_end"], [f"u{i}"], axis=0),
            helper.make_node("Reshape", [f"q{i}", f"u{i}"], [f"r{i}"]),
            helper.make_node("Softmax", [f"r{i}"], [f"m{i}"], axis=-1),
            helper.make_node("Transpose", [f"m{i}"], [f"n{i}"], perm=[0, 1, 3, 2]),
            helper.make_node("Transpose", [f"n{i}"], [f"o{i}"], perm=[0, 1, 3, 2]),
            helper.make_node("Reshape", [f"o{i}", f"s{i}"], [f"v{i}"]),
            helper.make_node("Add", [f"v{i}", last], [f"y{i}"], f"residual{i}"),
        ]
        last = f"y{i}"
    nodes.append(helper.make_node("Relu", [last], ["y"]))
    return model(nodes, [floats("x", "batch", "length", WIDTH)], [floats("y", "batch", "length", WIDTH)], constants)


def sessions(made, **options):
    given = {"use_tf32": "0", **{key: str(value) for key, value in options.items()}}
    return (provider.session(made, provider_options={"fusion": "1", **given}),
            ort.InferenceSession(made, providers=[provider.CPU]))


def on_cpu(session):
    return [operator for where, operator, _ in provider.assigned_nodes(session) if where == provider.CPU]


def close(a, b):
    """Sums of 48 products in another order, up to six of them behind each other."""
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("branches", [1, 6])
def test_shapes_change_and_come_back(branches):
    ours, cpu = sessions(block(branches))
    assert on_cpu(ours) == []
    rng = np.random.default_rng(2)
    for batch, length in [(1, 3), (2, 5), (1, 3), (4, 1), (2, 5)] * ROUNDS:
        x = rng.standard_normal((batch, length, WIDTH)).astype(np.float32)
        close(ours.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0])


def test_more_shapes_than_are_kept():
    ours, cpu = sessions(block())
    for length in [*range(1, 45), *range(1, 45)]:
        x = np.full((1, length, WIDTH), 1 / length, np.float32)
        close(ours.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0])


def test_runs_at_one_address_and_at_others():
    """Bound values have the same addresses, so that runs become one launch; fresh ones between them do not."""
    ours, cpu = sessions(block(3))
    rng = np.random.default_rng(3)
    binding = ours.io_binding()
    x = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 4, WIDTH), np.float32), "cuda", 0)
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 4, WIDTH), np.float32), "cuda", 0)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for i in range(4 * ROUNDS):
        given = rng.standard_normal((2, 4, WIDTH)).astype(np.float32)
        x.update_inplace(given)
        ours.run_with_iobinding(binding)
        expected = cpu.run(None, {"x": given})[0]
        close(y.numpy(), expected)
        if i % 3 == 0:
            close(ours.run(None, {"x": given})[0], expected)


def test_an_output_bound_where_an_input_lies():
    """x is read by the residual after the first intermediate results are there."""
    ours, cpu = sessions(block(3))
    given = np.random.default_rng(4).standard_normal((2, 4, WIDTH)).astype(np.float32)
    for _ in range(ROUNDS):
        value = ort.OrtValue.ortvalue_from_numpy(given, "cuda", 0)
        binding = ours.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_output("y", value)
        ours.run_with_iobinding(binding)
        close(value.numpy(), cpu.run(None, {"x": given})[0])


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_on_one_session(threads):
    ours, cpu = sessions(block(2))

    def work(seed):
        rng = np.random.default_rng(seed)
        for i in range(3 * ROUNDS):
            x = rng.standard_normal((1 + (seed + i) % 3, 4, WIDTH)).astype(np.float32)
            close(ours.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0])

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def test_random_numbers_are_others_in_each_run():
    """A captured graph would repeat them."""
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"]),
             helper.make_node("Relu", ["b"], ["c"]), helper.make_node("Exp", ["c"], ["d"]),
             helper.make_node("Log", ["d"], ["y"])]
    session = provider.session(model(nodes, [floats("x", 64)], [floats("y", 64)]), provider_options={"fusion": "1"})
    seen = {session.run(None, {"x": np.zeros(64, np.float32)})[0].tobytes() for _ in range(8)}
    assert len(seen) == 8


def test_values_known_from_shapes_are_outputs_too():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Shape", ["a"], ["s"]),
             helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
             helper.make_node("ReduceProd", ["f"], ["n"], keepdims=0), helper.make_node("Div", ["a", "n"], ["b"]),
             helper.make_node("Add", ["b", "a"], ["y"])]
    outputs = [floats("y", "n", 4), helper.make_tensor_value_info("s", TensorProto.INT64, [2]), floats("n")]
    ours, cpu = sessions(model(nodes, [floats("x", "n", 4)], outputs))
    for n in (3, 1, 3, 0, 3, 3, 3):
        x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
        for got, want in zip(ours.run(None, {"x": x}), cpu.run(None, {"x": x}), strict=True):
            assert got.shape == want.shape
            close(got, want)


def test_an_input_that_is_an_output_and_a_constant_that_is_one():
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["c"], ["d"]),
             helper.make_node("Add", ["x", "c"], ["a"]), helper.make_node("Mul", ["a", "a"], ["z"])]
    constant = np.arange(5, dtype=np.float32)
    ours, cpu = sessions(model(nodes, [floats("x", 5)], [floats("y", 5), floats("z", 5), floats("d", 5)],
                               [("c", constant)]))
    for _ in range(ROUNDS):
        x = np.random.default_rng(5).standard_normal(5).astype(np.float32)
        for got, want in zip(ours.run(None, {"x": x}), cpu.run(None, {"x": x}), strict=True):
            close(got, want)


def test_an_error_names_operator_and_node():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "z"], ["b"], "the_sum"),
             helper.make_node("Exp", ["b"], ["y"])]
    made = model(nodes, [floats("x", "n"), floats("z", "m")], [floats("y", "k")])
    session = provider.session(made, provider_options={"fusion": "1"})
    good = {"x": np.ones(4, np.float32), "z": np.ones(4, np.float32)}
    for _ in range(ROUNDS):
        with pytest.raises(Exception, match="Add 'the_sum'"):
            session.run(None, {"x": np.ones(4, np.float32), "z": np.ones(3, np.float32)})
        close(session.run(None, good)[0], np.full(4, np.exp(2.0), np.float32))


def test_an_error_of_several_nodes_in_one_names_them_all():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "the_product"),
             helper.make_node("Add", ["p", "b"], ["s"], "the_bias"), helper.make_node("Exp", ["s"], ["y"])]
    constants = [("w", np.ones((4, 5), np.float32)), ("b", np.ones(5, np.float32))]
    made = model(nodes, [floats("x", "k", "m", "n")], [floats("y", "k", "m", 5)], constants)
    session = provider.session(made, provider_options={"fusion": "1"})
    for _ in range(2):
        with pytest.raises(Exception, match="MatMul 'the_product' and Add 'the_bias': "):
            session.run(None, {"x": np.ones((2, 3, 7), np.float32)})
        close(session.run(None, {"x": np.zeros((2, 3, 4), np.float32)})[0], np.full((2, 3, 5), np.exp(1), np.float32))


def test_captured_by_the_user_as_well():
    """With enable_cuda_graph the user's graph records the steps."""
    ours, cpu = sessions(block(2), enable_cuda_graph=1)
    x = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 4, WIDTH), np.float32), "cuda", 0)
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 4, WIDTH), np.float32), "cuda", 0)
    binding = ours.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for seed in range(2 * ROUNDS):
        given = np.random.default_rng(seed).standard_normal((2, 4, WIDTH)).astype(np.float32)
        x.update_inplace(given)
        ours.run_with_iobinding(binding)
        close(y.numpy(), cpu.run(None, {"x": given})[0])


def test_a_graph_of_the_user_outlives_the_program_that_it_recorded():
    """What a program has computed while planning is on the device; 40 more shapes push the program out."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Shape", ["a"], ["s"]),
             helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT), helper.make_node("Exp", ["a"], ["b"]),
             helper.make_node("Div", ["b", "f"], ["y"])]
    session = provider.session(model(nodes, [floats("x", "n")], [floats("y", "n")]),
                               provider_options={"fusion": "1", "enable_cuda_graph": "1"})
    x = ort.OrtValue.ortvalue_from_numpy(np.zeros(4, np.float32), "cuda", 0)
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros(4, np.float32), "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    without = ort.RunOptions()
    without.add_run_config_entry("gpu_graph_id", "-1")
    for round_ in range(3):
        for value in range(ROUNDS):
            x.update_inplace(np.full(4, value, np.float32))
            session.run_with_iobinding(binding)
            close(y.numpy(), np.full(4, np.exp(value) / 4, np.float32))
        for n in range(5 + 40 * round_, 45 + 40 * round_):
            session.run(None, {"x": np.zeros(n, np.float32)}, without)


@pytest.mark.parametrize("passes", ["-identity", "-cancel", "-same", "-bias", "-dead", "=0", "=1", "=2", "=3"])
def test_passes_one_by_one(passes, monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", passes)
    ours, cpu = sessions(block(2))
    for _ in range(ROUNDS):
        x = np.random.default_rng(6).standard_normal((2, 3, WIDTH)).astype(np.float32)
        close(ours.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0])


@pytest.mark.parametrize("name", ["saved.onnx", "a/much/longer/path/than/fits/into/a/string/itself.onnx", "saved.ort"])
def test_no_islands_where_the_model_is_saved(name, tmp_path, capfd):
    """ONNX Runtime would refuse to save it, once the session is all but made."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    options = provider.session_options(log_level=2)
    options.optimized_model_filepath = str(path)
    x = np.ones((1, 2, WIDTH), np.float32)
    want = sessions(block())[1].run(None, {"x": x})[0]
    given = {"fusion": "1", "use_tf32": "0"}
    close(provider.session(block(), provider_options=given, options=options).run(None, {"x": x})[0], want)
    assert "fusion is taken as 0, since the session saves its optimised model" in capfd.readouterr().err
    assert path.stat().st_size > 0
    close(provider.session(str(path), provider_options={"fusion": "1", "use_tf32": "0"}).run(None, {"x": x})[0], want)
    assert "fusion is taken as 0" not in capfd.readouterr().err


def shapeless():
    """x has no shape, which is not the shape of a scalar."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    return model(nodes, sides[:1], sides[1:], full=False)  # ONNX's checker wants shapes of inputs, ONNX Runtime none


def halves():
    """A product of constants that ONNX Runtime's CPU provider has no kernel for, so that nobody folds it before us."""
    nodes = [helper.make_node("MatMul", ["table", "w"], ["p"]), helper.make_node("Transpose", ["p"], ["keys"]),
             helper.make_node("MatMul", ["x", "keys"], ["y"])]
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["n", n]) for name, n in [("x", 4), ("y", 6)]]
    values = np.random.default_rng(2).integers(-4, 5, 40).astype(np.float16)
    return model(nodes, sides[:1], sides[1:], [("table", values[:24].reshape(6, 4)), ("w", values[24:].reshape(4, 4))])


def test_constants_of_half_types_are_computed_once():
    ours, cpu = sessions(halves())
    x = np.arange(12, dtype=np.float16).reshape(3, 4)
    np.testing.assert_array_equal(ours.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0])


@pytest.mark.parametrize(("made", "lines"), [("halves", ("const keys f16[4,6]",)),
                                             ("block", (f"input x f32[?,?,{WIDTH}]", "millpond.MatMulBias-1")),
                                             ("shapeless", ("input x f32[...]",))])
def test_the_graph_of_an_island_is_in_the_log(made, lines):
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parents[1] / "demo"), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = ("import onnxruntime, provider, test_islands; onnxruntime.set_default_logger_severity(0); "
            f"provider.session(test_islands.{made}(), provider_options={{'fusion': '1'}})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MILLPOND_LOG": "debug"})
    assert all(line in done.stderr for line in lines)


def test_a_pass_that_there_is_not_is_an_error(monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", "-nosuch")
    with pytest.raises(Exception, match="'-nosuch' names no pass"):
        provider.session(block(), provider_options={"fusion": "1", "use_tf32": "0"})
