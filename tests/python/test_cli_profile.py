# SPDX-License-Identifier: Apache-2.0
"""`millpond profile`: times by operator and by kernel, what a run takes at least, the chart; and made-up profiles."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import onnx_kit
import pytest
from cli_kit import refused, run, run_json
from onnx_kit import Node

ort = pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")

from millpond import _onnx_file  # noqa: E402
from millpond.cli import _app, _explain, _profile, _profile_page, _profile_read  # noqa: E402

CPU = "CPUExecutionProvider"
NAME = "<b>'&\"</b>"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """An island of a product with a bias, a look-up and a Softmax, and a node of another provider."""
    made = tmp_path_factory.mktemp("profiled") / "model.onnx"
    nodes = [Node("MatMul", ["x", "w"], ["p"], "product"), Node("Add", ["p", "b"], ["s"], "sum"),
             Node("Gather", ["table", "rows"], ["g"], "look up"), Node("Mul", ["s", "g"], ["m"], "scale"),
             # Along rows it would join Mul.
             Node("Softmax", ["m"], ["y"], "<softmax>&", attributes={"axis": 0}),
             Node("LinearRegressor", ["a"], ["z"], "regression", "ai.onnx.ml", {"coefficients": [0.5, 1.0]})]
    constants = {"w": np.ones((16, 16), np.float32), "b": np.ones(16, np.float32),
                 "table": np.ones((1000, 16), np.float32)}
    rows = (onnx_kit.INT64, [4])
    made.write_bytes(onnx_kit.model(nodes, {"x": [4, 16], "rows": rows, "a": [1, 2]}, {"y": [4, 16], "z": [1, 1]},
                                    constants, domains=["ai.onnx.ml"]))
    return made


@pytest.mark.parametrize("fusion", ["0", "1"])
def test_profile(path, fusion):
    found = run_json("profile", path, "--runs", 4, "--warmup", 1, "--bandwidth", 10, "--option", f"fusion={fusion}")
    assert found["runs"] == 4 and found["run_ms"]["runs"] == 4 and found["device_us"] > 0
    rows = {row["name"]: row for row in found["operators"]}
    assert {"Softmax", "Gather", "(inputs)", "(outputs)"} <= set(rows)
    assert rows["LinearRegressor"]["where"] == CPU
    for row in found["operators"]:
        assert row["count"] >= 1 and row["us"] >= 0 and 0 <= row["share"] <= 1
    assert sum(row["share"] for row in found["operators"]) == pytest.approx(1)
    device = [row for row in found["operators"] if row["where"] == "device"]
    assert sum(row["us"] for row in device) == pytest.approx(found["device_us"])
    assert sum(row["us"] for row in found["kernels"]) == pytest.approx(found["device_us"])
    assert sum(row["count"] for row in found["kernels"]) == sum(row["launches"] for row in device)
    if fusion == "1":
        product = next(row for row in device if row["flop"])
        assert product["name"] in ("Gemm", "MatMul + Add") and product["flop"] == 2 * 4 * 16 * 16
        assert rows["Softmax"]["bytes"] == 2 * 4 * 64 and rows["Gather"]["bytes"] is None
        assert rows["Softmax"]["gb_s"] == pytest.approx(rows["Softmax"]["bytes"] / rows["Softmax"]["us"] / 1e3)


def test_the_floor_has_each_byte_once(path):
    found = run_json("profile", path, "--runs", 2, "--bandwidth", 0.5)
    floor = found["floor"]
    assert floor["inputs"] == 4 * 64 + 4 * 8 + 8 and floor["outputs"] == 4 * 64 + 4
    assert floor["weights"] == 4 * (16 * 16 + 16)  # of the table a run reads some rows
    assert floor["us"] == pytest.approx(floor["bytes"] / 500)
    assert floor["share_of_device"] == pytest.approx(floor["us"] / found["device_us"])
    assert run_json("profile", path, "--runs", 1)["floor"]["us"] is None
    assert "not in the range" in refused("profile", path, "--bandwidth", 0)
    for value in ("inf", "nan"):
        refused("profile", path, "--bandwidth", value)


def test_words_for_people(path):
    out, said = run("profile", path, "--runs", 2, "--bandwidth", 20)
    assert said == ""
    for part in ("a run takes ", "the device works for", "at 20 GB/s that takes", "By operator, in a run", "floor %",
                 "By kernel, in a run", "softmax", "matrix products of islands: 2048 FLOP"):
        assert part in out, part
    out, _ = run("profile", path, "--runs", 1)
    assert "--bandwidth says how long that takes" in out and "floor %" not in out
    assert "there is no folder" in refused("profile", path, "--html", path.parent / "none" / "page.html")


def test_a_profile_that_cannot_be_read(path, monkeypatch, capsys):
    """Older ONNX Runtimes write names of nodes as they are."""
    monkeypatch.setattr(_explain, "_events", lambda path: [])
    assert _app.run(["profile", str(path), "--option", "fusion=0"]) == 1
    assert "names in the model" in capsys.readouterr().err


def test_weights_that_a_run_reads():
    """Once each; not the table of a look-up, behind an Identity too, nor experts, nor what only a branch reads."""
    inner = onnx_kit.graph_bytes([Node("Constant", [], ["in"], attributes={"value": np.ones(9, np.float32)}),
                                  Node("Add", ["in", "far"], ["e"])], {}, {"e": [9]})
    nodes = [Node("Constant", [], ["k"], attributes={"value": np.ones((3, 2), np.float16)}),
             Node("Identity", ["t"], ["u"]), Node("Gather", ["u", "i"], ["g"]), Node("MatMul", ["g", "v"], ["h"]),
             Node("Identity", ["w"], ["v"]), Node("Add", ["h", "w"], ["y"]), Node("Exp", ["k"], ["z"]),
             Node("MoE", ["y", "router", "experts"], ["o"], "", "com.microsoft"),
             Node("If", ["c"], ["q"], attributes={"then_branch": inner, "else_branch": inner})]
    data = onnx_kit.model(nodes, {"i": (onnx_kit.INT64, [8]), "c": (onnx_kit.BOOL, [])}, {"y": [8, 8]},
                          {"t": np.ones((100, 8), np.float32), "w": np.ones((8, 8), np.float32),
                           "unread": np.ones(50, np.float32), "far": np.ones(9, np.float32),
                           "experts": np.ones(70, np.float32), "router": np.ones(8, np.float32)},
                          domains=["com.microsoft"])
    assert _profile.weight_bytes(_onnx_file.parse(data)) == 4 * 64 + 2 * 6 + 4 * 8


@pytest.mark.parametrize(("kind", "size"), [
    ("float", 36), ("double", 72), ("bool", 9), ("float16", 18), ("bfloat16", 18), ("float8e4m3fn", 9), ("uint4", 5),
    ("float4e2m1", 5), ("int2", 3), ("int64", 72), ("complex64", 72), ("string", 0),
])
def test_bytes_of_types(kind, size):
    assert _profile._weight_bytes(_onnx_file.Value(f"tensor({kind})", (3, 3))) == size


# ---- profiles as a GPU gives them ----


def session(ts, dur):
    return {"cat": "Session", "name": "model_run", "ts": ts, "dur": dur, "tid": 1, "pid": 1, "args": {}}


def node(name, operator, ts, dur, provider="ours"):
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "tid": 1, "pid": 1,
            "args": {"op_name": operator, "provider": provider}}


def kernel(name, ts, ns, identity, of=None, operator="Add", stream="7", **args):
    extents = {f"{what}_{axis}": "2" for what in ("grid", "block") for axis in "xyz"}
    about = {} if of is None else {"ort_event_name": f"{of}_kernel_time",
                                   "onnx_nodes": [{"op_type": operator, "name": of}]}
    return {"cat": "Kernel", "name": name, "ts": ts, "dur": ns // 1000, "tid": int(stream), "pid": -1,
            "args": {"duration_ns": str(ns), "stream": stream, "ort_correlation_id": str(identity), **extents, **about,
                     **args}}


ZERO = 10 ** 15


def asynchronous():
    """Two runs. The kernels of the first are done late, those of `b` when the second has begun by the GPU's clock."""
    return [session(100, 50), node("a", "Add", 105, 10), node("b", "Mul", 116, 5), node("c", "Sin", 122, 20, CPU),
            session(160, 50), node("a", "Add", 165, 10), node("b", "Mul", 176, 5), node("c", "Sin", 182, 20, CPU),
            kernel("add", 130, 4000, ZERO + 105, "a"), kernel("mul", 161, 2500, ZERO + 116, "b", "Mul"),
            kernel("add", 190, 6000, ZERO + 165, "a"), kernel("mul", 197, 3500, ZERO + 177, "b", "Mul"),
            kernel("MemcpyHostToDevice", 90, 9000, ZERO + 20), kernel("MemcpyDeviceToHost", 152, 1000, ZERO + 100)]


