#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times ranks, a process with a GPU each: AllReduce beside torch.distributed, a decoder split by `millpond shard`.

    bench_ranks.py [--ranks 1,2] [--sizes 8K,1M,64M] [--runs 100] [--decoder llama-3-8b] [--kind q4] [--batches 1,32]
                   [--context 2048] [--folder FOLDER] [--out FILE]

A sum's figure is that of one of ten in a row, in microseconds: `millpond` in a session of ten nodes with values bound
on the device, `kernel` where the kernel of small sums makes them up to the 1 MiB it can, `nccl` where NCCL makes all
(MILLPOND_RANK_DIRECT), `torch` in ten calls of all_reduce, `torch graph` the same in a captured graph. `rate` is what
each rank sends and receives for them by a ring, 2 (n - 1) / n of the bytes, in GB/s; no sizes, no sums. The decoder is
one of decoders.py, with random keys and values of a context, and gives a token to each text of a batch, with graphs of
its own and with those of the user's (`graph_ms`). Its figure is the median of the runs, by number of ranks; `faster` is
how many times as many tokens as by the first number there are, and `difference` that of the logits from those, by norm.
The results go to bench/results/ranks-NAME.json.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools", "bench")]

import bench_models  # noqa: E402
import decoders  # noqa: E402
import graph_kit  # noqa: E402
import machine  # noqa: E402
import onnxruntime as ort  # noqa: E402
import provider  # noqa: E402
import ranks  # noqa: E402
from millpond import _shard_check, _shard_split, _shard_write  # noqa: E402
from millpond import onnxruntime as pond  # noqa: E402
from millpond._shard_model import Model  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

IN_A_ROW, WARM_UP = 10, 5
DIRECT_MAX = 1 << 20  # of what a kernel of ours can sum, see docs/scaling.md
ASKED = "MILLPOND_BENCH_RANKS"  # what the parent asks of its ranks, in JSON
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LOOKED_AT = 7, 10  # tokens, and those in the caches with them, of the run that shows the shapes to `millpond shard`


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def on_device(value, rank):
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value), "cuda", rank)


def bound(session, inputs, rank):
    """(binding, outputs), all of it on the rank's device."""
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, on_device(value, rank))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda", rank)
    session.run_with_iobinding(binding)
    outputs = binding.get_outputs()
    for output, value in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_ortvalue_output(output.name, value)
    return binding, outputs


def median_us(run, runs):
    """Of as many runs on each rank: those whose number depended on the time would wait for one another for ever."""
    times = []
    for _ in range(WARM_UP + runs):
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) * 1e6)
    return round(float(np.median(times[WARM_UP:])), 2)


def sums_model(count):
    names = ["x", *(f"s{i}" for i in range(1, IN_A_ROW)), "y"]
    nodes = [helper.make_node("AllReduce", [a], [b], domain="ai.millpond")
             for a, b in zip(names, names[1:], strict=False)]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT16, [count])] for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.millpond", 1)]
    return helper.make_model(helper.make_graph(nodes, "sums", *ends), opset_imports=opsets, ir_version=8)


def torch_sums(count, rank, runs):
    """Microseconds of one all_reduce by torch, called and captured."""
    import torch
    import torch.distributed

    x = torch.zeros(count, dtype=torch.float16, device=f"cuda:{rank}")

    def ten():
        for _ in range(IN_A_ROW):
            torch.distributed.all_reduce(x)

    def called():
        ten()
        torch.cuda.synchronize()

    found = {"torch": median_us(called, runs) / IN_A_ROW}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ten()

    def replayed():
        graph.replay()
        torch.cuda.synchronize()

    return found | {"torch graph": median_us(replayed, runs) / IN_A_ROW}


