# SPDX-License-Identifier: Apache-2.0
"""Parts of networks as exporters write them become few operators, and give the same."""

import os
import re
import subprocess
import sys
from pathlib import Path

import exported
import numpy as np
import onnxruntime as ort
import provider
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_version import ORT

ROUNDS = 3
# ONNX Runtime before 1.31 moves the transposition of one of these rotations behind it, which leaves a Slice in front.
ROTATED = ("phi", "neox") if ORT >= (1, 31) else ("phi",)
ATTENTION = ("bert", "gpt2", "vit", "sdpa", "t5", "llama", "gemma", "dynamo", "phi", "qwen3", "neox", "einsum", "bloom",
             "gptj", "gptj_whole")
MODELS = (*ATTENTION, "shared", "encoder_mlp", "decoder_mlp", "t5_mlp", "parallel", "conv_block", "classifier", "swin",
          "whisper", "multihead", "dense", "geglu", "pixels", "windows", "units", "batch_normed", "deberta",
          "deberta_known", "cosine")


def fed(name, kind, batch, length):
    """Inputs of float16 values, for models of both types."""
    random = np.random.default_rng(length)

    def floats(*dims):
        return random.standard_normal(dims).astype(np.float16).astype(kind)

    dims = {"swin": (1, 8, 8, 32), "whisper": (1, 12, 32), "multihead": (1, 9, 64), "dense": (batch, 3, 5, length),
            "einsum": (batch, 9, 64), "pixels": (batch, 5, 5, 64), "windows": (batch, 4, 9, 32),
            "units": (batch, 36, 32), "cosine": (2, 9, 64)}
    if name in dims:
        return {"x": floats(*dims[name])}
    width = {"gemma": 32, "llama": 96, "phi": 96, "qwen3": 96, "encoder_mlp": 48, "decoder_mlp": 48}.get(name, 64)
    if name == "conv_block":
        return {"x": floats(batch, 16, 5, length)}
    if name == "deberta_known":
        batch, length = 1, 9
    feeds = {"x": floats(batch, length, width)}
    if name.endswith("_mlp"):
        feeds["other"] = floats(batch, length, width)
    if name in ("bert", "deberta", "deberta_known"):
        feeds["mask"] = np.ones((batch, length), np.int64)
        feeds["mask"][-1, length // 2 :] = 0
    if name == "bloom":
        feeds["places"] = np.arange(length, dtype=kind) * np.ones((batch, 1), kind)
        feeds["mask"] = np.where(np.tril(np.ones((length, length), bool)), 0, -1000).astype(kind)
        feeds["mask"] = feeds["mask"] * np.ones((batch, 1, 1, 1), kind)
    if name in ("gptj", "gptj_whole"):
        seen = np.tril(np.ones((length, length), bool))
        feeds["mask"] = np.where(seen, kind(0), np.finfo(kind).min) * np.ones((batch, 1, 1, 1), kind)
    if name == "gpt2":
        feeds["mask"] = np.zeros((batch, 1, 1, length), kind)
        feeds["mask"][-1, :, :, length - length // 3 :] = -10000
    if name in ("sdpa", "dynamo"):
        feeds["mask"] = random.random((batch, 1, length, length)) < 0.7
        feeds["mask"][:, :, :, 0] = True
        if name == "sdpa":  # which makes zeros of a row that sees no key
            feeds["mask"][-1, :, -1] = False
    if name == "t5":
        feeds["other"], feeds["bias"] = floats(batch, 2 * length + 1, width), floats(1, 4, length, 2 * length + 1)
    if name == "llama":
        past = 3 * length
        feeds["past_key"], feeds["past_value"] = floats(batch, 2, past, 16), floats(batch, 2, past, 16)
        feeds["cosine"], feeds["sine"] = floats(batch, length, 16), floats(batch, length, 16)
        seen = np.tril(np.ones((length, past + length), bool), past)
        feeds["mask"] = np.where(seen, kind(0), np.finfo(kind).min) * np.ones((batch, 1, 1, 1), kind)
    return feeds


def session(made, **options):
    given = {"use_tf32": "0", **{key: str(value) for key, value in options.items()}}
    return provider.session(made, provider_options=given)


def reference(name, feeds):
    """The model in float32 on the CPU provider, of the same values; the lowest number of float16 masks there, too."""
    cpu = ort.InferenceSession(getattr(exported, name)(np.float32), providers=[provider.CPU])
    wide = {key: value.astype(np.float32) if value.dtype == np.float16 else value for key, value in feeds.items()}
    return cpu.run(None, wide)


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 7), (3, 33)])
@pytest.mark.parametrize("name", MODELS)
def test_float32(name, batch, length):
    ours = session(getattr(exported, name)(np.float32), fusion=1)
    feeds = fed(name, np.float32, batch, length)
    expected = reference(name, feeds)
    for _ in range(ROUNDS):
        for got, want in zip(ours.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_float16_is_no_further_from_float32_than_node_by_node(name):
    made = getattr(exported, name)(np.float16)
    feeds = fed(name, np.float16, 2, 19)
    expected = reference(name, feeds)
    fused, apart = (session(made, fusion=fusion).run(None, feeds) for fusion in (1, 0))
    for got, other, want in zip(fused, apart, expected, strict=True):
        far = np.abs(other.astype(np.float32) - want)
        near = np.abs(got.astype(np.float32) - want)
        assert near.max() <= far.max() * 1.5 + 1e-6  # which of them is unlucky is chance
        assert near.mean() <= far.mean() * 1.05 + 1e-7


def texts_of(names):
    """The text of the island of each model, in both types: [(name, text)]."""
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parents[1] / "demo"), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = ("import sys, numpy, onnxruntime, provider, exported; onnxruntime.set_default_logger_severity(0)\n"
            "for name in sys.argv[1:]:\n"
            "    for kind in (numpy.float32, numpy.float16):\n"
            "        print('== model', name, kind.__name__, file=sys.stderr, flush=True)\n"
            "        provider.session(getattr(exported, name)(kind), provider_options={'fusion': '1'})\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MILLPOND_LOG": "debug"}
    done = subprocess.run([sys.executable, "-c", code, *names], env=environment, capture_output=True, text=True,
                          timeout=300, check=True)
    parts = done.stderr.split("== model ")[1:]
    assert len(parts) == 2 * len(names)
    return [(part.split()[0], part) for part in parts]


