# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol: what is read and written, and that nobody can send what does harm."""

import json
import random

import millpond
import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import millpond.serving  # noqa: E402
from millpond import _inference_protocol as protocol  # noqa: E402
from serving_kit import pair  # noqa: E402


def tensor(name="x", shape=(2,), datatype="FP32", **more):
    return {"name": name, "shape": list(shape), "datatype": datatype, **more}


def decode(*inputs, tail=b"", **more):
    head = json.dumps({"inputs": list(inputs), **more}).encode()
    return protocol.decode(head + tail, len(head) if tail else None)


@pytest.mark.parametrize("word", protocol._NAMES)
def test_each_type_both_ways(word):
    array = np.array([[1, 0], [3, 1]]).astype(protocol._NAMES[word])
    for is_binary in (False, True):
        request = protocol.Request({}, all_binary=is_binary, id="7")
        body, length = protocol.encode("m", "3", request, {"x": array, "z": array[:1]})
        document = json.loads(body if length is None else body[:length])
        assert (document["model_name"], document["model_version"], document["id"]) == ("m", "3", "7")
        head = json.dumps({"inputs": document["outputs"]}).encode()
        found = protocol.decode(head + (b"" if length is None else body[length:]), len(head)).inputs
        for name, wanted in (("x", array), ("z", array[:1])):
            assert found[name].dtype == array.dtype and np.array_equal(found[name], wanted)


def test_bytes_are_not_copied():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    head = json.dumps({"inputs": [tensor(shape=(2, 3), parameters={"binary_data_size": 24})]}).encode()
    body = head + array.tobytes()
    found = protocol.decode(body, str(len(head))).inputs["x"]
    assert np.array_equal(found, array) and not found.flags.writeable
    whole = np.frombuffer(body, np.uint8)
    assert whole.ctypes.data <= found.ctypes.data < whole.ctypes.data + len(body)


def test_what_is_asked_for():
    found = decode(tensor(data=[1, 2]), id="a", outputs=[{"name": "p", "parameters": {"binary_data": True}},
                                                        {"name": "q"}])
    assert (found.id, found.outputs, found.binary, found.all_binary) == ("a", ["p", "q"], {"p"}, False)
    nested = decode(tensor(shape=(2, 2), data=[[1, 2], [3, 4]])).inputs["x"]
    assert nested.tolist() == [[1, 2], [3, 4]]
    assert decode(tensor(shape=(0, 3), data=[])).inputs["x"].shape == (0, 3)


HUGE = 1 << 61
REFUSED = [
    ([tensor(data=[1])], "has 1 elements, and its shape [2] asks for 2"),
    ([tensor(shape=(HUGE, HUGE), data=[1])], "asks for"),
    ([tensor(shape=(0, HUGE, HUGE), data=[])], "cannot be FP32"),
    ([tensor(shape=(-1,), data=[1])], "has the shape [-1]"),
    ([tensor(shape=(1 << 70,), data=[1])], "has the shape"),
    ([tensor(shape=(True,), data=[1])], "has the shape"),
    ([tensor(shape=(1,) * 17, data=[1])], "at most 16 numbers"),
    ([{**tensor(data=[1, 2]), "shape": "2"}], "at most 16 numbers"),
    ([tensor(datatype="BYTES", data=["a", "b"])], "datatype 'BYTES'"),
    ([tensor(datatype=["FP32"], data=[1, 2])], "datatype"),
    ([tensor(data=["a", "b"])], "the data of"),
    ([tensor(data=[[1], [2, 3]])], "the data of"),
    ([tensor(datatype="INT8", data=[1, 1000])], "numbers from 1 to 1000"),
    ([tensor(datatype="UINT16", data=[1, -1])], "numbers from -1 to 1"),
    ([tensor(datatype="INT32", data=[1, 1.5])], "something else than int32"),
    ([tensor(datatype="BOOL", data=[1, 0])], "something else than bool"),
    ([tensor(datatype="INT64", data=[1, 1 << 80])], "the data of"),
    ([tensor(data={"a": 1})], "neither a list"), ([tensor()], "neither a list"), ([tensor(data=7)], "neither a list"),
    ([tensor(parameters={"binary_data_size": 8})], "0 are left of the body"),
    ([tensor(parameters={"binary_data_size": -8})], "binary_data_size of -8"),
    ([tensor(parameters={"binary_data_size": "8"})], "binary_data_size of 8"),
    ([tensor(parameters=[])], '"parameters" must be an object'),
    ([tensor(data=[1, 2])] * 2, "a name stands twice"),
    ([tensor(name=str(n), data=[1, 2]) for n in range(257)], "at most 256 objects"),
    (["x"], "at most 256 objects"), ([{"shape": [2]}], "must have a name"), ([tensor(name=7, data=[1, 2])], "a name"),
]


@pytest.mark.parametrize(("inputs", "sentence"), REFUSED)
def test_what_is_refused(inputs, sentence):
    with pytest.raises(millpond.InvalidArgumentError) as caught:
        decode(*inputs)
    assert sentence in str(caught.value) and len(str(caught.value)) < 1500


@pytest.mark.parametrize(("body", "length", "sentence"), [
    (b"", None, "JSON"), (b"{", None, "JSON"), (b"\xff", None, "JSON"), (b"[]", None, "must be an object"),
    (b"[" * 100_000, None, "JSON"), (b'{"id": 7}', None, "its id a text"), (b"{}", "9", "the body has 2 bytes"),
    (b"{}", "-1", "the body has"), (b"{}", "x", "the body has"), (b"{}abc", "2", "3 bytes of the body belong to no"),
    (b'{"inputs": {}}', None, "must be a list"), (b'{"outputs": [[]]}', None, "must be a list"),
])
def test_bodies_that_are_refused(body, length, sentence):
    with pytest.raises(millpond.InvalidArgumentError) as caught:
        protocol.decode(body, length)
    assert sentence in str(caught.value)


def test_anything_at_all():
    """Requests changed at random are read or refused, and nothing else."""
    generator = random.Random(7)
    head = json.dumps({"id": "a", "inputs": [tensor(shape=(2, 2), data=[1, 2.5, -3, 4]), tensor(
        name="z", parameters={"binary_data_size": 8})], "outputs": [{"name": "y"}]}).encode()
    good = head + b"\0" * 8
    pieces = [b"0", b"-1", b"1e999", b"null", b"[]", b"{}", b'"', b"9" * 40, b"true", b"\xff\0", b"NaN", b""]
    read = 0
    for _ in range(4000):
        body = bytearray(good)
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(body))
            body[at:at + generator.randrange(0, 6)] = generator.choice(pieces)
        try:
            protocol.decode(bytes(body), generator.choice([str(len(head)), None, str(len(body) - 8)]))
            read += 1
        except millpond.InvalidArgumentError as error:
            assert str(error).startswith("the request is not one of the Open Inference Protocol: ")
    assert 0 < read < 4000


def test_metadata():
    models = millpond.serving.Models()
    models.update({"a": pair()})
    found = protocol.metadata("a", "1", models["a"].session)
    assert found["inputs"] == [{"name": name, "datatype": "FP32", "shape": [-1, 4]} for name in "xz"]
    assert [each["name"] for each in found["outputs"]] == ["sum", "difference"]
    with pytest.raises(millpond.InvalidArgumentError, match="no datatype"):
        protocol.encode("a", "1", protocol.Request({}), {"t": np.array(["text"])})
