# SPDX-License-Identifier: Apache-2.0
"""Each architecture generates what it does on genai's CPU path, and its nodes run on the provider."""

import collections
import json

import genai_kit as kit
import numpy as np
import pytest
import tiny_models

NAMES = list(kit.BY_NAME)
KINDS = {"float32": ("float32", False), "float16": ("float16", False), "int4": ("float16", True)}
# Numbers of a reference in float32 that lie nearer than this are one number in float16.
LIMITS = {"float32": 1e-4, "float16": 0.05, "int4": 0.05}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_tokens(name, kind):
    reference = kit.cpu(kit.folder(name, *KINDS[kind], reference=True))
    tokens = kit.sequences(kit.generator(kit.ours(kit.folder(name, *KINDS[kind]))))[0]
    assert tokens[: len(kit.PROMPT)] == kit.PROMPT
    assert len(tokens) >= 20  # some find their end sooner than at 40
    assert kit.faults(reference, tokens, kit.PROMPT, LIMITS[kind]) == []
    if kind == "float32":
        assert tokens == kit.sequences(kit.generator(reference))[0]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_say_something(name):
    """A model that repeats itself would hide a cache that is read wrongly."""
    tokens = kit.sequences(kit.generator(kit.cpu(kit.folder(name, reference=True))))[0]
    assert len(set(tokens[len(kit.PROMPT) :])) >= 5


def test_a_wrong_token_is_seen():
    reference = kit.cpu(kit.folder("llama", reference=True))
    tokens = kit.sequences(kit.generator(reference))[0]
    tokens[20] = (tokens[20] + 1) % tiny_models.VOCABULARY
    assert kit.faults(reference, tokens, kit.PROMPT, 0.05)[0][:2] == (20, tokens[20])


def nodes_of(trace):
    """How many nodes ran, by provider and operator."""
    counts = collections.Counter()
    for event in json.loads(trace.read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["args"].get("op_name"):
            counts[event["args"]["provider"], event["args"]["op_name"]] += 1
    return counts


@pytest.mark.parametrize("fusion", [0, 1])
@pytest.mark.parametrize("kind", ["float16", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_nodes_run_on_the_provider(name, kind, fusion, tmp_path):
    """All but the arithmetic of shapes, and what chooses by it."""
    profile = {"model": {"decoder": {"session_options": {"enable_profiling": str(tmp_path / "trace")}}}}
    model = kit.ours(kit.folder(name, *KINDS[kind]), {"fusion": fusion}, profile)
    kit.sequences(kit.generator(model, max_length=10))
    del model  # which ends the profile
    (trace,) = tmp_path.glob("trace*.json")
    counts = nodes_of(trace)
    elsewhere = {operator for provider, operator in counts if provider == "CPUExecutionProvider"}
    assert elsewhere <= {"Shape", "Gather", "Cast", "Greater", "If"}, counts
    on_device = {operator for provider, operator in counts if provider != "CPUExecutionProvider"}
    assert fusion or {"GroupQueryAttention", "MatMul" if kind == "float16" else "MatMulNBits"} <= on_device, counts
    assert on_device, counts


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
@pytest.mark.parametrize("kind", KINDS)
def test_longer_than_the_window(kind, name):
    """Of a prompt that is longer than the window of Gemma's layers, and of tokens that push others out."""
    reference = kit.cpu(kit.folder(name, *KINDS[kind], reference=True))
    model = kit.ours(kit.folder(name, *KINDS[kind]))
    for length in (1, tiny_models.WINDOW, tiny_models.WINDOW + 1, 50):
        prompt = np.random.default_rng(length).integers(3, tiny_models.VOCABULARY, length).tolist()
        tokens = kit.sequences(kit.generator(model, prompt, max_length=length + 40))[0]
        assert kit.faults(reference, tokens, prompt, LIMITS[kind]) == []