def our_sums(rank, size):
    """Microseconds of one AllReduce, by size."""
    asked, on_gpu = json.loads(os.environ[ASKED]), os.environ["MILLPOND_DEVICE"] == "cuda"
    found = []
    for given in asked["sizes"]:
        session = pond.session(sums_model(given // 2).SerializeToString(), f"cuda:{rank}" if on_gpu else "host")
        binding, _ = bound(session, {"x": np.zeros(given // 2, np.float16)}, rank if on_gpu else 0)
        found.append(round(median_us(lambda each=(session, binding): each[0].run_with_iobinding(each[1]),
                                     asked["runs"]) / IN_A_ROW, 2))
    if rank == 0:
        print(json.dumps(found))


def sums(rank, size):
    asked = json.loads(os.environ[ASKED])
    on_gpu = os.environ["MILLPOND_DEVICE"] == "cuda"
    if on_gpu:
        import torch
        import torch.distributed

        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    rows = []
    for given in asked["sizes"]:
        count = given // 2
        session = pond.session(sums_model(count).SerializeToString(), f"cuda:{rank}" if on_gpu else "host")
        binding, _ = bound(session, {"x": np.zeros(count, np.float16)}, rank if on_gpu else 0)
        row = {"millpond": median_us(lambda each=(session, binding): each[0].run_with_iobinding(each[1]),
                                     asked["runs"]) / IN_A_ROW}
        row |= torch_sums(count, rank, asked["runs"]) if on_gpu else {}
        rate = {f"{way} rate": round(2 * (size - 1) / size * given / us / 1e3, 2) for way, us in row.items()}
        rows.append({"bytes": given, **{way: round(us, 2) for way, us in row.items()}, **rate})
    if rank == 0:
        print(json.dumps(rows))
    if on_gpu:
        torch.distributed.destroy_process_group()


def split(folder, name, kind, ranks):
    """What `millpond shard` does, but for its check: that would run all ranks on this machine's processor."""
    out = folder / f"parts_{ranks}"
    if out.exists():
        return
    whole = Model(folder / "model.onnx")
    feed, (batch, heads, _, head) = decoders.feed(name, kind, 1, *LOOKED_AT)
    past = np.zeros((batch, heads, LOOKED_AT[1] - LOOKED_AT[0], head), decoders.KINDS[kind][0])
    feed |= {value: past for value in whole.inputs if value.startswith("past_key_values.")}
    whole.shapes = _shard_check.shapes(whole, feed)
    plan = _shard_split.plan(whole, ranks)
    out.mkdir()
    for rank in range(ranks):
        _shard_write.write(plan, rank, out)


def caches(session, shape, dtype, rank, size):
    """A rank's heads of the same random keys and of the same values everywhere."""
    batch, heads, rows, head = shape
    own = slice(rank * heads // size, (rank + 1) * heads // size)
    random = np.random.default_rng(7)
    given = {side: (random.standard_normal((1, heads, rows, head), np.float32) * 0.5).astype(dtype)[:, own]
             for side in ("key", "value")}
    given = {side: np.ascontiguousarray(np.broadcast_to(part, (batch, *part.shape[1:])))
             for side, part in given.items()}
    for name in (value.name for value in session.get_inputs() if value.name.startswith("past_key_values.")):
        yield name, given[name.rpartition(".")[2]]


def step(session, asked, batch, rank, size, at):
    """(a binding that gives a token to each text, the logits), all of it on the rank's device."""
    feed, shape = decoders.feed(asked["name"], asked["kind"], batch, 1, asked["context"])
    dtype, binding = decoders.KINDS[asked["kind"]][0], session.io_binding()
    for name, value in feed.items():
        binding.bind_ortvalue_input(name, on_device(value, at))
    for name, value in caches(session, shape, dtype, rank, size):
        held = on_device(value, at)
        binding.bind_ortvalue_input(name, held)
        binding.bind_ortvalue_output(name.replace("past_key_values", "present"), held)
    logits = on_device(np.zeros((batch, 1, decoders.SIZES[asked["name"]].vocabulary), dtype), at)
    binding.bind_ortvalue_output("logits", logits)
    return binding, logits


def steps_of(folder, asked, rank, size, is_graph):
    """{batch: milliseconds}"""
    on_gpu = os.environ["MILLPOND_DEVICE"] == "cuda"
    device, at = (f"cuda:{rank}", rank) if on_gpu else ("host", 0)
    model = folder / (f"parts_{size}/rank_{rank}.onnx" if size > 1 else "model.onnx")
    session, found = pond.session(model, device, options={"enable_cuda_graph": is_graph}), {}
    for i, batch in enumerate(asked["batches"]):
        binding, logits = step(session, asked, batch, rank, size, at)
        options = graph_kit.run_options(i + 1 if is_graph else None)
        us = median_us(lambda each=(binding, options): session.run_with_iobinding(*each), asked["runs"])
        found[batch] = round(us / 1e3, 4)
        if rank == 0 and not is_graph:
            np.save(folder / f"logits_{size}_{batch}.npy", logits.numpy().astype(np.float64))
    return found


def tokens(rank, size):
    asked = json.loads(os.environ[ASKED])
    folder = Path(asked["folder"])
    found = [{"batch": batch, "ms": ms} for batch, ms in steps_of(folder, asked, rank, size, False).items()]
    try:
        for row, ms in zip(found, steps_of(folder, asked, rank, size, True).values(), strict=True):
            row["graph_ms"] = ms
    except Exception as error:  # the figures that are there stay
        found[0]["error"] = " ".join(str(error).split())[-160:]
    if rank == 0:
        print(json.dumps(found))


def answer(work, size, device, settings=None, **asked):
    """What rank 0 found, with these variables."""
    paths = os.pathsep.join([str(ROOT / "bench"), *filter(None, [os.environ.get("PYTHONPATH")])])
    outputs = ranks.run(f"bench_ranks:{work}", size, device=device, PYTHONPATH=paths,
                        **{ASKED: json.dumps(asked)}, **(settings or {}))
    return json.loads(outputs[0].splitlines()[-1])


def sums_both_ways(size, device, **asked):
    """Rows by size: as ranks choose, beside torch, and both ways for certain."""
    rows = answer("sums", size, device, **asked)
    for way, most in (("kernel", DIRECT_MAX), ("nccl", 0)):
        found = answer("our_sums", size, device, {"MILLPOND_RANK_DIRECT": str(most)}, **asked)
        for row, us in zip(rows, found, strict=True):
            row |= {way: us} if way == "nccl" or row["bytes"] <= most else {}
    return rows


def decoder_rows(given, device, folder):
    """Of each batch and number of ranks."""
    decoders.write(folder, given.decoder, given.kind)
    rows = []
    for size in given.ranks:
        if size > 1:
            split(folder, given.decoder, given.kind, size)
        found = answer("tokens", size, device, folder=str(folder), runs=given.runs, name=given.decoder,
                       kind=given.kind, batches=given.batches, context=given.context)
        for row in found:
            first = next((each for each in rows if each["batch"] == row["batch"]), row)
            one, its = (np.load(folder / f"logits_{n}_{row['batch']}.npy") for n in (given.ranks[0], size))
            rows.append({"ranks": size, **row, "faster": round(least(first) / least(row), 3),
                         "difference": float(f"{np.linalg.norm(its - one) / np.linalg.norm(one):.2e}")})
            print(f"{given.decoder} {rows[-1]}", flush=True)
    return rows


def least(row):
    return min(row["ms"], row.get("graph_ms", row["ms"]))


def numbers(words):
    return [int(word) for word in words.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=numbers, default=[1, 2], help="numbers of ranks, the first one for comparison")
    parser.add_argument("--sizes", default="8K,256K,1M,16M,64M", help="bytes of each rank's values")
    parser.add_argument("--runs", type=int, default=100, help="of each figure")
    parser.add_argument("--decoder", choices=decoders.SIZES, default="llama-3-8b", help="which model of decoders.py")
    parser.add_argument("--kind", choices=decoders.KINDS, default="q4")
    parser.add_argument("--batches", type=numbers, default=[1, 32], help="numbers of texts")
    parser.add_argument("--context", type=int, default=2048, help="tokens in its caches")
    parser.add_argument("--folder", type=Path, help="where the model is made, and stays")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    given = parser.parse_args()
    first = provider.register()[0]
    device = "host" if provider.is_emulated(first) else "cuda"
    result = {**bench_models.setting(first), "command": machine.command("bench/bench_ranks.py"), "sums": {}}
    sizes = [bytes_of(each) for each in given.sizes.split(",") if each]
    for size in [each for each in given.ranks if each > 1 and sizes]:
        rows = sums_both_ways(size, device, sizes=sizes, runs=given.runs)
        result["sums"][size] = rows
        for row in rows:
            print(f"{size} ranks {row}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(given.folder or scratch, f"{given.decoder}-{given.kind}")
        result["decoder"] = {"model": given.decoder, "kind": given.kind, "context": given.context,
                             "rows": decoder_rows(given, device, folder)}
    machine.save(result, f"ranks-{machine.file_name(result['device'])}", given.out)


if __name__ == "__main__":
    main()
