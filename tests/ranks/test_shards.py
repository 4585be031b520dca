# SPDX-License-Identifier: Apache-2.0
"""`millpond shard`: decoders as onnxruntime-genai's builder writes them, plain attention, encoders, split and run as
ranks; weights in files of their own; and a rank that computes something else is noticed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python")]

import provider  # noqa: E402  (which finds the package)
import ranks  # noqa: E402
from cli_kit import environment, run, run_json  # noqa: E402
from millpond import _shard_check, _shard_split, _shard_write  # noqa: E402
from millpond._shard_model import Model  # noqa: E402
from onnx import helper  # noqa: E402
from shard_kit import (  # noqa: E402
    ARCHITECTURES,
    BATCH,
    HIDDEN,
    HOST,
    INNER,
    STEPS,
    decoder,
    encoder,
    model_of,
    weights_of,  # noqa: E402
)

assert provider.ROOT == ROOT


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


@pytest.mark.parametrize(("name", "int4"), [("llama", False), ("qwen3", False), ("phi", False), ("gemma", False),
                                            ("llama", True)])
def test_decoders(name, int4, tmp_path):
    decoder(tmp_path, name, int4)
    made = run_json("shard", tmp_path / "model.onnx", "--ranks", 2, "--out", tmp_path / "parts", **HOST)
    assert all(each["ok"] for each in made["check"]) and len(made["check"]) == 5
    assert len(made["rows"]) == (2 if int4 else 4)  # of 4 bits 96 rows are three blocks, which two ranks cannot have
    shared = ARCHITECTURES[name].kv_heads  # one, which gemma has, is copied
    assert made["inputs"]["past_key_values.0.key"] == {"axis": -3, "segments": [shared],
                                                       "copies": [2] if shared == 1 else []}
    whys = set(made["whole"].values())
    assert not int4 or "96 rows in blocks of 32 cannot be dealt to 2 ranks" in whys


def test_tokens_of_the_example(tmp_path):
    """examples/torchrun_decode.py in two processes, without torch, against the whole model."""
    import onnxruntime as ort

    decoder(tmp_path, "llama")
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
    made = onnx.load(decoder(tmp_path, "llama"))
    onnx.save(made, tmp_path / "large.onnx", save_as_external_data=True, location="large.data", size_threshold=1024)
    said = run("shard", tmp_path / "large.onnx", "--ranks", 2, "--out", tmp_path / "parts", **HOST)[0]
    assert "2 ranks on emulated devices agree with the whole model" in said
    assert (tmp_path / "parts/rank_0.onnx").stat().st_size < (tmp_path / "parts/rank_0.onnx.data").stat().st_size
    report = json.loads((tmp_path / "parts/shards.json").read_text())
    assert report["ranks"] == 2 and report["bytes"]["rank"] < report["bytes"]["whole"]


def test_a_last_product_is_gathered(tmp_path):
    weights = weights_of(up=(64, 128), down=(128, 64), last=(64, 512))
    node = helper.make_node
    nodes = [node("MatMul", ["x", "up"], ["u"], "up"), node("Relu", ["u"], ["r"]),
             node("MatMul", ["r", "down"], ["d"], "down"), node("MatMul", ["d", "last"], ["y"], "last")]
    onnx.save(model_of(nodes, weights, {"x": [3, 64]}, {"y": [3, 512]}), tmp_path / "model.onnx")
    made = run_json("shard", tmp_path / "model.onnx", "--ranks", 4, "--out", tmp_path / "parts", **HOST)
    assert made["gathered"] == ["MatMul 'last'"] and made["whole"] == {} and made["check"][0]["ok"]
    assert made["bytes"]["rank"] * 4 == made["bytes"]["whole"]


def test_heads_that_cannot_be_dealt(tmp_path):
    decoder(tmp_path, "gemma")
    said = run("shard", tmp_path / "model.onnx", "--ranks", 8, "--out", tmp_path / "parts", "--no-check", **HOST)[0]
    assert "the 4 heads (num_heads) of GroupQueryAttention '/attention_0' cannot be dealt to 8 ranks" in said


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
