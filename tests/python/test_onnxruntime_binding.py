# SPDX-License-Identifier: Apache-2.0
"""Runs with device arrays in and out: bind() and run()."""

import gc

import millpond
import numpy as np
import onnx_kit
import pytest
from core_kit import run_python
from onnx_kit import Node
from ort_kit import EXACT, Interface, Packed, mort, on_device, ort

FOUR = np.arange(4, dtype=np.float32)


def forms(buffer):
    """One Buffer as each kind of array that a session may be given."""
    return {
        "value": mort.as_ortvalue(buffer, dtype="float32"),
        "array": mort.as_array(mort.as_ortvalue(buffer, dtype="float32")),
        "interface": Interface(buffer, "float32", (4,)),
        "packed": Packed(buffer, 2, 32, (4,)),
    }


@pytest.mark.parametrize("form", ["value", "array", "interface", "packed"])
def test_nothing_is_copied(adder, ort_pool, form):
    x, y = (forms(on_device(ort_pool, FOUR))[form] for _ in range(2))
    binding = mort.bind(adder, {"x": x}, {"y": y})
    binding.run()
    before = ort_pool.stats()
    result = binding.run()
    after = ort_pool.stats()
    assert result["y"] is y
    assert mort.as_array(mort.as_ortvalue(y)).numpy().tolist() == [1, 2, 3, 4]
    assert after["in_use"] == before["in_use"]
    assert after["allocs"] == before["allocs"]  # neither side needed memory


def test_memory_that_changes_is_read_anew(adder, ort_pool):
    buffer = on_device(ort_pool, FOUR)
    value = mort.as_ortvalue(buffer, dtype="float32")
    binding = mort.bind(adder, {"x": value})
    first = binding.run()["y"]
    value.update_inplace(FOUR * 10)
    second = binding.run()["y"]
    assert first.numpy().tolist() == [1, 2, 3, 4] and second.numpy().tolist() == [1, 11, 21, 31]
    assert first.address != second.address
    third = binding.run({"x": np.zeros(4, np.float32)})["y"]
    assert third.numpy().tolist() == [1] * 4 and binding.run()["y"].numpy().tolist() == [1] * 4


