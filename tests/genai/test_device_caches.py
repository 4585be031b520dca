# SPDX-License-Identifier: Apache-2.0
"""What genai's CUDA path does, done by hand: its part for CUDA needs a GPU, and this does not.

Caches, inputs and outputs stay on the device at fixed addresses, past and present ones are one memory, runs are on a
stream of the user's, whose address is an entry of the session without a prefix, and tokens behind the prompt are one
graph: the mask is as long as the caches then, and -1 is the graph of the prompt's run.
"""

import os

import core_kit
import genai_kit as kit
import graph_kit
import numpy as np
import provider
import pytest
import tiny_models

MODELS = list(kit.BY_NAME)
LONGEST = 64


class Talk:
    """Greedy decoding of one sequence."""

    def __init__(self, name, stream=None, graphs=False):
        of, where = kit.BY_NAME[name], kit.folder(name)
        options = provider.session_options(threads=1)
        if stream:
            options.add_session_config_entry("user_compute_stream", str(stream.handle))
        self.session = provider.session(str(where / "model.onnx"), options=options,
                                        provider_options={"enable_cuda_graph": str(int(graphs)), "use_tf32": "0"})
        self.graphs, self.tokens, self.bindings = graphs, [], {}
        self.caches = {}
        for layer in range(tiny_models.LAYERS):
            rows = of.window if of.window > 0 and layer % 2 == 0 else LONGEST
            for side in ("key", "value"):
                empty = np.zeros((1, of.kv_heads, rows, of.head), np.float32)
                self.caches[f"{layer}.{side}"] = graph_kit.on_device(empty)

    def binding_of(self, count, mask):
        """Inputs and outputs for so many new tokens, at the same addresses each time."""
        if (count, mask) not in self.bindings:
            values = {"input_ids": np.zeros((1, count), np.int64), "attention_mask": np.zeros((1, mask), np.int64),
                      "logits": np.zeros((1, count, tiny_models.VOCABULARY), np.float32)}
            values = {name: graph_kit.on_device(value) for name, value in values.items()}
            binding = self.session.io_binding()
            for name in ("input_ids", "attention_mask"):
                binding.bind_ortvalue_input(name, values[name])
            binding.bind_ortvalue_output("logits", values["logits"])
            for name, value in self.caches.items():
                binding.bind_ortvalue_input(f"past_key_values.{name}", value)
                binding.bind_ortvalue_output(f"present.{name}", value)
            self.bindings[count, mask] = binding, values
        return self.bindings[count, mask]

    def say(self, tokens):
        """Runs the model on new tokens; returns the next one."""
        self.tokens += tokens
        length = len(self.tokens)
        binding, values = self.binding_of(len(tokens), LONGEST if self.graphs else length)
        mask = np.zeros(values["attention_mask"].shape(), np.int64)
        mask[0, :length] = 1
        values["attention_mask"].update_inplace(mask)
        values["input_ids"].update_inplace(np.array([tokens], np.int64))
        is_graph = self.graphs and len(tokens) == 1
        self.session.run_with_iobinding(binding, graph_kit.run_options(5 if is_graph else -1))
        return int(values["logits"].numpy()[0, -1].argmax())

    def run(self, prompt, until):
        following = self.say(prompt)
        while len(self.tokens) < until:
            following = self.say([following])
        return self.tokens


def same_as_on_the_cpu(name, tokens, prompt):
    """Up to where genai finds the end."""
    want = kit.sequences(kit.generator(kit.cpu(kit.folder(name, reference=True)), prompt, max_length=len(tokens)))[0]
    end = want.index(2, len(prompt)) if 2 in want[len(prompt) :] else len(want)
    assert end >= len(prompt) + 10
    return tokens[:end] == want[:end]


@pytest.fixture(scope="module")
def stream():
    if core_kit.ON_GPU:
        return core_kit.CudaStream()
    return core_kit.HostStream()


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_shared_caches_on_the_device(name, graphs, stream):
    has_branches = not core_kit.ON_GPU or os.environ.get("MILLPOND_BRANCHES") == "on"
    if graphs and kit.BY_NAME[name].long and not has_branches:
        with pytest.raises(Exception, match="graph capture"):  # for its If; the error has no class of its own
            Talk(name, stream, graphs)
        return
    tokens = Talk(name, stream, graphs).run(kit.PROMPT, 40)
    assert same_as_on_the_cpu(name, tokens, kit.PROMPT)


@pytest.mark.parametrize("graphs", [False, True])
def test_a_window_that_is_full_when_the_graph_is_captured(graphs, stream):
    """Runs that warm up are repeated; one that pushes a token out must not do so twice."""
    prompt = np.random.default_rng(4).integers(3, tiny_models.VOCABULARY, tiny_models.WINDOW + 9).tolist()
    tokens = Talk("gemma2", stream, graphs).run(prompt, len(prompt) + 20)
    assert same_as_on_the_cpu("gemma2", tokens, prompt)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_graph_answers(name, stream):
    talk = Talk(name, stream, graphs=True)
    talk.run(kit.PROMPT, 12)
    feeds = {name: value.numpy() for name, value in talk.binding_of(1, LONGEST)[1].items() if name != "logits"}
    feeds |= {f"past_key_values.{name}": value.numpy() for name, value in talk.caches.items()}
    assert graph_kit.is_captured(talk.session, feeds, 5)
