# SPDX-License-Identifier: Apache-2.0
"""AllReduce and AllGather: two ranks, and what a single process is told. All else of them is in tests/ranks."""

import os

import numpy as np
import onnx
import onnxruntime as ort
import provider
import pytest
import rank_work
import ranks
from onnx import helper


def test_two_ranks():
    ranks.run("rank_work:chain", 2)


NAMES = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE")


@pytest.fixture
def no_rank(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MILLPOND_DEVICE", os.environ.get("MILLPOND_DEVICE", "host"))
    monkeypatch.setenv("LOCAL_RANK", "0")
    provider.register()  # from the file that all tests here use


@pytest.fixture
def rank_of_four(no_rank, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")


def session_by_device(made, **entries):
    options = ort.SessionOptions()
    options.add_provider_for_devices(provider.register()[:1], {})
    for name, value in entries.items():
        setattr(options, name, value)
    return ort.InferenceSession(made.SerializeToString(), options)


def test_a_process_that_is_no_rank(no_rank):
    made = rank_work.model([rank_work.collective("AllReduce", "float")])
    with pytest.raises(NotImplementedError, match="nothing says which rank this process is; start all ranks with"):
        rank_work.session(made)
    options = ort.SessionOptions()  # which ask for the schemas all the same
    options.register_custom_ops_library(str(provider.library_path()))
    provider.register()
    session = ort.InferenceSession(made.SerializeToString(), options, providers=[provider.NAME, provider.CPU])
    with pytest.raises(Exception, match="nothing says which rank this process is; start all ranks with torchrun"):
        session.run(None, {"x": rank_work.value(0, "float")})


def test_a_saved_model_of_no_rank_is_for_everybody(no_rank, tmp_path):
    made = rank_work.model([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")])
    session_by_device(made, optimized_model_filepath=str(tmp_path / "saved.onnx"))
    saved = onnx.load(tmp_path / "saved.onnx")
    assert {each.domain: each.version for each in saved.opset_import}["com.microsoft"] == 1
    ort.InferenceSession(tmp_path / "saved.onnx", providers=[provider.CPU])


def test_a_type_that_no_rank_sums(rank_of_four):
    """The CPU provider, which gets the node then, says why it cannot run it."""
    made = rank_work.model([rank_work.collective("AllReduce", "int64")], "int64")
    with pytest.raises(Exception, match="AllReduce runs between devices and was left to the CPU"):
        session_by_device(made)


def test_shapes_are_known_before_a_run(rank_of_four):
    gather = rank_work.collective("AllGather", "float", axis=-1, group_size=4)
    made = rank_work.model([gather, helper.make_node("Neg", ["y"], ["z"])])
    made.graph.output[0].name = "z"
    session = session_by_device(made)
    assert session.get_outputs()[0].shape == [4, 3, 8]
    assert np.prod(session.get_inputs()[0].shape) == 24


def test_a_dimension_that_is_not_known_stays_so(rank_of_four):
    gather = rank_work.collective("AllGather", "float", axis=0, group_size=4)
    made = rank_work.model([gather, helper.make_node("Neg", ["y"], ["z"])], shape=["n", 3])
    made.graph.output[0].name = "z"
    shape = session_by_device(made).get_outputs()[0].shape
    assert shape[1] == 3 and isinstance(shape[0], str) and shape[0] != "n"


def test_a_compiled_model_holds_them(no_rank, tmp_path, monkeypatch):
    """Where no schema of ONNX Runtime's own says what such a node may look like."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    made = rank_work.model([helper.make_node("Abs", ["x"], ["a"]),
                            helper.make_node("AllReduce", ["a"], ["b"], domain=rank_work.OURS),
                            helper.make_node("Sqrt", ["b"], ["y"])], out=rank_work.SHAPE)
    options = ort.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_embed_mode", "1")
    options.add_session_config_entry("ep.context_file_path", str(tmp_path / "compiled.onnx"))
    options.add_provider_for_devices(provider.register()[:1], {})
    ort.InferenceSession(made.SerializeToString(), options)
    compiled = onnx.load(tmp_path / "compiled.onnx")
    assert [node.op_type for node in compiled.graph.node] == ["EPContext"]
    x = rank_work.value(0, "float")
    np.testing.assert_allclose(session_by_device(compiled).run(None, {"x": x})[0], np.sqrt(np.abs(x)), rtol=1e-6)
