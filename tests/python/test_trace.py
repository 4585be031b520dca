# SPDX-License-Identifier: Apache-2.0
"""What a trace knows of memory: labels of users and of the provider's nodes, and Python stacks."""

import gc
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import millpond
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "pool"))
import trace_files  # noqa: E402  (beside the tests of the page)

KIB = 1 << 10


@pytest.fixture
def pool():
    with millpond.Pool("host:0", client="test_trace") as pool:
        yield pool
        pool.trace(0)


def events(pool, path):
    pool.write_trace(path / "page.html")
    return trace_files.page_data((path / "page.html").read_text(encoding="utf-8"))[2]


def lent(pool, path):
    return [event for event in events(pool, path) if event["action"] == "alloc"]


# ---- labels ----


def test_labels_nest_and_end(pool, tmp_path):
    pool.trace(100)
    kept = [pool.alloc(KIB)]
    with millpond.label("outer"):
        kept.append(pool.alloc(KIB))
        with millpond.label("inner", kind="workspace", tensor="t"):
            kept.append(pool.alloc(KIB))
        kept.append(pool.reserve(KIB))
    kept.append(pool.alloc(KIB))
    assert [event["label"] for event in lent(pool, tmp_path)] == [
        ["other", "", ""], ["other", "outer", ""], ["workspace", "inner", "t"], ["other", "outer", ""],
        ["other", "", ""]]
    kept.clear()
    freed = [event for event in events(pool, tmp_path) if event["action"] == "free"]
    assert ["workspace", "inner", "t"] in [event["label"] for event in freed]


def test_labels_end_with_an_exception_and_serve_again(pool, tmp_path):
    scope = millpond.label("scope", kind="weights")
    pool.trace(100)
    for _ in range(2):
        with pytest.raises(KeyError), scope, scope:
            raise KeyError
    kept = pool.alloc(KIB)
    assert lent(pool, tmp_path)[-1]["label"] == ["other", "", ""]
    del kept


def test_labels_are_those_of_one_thread(pool, tmp_path):
    @millpond.label("decorated")
    def work():
        return pool.alloc(KIB)

    kept = []
    pool.trace(100)
    with millpond.label("main"):
        thread = threading.Thread(target=lambda: kept.append(pool.alloc(KIB)))
        thread.start()
        thread.join()
        kept.append(work())
    assert [event["label"][1] for event in lent(pool, tmp_path)] == ["", "decorated"]


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ({"name": 5}, TypeError, "5"),
    ({"name": "x", "kind": "weight"}, millpond.InvalidArgumentError,
     "'weights', 'activations', 'workspace' or 'other'"),
    ({"name": "x", "tensor": b"y"}, TypeError, "b'y'"),
])
def test_labels_that_cannot_be_are_refused(arguments, error, words):
    with pytest.raises(error) as raised:
        millpond.label(**arguments)
    assert words in str(raised.value)