def test_attention_becomes_one_operator():
    for name, text in texts_of([name for name in ATTENTION if name != "neox" or name in ROTATED]):
        assert text.count("= millpond.Attention-1") == 1, text
        assert "= Softmax-13" not in text, text
        # rotary positions come behind the transposition, and values of the past lie with their heads first
        assert text.count("= Transpose-13") == (3 if name == "llama" else 0), text
        products = {"bert": 2, "gpt2": 2, "vit": 2, "sdpa": 1, "t5": 3, "llama": 4, "gemma": 1, "dynamo": 1, "phi": 2,
                    "qwen3": 2, "neox": 2, "einsum": 2, "bloom": 2, "gptj": 2, "gptj_whole": 2}
        assert text.count("MatMul-13 (") + text.count("MatMulBias-1 (") == products[name], text


def test_relative_positions_become_the_mask_of_attention():
    for name, text in texts_of(["deberta", "deberta_known"]):
        known = name == "deberta_known"
        assert text.count("= millpond.Attention-1") == 1, text
        assert "= Softmax-" not in text, text
        # one for the mask, and two for lists of sizes
        assert text.count("= Where-") == (1 if known else 3), text
        # heads of Q and K for the products with positions, and what these give to keys
        assert text.count("= Transpose-13") == (0 if known else 3), text
        assert text.count("transBatch") == (2 if known else 0), text


def test_heads_are_rotated_and_shared_where_they_lie():
    """Whatever the model asks of sizes, of which some are not known before it runs."""
    for _, text in texts_of(ROTATED):
        assert text.count("= millpond.RotaryPair-1") == 1, text
        assert text.count(" part=[") == 1 and text.count(" key_part=[") == 1, text
        for operator in ("Slice", "Neg", "Expand", "Equal", "Where"):
            assert f"= {operator}-" not in text, text


