# SPDX-License-Identifier: Apache-2.0
"""`millpond explain`: islands, steps and what is outside; the page; the search for a rewrite."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import onnx_kit
import pytest
from cli_kit import refused, run, run_json
from onnx_kit import Node

pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")
from ort_version import HOLDS_CONTROL_FLOW, OLD_CONTROL_FLOW  # noqa: E402  (needs it)

HOSTILE = "</title><script>alert(1)</script>'&\""
PROVIDER, CPU = "CudaPluginExecutionProvider", "CPUExecutionProvider"
ISLANDS = ("--option", "fusion=1")


def layer(i, source, target, names=("product", "sum")):
    """A product with a bias, and a view of it."""
    return [Node("MatMul", [source, f"w{i}"], [f"p{i}"], names[0] + str(i)),
            Node("Add", [f"p{i}", f"b{i}"], [target], names[1] + str(i))]


def weights(i, kind="float32", exact=False):
    """Of `exact` ones no product is rounded."""
    rng = np.random.default_rng(i)

    def draw(*shape):
        return (rng.integers(-2, 3, shape) if exact else rng.standard_normal(shape)).astype(kind)

    return {f"w{i}": draw(16, 16), f"b{i}": draw(16)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of one island with a node of another provider behind it, and of one with names that are no names."""
    made = tmp_path_factory.mktemp("explained")
    nodes = [*layer(0, "x", "s"), Node("Shape", ["s"], ["n"], "shape"), Node("Reshape", ["s", "flat"], ["f"], "flat"),
             Node("Softmax", ["f"], ["q"], "softmax"), Node("Reshape", ["q", "n"], ["y"], "back"),
             Node("LinearRegressor", ["a"], ["z"], "regression", "ai.onnx.ml", {"coefficients": [0.5, 1.0]})]
    constants = {**weights(0), "flat": np.array([-1, 8])}
    (made / "model.onnx").write_bytes(onnx_kit.model(
        nodes, {"x": [2, "n", 16], "a": [1, 2]}, {"y": [2, "n", 16], "z": [1, 1]}, constants, domains=["ai.onnx.ml"]))
    nodes = [*layer(0, "x", "s", (HOSTILE, f"{HOSTILE}+")), Node("Softmax", ["s"], ["y"], HOSTILE)]
    (made / "hostile.onnx").write_bytes(onnx_kit.model(
        nodes, {"x": [2, "n", 16]}, {"y": [2, "n", 16]}, weights(0)))
    return made


def scaler(source, target):
    """A node that no island can hold, nor the node whose body it is in."""
    return Node("Scaler", [source], [target], "scaler", "ai.onnx.ml", {"offset": [0.0], "scale": [1.0]})


def names(nodes):
    return [(node["op_type"], node["name"]) for node in nodes]


def test_explain(folder):
    found = run_json("explain", folder / "model.onnx", "--shape", "x=2x3x16", *ISLANDS)
    assert found["fusion"] == "1" and found["nodes"] == 7
    (island,) = found["islands"]
    assert set(names(island["nodes"])) == {("MatMul", "product0"), ("Add", "sum0"), ("Shape", "shape"),
                                           ("Reshape", "flat"), ("Softmax", "softmax"), ("Reshape", "back")}
    assert names(island["idle"]) == [("Shape", "shape")]
    (program,) = island["programs"]
    assert program["inputs"] == [{"name": "x", "type": "f32", "shape": [2, 3, 16]}]
    product, flat, softmax, back = program["steps"]
    assert names(product["nodes"]) == [("MatMul", "product0"), ("Add", "sum0")] and product["op"] == "MatMulBias"
    assert [kernel["kind"] for kernel in product["kernels"]] == ["product"]
    assert (product["bytes_read"], product["bytes_written"]) == (4 * (96 + 256 + 16), 4 * 96)
    assert product["out"][0]["shape"] == [2, 3, 16] and product["out"][0]["place"] == "block"
    assert flat["is_view"] and back["is_view"] and flat["bytes_read"] == 0
    assert softmax["kernels"][0]["name"].startswith("softmax") and softmax["kernels"][0]["lanes"] > 0
    assert product["device_us"] > 0 and softmax["device_us"] > 0 and any("softmax" in name for name in softmax["seen"])
    assert 0 < program["block_bytes"] <= program["sum_bytes"] + 4096
    assert "p0 = MatMul-13 (x, w0) \"product0\"" in island["before"] and "sum0" in island["before"]
    assert "\"product0+sum0\" <- MatMul \"product0\", Add \"sum0\"" in island["after"]
    assert found["outside"] == [{"provider": CPU, "operator": "ai.onnx.ml.LinearRegressor", "name": "regression",
                                 "reason": "no kernel for this operator"}]


