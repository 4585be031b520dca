# SPDX-License-Identifier: Apache-2.0
"""Trained models on our EP: where their nodes run, and whether they say what they say on ONNX Runtime's CPU EP."""

import shutil
from collections import Counter

import agreement
import feeds
import numpy as np
import placement
import provider
import pytest
from ort_version import HOLDS_CONTROL_FLOW

ON_DEVICE = [
    "mtcnn_pnet",
    "mtcnn_rnet",
    "mtcnn_onet",
    "magika",
    "ppocr_cls",
    "ppocrv6_det",
    "ppocrv6_rec",
    "ppocrv6_rec_fp16",
    "minilm_l6_int8w",
    "smollm2-135m-fp32",
]
PARTLY_ON_CPU = ["silero_vad", "kokoro_int8", "romanizer_loop"]
ON_CPU_WITH_ISLANDS = {"kokoro_int8": {"com.microsoft.FusedMatMul"}}
NEW_WORDS = 6
ANSWER = "The capital of France is"


class Loaded:
    def __init__(self, name, path, folder):
        self.name, self.path = name, path
        options = provider.session_options()
        self.graph_path = placement.keep_graph(options, folder)
        # ONNX Runtime saves no model that holds compiled nodes.
        self.by_nodes = provider.session(self.path, options=options, provider_options={"fusion": "0"})
        self.session = provider.session(self.path, provider_options={"fusion": "1"})


@pytest.fixture(scope="module")
def loaded(request, model_path, tmp_path_factory):
    """A session on our EP; module scope makes pytest run all tests of one model before it loads the next."""
    folder = tmp_path_factory.mktemp("graph")
    yield Loaded(request.param, model_path(request.param), folder)
    shutil.rmtree(folder)


def for_models(names):
    return pytest.mark.parametrize("loaded", names, indirect=True, ids=names)


@for_models(ON_DEVICE)
def test_nodes_are_on_the_device(loaded, summary):
    nodes = list(provider.assigned_nodes(loaded.by_nodes))
    on_cpu = [operator for where, operator, _ in nodes if where == provider.CPU]
    wrong = placement.misplaced(nodes, placement.kept_graph(loaded.graph_path), provider.CPU)
    listed = ", ".join(f"{operator} {count}" for operator, count in Counter(on_cpu).most_common())
    summary(
        f"{loaded.name}: {len(nodes) - len(on_cpu)} nodes on the device, {len(on_cpu)} on the CPU ({listed or '-'})"
    )
    assert not wrong, f"on the CPU, yet no shape computation: {wrong}"
    assert len(nodes) > len(on_cpu)


@for_models(ON_DEVICE + PARTLY_ON_CPU)
def test_islands_leave_no_shapes_to_the_cpu(loaded, summary):
    nodes = list(provider.assigned_nodes(loaded.session))
    on_cpu = Counter(operator for where, operator, _ in nodes if where == provider.CPU)
    listed = ", ".join(f"{operator} {count}" for operator, count in on_cpu.most_common())
    summary(f"{loaded.name}: {len(nodes)} nodes, with islands on the CPU: {listed or '-'}")
    held = loaded.name != "silero_vad" or HOLDS_CONTROL_FLOW  # whose shape arithmetic is in branches
    assert not held or set(on_cpu) <= ON_CPU_WITH_ISLANDS.get(loaded.name, set())


WAYS = pytest.mark.parametrize("way", ["islands", "by_nodes"])


@WAYS
@for_models(ON_DEVICE + [name for name in PARTLY_ON_CPU if name != "kokoro_int8"])
def test_outputs_agree_with_the_cpu(loaded, root, way):
    session = loaded.session if way == "islands" else loaded.by_nodes
    agreement.check(session, loaded.name, loaded.path, root)


@for_models(["ppocrv6_rec"])
def test_lines_are_read(loaded, root):
    for label, inputs in feeds.feeds(loaded.name, root):
        text = feeds.reading(loaded.name, root, loaded.session.run(None, inputs))
        wanted = (
            [feeds.PAGE_LINES[label][1]] if label in feeds.PAGE_LINES else [t for _, t in feeds.PAGE_LINES.values()]
        )
        assert text == wanted


@for_models(["smollm2-135m-fp32"])
def test_text_is_continued(loaded, root, summary):
    """Greedy generation, each step fed with the cache that the step before gave."""
    step, ids = feeds.smollm2_prefill(root), []
    outputs = ["logits", *feeds.smollm2_cache_names("present")]
    for _ in range(NEW_WORDS):
        logits, *present = loaded.session.run(outputs, step)
        ids.append(int(logits[0, -1].argmax()))
        step = feeds.smollm2_step(
            [ids[-1]], dict(zip(feeds.smollm2_cache_names("past_key_values"), present, strict=True))
        )
    words = feeds.json_data(root, "smollm2_tokens")["words"]
    text = "".join(words[i] for i in ids)
    summary(f"{loaded.name}: {text!r}")
    assert text.startswith(ANSWER)


@for_models(["kokoro_int8"])
def test_voice_sounds_alike(loaded, root, summary):
    """The waveform is chaotic under rounding, and so are its frames, by one or two: with one byte of the encoder other
    than it was, ONNX Runtime's CPU provider is 0.03 to 0.07 off itself. So length and spectrum are compared."""
    label, inputs = next(iter(feeds.feeds(loaded.name, root)))
    reference = feeds.cpu_session(feeds.with_real_edges(loaded.path))
    expected, result = reference.run(None, inputs)[0], loaded.session.run(None, inputs)[0]
    frames = abs(len(result) - len(expected)) / feeds.VOICE_FRAME
    off = np.abs(feeds.loudness(result) - feeds.loudness(expected)).mean()
    summary(f"{loaded.name}: {frames:.0f} frames longer or shorter, log power {off:.3f} off")
    assert len(result) % feeds.VOICE_FRAME == 0 and frames <= 2, label
    assert off < 0.1, label