def test_neighbours_are_rotated_where_heads_lie():
    for _, text in texts_of(["gptj", "gptj_whole"]):
        assert text.count("= millpond.RotaryPair-1 (joined, joined, ") == 1, text
        for operator in ("Slice", "Neg", "Tile", "Transpose"):
            assert f"= {operator}-" not in text, text


def test_heads_are_normalised_where_they_are_rotated():
    for _, text in texts_of(["qwen3"]):
        assert text.count("= millpond.RotaryPair-1 (joined, joined, ") == 1, text
        for operator in ("RMSNormalization", "ReduceMean", "Transpose"):
            assert f"= {operator}-" not in text, text


def test_weights_of_several_layers_are_put_together_once():
    for _, text in texts_of(["shared"]):
        assert text.count("= millpond.MatMulBias-1") == 2 * 3, text
        assert len(re.findall(r"const \S+ f(?:32|16)\[64,192\]", text)) == 1, text


def test_products_written_otherwise_are_products():
    for _, text in texts_of(["einsum"]):
        assert "= Einsum-" not in text, text
        assert "= Add-" not in text, text  # the mask
    for _, text in texts_of(["geglu"]):
        assert text.count("= millpond.GatedHalves-1") == 2, text
        assert text.count(" last=1") == 1, text
        assert "= Split-" not in text and "= Slice-" not in text, text
    for _, text in texts_of(["pixels"]):
        assert text.count("= millpond.MatMulBias-1") == 2, text
        assert "= Gemm-" not in text and "= Reshape-" not in text, text


def test_attention_in_five_dimensions_becomes_one_operator():
    """Whatever the batch is: Q, K and V are read where they lie in one product, unless both units and heads are many
    there, of which only one can be walked in steps of one length."""
    for name, text in texts_of(["windows", "units"]):
        assert text.count("= millpond.Attention-1") == (3 if name == "units" else 1), text
        assert text.count(" v_part=[") == (2 if name == "units" else 1), text
        assert text.count("= Split-13") == (1 if name == "units" else 0), text
        for operator in ("Softmax", "Transpose", "Slice", "Einsum"):
            assert f"= {operator}-" not in text, text


def test_attention_by_cosines_becomes_one_operator():
    for _, text in texts_of(["cosine"]):
        assert text.count("= millpond.Attention-1") == 1, text
        assert text.count("= millpond.LpNormalization-1") == 2, text
        for operator in ("Softmax", "ReduceL2", "Add", "Div"):
            assert f"= {operator}-" not in text, text


def test_norms_by_constants_become_part_of_products():
    for _, text in texts_of(["batch_normed"]):
        is_long = text.split()[1] == "float32"
        assert "= BatchNormalization-" not in text, text
        assert text.count("= millpond.MatMulBias-1") == (2 if is_long else 0), text
        assert text.count("= millpond.Affine-1") == (0 if is_long else 2), text
        assert is_long != ("= Flatten-" in text), text


def test_norms_and_activations_become_one_operator_each():
    for name, text in texts_of(["encoder_mlp", "decoder_mlp"]):
        assert "= ReduceMean" not in text, text
        if name == "encoder_mlp":
            assert text.count("= millpond.SkipLayerNormalization-1") == 2, text
            assert text.count('activation="Gelu"') == 1, text
        else:
            assert text.count("= millpond.NormMatMul-1") == 1, text
            assert text.count("= millpond.GatedMatMul-1") == 1, text
            assert text.count("MatMul-13 (") == 0, text


def test_sums_of_three_become_part_of_norms():
    for _, text in texts_of(["parallel"]):
        assert len(re.findall(r"= millpond.SkipLayerNormalization-1 \((\w+, ){4}\w+\)", text)) == 2, text
        assert "= Add-" not in text, text