def test_a_node_of_the_provider_outside_of_islands_has_a_reason(models):
    found = run_json("explain", models / "mixed.onnx", *ISLANDS)
    reasons = {(each["provider"], each["operator"]): each["reason"] for each in found["outside"]}
    assert "no other node beside it" in reasons[PROVIDER, "Add"]
    alone = run_json("explain", models / "mixed.onnx", "--option", "fusion=0")
    assert alone["islands"] == [] and len(alone["outside"]) == 4
    assert {each["reason"] for each in alone["outside"] if each["provider"] == PROVIDER} == {
        "there are no islands with fusion=0"}


def test_what_works_on_an_iteration_says_so(tmp_path):
    """By the provider: to the command line it is work on shapes, on the CPU."""
    import millpond.onnxruntime as mort
    import onnxruntime
    from millpond import _ort_islands

    nodes = [Node("Add", ["i", "i"], ["twice"], "twice"), Node("Cast", ["twice"], ["f"], "f", attributes={"to": 1}),
             Node("Add", ["s", "f"], ["t"], "sum"), Node("Exp", ["t"], ["u"], "exp"), Node("Neg", ["u"], ["w"], "neg"),
             Node("Identity", ["c"], ["d"], "go on"), scaler("w", "v")]
    body = onnx_kit.graph_bytes(nodes, {"i": (onnx_kit.INT64, []), "c": (onnx_kit.BOOL, []), "s": [4]},
                                {"d": (onnx_kit.BOOL, []), "v": [4]})
    loop = Node("Loop", ["n", "", "x"], ["y"], "loop", attributes={"body": body})
    path = tmp_path / "loop.onnx"
    path.write_bytes(onnx_kit.model([loop], {"n": (onnx_kit.INT64, []), "x": [4]}, {"y": [4]}, domains=["ai.onnx.ml"]))
    options = onnxruntime.SessionOptions()
    _ort_islands.ask(options)
    session = mort.session(str(path), options={"fusion": "1"}, session_options=options)
    told = _ort_islands.islands_of(session)
    reasons = {each["name"]: each["reason"] for each in told["outside"]}
    assert reasons["twice"] == "it works on values in host memory that are not known before a run"
    assert "exp" in {name for island in told["islands"] for _, name in names(island["nodes"])}


def test_bodies_have_islands_of_their_own(tmp_path):
    def body(operator):
        nodes = [Node("Softmax", ["x"], ["t"], f"{operator} before"), Node(operator, ["t"], ["s"], operator),
                 scaler("s", "r")]
        return onnx_kit.graph_bytes(nodes, {}, {"r": [4, 4]})

    choice = Node("If", ["c"], ["y"], "choice", attributes={"then_branch": body("Exp"), "else_branch": body("Neg")})
    path = tmp_path / "choice.onnx"
    path.write_bytes(onnx_kit.model([choice], {"c": (onnx_kit.BOOL, []), "x": [4, 4]}, {"y": [4, 4]},
                                    domains=["ai.onnx.ml"]))
    found = run_json("explain", path, "--fill", "c=1", *ISLANDS)
    ran = {operator: len(island["programs"]) for island in found["islands"] for operator, _ in names(island["nodes"])}
    assert ran["Exp"] == 1 and ran["Neg"] == 0
    assert [(each["operator"], each["reason"]) for each in found["outside"] if each["provider"] == PROVIDER] == [
        ("If", "ONNX Runtime runs it; its bodies have islands of their own")]
    assert "it was not reached by these inputs" in run("explain", path, "--fill", "c=1", *ISLANDS)[0]


@pytest.mark.skipif(not HOLDS_CONTROL_FLOW, reason=OLD_CONTROL_FLOW)
def test_both_branches_are_shown_once_they_are_one_program(tmp_path):
    def body(operator):
        return onnx_kit.graph_bytes([Node(operator, ["x"], ["r"], operator.lower())], {}, {"r": [8]})

    choice = Node("If", ["d"], ["s"], "choice", attributes={"then_branch": body("Exp"), "else_branch": body("Neg")})
    nodes = [Node("Not", ["c"], ["d"], "not"), choice, Node("Softmax", ["s"], ["y"], "softmax")]
    path = tmp_path / "choice.onnx"
    path.write_bytes(onnx_kit.model(nodes, {"c": (onnx_kit.BOOL, []), "x": [8]}, {"y": [8]}))
    (island,) = run_json("explain", path, *ISLANDS)["islands"]
    (program,) = island["programs"]
    assert len(program["segments"]) == 1 and "joined" in program
    wanted = {step["op"]: [each["wanted"] for each in step.get("branches", [])] for step in program["steps"]}
    assert wanted["Exp"] == [True] and wanted["Neg"] == [False] and wanted["Softmax"] == []


