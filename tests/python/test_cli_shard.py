# SPDX-License-Identifier: Apache-2.0
"""`millpond shard`: decoders as onnxruntime-genai's builder writes them, plain attention, encoders; what stays whole
and why; weights in files of their own; and a rank that computes something else is noticed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_kit import environment, refused, run, run_json
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/genai"), str(ROOT / "tests/ep")]

import ranks  # noqa: E402
import tiny_models  # noqa: E402
from millpond import _shard_check, _shard_rules, _shard_split, _shard_write  # noqa: E402
from millpond._shard_model import Cut, Model  # noqa: E402

HOST = {"MILLPOND_DEVICE": "host"}
BATCH, STEPS, HIDDEN, HEADS, INNER = 2, 7, 32, 4, 48
ARCHITECTURES = {each.name: each for each in tiny_models.ARCHITECTURES}


def test_cuts_take_and_join():
    array = np.arange(24).reshape(2, 12)
    for cut in (Cut(-1, (12,)), Cut(-1, (8, 4)), Cut(-1, (4, 4, 4)), Cut(-2, (2,))):
        parts = [cut.take(array, rank, 2) for rank in range(2)]
        assert parts[0].size == parts[1].size == 12
        assert np.array_equal(cut.join(parts), array)
    assert Cut(-1, (8, 4)).take(array, 1, 2)[0].tolist() == [4, 5, 6, 7, 10, 11]


@pytest.mark.parametrize(("before", "behind", "cut", "dealt"), [
    ((2, 7, 64), (2, 7, 4, 16), Cut(-2, (4,)), Cut(-1, (64,))),
    ((2, 7, 4, 16), (2, 7, 64), Cut(-1, (64,)), Cut(-2, (4,))),
    ((2, 7, 192), (2, 7, 3, 4, 16), Cut(-2, (4,)), Cut(-1, (64, 64, 64))),
    ((2, 2, 3, 7, 16), (2, 6, 7, 16), Cut(-3, (6,)), Cut(-4, (2,))),
    ((2, 7, 64), (2, 28, 16), Cut(-2, (4,) * 7), Cut(-1, (64,))),
    ((2, 28, 16), (2, 7, 64), Cut(-1, (64,)), Cut(-2, (4,) * 7)),
    ((1, 1, 64), (1, 1, 4, 16), Cut(-2, (4,)), Cut(-1, (64,))),
])
def test_blocks_of_a_reshape(before, behind, cut, dealt):
    found = [each for each in _shard_rules._blocks(before, behind, cut) if all(size % 2 == 0 for size in each.segments)]
    assert found[0] == dealt


def model_of(nodes, weights, inputs, outputs):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "encoder", [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def weights_of(seed=5, **shapes):
    random = np.random.default_rng(seed)
    return {name: (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
            for name, shape in shapes.items()}


def encoder(kind):
    """A layer: attention by ONNX Runtime's operators or by plain ones, then two products as Gemm or MatMul."""
    node = helper.make_node
    weights = weights_of(q=(HIDDEN, HIDDEN), k=(HIDDEN, HIDDEN), v=(HIDDEN, HIDDEN), qkv=(HIDDEN, 3 * HIDDEN),
                         qkv_bias=(3 * HIDDEN,), o=(HIDDEN, HIDDEN), o_bias=(HIDDEN,), up=(INNER, HIDDEN),
                         up_bias=(INNER,), down=(HIDDEN, INNER), down_bias=(HIDDEN,), norm=(HIDDEN,))
    weights["rows"] = np.array([-1, HIDDEN])
    weights["five"] = np.array([0, 0, 3, HEADS, HIDDEN // HEADS])
    weights["three"] = np.array([0, 0, HIDDEN])
    weights |= {name: np.array(i) for i, name in enumerate(("first", "second", "third"))}
    ms = {"domain": "com.microsoft"}
    attention = {
        "heads": [
            *(node("MatMul", ["x", name], [f"{name}_x"], f"{name}_proj") for name in "qkv"),
            node("MultiHeadAttention", ["q_x", "k_x", "v_x", "qkv_bias"], ["mixed"], "mha", num_heads=HEADS, **ms)],
        "projected": [
            node("Attention", ["x", "qkv", "qkv_bias"], ["mixed"], "attention", num_heads=HEADS, **ms)],
        "plain": [
            node("MatMul", ["x", "qkv"], ["qkv_0"], "qkv_proj"), node("Add", ["qkv_0", "qkv_bias"], ["qkv_1"]),
            node("Reshape", ["qkv_1", "five"], ["qkv_2"]),
            node("Transpose", ["qkv_2"], ["qkv_3"], perm=[2, 0, 3, 1, 4]),
            *(node("Gather", ["qkv_3", which], [name], axis=0)
              for which, name in zip(("first", "second", "third"), ("qh", "kh", "vh"), strict=True)),
            node("Transpose", ["kh"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["qh", "kt"], ["scores"]),
            node("Softmax", ["scores"], ["shares"], axis=-1), node("MatMul", ["shares", "vh"], ["mixed_0"]),
            node("Transpose", ["mixed_0"], ["mixed_1"], perm=[0, 2, 1, 3]),
            node("Reshape", ["mixed_1", "three"], ["mixed"])],
    }[kind]
    nodes = [
        *attention, node("MatMul", ["mixed", "o"], ["o_0"], "o_proj"), node("Add", ["o_0", "o_bias"], ["o_1"]),
        node("Add", ["x", "o_1"], ["r"]), node("LayerNormalization", ["r", "norm"], ["n"]),
        node("Reshape", ["n", "rows"], ["flat"]), node("Gemm", ["flat", "up", "up_bias"], ["u"], "up", transB=1),
        node("Gelu", ["u"], ["g"]), node("Gemm", ["g", "down", "down_bias"], ["y"], "down", transB=1)]
    return model_of(nodes, weights, {"x": ["batch", "seq", HIDDEN]}, {"y": None})


@pytest.mark.parametrize("kind", ["heads", "projected", "plain"])
def test_encoders(kind, tmp_path):
    onnx.save(encoder(kind), tmp_path / "model.onnx")
    made = run_json("shard", tmp_path / "model.onnx", "--ranks", 2, "--out", tmp_path / "parts", **HOST)
    assert [each["ok"] for each in made["check"]] == [True]
    assert made["rows"] == ["MatMul 'o_proj'", "Gemm 'down'"]
    assert made["whole"] == {} and len(made["columns"]) == {"heads": 4, "projected": 2, "plain": 2}[kind]
    part = onnx.load(tmp_path / "parts/rank_1.onnx")
    assert [node.op_type for node in part.graph.node].count("AllReduce") == 2
    shapes = {each.name: list(each.dims) for each in part.graph.initializer}
    assert shapes["down"] == [HIDDEN, INNER // 2] and shapes["up"] == [INNER // 2, HIDDEN]
    assert shapes["down_bias"] == [HIDDEN] and shapes["up_bias"] == [INNER // 2]
    bias = [node for node in part.graph.node if "down_bias" in node.input]
    assert [node.op_type for node in bias] == ["Add"], "the bias is added once, behind the sum"


@pytest.mark.parametrize(("name", "int4"), [("llama", False), ("qwen3", False), ("phi", False), ("llama", True)])
def test_decoders(name, int4, tmp_path):
    tiny_models.write(tmp_path, ARCHITECTURES[name], "float16" if int4 else "float32", int4, not int4)
    made = run_json("shard", tmp_path / "model.onnx", "--ranks", 2, "--out", tmp_path / "parts", **HOST)
    assert all(each["ok"] for each in made["check"]) and len(made["check"]) == 5
    assert len(made["rows"]) == (2 if int4 else 4)  # of 4 bits 96 rows are three blocks, which two ranks cannot have
    assert made["inputs"]["past_key_values.0.key"] == {"axis": -3, "segments": [ARCHITECTURES[name].kv_heads]}
    whys = set(made["whole"].values())
    assert not int4 or "96 rows in blocks of 32 cannot be dealt to 2 ranks" in whys


def test_tokens_of_the_example(tmp_path):
    """examples/torchrun_decode.py in two processes, without torch, against the whole model."""
    import onnxruntime as ort

    tiny_models.write(tmp_path, ARCHITECTURES["llama"], "float32", False, True)
    run("shard", tmp_path / "model.onnx", "--ranks", 2, "--out", tmp_path / "parts", "--no-check", **HOST)
    port = ranks.free_port()
    processes = [subprocess.Popen(
        [sys.executable, ROOT / "examples/torchrun_decode.py", tmp_path / "parts", "1", "2", "3", "--count", "5"],
        env=environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_PORT=str(port), **HOST),
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    whole, tokens = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"]), [1, 2, 3]
    for _ in range(5):
        caches = {value.name: np.zeros((1, value.shape[1], 0, value.shape[3]), np.float32)
                  for value in whole.get_inputs() if value.name.startswith("past")}
        feeds = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
        tokens.append(int(whole.run(["logits"], feeds | caches)[0][0, -1].argmax()))
    assert said[0][0].split() == [str(token) for token in tokens] and said[1][0] == ""


def test_weights_in_files_of_their_own(tmp_path):
    made = onnx.load(tiny_models.write(tmp_path, ARCHITECTURES["llama"], "float32", False, True) / "model.onnx")
    onnx.save(made, tmp_path / "large.onnx", save_as_external_data=True, location="large.data", size_threshold=1024)
    said = run("shard", tmp_path / "large.onnx", "--ranks", 2, "--out", tmp_path / "parts", **HOST)[0]
    assert "2 ranks on emulated devices agree with the whole model" in said
    assert (tmp_path / "parts/rank_0.onnx").stat().st_size < (tmp_path / "parts/rank_0.onnx.data").stat().st_size
    report = json.loads((tmp_path / "parts/shards.json").read_text())
    assert report["ranks"] == 2 and report["bytes"]["rank"] < report["bytes"]["whole"]


def test_weights_outside_of_the_folder(tmp_path):
    (tmp_path / "inner").mkdir()
    made = onnx.load(tiny_models.write(tmp_path, ARCHITECTURES["llama"], "float32", False, True) / "model.onnx")
    path = tmp_path / "inner/large.onnx"
    onnx.save(made, path, save_as_external_data=True, location="large.data", size_threshold=1024)
    os.rename(tmp_path / "inner/large.data", tmp_path / "large.data")
    model = Model(path)
    name = next(name for name in model.weights.tensors if model.weights.bytes(name) > 4096)
    for entry in model.weights.tensors[name].external_data:
        if entry.key == "location":
            entry.value = "../large.data"
    with pytest.raises(ValueError, match="lies outside of the model's folder"):
        model.weights.bits(name)


def test_a_last_product_is_gathered(tmp_path):
    weights = weights_of(up=(64, 128), down=(128, 64), last=(64, 512))
    node = helper.make_node
    nodes = [node("MatMul", ["x", "up"], ["u"], "up"), node("Relu", ["u"], ["r"]),
             node("MatMul", ["r", "down"], ["d"], "down"), node("MatMul", ["d", "last"], ["y"], "last")]
    onnx.save(model_of(nodes, weights, {"x": [3, 64]}, {"y": [3, 512]}), tmp_path / "model.onnx")
    made = run_json("shard", tmp_path / "model.onnx", "--ranks", 4, "--out", tmp_path / "parts", **HOST)
    assert made["gathered"] == ["MatMul 'last'"] and made["whole"] == {} and made["check"][0]["ok"]
    assert made["bytes"]["rank"] * 4 == made["bytes"]["whole"]


def test_a_value_that_others_read_whole(tmp_path):
    """What a column product gives is an output, too: the pair stays whole, and nothing else is there to split."""
    node = helper.make_node
    nodes = [node("MatMul", ["x", "up"], ["u"], "up"), node("MatMul", ["u", "down"], ["y"], "down"),
             node("CumSum", ["u", "axis"], ["z"], "sums")]
    weights = {**weights_of(up=(8, 16), down=(16, 8)), "axis": np.array(1)}
    onnx.save(model_of(nodes, weights, {"x": [3, 8]}, {"y": [3, 8], "z": [3, 16]}), tmp_path / "model.onnx")
    said = refused("shard", tmp_path / "model.onnx", "--ranks", "2", "--out", tmp_path / "parts", status=1, **HOST)
    assert "nothing of model.onnx can be split" in said
    model = Model(tmp_path / "model.onnx")
    model.shapes = _shard_check.shapes(model, {"x": np.ones((3, 8), np.float32)})
    whys = _shard_split.plan(model, 2).refused.values()
    assert "'u' is read by CumSum 'sums', too, which needs all of it" in whys


def test_heads_that_cannot_be_dealt(tmp_path):
    tiny_models.write(tmp_path, ARCHITECTURES["gemma"], "float32", False, True)
    said = run("shard", tmp_path / "model.onnx", "--ranks", 2, "--out", tmp_path / "parts", "--no-check", **HOST)[0]
    assert "the 1 heads (kv_num_heads) of GroupQueryAttention '/attention_0' cannot be dealt to 2 ranks" in said


def test_a_rank_that_computes_something_else(tmp_path):
    onnx.save(encoder("heads"), tmp_path / "model.onnx")
    model = Model(tmp_path / "model.onnx")
    feeds = {"x": np.random.default_rng(1).standard_normal((BATCH, STEPS, HIDDEN)).astype(np.float32)}
    model.shapes = _shard_check.shapes(model, feeds)
    plan = _shard_split.plan(model, 2)
    paths = [_shard_write.write(plan, rank, tmp_path) for rank in (0, 0)]  # the first part twice
    expected = _shard_check.whole_outputs(model, feeds)["y"]
    together = _shard_check.joined(_shard_check.rank_outputs(paths, feeds, plan.decided.cuts), plan.decided.cuts)
    assert np.abs(together["y"] - expected).max() > 0.1


def test_what_is_no_model_or_no_number(tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    assert "no ONNX model" in refused("shard", tmp_path / "text.onnx", "--ranks", 2, "--out", tmp_path / "o", **HOST)
    said = refused("shard", tmp_path / "text.onnx", "--ranks", 1, "--out", tmp_path / "o", **HOST)
    assert "--ranks" in said