def test_sums_that_are_kept_finite_become_part_of_norms():
    for _, text in texts_of(["t5_mlp"]):
        is_narrow = text.split()[1] == "float16"
        assert text.count("= millpond.SumInfinite-1") == (2 if is_narrow else 0), text
        assert text.count("= millpond.HeldRMSNormalization-1") == (2 if is_narrow else 0), text
        assert is_narrow != ("= IsInf-" in text), text
    made = exported.t5_mlp(np.float16)
    feeds = fed("t5_mlp", np.float16, 2, 19)
    feeds["x"][1, 7, 3], feeds["other"][1, 7, 3], feeds["x"][0, 0, 0] = 60000, 50000, -np.inf
    fused, apart = (session(made, fusion=fusion).run(None, feeds) for fusion in (1, 0))
    for got, want in zip(fused, apart, strict=True):
        assert np.isfinite(want).all()
        # four halves' last places, since sums of the norms are rounded where they were not
        np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3)
    assert (np.abs(fused[1].astype(np.float32)).max(axis=(1, 2)) == 64512).all()


def test_what_comes_behind_becomes_part_of_products_and_convolutions():
    for name, text in texts_of(["conv_block", "classifier"]):
        assert "= Relu" not in text, text
        assert "= Add" not in text, text
        fused = {"conv_block": r"= millpond\.(nhwc\.)?FusedConv-1", "classifier": 'activation="Relu"'}[name]
        assert len(re.findall(fused, text)) == 2, text


def test_what_follows_from_constants_and_known_sizes_costs_nothing():
    """No copies of heads, masks and windows of constants, batch normalisation or scales are left."""
    left = {"swin": ("Gather", "Softmax", "Slice", "Concat", "Pad", "Where", "Sub", "Equal", "Expand"),
            "whisper": ("Mul", "Softmax", "Transpose"), "multihead": ("Gather", "Softmax", "Mul"),
            "dense": ("BatchNormalization",)}
    for name, text in texts_of(list(left)):
        for operator in left[name]:
            assert not re.search(rf"= {operator}-", text), text
        if name == "swin":
            assert text.count("= millpond.Attention-1") == 2, text
            assert text.count("= millpond.Roll-1") == 2, text
        if name == "whisper":  # one product for Q, K and V, and the last one
            assert text.count("MatMulBias-1 (") + text.count("Gemm-13 (") == 2, text
        if name == "dense":
            assert text.count("= millpond.Affine-1") == 3, text


def written_out(kind):
    """An activation or a norm in primitive operators, whose numbers have a dimension more than x has."""
    def number(name, value):
        return numpy_helper.from_array(np.full((1, 1, 1), value, np.float32), name)

    bounds = [numpy_helper.from_array(np.float32(value), name) for name, value in (("low", 0), ("high", 6))]
    ways = {
        "ramp": [("Add", "x three"), ("Clip", "0 low high"), ("Div", "1 six"), ("Mul", "2 x")],
        "gelu": [("Div", "x root"), ("Erf", "0"), ("Add", "1 one"), ("Mul", "2 x"), ("Mul", "3 half")],
        "swish": [("Mul", "x three"), ("Sigmoid", "0"), ("Mul", "1 x")],
        "cluster": [("Add", "x three"), ("Relu", "0")],
    }
    nodes = [helper.make_node(op, inputs.split(), [str(i)]) for i, (op, inputs) in enumerate(ways[kind])]
    numbers = {"three": 3, "six": 6, "root": 2**0.5, "one": 1, "half": 0.5}
    graph = helper.make_graph(nodes, kind, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
                              [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
                              [*bounds, *(number(*each) for each in numbers.items())])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("kind", ["ramp", "gelu", "swish", "cluster"])
def test_numbers_that_bring_a_dimension_along_give_it_to_the_result(kind):
    model, x = written_out(kind), np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
    want = ort.InferenceSession(model, providers=[provider.CPU]).run(None, {"x": x})[0]
    got = session(model, fusion=1).run(None, {"x": x})[0]
    assert want.shape == (1, 2, 8)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