def test_segments_are_one_behind_the_other(tmp_path):
    nodes = [Node("Relu", ["x"], ["r"], "relu"), Node("NonZero", ["r"], ["z"], "nonzero"),
             Node("Exp", ["x"], ["e"], "e"), Node("Cast", ["z"], ["f"], "cast", attributes={"to": 1}),
             Node("Softmax", ["f"], ["y"], "softmax"), Node("Softmax", ["e"], ["u"], "early")]
    path = tmp_path / "segments.onnx"
    path.write_bytes(onnx_kit.model(nodes, {"x": [8]}, {"y": [1, "n"], "u": [8]}))
    found = run_json("explain", path, *ISLANDS)
    (island,) = found["islands"]
    (program,) = island["programs"]
    assert [each["read_back"] for each in program["segments"]] == [["nonzero"], []]
    where = [set(names(step["nodes"])) for step in program["steps"]]
    first = program["segments"][0]["steps"]
    assert {("Softmax", "early"), ("NonZero", "nonzero")} <= set().union(*where[:first])
    assert ("Softmax", "softmax") in set().union(*where[first:])
    assert program["next"][0]["first_step"] == first
    assert all(step["device_us"] > 0 for step in program["steps"] if step["kernels"])
    said = run("explain", path, *ISLANDS)[0]
    assert "2 segments, between which the host waits for data" in said
    page = tmp_path / "page.html"
    run("explain", path, *ISLANDS, "--html", page)
    assert "softmax" in page.read_text(encoding="utf-8")


@pytest.mark.skipif(not HOLDS_CONTROL_FLOW, reason=OLD_CONTROL_FLOW)
def test_loops_have_their_iterations(tmp_path):
    nodes = [Node("Softmax", ["s"], ["t"], "softmax"), Node("Identity", ["c"], ["d"], "go on")]
    body = onnx_kit.graph_bytes(nodes, {"i": (onnx_kit.INT64, []), "c": (onnx_kit.BOOL, []), "s": [4]},
                                {"d": (onnx_kit.BOOL, []), "t": [4]})
    loop = Node("Loop", ["n", "", "x"], ["y"], "loop", attributes={"body": body})
    path = tmp_path / "loop.onnx"
    path.write_bytes(onnx_kit.model([loop], {"x": [4]}, {"y": [4]}, {"n": np.array(3)}))
    found = run_json("explain", path, *ISLANDS)
    island, inner = found["islands"]
    (program,) = island["programs"]
    (step,) = program["steps"]
    assert names(step["nodes"]) == [("Loop", "loop")] and step["trips"] == 3 and step["device_us"] > 0
    assert [("Softmax", "softmax")] in [names(each["nodes"]) for each in step["body"]["steps"]]
    assert inner["is_body"] and ("Softmax", "softmax") in names(inner["nodes"]) and inner["programs"] == []
    assert "3 iterations of 2 steps" in run("explain", path, *ISLANDS)[0]


@pytest.mark.skipif(not HOLDS_CONTROL_FLOW, reason=OLD_CONTROL_FLOW)
def test_a_scan_along_other_dimensions_is_in_an_island(tmp_path):
    """It is turned there; one whose rank is not known is ONNX Runtime's to walk."""
    body = onnx_kit.graph_bytes([Node("Tanh", ["s"], ["t"], "tanh")], {"s": [4]}, {"t": [4]})
    given = {"body": body, "num_scan_inputs": 1, "scan_input_axes": [-1], "scan_output_axes": [1]}
    path = tmp_path / "scan.onnx"
    path.write_bytes(onnx_kit.model([Node("Scan", ["x"], ["y"], "scan", attributes=given)], {"x": [4, 3]},
                                    {"y": [4, 3]}))
    found = run_json("explain", path, *ISLANDS)
    (program,) = found["islands"][0]["programs"]
    assert found["outside"] == []
    assert [names(step["nodes"]) for step in program["steps"]] == [[("Scan", "scan")]] * 3
    assert [step.get("trips") for step in program["steps"]] == [None, 3, None]


