# SPDX-License-Identifier: Apache-2.0
"""Real inputs for each trained model, always the same, and what a model's outputs mean.

`feeds(name, root)` gives (label, inputs) pairs; `reading(name, root, label, outputs)` gives words, labels or
rounded probabilities, to be compared between execution providers; `root` is the folder of tools/fetch_models.py.
"""

import functools
import json
import sys
import wave
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
from picture import network_input, read_png, resize  # noqa: E402
from text import decoded  # noqa: E402

VOICE_FRAME = 600  # samples
SMOLLM2_LAYERS, SMOLLM2_KV_HEADS, SMOLLM2_HEAD = 30, 3, 64
MAGIKA_PROGRAM = b"""#!/usr/bin/env python3
import sys


def main():
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as lines:
            print(path, sum(1 for line in lines if line.strip()))


if __name__ == "__main__":
    main()
"""
# Rows and columns of lines in page.png, and what they say.
PAGE_LINES = {
    "heading": ((5, 40, 0, 300), "Region-based segmentation"),
    "last line": ((114, 137, 0, 180), "histogram of grey values:"),
}
# Corner and side of squares in astronaut.png.
FACES = [(60, 170, 115), (0, 0, 100), (65, 175, 110)]
SENTENCES = [
    [101, 1996, 4248, 2829, 4419, 14523, 2058, 1996, 13971, 3899, 1012, 102],
    [101, 7592, 2088, 102],
    [101, 2129, 2024, 2017, 1029, 102],
]
ARABIC_NAMES = ["محمد", "عبد الرحمن", "فاطمة"]
PHONEMES = ["koɴnitɕiβa", "ohajoː ɡozaimasɯ, ɡeŋki desɯka?"]


@functools.cache
def picture(root, name):
    return read_png(Path(root) / "data" / f"{name}.png")


@functools.cache
def json_data(root, name):
    return json.loads((Path(root) / "data" / f"{name}.json").read_text(encoding="utf-8"))


@functools.cache
def speech(root, rate):
    """ready.wav as float32 at `rate` samples a second."""
    with wave.open(str(Path(root) / "data" / "ready.wav")) as sound:
        samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768
        samples = samples.reshape(-1, sound.getnchannels()).mean(axis=1)
        recorded = sound.getframerate()
    at = np.arange(int(len(samples) * rate / recorded)) * recorded / rate
    return np.interp(at, np.arange(len(samples)), samples).astype(np.float32)