def test_labels_show_what_was_lent_before_the_trace(pool, tmp_path):
    with millpond.label("early", kind="weights"):
        kept = pool.alloc(5 * KIB)
    pool.trace(100)
    pool.write_trace(tmp_path / "page.html")
    _, blocks, _ = trace_files.page_data((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert ["weights", "early", ""] in [block["label"] for block in blocks if block["requested"] == 5 * KIB]
    del kept


# ---- stacks ----


def outer(pool):
    return inner(pool)


def inner(pool):
    return pool.alloc(KIB)


def test_stacks_name_who_asked(pool, tmp_path):
    pool.trace(100, stacks=3)
    kept = outer(pool)
    [event] = lent(pool, tmp_path)
    assert [frame[2] for frame in event["stack"]] == ["inner", "outer", "test_stacks_name_who_asked"]
    assert {frame[0] for frame in event["stack"]} == {__file__}
    assert event["stack"][0][1] == inner.__code__.co_firstlineno + 1
    pool.write_trace(tmp_path / "snapshot.pickle")
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    frames = [block["frames"] for segment in snapshot["segments"] for block in segment["blocks"] if block["frames"]]
    names = [[frame["name"] for frame in block] for block in frames]
    assert ["inner", "outer", "test_stacks_name_who_asked", "test_trace"] in names
    del kept


def test_stacks_are_for_those_who_want_them(pool, tmp_path):
    pool.trace(100)
    kept = outer(pool)
    assert lent(pool, tmp_path)[0]["stack"] == []
    pool.trace(100, 1)
    kept = outer(pool)
    assert [frame[2] for frame in lent(pool, tmp_path)[0]["stack"]] == ["inner"]
    with pytest.raises(millpond.InvalidArgumentError, match="65"):
        pool.trace(100, stacks=65)
    kept = outer(pool)
    assert len(lent(pool, tmp_path)) == 2  # what was refused has not begun anew
    pool.trace(0, stacks=5)
    assert events(pool, tmp_path) == []
    del kept


def test_stacks_keep_an_exception_under_way(pool):
    class Late:
        def __del__(self):
            self.block = inner(pool)

    pool.trace(100, stacks=8)
    with pytest.raises(ZeroDivisionError):
        late = Late()
        del late
        1 // 0  # noqa: B018
    gc.collect()


def test_stacks_of_many_threads(pool, tmp_path):
    pool.trace(100000, stacks=8)

    def work():
        for _ in range(200):
            outer(pool).free()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lent(pool, tmp_path)
    assert len(found) == 1600
    assert {tuple(frame[2] for frame in event["stack"][:3]) for event in found} == {("inner", "outer", "work")}


def test_stacks_do_not_hold_up_the_end():
    program = """if True:
        import millpond, threading
        pool = millpond.Pool("host:0", client="end")
        pool.trace(1000, stacks=20)
        def work():
            while True:
                pool.alloc(1024).free()
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        while pool.stats()["allocs"] < 1000:
            pass
        print("done")
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


# ---- the provider ----


def model():
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper  # noqa: PLC0415

    nodes = [helper.make_node("MatMul", ["x", "table"], ["product"], name="/layer/MatMul"),
             helper.make_node("Softmax", ["product"], ["y"])]
    weights = helper.make_tensor("table", TensorProto.FLOAT, [64, 96], [0.5] * (64 * 96))
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])]
             for name, width in (("x", 64), ("y", 96))]
    made = helper.make_model(helper.make_graph(nodes, "g", *sides, [weights]),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


@pytest.fixture
def session_pool():
    """Where a session allocates: on the GPU, where there is one."""
    with millpond.Pool(client="test_trace") as pool:
        yield pool
        pool.trace(0)


@pytest.mark.parametrize("fusion", ["0", "1"])
def test_provider_names_nodes_and_values(session_pool, tmp_path, fusion):
    pool = session_pool
    pytest.importorskip("onnxruntime")
    import millpond.onnxruntime  # noqa: PLC0415
    import numpy  # noqa: PLC0415

    session = millpond.onnxruntime.session(model(), options={"fusion": fusion})
    pool.trace(1000, stacks=4)
    session.run(None, {"x": numpy.ones((32, 64), "float32")})
    pool.write_trace(tmp_path / "page.html")
    about, blocks, found = trace_files.page_data((tmp_path / "page.html").read_text(encoding="utf-8"))
    labels = [event["label"] for event in found if event["action"] == "alloc"]
    shared = ["activations", "island 0 (2 nodes: /layer/MatMul .. Softmax)", "values between its nodes"]
    product = shared if shared in labels else ["activations", "/layer/MatMul", "product"]
    assert product in labels
    assert ["activations", "Softmax", "y"] in labels
    if product == shared:  # a block of several values says which, and when they are in use
        head, line = about["notes"][str(about["labels"].index(shared))]
        assert head.split() == ["offset", "bytes", "value", "made", "by", "last", "read", "by"]
        # what lies before it in the block is the device's business
        assert line.split()[1:] == [str(32 * 96 * 4), "product", "MatMul", "'/layer/MatMul'", "Softmax"]
    kept = [block["label"] for block in blocks if block["state"] == 0]
    prepared = ("/layer/MatMul", "prepared input 1")  # the table as a GPU's kernel wants it
    assert any(kind == "weights" and ("table" in (node, tensor) or (node, tensor) == prepared)
               for kind, node, tensor in kept)
    calls = [event["stack"] for event in found if event["label"] == product and event["action"] == "alloc"]
    assert "test_provider_names_nodes_and_values" in [frame[2] for frame in calls[0]]
