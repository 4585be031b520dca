# SPDX-License-Identifier: Apache-2.0
"""What genai does with caches and sequences, with the same tokens as its CPU path."""

import threading

import genai_kit as kit
import numpy as np
import onnxruntime_genai as og
import pytest

MODELS = ["llama", "qwen3", "phi", "gemma2", "gemma3"]
SHARED = [True, False]  # past and present caches are one memory, or grow by each token


@pytest.fixture(scope="module", params=MODELS)
def pair(request):
    """A model on the provider, and one on the CPU."""
    return kit.ours(kit.folder(request.param)), kit.cpu(kit.folder(request.param, reference=True))


def is_refused(model, **search):
    """Gemma's windows need shared caches and a single beam, for genai's CPU path, too."""
    with pytest.raises(RuntimeError, match="sliding_window_cache"):
        kit.sequences(kit.generator(model, **search))
    return True


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("is_shared", SHARED)
def test_shared_caches(name, is_shared):
    settings = {"search": {"past_present_share_buffer": is_shared}}
    models = kit.ours(kit.folder(name), settings=settings), kit.cpu(kit.folder(name, reference=True), settings)
    if kit.BY_NAME[name].window > 0 and not is_shared:
        assert all(is_refused(model) for model in models)
        return
    got, want = (kit.sequences(kit.generator(model)) for model in models)
    assert got == want


@pytest.mark.parametrize("prompts", [
    [[5, 9, 17], [44, 3, 8]],
    [[5], [44], [3]],
    [list(range(3, 30)), list(range(40, 60))],
])
def test_continuous_decoding(pair, prompts):
    """Tokens of a user's next turn behind those that were generated. genai 0.18 runs the last of these only when asked
    for its logits, or for a further token; else its place in the caches stays as memory was."""

    def talk(model):
        made = kit.generator(model, prompts[0], max_length=120)
        for prompt in prompts[1:]:
            kit.step(made, 4)
            made.get_logits()
            made.append_tokens(np.array(prompt, np.int32))
        return kit.step(made, 6)

    got, want = map(talk, pair)
    assert got == want


def test_rewind(pair):
    def talk(model):
        made = kit.generator(model)
        first = kit.step(made, 4)
        made.rewind_to(8)
        made.append_tokens(np.array([44, 3], np.int32))
        second = kit.step(made, 4)
        made.rewind_to(0)
        made.append_tokens(np.array([7, 7, 61], np.int32))
        return first, second, kit.step(made, 4)

    got, want = map(talk, pair)
    assert got == want
    assert got[1][:10] == [*got[0][:8], 44, 3]


def test_rewind_behind_a_window():
    """Tokens that were pushed out are gone: genai says so, whatever the provider."""
    for model in (kit.ours(kit.folder("gemma2")), kit.cpu(kit.folder("gemma2", reference=True))):
        made = kit.generator(model, list(range(3, 50)), max_length=80)
        kit.step(made, 4)
        with pytest.raises(RuntimeError, match="(?i)rewind|window"):
            made.rewind_to(20)


def test_several_sequences(pair):
    """Of other lengths, too: genai fills the shorter ones up in front."""
    prompts = [[5, 9, 17, 33], [8, 1, 30, 12], [0, 0, 61, 7]]
    got, want = (kit.sequences(kit.generator(model, prompts, batch_size=3), 3) for model in pair)
    assert got == want
    assert len({tuple(sequence) for sequence in got}) == 3


@pytest.mark.parametrize("name", MODELS)
def test_beams(name):
    model, reference = kit.ours(kit.folder(name)), kit.cpu(kit.folder(name, reference=True))
    search = {"num_beams": 3, "num_return_sequences": 2, "max_length": 24}
    if kit.BY_NAME[name].window > 0:
        assert is_refused(model, **search)
        assert is_refused(reference, **search)
        return
    got, want = (kit.sequences(kit.generator(each, [5, 9, 17], **search), 2) for each in (model, reference))
    assert got == want


def test_sampling_with_a_seed(pair):
    search = {"do_sample": True, "random_seed": 7, "top_k": 5, "temperature": 0.8, "max_length": 20}
    got, again, want = (kit.sequences(kit.generator(model, **search)) for model in (pair[0], *pair))
    assert got == again
    assert kit.IS_CUDA_PATH or got == want  # its numbers at random are others


def test_generators_side_by_side(pair):
    def talk(model):
        made = [kit.generator(model, prompt) for prompt in ([5, 9, 17], [33], [61, 8])]
        for _ in range(8):
            for each in made:
                each.generate_next_token()
        return [each.get_sequence(0).tolist() for each in made]

    got, want = map(talk, pair)
    assert got == want


def test_threads(pair):
    model, reference = pair
    prompts = [[5, 9, 17], [33], [61, 8], [12, 12]]
    got = {}

    def talk(i):
        got[i] = kit.sequences(kit.generator(model, prompts[i]))

    threads = [threading.Thread(target=talk, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got.get(i) for i in range(len(prompts))] == [kit.sequences(kit.generator(reference, p)) for p in prompts]


def test_two_models(pair):
    other = kit.ours(kit.folder("mistral", "float16"))
    made, beside = kit.generator(pair[0]), kit.generator(other)
    for _ in range(8):
        made.generate_next_token()
        beside.generate_next_token()
    del beside, other
    assert kit.sequences(made) == kit.sequences(kit.generator(pair[1]))


def test_a_prompt_in_pieces(pair):
    got, want = (kit.sequences(kit.generator(model, chunk_size=2)) for model in pair)
    assert got == want


def served(model, prompts, count=10):
    """The tokens of requests that genai's engine works on side by side; the last one comes later than the others."""
    engine = og.Engine(model)
    requests, found = [], [[] for _ in prompts]

    def begin(prompt):
        requests.append(engine.create_request())
        options = og.TurnOptions(requests[-1])
        options.set_max_generated_tokens(count)
        options.set_do_sample(False)
        requests[-1].begin_turn(np.array(prompt, np.int32), options)

    buffer = engine.create_event_buffer(16)
    for prompt in prompts[:-1]:
        begin(prompt)
    for i in range(1000):
        if i == 3:
            begin(prompts[-1])
        if i > 3 and not engine.has_pending_requests():
            break
        for event in engine.run(buffer):
            found[next(k for k, request in enumerate(requests) if request is event.request)].append(event.token)
    return found


@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3"])
def test_the_engine(name):
    prompts = [[33, 60], [12, 44, 9, 80], [61]]
    got = served(kit.ours(kit.folder(name)), prompts)
    assert got == served(kit.cpu(kit.folder(name, reference=True)), prompts)
    assert sum(map(len, got)) >= 12
