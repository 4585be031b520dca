# SPDX-License-Identifier: Apache-2.0
"""Trained models with each pass left out in turn: the others must not need what it makes."""

import agreement
import passes
import provider
import pytest

# Not kokoro_int8, whose waveform differs by rounding alone (test_models.py).
MODELS = ["mtcnn_pnet", "mtcnn_rnet", "mtcnn_onet", "magika", "ppocr_cls", "ppocrv6_det", "ppocrv6_rec",
          "ppocrv6_rec_fp16", "minilm_l6_int8w", "smollm2-135m-fp32", "silero_vad", "romanizer_loop"]


@pytest.mark.parametrize("left_out", passes.NAMES)
@pytest.mark.parametrize("name", MODELS)
def test_model_without_a_pass(name, left_out, root, model_path, monkeypatch):
    path = model_path(name)
    monkeypatch.setenv("MILLPOND_PASSES", f"-{left_out}")
    session = provider.session(path, provider_options={"fusion": "1"})
    agreement.check(session, name, path, root, count=1)