def test_a_profile_that_cannot_be_read_leaves_times_out(folder):
    """ONNX Runtime writes names of nodes as they are."""
    found = run_json("explain", folder / "hostile.onnx", "--dim", "n=3", "--option", "fusion=0")
    assert len(found["outside"]) == 3
    found = run_json("explain", folder / "hostile.onnx", "--dim", "n=3", *ISLANDS)
    assert len(found["islands"][0]["nodes"]) == 3


def test_words_for_people(folder):
    out, said = run("explain", folder / "model.onnx", "--dim", "n=3", *ISLANDS)
    assert said == ""
    for part in ("6 nodes in 1 island, 1 outside", "island 0 (6 nodes: product0 .. back)", "none: a view",
                 "MatMul 'product0', Add 'sum0'", "Outside of islands", "product 6x16x16"):
        assert part in out, part
    out, _ = run("explain", folder / "model.onnx", "--dim", "n=3", "--text", *ISLANDS)
    before, after = out.split("after 1 rewrite")
    assert "s = Add-14 (p0, b0) \"sum0\"" in before and "MatMulBias" in after and "output y" in after
    assert "there is no folder" in refused("explain", folder / "model.onnx", "--html", folder / "none" / "page.html")
    assert "is open" in refused("explain", folder / "model.onnx", *ISLANDS)


@pytest.mark.parametrize("name", ["model", "hostile"])
def test_page(folder, tmp_path, name):
    path = tmp_path / "page.html"
    run("explain", folder / f"{name}.onnx", "--dim", "n=3", "--html", path, *ISLANDS)
    page = path.read_text(encoding="utf-8")
    assert "<script" not in page and "prefers-color-scheme: dark" in page and "default-src 'none'" in page
    assert not re.search(r"(src|href)=|url\(|@import", page)
    (drawn,) = re.findall(r"<svg.*?</svg>", page, re.S)
    picture = ET.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    boxes = picture.findall(f"{space}g")
    assert len(picture.findall(f"{space}path")) >= len(boxes) - 1  # all hang together
    titles = [box.find(f"{space}title").text for box in boxes]
    assert any("MatMul" in title and "Add" in title for title in titles)
    if name == "hostile":
        assert any("<script>alert(1)</script>" in title for title in titles)


# ---- the search for a rewrite ----


@pytest.fixture(scope="module")
def rounded(tmp_path_factory):
    """Two islands with a rewrite each. The first computes with small integers, without rounding; the second in float16,
    where a bias that is added to the unrounded product makes another last bit."""
    nodes = [*layer(0, "x", "s"), Node("Softmax", ["s"], ["y"], "softmax"),
             Node("LinearRegressor", ["a"], ["z"], "regression", "ai.onnx.ml", {"coefficients": [0.5, 1.0]}),
             Node("Cast", ["z"], ["c"], "cast", attributes={"to": onnx_kit.FLOAT16}),
             Node("Add", ["h", "c"], ["g"], "shift"), *layer(1, "g", "o")]
    constants = {**weights(0, exact=True), **weights(1, "float16")}
    path = tmp_path_factory.mktemp("rounded") / "model.onnx"
    half = (onnx_kit.FLOAT16, [2, "n", 16])
    path.write_bytes(onnx_kit.model(nodes, {"x": [2, "n", 16], "a": [1, 2], "h": half},
                                    {"y": [2, "n", 16], "o": half}, constants, domains=["ai.onnx.ml"]))
    return path


def test_bisect_finds_the_rewrite(rounded):
    options = ("--dim", "n=40", "--fill", "x=1", *ISLANDS)
    found = run_json("explain", rounded, "--bisect", *options)
    assert found["agrees"] and found["first"] is None and found["rewrites"] >= 2
    found = run_json("explain", rounded, "--bisect", "--tolerance", "0", *options, status=1)
    assert not found["agrees"] and [each["output"] for each in found["differences"]] == ["o"]
    assert found["pass"] == "bias" and 1 <= found["first"] <= found["rewrites"]
    assert any(line.startswith("+") and "<- MatMul \"product1\", Add \"sum1\"" in line for line in found["lines"])
    assert "product1" in found["island"] or "shift" in found["island"] or "cast" in found["island"]
    out, said = run("explain", rounded, "--bisect", "--tolerance", "0", *options, status=1)
    assert f"rewrite {found['first']}, pass bias" in out and "MILLPOND_PASSES=-bias" in said
    # Without the pass nothing differs any more.
    assert run_json("explain", rounded, "--bisect", "--tolerance", "0", *options, MILLPOND_PASSES="-bias")["agrees"]
