# SPDX-License-Identifier: Apache-2.0
"""Trained models as captured graphs: the same outputs as without, for inputs that change between launches."""

import feeds
import graph_kit as kit
import numpy as np
import provider
import pytest
import tolerance

MODELS = ["mtcnn_onet", "minilm_l6_int8w", "ppocrv6_rec", "smollm2-135m-fp32"]
LAUNCHES = 3


def changed(inputs, turn):
    """Other values of the same shapes; whole numbers are ids and masks, which stay in their range."""
    scale = np.float32(1 - turn / 16)
    return {
        name: (value * scale).astype(value.dtype) if value.dtype.kind == "f" else np.roll(value, turn)
        for name, value in inputs.items()
    }


def bound(session, inputs, outputs):
    """(binding, {input: value}, [output values]), all of them on the device."""
    binding = session.io_binding()
    given = {name: kit.on_device(value) for name, value in inputs.items()}
    taken = [kit.on_device(np.zeros_like(value)) for value in outputs]
    for name, value in given.items():
        binding.bind_ortvalue_input(name, value)
    for argument, value in zip(session.get_outputs(), taken, strict=True):
        binding.bind_ortvalue_output(argument.name, value)
    return binding, given, taken


@pytest.mark.parametrize("name", MODELS)
def test_graph_of_a_trained_model(name, root, model_path, summary):
    path = model_path(name)
    _, inputs = next(iter(feeds.feeds(name, root)))
    plain = provider.session(path, provider_options={"use_tf32": "0"})
    try:
        session = kit.session(path)
    except Exception as error:  # ONNX Runtime's own class for it differs between versions
        assert "graph capture" in str(error), error
        summary(f"{name}: not for graphs, since nodes of it are left on the CPU")
        return
    shapes = plain.run(None, inputs)
    binding, given, taken = bound(session, inputs, shapes)
    for turn in range(LAUNCHES):
        feed = changed(inputs, turn)
        for key, value in given.items():
            value.update_inplace(np.ascontiguousarray(feed[key]))
        session.run_with_iobinding(binding)
        for argument, value, wanted in zip(session.get_outputs(), taken, plain.run(None, feed), strict=True):
            where = f"{argument.name}, {turn}"
            np.testing.assert_allclose(value.numpy(), wanted, **tolerance.OTHER_ALGORITHMS, err_msg=where)
    assert kit.is_captured(session, inputs)
    summary(f"{name}: captured, {LAUNCHES} launches agree with runs without a graph")
