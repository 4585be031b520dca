#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times networks here, by default options, and as torch.compile makes them, in one process each.

    bench/bench_torch.py --nets FOLDER [--only TEXT] [--jobs 8] [--seconds 1] [--name NAME]

The networks are those of nets.py that torch exports with known sizes, made in FOLDER where they are missing, so that
both sides have the same weights and inputs. torch's side is what its users are told to take for inference: mode
"reduce-overhead" (captured graphs), frozen weights, images with channels last, fused attention, cuDNN's search, TF32 as
here. Its inputs are on the device and each call is waited for, as it is and without looking whether what it was
compiled for still holds (`unguarded_ms`); here values are bound on the device. Several networks are compiled side by
side, since that takes half a minute each; then each is timed while the others wait. `compile_s` is what torch needed up
to its first results so, `first_s` what a session needed here by itself, kernels of earlier ones being in the cache;
`relative` is the norm of the difference between both results, where these are not zeros. The results go to
bench/results/torch-NAME.json; `ratio` is the time here by torch's least.
"""

import argparse
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import bench_models  # noqa: E402  (beside this file)
import machine  # noqa: E402
import nets  # noqa: E402
import numpy as np  # noqa: E402
import provider  # noqa: E402

WARM_UP = 5
COMPILE_THREADS = 4


def fused_attention(net):
    """Networks of transformers are exported with attention written out; here they take torch's one function for it."""
    for module in net.modules():
        if hasattr(module, "set_attn_implementation"):
            try:
                module.set_attn_implementation("sdpa")
            except ValueError:
                continue  # it has no such way


def compiled(build, kind):
    """A function that runs the network once and waits for it, and the results of the first run."""
    import torch
    import torch._inductor.config as inductor

    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    inductor.freezing, inductor.compile_threads = True, COMPILE_THREADS
    net, inputs = nets.built(build, kind)
    fused_attention(net)
    net, inputs = net.cuda(), [x.cuda() for x in inputs]
    if any(x.dim() == 4 for x in inputs):
        net = net.to(memory_format=torch.channels_last)
        inputs = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
    fast = torch.compile(net, mode="reduce-overhead")

    def run():
        with torch.no_grad():
            results = fast(*inputs)
        torch.cuda.synchronize()
        return results

    for _ in range(WARM_UP):
        results = run()
    return run, [x.float().cpu().numpy() for x in (results if isinstance(results, tuple) else [results])]


def torch_times(run, seconds):
    import torch

    guarded = bench_models.median_ms(run, seconds)[0]
    torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)
    try:
        unguarded = bench_models.median_ms(run, seconds)[0]
    except RuntimeError:  # of networks of several graphs, some torch refuses to run so
        unguarded = guarded
    return {"torch_ms": round(guarded, 4), "unguarded_ms": round(unguarded, 4)}


def child(args):
    """One network: compiles it, says so, and times it on both sides when it is told to."""
    name, model, pairs = next(iter(found for found in nets.subjects(args.nets, args.model) if found[0] == args.model))
    base, _, kind = name.rpartition("_")
    started = time.perf_counter()
    run, expected = compiled(nets.NETS[base][0], kind)
    row = {"model": name, "compile_s": round(time.perf_counter() - started, 1)}
    print(json.dumps(row), flush=True)
    sys.stdin.readline()
    row |= torch_times(run, args.seconds)
    started = time.perf_counter()
    session = provider.session(model)
    binding, outputs = bench_models.bound(session, pairs[0][1])
    row["first_s"] = round(time.perf_counter() - started, 3)
    row["ms"] = round(bench_models.median_ms(lambda: session.run_with_iobinding(binding), args.seconds)[0], 4)
    results = [output.numpy().astype(np.float32) for output in outputs]
    row["relative"] = float(f"{bench_models.relative_norm(results, expected):.3e}")
    row["ratio"] = round(row["ms"] / min(row["torch_ms"], row["unguarded_ms"]), 3)
    print(json.dumps(row), flush=True)


def measured(args, names, folder):
    """Rows of some networks, compiled side by side and timed one after the other."""
    command = [sys.executable, __file__, "--nets", args.nets, "--seconds", str(args.seconds)]
    started = []
    for name in names:
        with open(Path(folder) / f"{name}.log", "w", encoding="utf-8") as log:
            started.append(subprocess.Popen([*command, "--model", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, text=True))
    ready = [process.stdout.readline() for process in started]
    for name, process, line in zip(names, started, ready, strict=True):
        said = process.communicate("\n" if line else "")[0].splitlines()
        if said:
            yield json.loads(said[-1])
        else:
            words = (Path(folder) / f"{name}.log").read_text(encoding="utf-8").split()
            yield {"model": name, "error": " ".join(words)[-300:]}


COLUMNS = (("ms", "9.4f"), ("torch_ms", "9.4f"), ("unguarded_ms", "13.4f"), ("ratio", "6.2f"), ("relative", "9.1e"),
           ("first_s", "8.2f"), ("compile_s", "10.1f"))


def show(row):
    figures = (f"{row[name]:{form}}" for name, form in COLUMNS) if "ms" in row else [row["error"][-120:]]
    print(f"{row['model']:28s}", *figures, flush=True)


def save(result, args):
    ratios = [math.log(row["ratio"]) for row in result["results"] if "ratio" in row]
    if ratios:
        result["geometric_mean"] = round(math.exp(sum(ratios) / len(ratios)), 3)
        print(f"geometric mean of {len(ratios)} ratios: {result['geometric_mean']}")
    machine.save(result, f"torch-{args.name or machine.file_name(result['device'])}", args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", required=True, help="folder of the networks of nets.py")
    parser.add_argument("--only", default="", help="only networks whose name holds this; several with commas between")
    parser.add_argument("--jobs", type=int, default=8, help="networks that are compiled side by side")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each figure")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    args = parser.parse_args()
    device = provider.register()[0]
    if args.model:
        return child(args)
    nets.make_all(args.nets, args.only)
    names = [name for name, _, _ in nets.subjects(args.nets, args.only) if nets.is_torch_net(name)]
    if not names:
        sys.exit(f"bench_torch: nothing to measure; no network of known sizes holds '{args.only}'")
    result = {**bench_models.setting(device), "command": machine.command("bench/bench_torch.py"),
              "torch": version("torch"), "results": []}
    print(f"{result['device']}, torch {result['torch']}")
    print(f"{'':28s}", *(f"{name:>{int(form.split('.')[0])}s}" for name, form in COLUMNS), flush=True)
    left = iter(names)
    with tempfile.TemporaryDirectory() as folder:
        while some := list(itertools.islice(left, args.jobs)):
            for row in measured(args, some, folder):
                result["results"].append(row)
                show(row)
            save(result, args)  # so far
    return None


if __name__ == "__main__":
    main()
