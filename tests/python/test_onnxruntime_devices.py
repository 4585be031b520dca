# SPDX-License-Identifier: Apache-2.0
"""A batch on several devices: millpond.onnxruntime.session(model, devices=...)."""

import textwrap

import millpond
import onnx_kit
import pytest
from core_kit import run_python
from ort_kit import mort

START = """
import millpond, numpy as np, onnx, threading, onnxruntime as ort
import millpond.onnxruntime as mort
from onnx import TensorProto, helper, numpy_helper

def model(nodes, inputs, outputs, constants=()):
    made = [[helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in ends]
            for ends in (inputs, outputs)]
    graph = helper.make_graph([helper.make_node(*node[:3], **node[3]) for node in nodes], "g", *made,
                              [numpy_helper.from_array(value, name) for name, value in dict(constants).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

F, I = TensorProto.FLOAT, TensorProto.INT64
rng = np.random.default_rng(0)
W = rng.standard_normal((6, 5)).astype(np.float32)
# h is shared; s has a batch whose shape follows from no name; m is the same everywhere; sum is not.
net = model([("MatMul", ["x", "w"], ["p"], {}), ("Add", ["p", "h"], ["y"], {}), ("Relu", ["y"], ["s"], {}),
             ("Exp", ["h"], ["m"], {}), ("ReduceSum", ["y"], ["sum"], {"keepdims": 0})],
            [("x", F, ["rows", 6]), ("h", F, [1, 5])],
            [("y", F, ["rows", 5]), ("s", F, [None, 5]), ("m", F, [1, 5]), ("sum", F, [])], {"w": W})
H = np.arange(5, dtype=np.float32).reshape(1, 5) / 5

def fails(kind, words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert words in str(error), error
        return error
    raise SystemExit(f"no {kind.__name__}: {words}")
"""


def child(code, devices=3, **more):
    return run_python(START + textwrap.dedent(code), MILLPOND_DEVICE="host", MILLPOND_HOST_DEVICES=str(devices), **more)


def test_batches_of_every_size():
    """Even, uneven, tiny and empty ones are what one session gives, in order."""
    child("""
        one, all_ = mort.session(net), mort.session(net, devices="all")
        assert [device.spec for device in all_.devices] == ["host:0", "host:1", "host:2"] and all_.batch == "rows"
        for rows in (0, 1, 2, 3, 4, 7, 64):
            x = rng.standard_normal((rows, 6)).astype(np.float32)
            for names in (["y", "s", "m"], ["m"], ["s", "y"], ["y"]):
                for a, b in zip(one.run(names, {"x": x, "h": H}), all_.run(names, {"x": x, "h": H}), strict=True):
                    assert a.dtype == b.dtype and a.shape == b.shape
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        assert "host:0, host:1, host:2" in repr(all_)
        assert [end.name for end in all_.get_outputs()] == ["y", "s", "m", "sum"]
    """)


def test_each_device_does_its_part():
    child("""
        all_ = mort.session(net, devices=["host:2", 0])
        before = [millpond.Pool(spec, client="test").stats()["allocs"] for spec in ("host:0", "host:1", "host:2")]
        all_.run(["y"], {"x": np.ones((8, 6), np.float32), "h": H})
        after = [millpond.Pool(spec, client="test").stats()["allocs"] for spec in ("host:0", "host:1", "host:2")]
        assert [b > a for a, b in zip(before, after)] == [True, False, True], (before, after)
    """)


def test_inputs_are_views():
    """Nothing of the batch is copied on the host."""
    child("""
        all_, x, seen = mort.session(net, devices="all"), np.ones((9, 6), np.float32), []
        for session in all_.sessions:
            def run(wanted, feeds, options, run=session.run):
                seen.append(feeds["x"])
                return run(wanted, feeds, options)
            session.run = run
        all_.run(["y"], {"x": x, "h": H})
        assert [array.shape for array in seen] == [(3, 6)] * 3
        assert all(np.shares_memory(array, x) for array in seen)
    """)


def test_large_outputs_are_parts_of_one_array():
    """Of outputs larger than the inputs each device writes its part where it belongs."""
    child("""
        import millpond._ort_shard as shard
        nodes = [("Concat", ["x", "x", "x"], ["z"], {"axis": 1})]
        wide = model(nodes, [("x", F, ["rows", 6])], [("z", F, ["rows", 18])])
        all_, x, seen = mort.session(wide, devices="all"), np.arange(54, dtype=np.float32).reshape(9, 6), []
        made = ort.OrtValue.ortvalue_from_numpy
        def watched(array, *more):
            seen.append(array)
            return made(array, *more)
        shard.ort.OrtValue.ortvalue_from_numpy = watched
        z, = all_.run(["z"], {"x": x})
        inputs, outputs = ([array for array in seen if array.shape == (3, n)] for n in (6, 18))
        assert len(inputs) == len(outputs) == 3
        assert all(np.shares_memory(array, x) for array in inputs)
        assert all(np.shares_memory(array, z) for array in outputs)
        np.testing.assert_array_equal(z, np.tile(x, 3))
    """)


def test_outputs_that_differ_are_refused():
    child("""
        all_ = mort.session(net, devices="all")
        x = rng.standard_normal((9, 6)).astype(np.float32)
        fails(millpond.UnsupportedError, "the output 'sum' does not have the batch 'rows' as its first dimension",
              all_.run, None, {"x": x, "h": H})
        assert all_.run(["sum"], {"x": x[:1], "h": H})[0].shape == ()  # on one device
    """)


