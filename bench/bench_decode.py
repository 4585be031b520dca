#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times language models while they read a prompt and give tokens, here and on the CUDA provider of onnxruntime-gpu.

    bench/bench_decode.py [--peer FOLDER] [--genai FOLDER] [--models smollm2-135m,llama-3-8b] [--kind q4]
                          [--batches 1,8] [--contexts 256,2048] [--prompt 2048] [--genai-contexts 128,2048]

FOLDER of the peer holds the package onnxruntime of an onnxruntime-gpu wheel, that of genai the package
onnxruntime_genai of onnxruntime-genai-cuda, unless Python finds one anyway; without the one or the other its figures
are left out. The models are those of decoders.py, made in --folder where they are missing. Each figure's way is a
process of its own: `here` and `peer` by default options, `here graph` and `peer graph` with enable_cuda_graph.

A step gives a token to each text of a batch, whose caches have `context` tokens with it and are one memory, past and
present; a prompt has no past. Both are medians of ms with all bound on the device. `genai` rows are tokens by greedy
search through onnxruntime-genai (decode_tokens.py), `ms` being that of a token of all texts. `floor_ms` is what weights
and caches (`bytes`) or products and attention (`flop`) take at 4.3 TB/s, on an H100 3.0, and at 989 TFLOP/s, whichever
is more, and `of_floor` how many times as long it took; `ratio` is the best way here by the best of the peer's. Results
go to bench/results/decode-NAME.json.
"""

import argparse
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import bench_models  # noqa: E402  (beside this file)
import decoders  # noqa: E402
import graph_kit  # noqa: E402
import machine  # noqa: E402
import onnxruntime as ort  # noqa: E402
import provider  # noqa: E402

PEER = "CUDAExecutionProvider"
# Bytes that a copy reads and writes in a second, and dense products in float16 by the data sheet.
RATES = {"H100": (3.0e12, 989e12), "H200": (4.3e12, 989e12)}
SIDES = {"here": "millpond", "peer": "in-tree"}
GRAPH = {"enable_cuda_graph": "1"}
WAIT_S = 300


def numbers(words):
    return [int(word) for word in words.split(",") if word]


# ---- one way, in a process of its own ----


def session_on(side, folder, options):
    model = str(Path(folder, "model.onnx"))
    if side == "here":
        return provider.session(model, provider_options=options)
    if PEER not in ort.get_available_providers():
        raise RuntimeError(f"the onnxruntime of the peer's folder has no {PEER}")
    return ort.InferenceSession(model, provider.session_options(), providers=[(PEER, options), provider.CPU])


def bound(session, name, kind, batch, step, context):
    """A binding with all values on the device, past and present caches in one memory; and the logits."""
    feed, cache = decoders.feed(name, kind, batch, step, context)
    binding, dtype = session.io_binding(), decoders.KINDS[kind][0]
    for key, value in feed.items():
        binding.bind_ortvalue_input(key, bench_models.on_device(value))
    logits = bench_models.on_device(np.zeros((batch, step, decoders.SIZES[name].vocabulary), dtype))
    binding.bind_ortvalue_output("logits", logits)
    empty = np.zeros(cache, dtype)
    for past in (value.name for value in session.get_inputs() if value.name.startswith("past_key_values.")):
        value = bench_models.on_device(empty)
        binding.bind_ortvalue_input(past, value)
        binding.bind_ortvalue_output(past.replace("past_key_values", "present"), value)
    return binding, logits


def runs(args):
    """(label, batch, step, context) of those without genai."""
    for batch, context in itertools.product(args.batches, args.contexts):
        yield f"step, batch {batch}, context {context}", batch, 1, context
    if args.prompt and not args.graph:
        yield f"prompt of {args.prompt}", 1, args.prompt, args.prompt


def timed(args, session, graph_id, sizes):
    """Figures of a run of these sizes, whose graph has an id of its own."""
    binding, logits = bound(session, args.models[0], args.kind, *sizes)
    options = graph_kit.run_options(graph_id if args.graph else None)
    ms, _ = bench_models.median_ms(lambda: session.run_with_iobinding(binding, options), args.seconds)
    return {"ms": round(ms, 4), "is_finite": bool(np.isfinite(logits.numpy()[:, -1]).all())}


def child(args):
    """Measures one way of a model; prints JSON as its last line."""
    session, rows = session_on(args.way, args.folder, GRAPH if args.graph else {}), []
    for i, (label, *sizes) in enumerate(runs(args)):
        try:
            row = timed(args, session, i + 1, sizes)
        except Exception as error:  # one that a side cannot do is a row, too
            row = {"error": " ".join(str(error).split())[-160:]}
        rows.append({"label": label, **row})
    print(json.dumps({"onnxruntime": ort.__version__, "rows": rows}))


# ---- all of them ----


def environment(args, side):
    env = dict(os.environ)
    folders = [args.peer if side == "peer" else None, args.genai, env.get("PYTHONPATH")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    return env


def answer(command, env):
    """(what it found, None), or (None, why it found nothing)."""
    try:
        done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=WAIT_S,
                              check=False)
    except subprocess.TimeoutExpired:
        return None, f"it was not done within {WAIT_S} s"
    if done.returncode == 0 and done.stdout.strip():
        return json.loads(done.stdout.splitlines()[-1]), None
    last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
    return None, f"exit status {done.returncode}: {last[-160:]}"


def joined(values):
    return ",".join(map(str, values))


def steps_of(args, folder, name, side, graph):
    command = [__file__, "--way", side, "--folder", str(folder), "--models", name, "--kind", args.kind, "--batches",
               joined(args.batches), "--contexts", joined(args.contexts), "--prompt", str(args.prompt), "--seconds",
               str(args.seconds), *(["--graph"] if graph else [])]
    labels = list(runs(argparse.Namespace(**{**vars(args), "graph": graph})))
    found, why = answer(command, environment(args, side))
    figures = {row.pop("label"): row for row in found["rows"]} if found else {}
    rows = [(label, decoders.work(name, args.kind, batch, step, context), figures.get(label, {"error": why}))
            for label, batch, step, context in labels]
    return rows, {"onnxruntime": found["onnxruntime"]} if found else {}


def tokens_of(args, folder, name, side, graph):
    command = [str(ROOT / "bench/decode_tokens.py"), SIDES[side], str(folder), "--batches", joined(args.batches),
               "--contexts", joined(args.genai_contexts), "--count", str(args.count), *(["--graph"] if graph else [])]
    found, why = answer(command, environment(args, side))
    figures = {(row.pop("batch"), row.pop("context")): row for row in found["rows"]} if found else {}
    rows = []
    for batch, context in itertools.product(args.batches, args.genai_contexts):
        row = figures.get((batch, context), {"error": why})
        if "tokens_s" in row:
            row["ms"] = round(1e3 * batch / row["tokens_s"], 4)
        rows.append((f"genai, batch {batch}, behind {context}",
                     decoders.work(name, args.kind, batch, 1, context + args.count), row))
    return rows, {"genai": found["genai"]} if found else {}


def has_genai(args):
    return args.genai is not None or importlib.util.find_spec("onnxruntime_genai") is not None


def rates(device):
    """Those of the device; of one that is not known those of an H200."""
    return next((RATES[name] for name in RATES if name in device), RATES["H200"])


def add(rows, name, way, found, speeds):
    """Puts what a way found into the rows, by label."""
    for label, work, figures in found:
        floor_ms = 1e3 * max(work.bytes / speeds[0], work.flop / speeds[1])
        row = rows.setdefault((name, label), {"model": name, "label": label, "bytes": work.bytes, "flop": work.flop,
                                              "floor_ms": round(floor_ms, 4)})
        if "ms" in figures:
            figures["of_floor"] = round(figures["ms"] / floor_ms, 2)
        row[way] = figures
        print(f"# {name}: {label}, {way}: {figures}", file=sys.stderr, flush=True)


def measure(args, folder, name, rows, versions, speeds):
    parts = [steps_of, *([tokens_of] if has_genai(args) else [])]
    for side, part, graph in itertools.product(SIDES if args.peer else ["here"], parts, (False, True)):
        found, its = part(args, folder, name, side, graph)
        add(rows, name, f"{side} graph" if graph else side, found, speeds)
        versions.setdefault(side, {}).update(its)


def best(row, side):
    times = [row[way]["ms"] for way in (side, f"{side} graph") if "ms" in row.get(way, {})]
    return min(times, default=None)


def show(row):
    ways = [row.get(way, {}) for side in SIDES for way in (side, f"{side} graph")]
    figures = [f"{way['ms']:9.3f}" if "ms" in way else f"{'-':>9s}" for way in ways]
    print(f"{row['model']:14s} {row['label']:32s} {row['floor_ms']:9.3f} {' '.join(figures)}  {row.get('ratio', '')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="folder with the package onnxruntime of onnxruntime-gpu")
    parser.add_argument("--genai", help="folder with the package onnxruntime_genai of onnxruntime-genai-cuda")
    parser.add_argument("--folder", help="where models are made and stay; by default a folder that is removed again")
    parser.add_argument("--models", type=lambda words: words.split(","), default=["smollm2-135m", "llama-3-8b"])
    parser.add_argument("--kind", choices=decoders.KINDS, default="q4")
    parser.add_argument("--batches", type=numbers, default=[1, 8], help="numbers of texts")
    parser.add_argument("--contexts", type=numbers, default=[256, 2048], help="tokens in the caches of a step")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens of a prompt; 0: none is measured")
    parser.add_argument("--genai-contexts", type=numbers, default=[128, 2048], help="tokens of genai's prompts")
    parser.add_argument("--count", type=int, default=128, help="tokens that genai gives")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each figure without genai")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    parser.add_argument("--way", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--graph", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        return child(args)
    device = provider.register()[0]
    result = {**bench_models.setting(device), "command": machine.command("bench/bench_decode.py"), "kind": args.kind,
              "versions": {}}
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.models:
            folder = decoders.write(Path(args.folder or scratch, f"{name}-{args.kind}"), name, args.kind)
            measure(args, folder, name, rows, result["versions"], rates(result["device"]))
    print(f"{result['device']}: ms at least; here by default, as a graph; with the peer by default, as a graph; ratio")
    for row in rows.values():
        times = best(row, "here"), best(row, "peer")
        if all(times):
            row["ratio"] = round(times[0] / times[1], 3)
        show(row)
    name = args.name or machine.file_name(result["device"])
    machine.save(result | {"rows": list(rows.values())}, f"decode-{name}", args.out)
    return None


if __name__ == "__main__":
    main()