def test_inputs_of_nodes_on_the_cpu_are_read_anew(ort_pool):
    """ONNX Runtime copies these when they are bound, so that happens before each run."""
    session = mort.session(onnx_kit.mixed(), options=EXACT)
    feed = onnx_kit.mixed_feed(3)
    q = mort.as_ortvalue(Interface(on_device(ort_pool, feed["q"]), "float32", (1, 4)))
    binding = mort.bind(session, {"x": feed["x"], "q": q})
    cpu = ort.InferenceSession(onnx_kit.mixed(), providers=["CPUExecutionProvider"])
    for factor in (1, 3):
        q.update_inplace(feed["q"] * np.float32(factor))
        wanted = cpu.run(None, {**feed, "q": feed["q"] * np.float32(factor)})[0]
        np.testing.assert_allclose(binding.run()["y"].numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_outputs_of_earlier_runs_stay(adder):
    binding = mort.bind(adder)
    kept = [binding.run({"x": np.full(4, i, np.float32)})["y"] for i in range(20)]
    assert [y.numpy().tolist() for y in kept] == [[i + 1] * 4 for i in range(20)]
    assert len({y.address for y in kept}) == 20


def test_an_output_of_one_session_feeds_another(ort_pool):
    first, second = (mort.session(onnx_kit.add_one()) for _ in range(2))
    y = mort.run(first, {"x": FOUR})["y"]
    before = ort_pool.stats()["allocs"]
    z = mort.run(second, {"x": y}, {"y": None})["y"]
    assert ort_pool.stats()["allocs"] - before <= 2  # the output, and nothing to copy the input to
    assert z.numpy().tolist() == [2, 3, 4, 5]


def test_results_outlive_session_and_binding(ort_pool):
    gc.collect()
    before = ort_pool.stats()["in_use"]
    y = mort.bind(mort.session(onnx_kit.add_one()), {"x": FOUR}).run()["y"]
    gc.collect()
    assert y.numpy().tolist() == [1, 2, 3, 4]
    del y
    gc.collect()
    assert ort_pool.stats()["in_use"] == before


def test_copies_of_the_host_s_inputs_go_with_the_run(ort_pool):
    session = mort.session(onnx_kit.add_one((1 << 16,)))
    binding = mort.bind(session, {"x": np.zeros(1 << 16, np.float32)})
    before = ort_pool.stats()["in_use"]
    kept = binding.run()
    assert ort_pool.stats()["in_use"] - before == kept["y"].nbytes
    assert (binding.run()["y"].numpy() == 1).all()


def test_which_outputs():
    nodes = [Node("Neg", ["x"], ["a"], "a"), Node("Abs", ["x"], ["b"], "b"), Node("Shape", ["x"], ["c"], "c")]
    session = mort.session(onnx_kit.model(nodes, {"x": ["n"]}, {"a": ["n"], "b": ["n"], "c": (onnx_kit.INT64, [1])}))
    x = -FOUR
    assert list(mort.run(session, {"x": x})) == ["a", "b", "c"]
    found = mort.run(session, {"x": x}, ["b", "a"])
    assert list(found) == ["b", "a"] and found["b"].numpy().tolist() == [0, 1, 2, 3]
    assert found["a"].numpy().tolist() == [0, 1, 2, 3]
    found = mort.run(session, {"x": x}, {"a": "cpu", "c": None})
    assert isinstance(found["a"], np.ndarray) and found["c"].numpy().tolist() == [4]
    binding = mort.bind(session, {"x": x}, ["a"])
    assert list(binding.run()) == ["a"]
    binding.set_outputs(None)
    assert list(binding.run({"x": x[:2]})) == ["a", "b", "c"]
    with pytest.raises(millpond.InvalidArgumentError, match="no output 'z'; it has a, b, c"):
        mort.run(session, {"x": x}, ["z"])


def test_values_of_other_types(ort_pool):
    for kind, dtype in ((onnx_kit.BOOL, "bool"), (onnx_kit.BFLOAT16, "bfloat16"), (onnx_kit.FLOAT16, "float16"),
                        (onnx_kit.INT64, "int64"), (onnx_kit.UINT8, "uint8")):
        session = mort.session(onnx_kit.relay(kind), fall_back=False)
        size = mort.as_array(mort.as_ortvalue(ort_pool.alloc(64), dtype=dtype)).type.bytes
        source = on_device(ort_pool, np.arange(4 * size, dtype=np.uint8) % 2)
        x = mort.as_ortvalue(source, dtype=dtype, shape=(4,))
        y = mort.run(session, {"x": x})["y"]
        assert y.dtype == dtype and y.shape == (1, 4)
        raw = mort.as_ortvalue(ort_pool.alloc(4 * size))
        target = mort.as_array(raw)
        mort.run(session, {"x": x}, {"y": retyped(target, dtype)})
        assert target.numpy().tolist() == [i % 2 for i in range(4 * size)]


def retyped(array, dtype):
    """The same memory as another type."""
    kind = mort.as_array(mort.as_ortvalue(millpond.Pool(array.device.spec).alloc(8), dtype=dtype)).type
    return mort.as_ortvalue(Packed(array, kind.code, kind.bits, (1, array.nbytes // kind.bytes)))


def test_strings_are_the_host_s():
    node = Node("Cast", ["x"], ["y"], "text", attributes={"to": onnx_kit.STRING})
    session = mort.session(onnx_kit.model([node], {"x": (onnx_kit.INT64, [2])}, {"y": (onnx_kit.STRING, [2])}))
    assert mort.run(session, {"x": np.array([1, 2])})["y"].tolist() == ["1", "2"]


def test_empty_tensors(adder):
    session = mort.session(onnx_kit.add_one(["n"]))
    y = mort.run(session, {"x": np.zeros(0, np.float32)})["y"]
    assert y.shape == (0,) and y.numpy().shape == (0,) and y.nbytes == 0
    assert mort.run(session, {"x": y})["y"].shape == (0,)


# ---- what does not fit ----


def test_wrong_inputs_are_named(adder, ort_pool):
    for given, part in (
        ({"x": FOUR.astype(np.float64)}, r"input 'x' .* is a tensor\(float\), .* is a tensor\(double\); convert it"),
        ({"x": FOUR[:3]}, r"input 'x' .* has the shape \[4\], .* has \[3\]"),
        ({"x": FOUR.reshape(2, 2)}, r"\[4\], .* has \[2, 2\]"),
        ({"z": FOUR}, "no input 'z'; it has x"),
        ({}, "inputs x have no value"),
        ({"x": [1, 2]}, "a list is not an array"),
        ({"x": np.array(["a"] * 4)}, "texts"),
        ({"x": on_device(ort_pool, FOUR)}, r"is a tensor\(uint8\)"),
    ):
        with pytest.raises(millpond.InvalidArgumentError, match=part):
            mort.run(adder, given)
    assert mort.run(adder, {"x": FOUR})["y"].numpy().tolist() == [1, 2, 3, 4]


def test_wrong_outputs_are_named(adder, ort_pool):
    buffer = ort_pool.alloc(16)
    for given, part in (
        (FOUR, "is in the host's memory"),
        (Interface(buffer, "float32", (2, 2)), r"output 'y' .* \[4\], .* \[2, 2\]"),
        (Interface(buffer, "int32", (4,)), r"tensor\(float\), .* tensor\(int32\)"),
        (Interface(buffer, "float32", (4,), data=(buffer.address, True)), "read-only"),
        (Interface(buffer, "float32", (2,), strides=(8,)), "gaps"),
    ):
        with pytest.raises(millpond.InvalidArgumentError, match=part):
            mort.run(adder, {"x": FOUR}, {"y": given})


def test_a_run_that_fails_leaves_the_binding_whole(ort_pool):
    node = Node("Reshape", ["x", "s"], ["y"], "reshape")
    model = onnx_kit.model([node], {"x": ["n"], "s": (onnx_kit.INT64, [2])}, {"y": ["a", "b"]})
    binding = mort.bind(mort.session(model), {"x": FOUR})
    for _ in range(3):
        with pytest.raises(Exception, match="(?i)reshape"):
            binding.run({"s": np.array([5, 5])})
        assert binding.run({"s": np.array([2, 2])})["y"].shape == (2, 2)


def test_outputs_chosen_after_a_run_that_failed():
    """What was bound for that run does not count any more."""
    nodes = [Node("Reshape", ["x", "s"], ["a"], "reshape"), Node("Neg", ["x"], ["b"], "neg")]
    model = onnx_kit.model(nodes, {"x": ["n"], "s": (onnx_kit.INT64, [2])}, {"a": ["i", "j"], "b": ["n"]})
    binding = mort.bind(mort.session(model), {"x": FOUR})
    with pytest.raises(Exception, match="(?i)reshape"):
        binding.run({"s": np.array([5, 5])})
    binding.set_outputs(["b"])
    assert binding.run({"s": np.array([2, 2])})["b"].numpy().tolist() == [0, -1, -2, -3]


def test_a_session_on_the_cpu_alone():
    session = ort.InferenceSession(onnx_kit.add_one(), providers=["CPUExecutionProvider"])
    assert mort.run(session, {"x": FOUR})["y"].tolist() == [1, 2, 3, 4]


# ---- order ----


def test_a_run_waits_for_the_streams_of_its_arrays():
    run_python("""
        import time
        import numpy as np
        import millpond, millpond.onnxruntime as mort, onnx_kit
        from core_kit import make_stream
        from ort_kit import Interface
        pool = millpond.Pool(mort.devices()[0].spec)
        session = mort.session(onnx_kit.add_one())
        stream, events = make_stream(pool), []
        def busy():
            stream.call(lambda: (time.sleep(0.2), events.append(1)))
        x, y = pool.alloc(16, stream), pool.alloc(16, stream)
        named = Interface(x, "float32", (4,), stream=stream.handle)
        plain = [Interface(buffer, "float32", (4,)) for buffer in (x, y)]
        for given, waits in (
            (dict(inputs={"x": named}), True),                                    # an input's stream
            (dict(inputs={"x": plain[0]}, outputs={"y": Interface(y, "float32", (4,), stream=stream.handle)}), True),
            (dict(inputs={"x": plain[0]}, outputs={"y": plain[1]}, stream=stream), True),
            (dict(inputs={"x": plain[0]}, outputs={"y": plain[1]}), False),       # they name no stream
            (dict(inputs={"x": named}, stream=None), False),
        ):
            events.clear()
            busy()
            mort.run(session, **given)
            assert bool(events) == waits, given
            stream.synchronize()
        binding = mort.bind(session, {"x": named})
        for _ in range(3):                                                        # before each run, not once
            events.clear()
            busy()
            binding.run()
            assert events
        del x, y, named, plain, binding, given
        pool.stream_gone(stream)
        stream.destroy()
    """, MILLPOND_HOST="threaded")


def test_a_run_has_ended_when_it_returns():
    run_python("""
        import numpy as np
        import millpond.onnxruntime as mort, onnx_kit
        session = mort.session(onnx_kit.add_one((100000,)))
        for i in range(50):
            y = mort.run(session, {"x": np.full(100000, i, np.float32)})["y"]
            assert (np.asarray(y) == i + 1).all()
    """, MILLPOND_HOST="threaded", MILLPOND_DEVICE="host")
