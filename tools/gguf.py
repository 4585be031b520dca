# SPDX-License-Identifier: Apache-2.0
"""Reads a GGUF file: metadata, weights as float32, and the byte-level BPE tokenizer kept in the metadata.

Layout: magic, version, counts, then key/value pairs, tensor records, and tensor data from an aligned offset.
Quantised weights come in blocks of 32: one float16 scale, for some types one float16 offset, then the codes.
"""

import itertools
import re
import struct

import numpy as np

BLOCK = 32
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
TYPE_F32, TYPE_F16, TYPE_Q4_0, TYPE_Q4_1, TYPE_Q8_0 = 0, 1, 2, 3, 8
PLAIN = {TYPE_F32: np.float32, TYPE_F16: np.float16}
BLOCK_BYTES = {TYPE_Q4_0: 18, TYPE_Q4_1: 20, TYPE_Q8_0: 34}


def half_column(blocks, offset):
    return blocks[:, offset : offset + 2].copy().view(np.float16).astype(np.float32)


def nibbles(codes):
    """The low halves are the first 16 weights of a block, the high halves the other 16."""
    return np.concatenate([codes & 15, codes >> 4], axis=1).astype(np.float32)


def dequantised(blocks, kind):
    scale = half_column(blocks, 0)
    if kind == TYPE_Q4_0:
        return (nibbles(blocks[:, 2:]) - 8) * scale
    if kind == TYPE_Q4_1:
        return nibbles(blocks[:, 4:]) * scale + half_column(blocks, 2)
    return blocks[:, 2:].copy().view(np.int8).astype(np.float32) * scale


class File:
    """`meta` holds the metadata; `tensor(name)` gives weights as float32."""

    def __init__(self, path):
        self.bytes = np.memmap(path, np.uint8, "r")
        if bytes(self.bytes[:4]) != b"GGUF":
            raise ValueError(f"{path} is not a GGUF file")
        self.at = 8
        tensor_count, meta_count = self._scalar("<Q"), self._scalar("<Q")
        self.meta = {}
        for _ in range(meta_count):
            key = self._text()
            self.meta[key] = self._value(self._scalar("<I"))
        self.records = {}
        for _ in range(tensor_count):
            name = self._text()
            shape = [self._scalar("<Q") for _ in range(self._scalar("<I"))][::-1]
            self.records[name] = (shape, self._scalar("<I"), self._scalar("<Q"))
        align = self.meta.get("general.alignment", 32)
        self.data = -(-self.at // align) * align

    def _scalar(self, form):
        value = struct.unpack_from(form, self.bytes, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def _text(self):
        size = self._scalar("<Q")
        self.at += size
        return bytes(self.bytes[self.at - size : self.at]).decode("utf-8", "replace")

    def _value(self, kind):
        if kind == STRING:
            return self._text()
        if kind == ARRAY:
            item, count = self._scalar("<I"), self._scalar("<Q")
            return [self._value(item) for _ in range(count)]
        return self._scalar(SCALARS[kind])

    def tensor(self, name):
        shape, kind, offset = self.records[name]
        count, start = int(np.prod(shape)), self.data + offset
        if kind in PLAIN:
            size = count * np.dtype(PLAIN[kind]).itemsize
            return self.bytes[start : start + size].view(PLAIN[kind]).reshape(shape).astype(np.float32)
        if kind not in BLOCK_BYTES:
            raise ValueError(f"{name} is stored as GGUF type {kind}, which this reader does not know")
        width = BLOCK_BYTES[kind]
        blocks = np.array(self.bytes[start : start + count // BLOCK * width]).reshape(-1, width)
        return dequantised(blocks, kind).reshape(shape)


def byte_letters():
    """Byte-level BPE writes each byte as one printable letter; the unprintable ones get letters from 256 up."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable}
    for b in range(256):
        letters.setdefault(b, chr(256 + len(letters) - len(printable)))
    return letters


SPECIAL = re.compile(r"(<\|[a-z_]+\|>)")
WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d| ?[^\s\w]+|\s+(?!\S)|\s+")


class Tokenizer:
    def __init__(self, meta):
        self.tokens = meta["tokenizer.ggml.tokens"]
        self.index = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {tuple(m.split(" ")): i for i, m in enumerate(meta["tokenizer.ggml.merges"])}
        self.letter = byte_letters()

    def _word(self, word):
        parts = [self.letter[b] for b in word.encode()]
        while True:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in itertools.pairwise(parts)]
            if not ranks or min(ranks) == len(self.rank):
                return [self.index[p] for p in parts]
            i = ranks.index(min(ranks))
            parts[i : i + 2] = [parts[i] + parts[i + 1]]

    def encode(self, text):
        ids = []
        for piece in SPECIAL.split(text):
            if piece in self.index and SPECIAL.fullmatch(piece):
                ids.append(self.index[piece])
            else:
                ids += [i for word in WORD.findall(piece) for i in self._word(word)]
        return ids

    def words(self):
        """Every token as readable text."""
        byte = {c: b for b, c in self.letter.items()}
        return [bytes(byte.get(c, 32) for c in t).decode("utf-8", "replace") for t in self.tokens]
