#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Language models of known sizes as onnxruntime_genai.models.builder 0.18 writes them for CUDA, with random weights.

    bench/decoders.py FOLDER NAME [q4 | f16 | q4f32]

Writes FOLDER/model.onnx, its weights beside it, and genai_config.json. The nodes are those of tests/genai's models
(tiny_models.py). q4 has products of 4 bits in blocks of 32, scales, the embedding and the rest in float16, which is
what the builder does unless it is asked for more; q4f32 the same in float32, which any provider runs; f16 has no
products of 4 bits. Codes are random bytes and large float16 weights random bits with an exponent of their own, so
8 billion take seconds; norms keep what they give finite. No text ends by itself, but for f16.
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/genai"))

import tiny_models  # noqa: E402

ALIGNMENT = 4096  # of a weight in its file, and the least size of one that lies there
PIECE = 1 << 26  # bytes that are drawn at a time
CODES_NORM = 4.64  # root of the mean square of 4 random bits less 8
BITS_NORM = 0.764  # and of numbers between a half and one
KINDS = {"q4": ("float16", True), "f16": ("float16", False), "q4f32": ("float32", True)}
LLAMA = tiny_models.Architecture("llama")
SIZES = {
    "smollm2-135m": replace(LLAMA, vocabulary=49152, hidden=576, inner=1536, heads=9, kv_heads=3, head=64, rotated=64,
                            layers=30, context=8192, bases=(1e5, 1e5)),
    "llama-3-8b": replace(LLAMA, vocabulary=128256, hidden=4096, inner=14336, heads=32, kv_heads=8, head=128,
                          rotated=128, layers=32, context=8192, bases=(5e5, 5e5)),
    "qwen3-0.6b": replace(LLAMA, name="qwen3", normed_heads=True, vocabulary=151936, hidden=1024, inner=3072, heads=16,
                          kv_heads=8, head=128, rotated=128, layers=28, context=8192, bases=(1e6, 1e6)),
    "tiny": replace(LLAMA, vocabulary=512, hidden=128, inner=256, heads=4, kv_heads=2, head=32, rotated=32, layers=2,
                    context=256),
}


@dataclass(frozen=True)
class Work:
    """What a run of the model needs at least."""

    bytes: int  # of weights and caches that are read
    flop: int