def test_work_belongs_to_the_run_that_queued_it():
    first, second = _profile_read.runs_of(asynchronous(), 5)
    assert [piece.name for piece in first.pieces] == ["add", "mul", "MemcpyDeviceToHost"]  # nothing of before a run
    assert [piece.name for piece in second.pieces] == ["add", "mul"] and second.device_us == 9.5
    assert len(_profile_read.runs_of(asynchronous(), 1)) == 1
    steps = _profile_read.Steps([])
    rows = {row["name"]: row for row in _profile_read.by_operator([first, second], steps, {"ours"})}
    assert rows["Add"]["us"] == 5 and rows["Add"]["count"] == 1 and rows["Mul"]["us"] == 3
    assert rows["Sin"]["where"] == CPU and rows["Sin"]["us"] == 20 and rows["(outputs)"]["us"] == 0.5
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    kernels = {row["name"]: row for row in _profile_read.by_kernel([first, second])}
    assert kernels["add"]["count"] == 1 and kernels["MemcpyDeviceToHost"]["count"] == 0.5


def test_without_the_device_s_work_times_are_the_host_s():
    events = [event for event in asynchronous() if event["cat"] != "Kernel"]
    runs = _profile_read.runs_of(events, 2)
    rows = {row["name"]: row for row in _profile_read.by_operator(runs, _profile_read.Steps([]), {"ours"})}
    assert rows["Add"]["where"] == "host" and rows["Add"]["us"] == 10 and _profile_read.by_kernel(runs) == []
    lanes = _profile_read.chart_of(runs[0], _profile_read.Steps([]), {"ours"})
    assert [lane.title for lane in lanes] == ["run", "host"]


