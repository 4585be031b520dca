# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of decoding run, with a side that fails too, and their model gives the CPU provider's tokens. No time
is judged."""

import importlib.util
import sys

import numpy as np
import pytest
from bench_kit import ROOT, run

sys.path.append(str(ROOT / "bench"))

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import decoders  # noqa: E402
import provider  # noqa: E402

WAYS = ("here", "here graph")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where tiny-q4 and tiny-q4f32 are."""
    made = tmp_path_factory.mktemp("decoders")
    for kind in ("q4", "q4f32"):
        decoders.write(made / f"tiny-{kind}", "tiny", kind)
    return made


def greedy(session, kind, count):
    """Tokens behind a prompt, and the logits that they were chosen by."""
    given, (_, heads, _, head) = decoders.feed("tiny", kind, 1, 5, 5)
    names = [value.name for value in session.get_outputs()]
    caches = {name.replace("present", "past_key_values"): np.zeros((1, heads, 0, head), decoders.KINDS[kind][0])
              for name in names if name != "logits"}
    tokens, length, seen = given["input_ids"], 5, []
    for _ in range(count):
        feed = {"input_ids": tokens, "attention_mask": np.ones((1, length), np.int64), **caches}
        found = dict(zip(names, session.run(None, feed), strict=True))
        seen.append(found.pop("logits")[0, -1])
        caches = {name.replace("present", "past_key_values"): value for name, value in found.items()}
        tokens, length = np.array([[seen[-1].argmax()]]), length + 1
    return np.array(seen)


def test_tokens_of_the_model(folder):
    model = str(folder / "tiny-q4f32/model.onnx")
    want = greedy(provider.session(model, provider.CPU), "q4f32", 20)
    got = greedy(provider.session(model, provider_options={"use_tf32": "0"}, fall_back=False), "q4f32", 20)
    assert got.argmax(1).tolist() == want.argmax(1).tolist() and len(set(want.argmax(1))) > 10
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-4)  # logits reach 8; sums are in another order


def test_logits_of_halves(folder):
    model = str(folder / "tiny-q4/model.onnx")
    want = greedy(provider.session(model, provider.CPU), "q4", 1).astype(np.float32)
    got = greedy(provider.session(model), "q4", 1).astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=0, atol=0.02)  # halves near 8 are 0.008 apart


@pytest.mark.parametrize("kind", ["q4", "q4f32"])
def test_bytes_of_a_step(folder, kind):
    """Those of the file, but for the embedding and the tables of positions, and of the keys and values."""
    of, size = decoders.SIZES["tiny"], decoders.element(kind)
    norms = (2 * of.layers + 1) * of.hidden * size
    outside = (folder / f"tiny-{kind}/model.onnx.data").stat().st_size
    read = decoders.work("tiny", kind, 1, 1, 7).bytes - 7 * 2 * of.layers * of.kv_heads * of.head * size
    others = of.vocabulary * of.hidden * size + of.context * of.rotated * size
    inside = (folder / f"tiny-{kind}/model.onnx").stat().st_size
    assert outside <= read + others + len(decoders.products(of)[0]) * of.layers * 3 * decoders.ALIGNMENT
    assert read + norms + others <= outside + inside


def test_work_of_a_large_model():
    of = decoders.SIZES["llama-3-8b"]
    layer, last = decoders.products(of)
    weights = of.layers * sum(n * k for n, k in layer) + last[0] * last[1]
    assert 7.4e9 < weights < 7.6e9  # without the embedding
    assert decoders.work("llama-3-8b", "q4", 1, 1, 2048).bytes == weights * 9 // 16 + 2048 * 32 * 2 * 8 * 128 * 2
    assert 2 * 2048 * weights < decoders.work("llama-3-8b", "q4", 1, 2048, 2048).flop < 2.2 * 2048 * weights


def test_fewer_layers(tmp_path):
    import onnx

    model = onnx.load(decoders.write(tmp_path, "tiny", layers=1) / "model.onnx", load_external_data=False)
    assert [node.op_type for node in model.graph.node].count("GroupQueryAttention") == 1


def test_steps_prompts_and_a_peer_that_fails(folder, tmp_path):
    words = ["--models", "tiny", "--batches", "1,2", "--contexts", "16", "--prompt", 24, "--seconds", 0.05,
             "--genai-contexts", "8", "--count", 3, "--folder", folder, "--peer", tmp_path]
    rows = {row["label"]: row for row in run("bench_decode.py", tmp_path / "out.json", *words)["rows"]}
    steps = [f"step, batch {batch}, context 16" for batch in (1, 2)]
    genai = [f"genai, batch {batch}, behind 8" for batch in (1, 2)]
    has_genai = importlib.util.find_spec("onnxruntime_genai") is not None
    assert list(rows) == [*steps, "prompt of 24", *(genai if has_genai else [])]
    for label in steps:
        assert all(rows[label][way]["ms"] > 0 and rows[label][way]["is_finite"] for way in WAYS), rows[label]
    assert rows["prompt of 24"]["here"]["is_finite"] and "here graph" not in rows["prompt of 24"]
    assert all("CUDAExecutionProvider" in row["peer"]["error"] for label, row in rows.items() if label not in genai)
    assert all(rows[label]["here"]["tokens_s"] > 0 for label in genai if has_genai)


def test_ranks(folder, tmp_path):
    """On the emulated device: there are as many of it as ranks."""
    words = ["--sizes", "", "--runs", 2, "--decoder", "tiny", "--batches", "1,2", "--context", 12, "--folder", folder]
    rows = run("bench_ranks.py", tmp_path / "out.json", *words, MILLPOND_DEVICE="host")["decoder"]["rows"]
    assert [(row["ranks"], row["batch"]) for row in rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for row in rows:
        assert "error" not in row and row["ms"] > 0 and row["graph_ms"] > 0 and row["difference"] < 0.01, row