class Decoder(tiny_models.Decoder):
    """Its large weights go to a file, as they are drawn."""

    def __init__(self, of, kind, file, seed):
        super().__init__(of, *KINDS[kind], reference=False, seed=seed)
        self.file = file

    def outside(self, name, kind, shape, pieces):
        """A weight that the pieces of bytes make."""
        self.file.write(bytes(-self.file.tell() % ALIGNMENT))
        offset = self.file.tell()
        for piece in pieces:
            self.file.write(piece)
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", Path(self.file.name).name), ("offset", offset),
                           ("length", self.file.tell() - offset)):
            tensor.external_data.add(key=key, value=str(value))
        self.weights.append(tensor)
        return name

    def weight(self, array, name, dtype=None):
        given = super().weight(array, name, dtype)
        if len(self.weights[-1].raw_data) >= ALIGNMENT:
            tensor = self.weights.pop()
            self.outside(name, tensor.data_type, tensor.dims, [tensor.raw_data])
        return given

    def bytes_of(self, count):
        """Random ones, in pieces."""
        for begin in range(0, count, PIECE):
            yield self.random.bytes(min(PIECE, count - begin))

    def halves(self, count, norm):
        """Numbers of either sign between a power of two and its half, about as large as `norm`."""
        exponent = 15 + round(np.log2(norm / BITS_NORM)) - 1
        for piece in self.bytes_of(2 * count):
            bits = np.frombuffer(piece, np.uint16) & 0x83FF | np.uint16(exponent << 10)
            yield (bits if self.numpy is np.float16 else bits.view(np.float16).astype(np.float32)).tobytes()

    def rows(self, name, shape, norm):
        return self.outside(name, self.onnx, shape, self.halves(int(np.prod(shape)), norm))

    def matrix(self, name, n, k, gain=1.0):
        norm = gain / np.sqrt(k)
        if not self.int4:
            return [self.rows(f"{name}.weight", (k, n), norm)]
        blocks = k // tiny_models.BLOCK
        scales = (self.random.random((n, blocks), np.float32) + 0.5) * np.float32(norm / CODES_NORM)
        scales *= self.random.choice(np.array([-1, 1], np.float32), scales.shape)  # as codes less 8 have a mean
        if name == "lm_head":
            scales[self.of.vocabulary - 1] = 0  # the token that ends a text is never the likeliest
        codes = self.outside(f"{name}.weight_Q4", TensorProto.UINT8, (n, blocks, tiny_models.BLOCK // 2),
                             self.bytes_of(n * k // 2))
        return [codes, self.weight(scales, f"{name}.weight_scales")]

    def embedding(self):
        """The builder has it apart from the last product, in float16, unless it is told to share the two."""
        of = self.of
        rows = self.rows("model.embed_tokens.weight", (of.vocabulary, of.hidden), 1.0)
        return self.op("Gather", rows, "input_ids"), self.matrix("lm_head", of.vocabulary, of.hidden, gain=2.0)


def settings(of):
    """genai_config.json, in which the last token ends a text."""
    made = tiny_models.settings(of)
    made["model"]["eos_token_id"] = of.vocabulary - 1
    return made


def write(folder, name, kind="q4", seed=3, layers=None):
    """Writes a model, of fewer layers if that is wanted; one that is there stays. Gives the folder."""
    folder = Path(folder)
    of = replace(SIZES[name], layers=layers or SIZES[name].layers)
    if (folder / "genai_config.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "model.onnx.data", "wb") as file:
        model = Decoder(of, kind, file, seed).build()
    onnx.save(model, folder / "model.onnx")
    (folder / "genai_config.json").write_text(json.dumps(settings(of), indent=4), encoding="utf-8")
    return folder


def element(kind):
    """Bytes of a number that is not of 4 bits."""
    return np.dtype(KINDS[kind][0]).itemsize


def products(of):
    """[n, k] of those of a layer, and of the last one."""
    width = of.heads * of.head
    layer = [(width + 2 * of.kv_heads * of.head, of.hidden), (of.hidden, width), (of.inner, of.hidden),
             (of.inner, of.hidden), (of.hidden, of.inner)]
    return layer, (of.vocabulary, of.hidden)


def work(name, kind, batch, step, context):
    """Of `step` tokens for each of `batch` texts, the last of which has `context` tokens before it and with it."""
    of, size = SIZES[name], element(kind)
    layer, last = products(of)
    weights = of.layers * sum(n * k for n, k in layer) + last[0] * last[1]
    each = size if KINDS[kind][1] is False else 0.5 + size / tiny_models.BLOCK
    caches = batch * 2 * of.layers * of.kv_heads * of.head * context * size
    seen = step * context - step * (step - 1) // 2  # pairs of a query and a key
    attention = 4 * batch * of.layers * of.heads * of.head * seen
    return Work(int(weights * each) + caches, 2 * batch * step * weights + attention)


def feed(name, kind, batch, step, context, rows=None):
    """Inputs that are no caches, and the shape of each cache, which has room for `rows` tokens."""
    of = SIZES[name]
    mask = np.zeros((batch, rows or context), np.int64)
    mask[:, :context] = 1
    tokens = np.random.default_rng(5).integers(3, of.vocabulary, (batch, step))
    return {"input_ids": tokens, "attention_mask": mask}, (batch, of.kv_heads, rows or context, of.head)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where it is written")
    parser.add_argument("name", choices=SIZES)
    parser.add_argument("kind", choices=KINDS, nargs="?", default="q4")
    args = parser.parse_args()
    write(args.folder, args.name, args.kind)


if __name__ == "__main__":
    main()