def test_lanes_nest():
    events = [session(0, 100), node("loop", "Loop", 5, 80), node("in", "Add", 10, 20), node("next", "Mul", 90, 5),
              node("island", "ours_1", 31, 9),
              *(kernel(f"k{i}", 40 + 10 * i, 5000, ZERO + 31, "island", island_step=str(i // 2)) for i in range(4)),
              kernel("other", 50, 1000, ZERO + 10, "in", stream="8")]
    (found,) = _profile_read.runs_of(events, 1)
    steps = _profile_read.Steps([{"event": "island", "name": "island 0", "programs": []}])
    run_lane, host, first, second = _profile_read.chart_of(found, steps, {"ours"})
    assert run_lane.bars[0].us == 100
    assert [(bar.name, bar.depth) for bar in host.bars] == [
        ("Loop loop", 0), ("Add in", 1), ("island 0", 1), ("Mul next", 0)]
    assert [(bar.name, bar.depth, bar.begin, bar.us) for bar in first.bars if bar.depth < 2] == [
        ("island 0", 0, 40, 35), ("Add island", 1, 40, 15), ("Add island", 1, 60, 15)]
    assert [bar.name for bar in first.bars if bar.depth == 2] == ["k0", "k1", "k2", "k3"]
    assert [(bar.name, bar.depth) for bar in second.bars] == [("Add in", 0), ("other", 1)]


# ---- the page ----


class Reader(HTMLParser):
    """The bars and the script of a page; every element is closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.bars, self.script, self.policy = [], [], "", ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if "title" in given:
            self.bars.append(given)
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.script += data


def test_page(path, tmp_path):
    page = tmp_path / "page.html"
    run("profile", path, "--runs", 2, "--html", page, "--option", "fusion=1")
    text = page.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text and not re.search(r"(src|href)=|url\(|@import|https?:", text)
    seen = Reader(text)
    digest = base64.b64encode(hashlib.sha256(seen.script.encode()).digest()).decode()
    assert seen.policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert any("<softmax>&" in bar["title"] for bar in seen.bars) and "<softmax>" not in text
    assert {"run", "island", "node", "other", "kernel", "move"} == {bar["class"] for bar in seen.bars}
    for bar in seen.bars:
        left, width = (float(re.search(rf"{what}:([\d.]+)%", bar["style"]).group(1)) for what in ("left", "width"))
        assert 0 <= left <= 100 and left + width <= 100.01


def test_a_long_lane_keeps_its_longest_bars(monkeypatch):
    monkeypatch.setattr(_profile_page, "BARS_MAX", 2)
    bars = [_profile_read.Bar(0, begin, us, NAME, "kernel", NAME) for begin, us in ((-3, 1), (0, 5), (7, 4))]
    drawn = _profile_page.chart([_profile_read.Lane(NAME, bars)])
    seen = Reader(drawn)
    assert [float(bar["data-us"]) for bar in seen.bars] == [5, 4] and "without the 1 shortest" in drawn
    assert NAME not in drawn and seen.bars[0]["title"].startswith(NAME)
