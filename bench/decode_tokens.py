#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens through onnxruntime-genai, for bench_decode.py, which starts it as a process of its own.

    bench/decode_tokens.py millpond|in-tree FOLDER [--graph] [--batches 1,8] [--contexts 128,2048] [--count 128]

Prints JSON: of each batch and context the tokens a second of all its texts together, behind a prompt of so many tokens
and some that warm up, and the milliseconds until the prompt's first token is there. The second of two texts counts.
Only the side that needs it imports onnxruntime's module: genai has an ONNX Runtime of its own, the one of the package
onnxruntime that Python finds.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 8


def ours(og, folder, graph):
    sys.path.append(str(ROOT / "demo"))
    import provider  # finds the package of the build
    from millpond import genai

    genai.register(library=provider.library_path())
    return og.Model(genai.config(folder, options={"enable_cuda_graph": True} if graph else None))


def in_tree(og, folder, graph):
    config = og.Config(folder)
    config.clear_providers()
    config.append_provider("cuda")
    config.set_provider_option("cuda", "enable_cuda_graph", str(int(graph)))
    return og.Model(config)


def text(og, model, prompt, count):
    """Figures of a batch of texts."""
    params = og.GeneratorParams(model)
    params.set_search_options(batch_size=len(prompt), max_length=prompt.shape[1] + WARM_UP + count + 1, do_sample=False)
    generator = og.Generator(model, params)
    began = time.perf_counter()
    generator.append_tokens(prompt)
    generator.generate_next_token()
    first = time.perf_counter()
    for _ in range(WARM_UP):
        generator.generate_next_token()
    warm = time.perf_counter()
    for _ in range(count):
        generator.generate_next_token()
    rate = len(prompt) * count / (time.perf_counter() - warm)
    made = np.array([generator.get_sequence(i)[prompt.shape[1]:] for i in range(len(prompt))])
    return {"tokens_s": round(rate, 1), "prompt_ms": round((first - began) * 1e3, 3), "last": made[:, -1].tolist()}


def numbers(words):
    return list(map(int, words.split(",")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=("millpond", "in-tree"))
    parser.add_argument("folder", help="of the model")
    parser.add_argument("--graph", action="store_true", help="with enable_cuda_graph")
    parser.add_argument("--batches", type=numbers, default=[1, 8])
    parser.add_argument("--contexts", type=numbers, default=[128, 2048], help="tokens of the prompts")
    parser.add_argument("--count", type=int, default=128, help="tokens that are counted")
    args = parser.parse_args()
    import onnxruntime_genai as og

    model = (ours if args.side == "millpond" else in_tree)(og, args.folder, args.graph)
    words = json.loads(Path(args.folder, "genai_config.json").read_text(encoding="utf-8"))["model"]["vocab_size"]
    rows = []
    for batch, context in itertools.product(args.batches, args.contexts):
        row = {"batch": batch, "context": context}
        prompt = np.random.default_rng(5).integers(3, words, (batch, context)).astype(np.int32)
        try:
            text(og, model, prompt, 1)
            row |= text(og, model, prompt, args.count)
        except Exception as error:  # genai's errors have no class of their own
            row["error"] = " ".join(str(error).split())[-160:]
        rows.append(row)
    print(json.dumps({"genai": og.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