def test_errors_name_their_device():
    child("""
        bad = model([("Gather", ["t", "i"], ["y"], {})], [("i", I, ["rows"])], [("y", F, ["rows", 2])],
                    {"t": np.zeros((4, 2), np.float32)})
        all_ = mort.session(bad, devices="all")
        good = np.zeros(6, np.int64)
        assert all_.run(None, {"i": good})[0].shape == (6, 2)
        wrong = good.reshape(2, 3)
        error = fails(Exception, "i", all_.run, None, {"i": wrong})
        assert error.device == "host:0", error.device
        pieces = np.concatenate([good, [0]])
        class Odd(type(all_)):
            def _part(self, session, *more):
                if session is self.sessions[1]:
                    raise millpond.OutOfMemoryError("none left")
                return super()._part(session, *more)
        all_.__class__ = Odd
        error = fails(millpond.OutOfMemoryError, "none left", all_.run, None, {"i": pieces})
        assert error.device == "host:1" and any("host:1" in note for note in getattr(error, "__notes__", ["host:1"]))
        all_.__class__ = Odd.__base__
        assert all_.run(None, {"i": pieces})[0].shape == (7, 2)  # it goes on
    """)


def test_what_cannot_be_shared_out():
    child("""
        invalid = millpond.InvalidArgumentError
        fixed = model([("Relu", ["x"], ["y"], {})], [("x", F, [4])], [("y", F, [4])])
        fails(invalid, "no input's first dimension is free (x [4])", mort.session, fixed, devices="all")
        fails(invalid, "no input has 'other' as its first dimension", mort.session, net, devices="all", batch="other")
        fails(invalid, "devices='host' is not known", mort.session, net, devices="host")
        fails(invalid, "the list of devices is empty", mort.session, net, devices=[])
        fails(invalid, "host:1 is listed twice", mort.session, net, devices=["host:1", 1])
        fails(invalid, "not both", mort.session, net, 1, devices="all")
        fails(invalid, "cannot share one SessionOptions", mort.session, net, devices="all",
              session_options=ort.SessionOptions())
        fails(millpond.NotFoundError, "no device 'host:9'", mort.session, net, devices=["host:9"])
        pair = model([("MatMul", ["a", "b"], ["y"], {})], [("a", F, ["n", 2, 3]), ("b", F, ["n", 3, 2])],
                     [("y", F, ["n", 2, 2])])
        made = mort.session(pair, devices="all", session_options=ort.SessionOptions)
        ones = lambda *shape: np.ones(shape, np.float32)
        fails(invalid, "disagree in the size of the batch 'n': a has 4, b has 5", made.run, None,
              {"a": ones(4, 2, 3), "b": ones(5, 3, 2)})
        fails(invalid, "no input with the batch 'n' is given, only none", made.run, None, {})
        fails(invalid, "the model has no output 'z'; it has y", made.run, ["z"], {"a": ones(4, 2, 3)})
        fails(invalid, "is a Buffer on a device", made.run, None,
              {"a": millpond.Pool().alloc(96), "b": ones(4, 3, 2)})
        assert made.run(None, {"a": ones(5, 2, 3), "b": ones(5, 3, 2)})[0].shape == (5, 2, 2)
    """)


def test_other_elements_and_texts():
    """Types without a word in NumPy, arrays that are not contiguous, lists, dimensions without names."""
    child("""
        half = model([("Cast", ["x"], ["y"], {"to": TensorProto.FLOAT16}), ("Not", ["b"], ["c"], {})],
                     [("x", F, [None, 3]), ("b", TensorProto.BOOL, [None])],
                     [("y", TensorProto.FLOAT16, [None, 3]), ("c", TensorProto.BOOL, [None])])
        all_ = mort.session(half, devices="all")
        x = np.arange(24, dtype=np.float32).reshape(3, 8).T
        y, c = all_.run(None, {"x": x, "b": [True] * 7 + [False]})
        assert y.dtype == np.float16 and np.array_equal(y, x) and c.tolist() == [False] * 7 + [True]
    """)


def test_threads_and_close():
    child("""
        with mort.session(net, devices="all") as all_:
            x = rng.standard_normal((30, 6)).astype(np.float32)
            wanted, wrong = mort.session(net).run(["y"], {"x": x, "h": H})[0], []
            def work():
                for _ in range(20):
                    if not np.allclose(all_.run(["y"], {"x": x, "h": H})[0], wanted, atol=1e-5):
                        wrong.append(1)
            threads = [threading.Thread(target=work) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert not wrong
        assert all_.sessions == []
        fails(RuntimeError, "closed", all_.run, None, {"x": x, "h": H})
        mort.unregister()
    """, quiet=False)


def test_shares():
    from millpond._ort_shard import shares

    for rows in range(40):
        for count in range(1, 9):
            parts = shares(rows, count)
            assert [row for begin, end in parts for row in range(begin, end)] == list(range(rows))
            sizes = [end - begin for begin, end in parts]
            assert max(sizes) - min(sizes) <= 1 and len(parts) == max(1, min(rows, count))


def test_one_device():
    with pytest.raises(millpond.InvalidArgumentError, match=r"the model has no batch to share out: .*\(x \[4\]\)"):
        mort.session(onnx_kit.add_one(), devices=[0])
