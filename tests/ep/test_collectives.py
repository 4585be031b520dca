# SPDX-License-Identifier: Apache-2.0
"""AllReduce and AllGather: two ranks, and what a single process is told. All else of them is in tests/ranks."""

import numpy as np
import onnxruntime as ort
import provider
import pytest
import rank_work
import ranks
from onnx import helper


def test_two_ranks():
    ranks.run("rank_work:chain", 2)


def test_a_process_that_is_no_rank(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MILLPOND_DEVICE", "host")
    monkeypatch.setenv("LOCAL_RANK", "0")
    session = rank_work.session(rank_work.model([rank_work.collective("AllReduce", "float")]))
    with pytest.raises(Exception, match="nothing says which rank this process is; start all ranks with torchrun"):
        session.run(None, {"x": rank_work.value(0, "float")})


def session_by_device(made):
    options = ort.SessionOptions()
    options.add_provider_for_devices(provider.register()[:1], {})
    return ort.InferenceSession(made.SerializeToString(), options)


def test_a_type_that_no_rank_sums():
    """The CPU provider, which gets the node then, says why it cannot run it."""
    made = rank_work.model([rank_work.collective("AllReduce", "int64")], "int64")
    with pytest.raises(Exception, match=r"com\.microsoft\.AllReduce runs between devices and was left to the CPU"):
        session_by_device(made)


def test_shapes_are_known_before_a_run():
    gather = rank_work.collective("AllGather", "float", axis=-1, group_size=4)
    made = rank_work.model([gather, helper.make_node("Neg", ["y"], ["z"])])
    made.graph.output[0].name = "z"
    session = session_by_device(made)
    assert session.get_outputs()[0].shape == [4, 3, 8]
    assert np.prod(session.get_inputs()[0].shape) == 24
