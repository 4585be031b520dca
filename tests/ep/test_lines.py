# SPDX-License-Identifier: Apache-2.0
"""Small networks over lines, with their channels last and first."""

import line_models
import numpy as np
import onnxruntime as ort
import op_model
import provider
import pytest
from millpond import _ort_islands

ROUNDS = 2


def steps_of(session):
    (island,) = _ort_islands.islands_of(session)["islands"]
    return [step["op"] for program in island["programs"] for step in program["steps"]]


@pytest.mark.parametrize("passes", ["+channels_last,+conv_parts", "-channels_last"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("network", line_models.NETWORKS)
def test_result_is_that_of_the_cpu(network, kind, known, passes, monkeypatch):
    monkeypatch.setenv("MILLPOND_PASSES", passes)
    made = line_models.NETWORKS[network]
    exact, dims = made(line_models.Network(np.float32, known))
    random = np.random.default_rng(3)
    feed = {name: random.standard_normal(size).astype(np.float16).astype(np.float32) for name, size in dims.items()}
    expected = ort.InferenceSession(exact, op_model.cpu_options(), [provider.CPU]).run(None, feed)[0]
    options = provider.session_options()
    _ort_islands.ask(options)
    model, _ = made(line_models.Network(kind, known))
    ours = provider.session(model, provider_options={"use_tf32": "0"}, options=options)
    # a dozen layers, of which float16 rounds each
    far = 2e-4 if kind is np.float32 else 3e-2
    for _ in range(ROUNDS):
        np.testing.assert_allclose(ours.run(None, feed)[0], expected, rtol=far, atol=far, strict=True)
    if "+channels_last" in passes:
        turned = steps_of(ours).count("Transpose")
        assert turned <= {"text": 0, "speech": 0, "points": 1}.get(network, 2)
