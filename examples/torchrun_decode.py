#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens from a decoder that `millpond shard` has split, one process for each rank:

    millpond shard model.onnx --ranks 2 --out parts
    torchrun --nproc-per-node 2 examples/torchrun_decode.py parts 1 2 3
    for r in 0 1; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 python examples/torchrun_decode.py parts 1 2 3 & done; wait

Takes the model's inputs as exporters name them: input_ids, attention_mask, position_ids, past_key_values.*, and the
outputs logits and present.*. Each rank chooses the same token, since all have the same logits; rank 0 prints them.
Needs the package onnxruntime, and torch only for torchrun.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import millpond.onnxruntime as mort
import numpy as np

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def open_rank(folder):
    """The session of this rank, on the GPU that LOCAL_RANK names where there is one."""
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    gpus = [device for device in mort.devices() if device.spec.startswith("cuda")]
    device = gpus[local % len(gpus)] if gpus else "host"
    return rank, mort.session(Path(folder, f"rank_{rank}.onnx"), device)


def empty_caches(session):
    """Keys and values of no tokens yet: [batch, heads, 0, size]."""
    caches = {}
    for value in session.get_inputs():
        if value.name.startswith("past_key_values."):
            heads, size = value.shape[1], value.shape[3]
            caches[value.name] = np.zeros((1, heads, 0, size), TYPES[value.type])
    return caches


def step(session, tokens, before, caches):
    """The logits behind the last token, and the caches that the next step starts from; they stay on the device."""
    feeds = {"input_ids": np.array([tokens], np.int64),
             "attention_mask": np.ones((1, before + len(tokens)), np.int64),
             "position_ids": np.arange(before, before + len(tokens), dtype=np.int64)[None]}
    wanted = {value.name for value in session.get_inputs()}
    outputs = mort.run(session, {**{name: feeds[name] for name in feeds if name in wanted}, **caches})
    caches = {f"past_key_values{name.removeprefix('present')}": value for name, value in outputs.items()
              if name.startswith("present")}
    return outputs["logits"].numpy()[0, -1], caches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where millpond shard wrote the ranks' models")
    parser.add_argument("prompt", nargs="+", type=int, help="tokens to begin with")
    parser.add_argument("--count", type=int, default=16, help="how many tokens are added")
    given = parser.parse_args()
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        sys.exit("RANK and WORLD_SIZE are not set: start the program with torchrun, or set them for each process")
    rank, session = open_rank(given.folder)
    tokens, fresh, caches = list(given.prompt), list(given.prompt), empty_caches(session)
    began = time.perf_counter()
    for _ in range(given.count):
        logits, caches = step(session, fresh, len(tokens) - len(fresh), caches)
        fresh = [int(np.argmax(logits))]
        tokens += fresh
    seconds = time.perf_counter() - began
    if rank == 0:
        print(*tokens)
        print(f"{seconds / given.count * 1e3:.1f} ms a token, the first run included", file=sys.stderr)


if __name__ == "__main__":
    main()
