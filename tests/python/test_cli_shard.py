# SPDX-License-Identifier: Apache-2.0
"""`millpond shard`: how values are dealt, what stays whole and why, what is no model. Models that are split and run are
in tests/ranks."""

import os

import numpy as np
import onnx
import pytest
from cli_kit import refused
from onnx import helper

pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")

from millpond import _shard_check, _shard_rules, _shard_split  # noqa: E402
from millpond._shard_model import Cut, Model  # noqa: E402
from shard_kit import HOST, decoder, model_of, weights_of  # noqa: E402


def test_cuts_take_and_join():
    array = np.arange(24).reshape(2, 12)
    for cut in (Cut(-1, (12,)), Cut(-1, (8, 4)), Cut(-1, (4, 4, 4)), Cut(-2, (2,))):
        parts = [cut.take(array, rank, 2) for rank in range(2)]
        assert parts[0].size == parts[1].size == 12
        assert np.array_equal(cut.join(parts), array)
    assert Cut(-1, (8, 4)).take(array, 1, 2)[0].tolist() == [4, 5, 6, 7, 10, 11]


def test_cuts_with_copies():
    array, cut = np.arange(12), Cut(-1, (8, 4), (1, 2))  # of four ranks two have the same half of the second segment
    assert cut.fits(4) and not cut.fits(3) and cut.own(4) == 4
    parts = [cut.take(array, rank, 4) for rank in range(4)]
    assert [part.tolist() for part in parts] == [[0, 1, 8, 9], [2, 3, 8, 9], [4, 5, 10, 11], [6, 7, 10, 11]]
    assert np.array_equal(cut.join(parts), array)


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


def test_weights_outside_of_the_folder(tmp_path):
    (tmp_path / "inner").mkdir()
    made = onnx.load(decoder(tmp_path, "llama"))
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


def test_what_is_no_model_or_no_number(tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    assert "no ONNX model" in refused("shard", tmp_path / "text.onnx", "--ranks", 2, "--out", tmp_path / "o", **HOST)
    said = refused("shard", tmp_path / "text.onnx", "--ranks", 1, "--out", tmp_path / "o", **HOST)
    assert "--ranks" in said
