#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a decoder of Llama-3-8B's shape should take on 1 to 64 ranks: a calculation, nothing of it is measured.

    scaling_model.py            writes the tables of docs/scaling.md anew
    scaling_model.py --check    exit status 1 where they are not current

A rank reads its part of the weights and of the caches once a token; in a prompt it multiplies. Behind attention and
behind the feed-forward products of each layer an AllReduce adds up one row for each token. Small ones take the time of
their steps, large ones that of their bytes. Linking is as NCCL's rings and trees are known to be; see LINKS.
"""

import argparse
import sys
from dataclasses import dataclass
from math import log2
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs/scaling.md"
BEGIN, END = "<!-- scaling model -->", "<!-- end of scaling model -->"

LAYERS, HIDDEN, INNER, HEADS, SHARED, VOCABULARY = 32, 4096, 14336, 32, 8, 128256
HEAD, BYTES = HIDDEN // HEADS, 2  # float16
CONTEXT, PROMPT = 4096, 2048  # tokens in the caches while one is decoded; tokens of a prompt
MEMORY = 4.8e12 * 0.8  # bytes a second of an H200, and the part of them that a product of one row gets
PRODUCTS = 990e12 * 0.6  # operations a second in float16, and the part of them that large products get
RANKS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Link:
    """Of one rank, one way."""

    name: str
    bytes: float  # a second
    begin: float  # seconds of an AllReduce that has nothing to say
    hop: float  # seconds of a step to another rank


LINKS = (Link("NVLink", 450e9 * 0.8, 5e-6, 1.5e-6), Link("400 Gb/s", 50e9 * 0.85, 8e-6, 5e-6))


def all_reduce(link, ranks, size):
    """Seconds: up and down a tree for few bytes, around a ring for many."""
    if ranks == 1:
        return 0.0
    tree = 2 * log2(ranks) * link.hop + 2 * size / link.bytes
    ring = 2 * (ranks - 1) * link.hop + 2 * (ranks - 1) / ranks * size / link.bytes
    return link.begin + min(tree, ring)


def layer_bytes(ranks):
    """Of weights and caches that a rank reads for a token. Keys and values of fewer heads than ranks are copied."""
    shared = max(SHARED / ranks, 1) * HEAD
    projections = HIDDEN * (2 * HIDDEN / ranks + 2 * shared)
    return BYTES * (projections + 3 * HIDDEN * INNER / ranks + 2 * CONTEXT * shared)


def decode(ranks, link):
    """Seconds of a layer's own work, and of its two sums, for one token."""
    return layer_bytes(ranks) / MEMORY, 2 * all_reduce(link, ranks, HIDDEN * BYTES)


def prompt(ranks, link):
    shared = max(SHARED / ranks, 1) * HEAD
    per_token = 2 * (HIDDEN * (2 * HIDDEN / ranks + 2 * shared) + 3 * HIDDEN * INNER / ranks)
    attention = 2 * 2 * PROMPT / 2 * HIDDEN / ranks  # each token sees half of them
    return PROMPT * (per_token + attention) / PRODUCTS, 2 * all_reduce(link, ranks, PROMPT * HIDDEN * BYTES)


def last(ranks):
    """Seconds of the last product for one token, whose columns are dealt."""
    return BYTES * HIDDEN * VOCABULARY / ranks / MEMORY


def rank_bytes(ranks):
    """Of weights that lie on a rank: the embedding on each."""
    weights = layer_bytes(ranks) - BYTES * 2 * CONTEXT * max(SHARED / ranks, 1) * HEAD
    return LAYERS * weights + BYTES * HIDDEN * VOCABULARY * (1 + 1 / ranks)


def table(title, parts, tail, size):
    """Times in microseconds a layer, milliseconds for all; `size` is of an AllReduce."""
    head = [title, "weights", "sent", "a layer's work"]
    head += [f"{word}, {link.name}" for link in LINKS for word in ("its sums", "all layers")]
    lines = [f"| {' | '.join(head)} |", f"|{' ---: |' * len(head)}"]
    for ranks in RANKS:
        cells = [str(ranks), f"{rank_bytes(ranks) / 1e9:.2f} GB",
                 f"{LAYERS * 2 * 2 * (ranks - 1) / ranks * size / 1e6:.2f} MB"]
        for i, link in enumerate(LINKS):
            work, sums = parts(ranks, link)
            cells += [f"{work * 1e6:.0f} us"] if i == 0 else []
            cells += [f"{sums * 1e6:.0f} us", f"{(LAYERS * (work + sums) + tail(ranks)) * 1e3:.2f} ms"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def tables():
    return "\n".join([
        f"One token, {CONTEXT:,} in the caches:", "", *table("ranks", decode, last, HIDDEN * BYTES), "",
        f"A prompt of {PROMPT:,} tokens:", "", *table("ranks", prompt, last, PROMPT * HIDDEN * BYTES)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(f"{BEGIN}\n")
    _, _, behind = rest.partition(f"{END}\n")
    fresh = f"{before}{BEGIN}\n{tables()}\n{END}\n{behind}"
    if given.check:
        sys.exit(0 if fresh == text else f"{PAGE.name}: the tables are not those of {Path(__file__).name}; run it")
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
