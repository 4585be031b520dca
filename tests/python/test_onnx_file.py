# SPDX-License-Identifier: Apache-2.0
"""The reader of ONNX files: what it reads, and that it survives any bytes."""

import random

import millpond
import numpy as np
import onnx_kit
import pytest
from millpond import _onnx_file
from onnx_kit import Node


def model():
    branch = onnx_kit.graph_bytes([Node("Det", ["q"], ["d"], "inner")], {}, {"d": []})
    nodes = [Node("MatMul", ["x", "w"], ["h"], "product", attributes={"alpha": 0.5, "axes": [1, 2]}),
             Node("Mine", ["h"], ["y"], "", "some.domain"),
             Node("If", ["c"], ["z"], "choice", attributes={"then_branch": branch, "else_branch": branch})]
    return onnx_kit.model(nodes, {"x": ["n", 16], "c": (onnx_kit.BOOL, [])},
                          {"y": (onnx_kit.BFLOAT16, [1]), "z": []}, {"w": np.zeros((16, 8), np.float32)},
                          domains=["some.domain"])


def test_what_is_read():
    found = _onnx_file.parse(model())
    assert [(node.domain, node.operator, node.name) for node in found.nodes] == [
        ("", "MatMul", "product"), ("some.domain", "Mine", ""), ("", "Det", "inner"), ("", "Det", "inner"),
        ("", "If", "choice")]
    assert found.nodes[0].inputs == ["x", "w"] and found.nodes[0].outputs == ["h"]
    assert found.opsets == {"": onnx_kit.OPSET, "some.domain": 1}
    assert found.values["x"] == _onnx_file.Value("tensor(float)", ("n", 16))
    assert found.values["w"] == _onnx_file.Value("tensor(float)", (16, 8))
    assert found.values["y"] == _onnx_file.Value("tensor(bfloat16)", (1,))
    assert found.inputs == ["x", "c"] and found.weights == ["w"]


def test_names_of_types_are_onnx_runtime_s():
    ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    for kind in onnx_kit.TYPES.values():
        same = onnx_kit.model([Node("Identity", ["x"], ["y"])], {"x": (kind, [4])}, {"y": (kind, [4])})
        session = ort.InferenceSession(same, providers=["CPUExecutionProvider"])
        assert _onnx_file.parse(same).values["x"].type == session.get_inputs()[0].type


def test_files(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model())
    assert len(_onnx_file.read(path).nodes) == 5
    for wrong in (b"", b"\x00", b"not a model at all", model()[:-7], b"\x08\x09"):
        path.write_bytes(wrong)
        with pytest.raises(millpond.InvalidArgumentError, match="no ONNX model"):
            _onnx_file.read(path)
    for missing in (tmp_path / "nothing.onnx", tmp_path):
        with pytest.raises(millpond.NotFoundError, match="cannot be read"):
            _onnx_file.read(missing)


def test_functions_of_a_model():
    function = onnx_kit.block(1, "Twice") + onnx_kit.block(10, "mine")
    assert _onnx_file.parse(model() + onnx_kit.block(25, function)).functions == {("mine", "Twice")}


def test_graphs_may_not_be_nested_without_end():
    inner = onnx_kit.graph_bytes([Node("Relu", ["a"], ["b"])], {}, {})
    for _ in range(_onnx_file.DEPTH_MAX + 2):
        inner = onnx_kit.graph_bytes([Node("If", [], [], attributes={"then_branch": inner})], {}, {})
    assert _onnx_file.parse(onnx_kit.block(7, inner)) is None


@pytest.mark.parametrize("seed", range(8))
def test_any_bytes(seed):
    """A model with bytes changed, cut or added is read, or is none; nothing else happens."""
    generator = random.Random(seed)
    whole = model()
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(generator.randrange(1, 6)):
            at = generator.randrange(len(data))
            choice = generator.randrange(3)
            if choice == 0:
                data[at] = generator.randrange(256)
            elif choice == 1:
                del data[at : at + generator.randrange(1, 9)]
            else:
                data[at:at] = generator.randbytes(generator.randrange(1, 9))
        found = _onnx_file.parse(bytes(data))
        assert found is None or isinstance(found, _onnx_file.Model)