@functools.cache
def cpu_session(model):
    """A session on the CPU EP, of a path or of a model's bytes."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def with_real_edges(path):
    """The model's bytes, with the first and the last bin of each STFT of a real signal real, as they are by definition.

    The CPU EP leaves rounding noise in their imaginary parts (4e-7). A vocoder takes the phase there, pi or -pi by the
    sign of that noise, and speaks with another timbre: its log power is 0.37 off.
    """
    import onnx

    model = onnx.load(path)
    nodes, weights = model.graph.node, {w.name: w for w in model.graph.initializer}
    for index, node in reversed(list(enumerate(nodes))):
        if node.op_type == "STFT":
            spectrum, edges = node.output[0], f"{node.output[0]}_edges"
            frame = int(onnx.numpy_helper.to_array(weights[node.input[3]]))
            mask = np.ones((1, 1, frame // 2 + 1, 2), np.float32)
            mask[:, :, [0, -1], 1] = 0
            model.graph.initializer.append(onnx.numpy_helper.from_array(mask, edges))
            node.output[0] = f"{spectrum}_noisy"
            nodes.insert(index + 1, onnx.helper.make_node("Mul", [node.output[0], edges], [spectrum]))
    return model.SerializeToString()


def detector(root):
    yield "page 192x384", {"x": network_input(resize(picture(root, "page"), 192, 384))}
    yield "coffee 416x608", {"x": network_input(resize(picture(root, "coffee"), 416, 608))}


def line_of(root, label, width=None):
    top, bottom, left, right = PAGE_LINES[label][0]
    crop = picture(root, "page")[top:bottom, left:right]
    return network_input(resize(crop, 48, width or round(48 * crop.shape[1] / crop.shape[0])))


def reader(root):
    for label in PAGE_LINES:
        yield label, {"x": line_of(root, label)}
    yield "two lines", {"x": np.concatenate([line_of(root, label, 384) for label in PAGE_LINES])}


def orientation(root):
    line = picture(root, "page")[5:40, 0:105]
    yield (
        "upright, turned",
        {"x": np.concatenate([network_input(resize(x, 48, 192)) for x in (line, line[::-1, ::-1])])},
    )


def magika(root):
    padding, side = json_data(root, "magika")["padding_token"], 1024
    for label, content in (("python", MAGIKA_PROGRAM), ("png", (Path(root) / "data" / "page.png").read_bytes())):
        start, end = content[:4096].lstrip()[:side], content[-4096:].rstrip()[-side:]
        values = [*start, *[padding] * (2 * side - len(start) - len(end)), *end]
        yield label, {"bytes": np.array([values], np.int32)}


def faces(root, key, side):
    im = picture(root, "astronaut")
    crops = [resize(im[y : y + k, x : x + k], side, side) for y, x, k in FACES]
    yield "face, background, face", {key: np.stack([face_input(crop) for crop in crops])}


def face_input(crop):
    return ((crop.astype(np.float32) - 127.5) / 128).transpose(1, 0, 2)


def face_search(root):
    for side in (64, 154):
        yield f"astronaut {side}", {"input_1": face_input(resize(picture(root, "astronaut"), side, side))[None]}


def sentences(root):
    for batch in (SENTENCES[:1], SENTENCES):
        width = max(map(len, batch))
        ids = np.array([s + [0] * (width - len(s)) for s in batch], np.int64)
        inputs = {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64), "token_type_ids": np.zeros_like(ids)}
        yield f"{len(batch)} sentences", inputs


def voice_activity(root):
    sound = speech(root, 16000)
    loudest = int(np.argmax(np.convolve(sound**2, np.ones(512), "valid")))
    padded = np.pad(sound, (64, 0))
    for label, samples in (("speech", padded[loudest : loudest + 576]), ("silence", np.zeros(576, np.float32))):
        state = np.zeros((2, 1, 128), np.float32)
        yield label, {"input": samples[None], "state": state, "sr": np.array(16000, np.int64)}
    slow = np.pad(speech(root, 8000), (32, 0))[loudest // 2 :][:288]
    state = np.zeros((2, 2, 128), np.float32)
    yield "two at 8 kHz", {"input": np.stack([slow, slow]), "state": state, "sr": np.array(8000, np.int64)}


def names(root):
    index = {token: i for i, token in enumerate(json_data(root, "romanizer_vocab")["tokens"])}
    for name in ARABIC_NAMES:
        ids = [index["<EG>"], index["<ROLE_GIVEN>"], *(index.get(letter, 3) for letter in name), 2]
        source = np.array([ids], np.int64)
        yield name, {"enc/src": source, "enc/src_mask": np.zeros_like(source, bool)}


def voice(root):
    vocabulary = json_data(root, "kokoro_vocab")
    vocabulary = vocabulary.get("vocab", vocabulary)
    voices = np.load(Path(root) / "data" / "kokoro_voices.npz")
    style = voices[sorted(voices.files)[0]]
    for phonemes in PHONEMES:
        ids = [vocabulary[c] for c in phonemes if c in vocabulary]
        tokens = np.array([[0, *ids, 0]], np.int64)
        inputs = {"tokens": tokens, "style": style[len(ids)].reshape(1, 256).astype(np.float32)}
        yield f"{len(ids)} phonemes", {**inputs, "speed": np.array([1.0], np.float32)}


def smollm2_cache_names(prefix):
    return [f"{prefix}.{layer}.{kind}" for layer in range(SMOLLM2_LAYERS) for kind in ("key", "value")]


def smollm2_step(ids, cache):
    """Inputs for `ids` after what `cache` (named past_key_values.*) holds."""
    past, step = cache["past_key_values.0.key"].shape[2], len(ids)
    return {
        "input_ids": np.array([ids], np.int64),
        "attention_mask": np.ones((1, past + step), np.int64),
        "position_ids": np.arange(past, past + step, dtype=np.int64)[None],
        **cache,
    }


def smollm2_prefill(root):
    empty = np.zeros((1, SMOLLM2_KV_HEADS, 0, SMOLLM2_HEAD), np.float32)
    return smollm2_step(
        json_data(root, "smollm2_tokens")["ids"], dict.fromkeys(smollm2_cache_names("past_key_values"), empty)
    )


def smollm2(root):
    prefill = smollm2_prefill(root)
    yield "prefill", prefill
    session = cpu_session(str(Path(root) / "models" / "smollm2-135m-fp32.onnx"))
    logits, *present = session.run(["logits", *smollm2_cache_names("present")], prefill)
    cache = dict(zip(smollm2_cache_names("past_key_values"), present, strict=True))
    yield "decode", smollm2_step([int(logits[0, -1].argmax())], cache)


FEEDS = {
    "mtcnn_pnet": face_search,
    "mtcnn_rnet": lambda root: faces(root, "input_2", 24),
    "mtcnn_onet": lambda root: faces(root, "input_3", 48),
    "magika": magika,
    "ppocr_cls": orientation,
    "ppocrv6_det": detector,
    "ppocrv6_rec": reader,
    "ppocrv6_rec_fp16": reader,
    "minilm_l6_int8w": sentences,
    "smollm2-135m-fp32": smollm2,
    "silero_vad": voice_activity,
    "kokoro_int8": voice,
    "romanizer_loop": names,
}


def feeds(name, root):
    return FEEDS[name](root)


@functools.cache
def alphabet(root):
    listed = (
        cpu_session(str(Path(root) / "models" / "ppocrv6_rec.onnx")).get_modelmeta().custom_metadata_map["character"]
    )
    return ["", *listed.split("\n"), " "]


def line_texts(root, outputs):
    return [decoded(scores.astype(np.float32), alphabet(root))[0] for scores in outputs[0]]


def file_label(root, outputs):
    return json_data(root, "magika")["target_labels_space"][int(outputs[0].argmax())]


def face_probability(outputs):
    return [x for x in outputs if x.shape[-1] == 2][0][:, 1].round(1).tolist()


def nearest_sentence(outputs):
    """Which sentence each is most like, and how much, from mean-pooled embeddings."""
    pooled = outputs[0].mean(axis=1) if outputs[0].ndim == 3 else outputs[0]
    unit = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    return (unit @ unit.T).round(2).tolist()


def loudness(samples):
    """Log power in 32 bands: how a waveform sounds, whatever its phase."""
    spectrum = np.abs(np.fft.rfft(samples.reshape(-1))) ** 2
    return np.log10([band.mean() + 1e-9 for band in np.array_split(spectrum, 32)])


def romanised(root, outputs):
    letters = json_data(root, "romanizer_vocab")["tokens"]
    return "".join(letters[i] for i in outputs[0][0][1:-1])


def next_word(root, outputs):
    return json_data(root, "smollm2_tokens")["words"][int(outputs[0][0, -1].argmax())]


READINGS = {
    "mtcnn_rnet": lambda root, outputs: face_probability(outputs),
    "mtcnn_onet": lambda root, outputs: face_probability(outputs),
    "magika": file_label,
    "ppocr_cls": lambda root, outputs: outputs[0].argmax(axis=1).tolist(),
    "ppocrv6_det": lambda root, outputs: round(float((outputs[0] > 0.3).mean()), 3),
    "ppocrv6_rec": line_texts,
    "ppocrv6_rec_fp16": line_texts,
    "minilm_l6_int8w": lambda root, outputs: nearest_sentence(outputs),
    "smollm2-135m-fp32": next_word,
    "silero_vad": lambda root, outputs: outputs[0].round(2).tolist(),
    "romanizer_loop": romanised,
}


def reading(name, root, outputs):
    """What the outputs say, or None where only numbers can be compared."""
    read = READINGS.get(name)
    return read(root, outputs) if read else None
