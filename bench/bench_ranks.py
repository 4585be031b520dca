#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times ranks, a process with a GPU each: AllReduce beside torch.distributed, a decoder split by `millpond shard`.

    bench_ranks.py [--ranks 1,2] [--sizes 8K,1M,64M] [--runs 100] [--decoder LAYERS,WIDTH,HEADS,SHARED,INNER,WORDS]
                   [--past 1024] [--out FILE]

A sum's figure is that of one of ten in a row, in microseconds: `millpond` in a session of ten nodes with values bound
on the device, `torch` in ten calls of all_reduce, `torch graph` the same in a captured graph. `rate` is what each rank
sends and receives for them by a ring, 2 (n - 1) / n of the bytes, in GB/s. The decoder has random weights in float16,
keys and values of --past tokens, and is given one token; its figure is the median of the runs, by number of ranks, and
`difference` that of the logits from one rank's, by norm. The results go to bench/results/ranks-NAME.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools", "bench")]

import bench_models  # noqa: E402
import machine  # noqa: E402
import nets  # noqa: E402
import onnxruntime as ort  # noqa: E402
import provider  # noqa: E402
import ranks  # noqa: E402
from millpond import onnxruntime as pond  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

IN_A_ROW, WARM_UP = 10, 5
ASKED = "MILLPOND_BENCH_RANKS"  # what the parent asks of its ranks, in JSON
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
DECODER = "8,2048,16,8,5632,32000"


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


def tokens(rank, size):
    asked = json.loads(os.environ[ASKED])
    device = f"cuda:{rank}" if os.environ["MILLPOND_DEVICE"] == "cuda" else "host"
    folder = Path(asked["folder"])
    session = pond.session(folder / (f"parts_{size}/rank_{rank}.onnx" if size > 1 else "model.onnx"), device)
    whole = dict(np.load(folder / "feed.npz"))
    feed = {value.name: whole[value.name] for value in session.get_inputs()}
    for value in session.get_inputs():  # the caches of a rank have its heads only
        if value.name.startswith("past_key_values."):
            heads = feed[value.name].shape[1] // size
            feed[value.name] = feed[value.name][:, rank * heads:(rank + 1) * heads]
    binding, outputs = bound(session, feed, rank if device != "host" else 0)
    ms = median_us(lambda: session.run_with_iobinding(binding), asked["runs"]) / 1e3
    if rank == 0:
        names = [output.name for output in session.get_outputs()]
        np.save(folder / f"logits_{size}.npy", outputs[names.index("logits")].numpy().astype(np.float64))
        print(json.dumps(round(ms, 4)))


def answer(work, size, device, **asked):
    """What rank 0 found."""
    paths = os.pathsep.join([str(ROOT / "bench"), *filter(None, [os.environ.get("PYTHONPATH")])])
    outputs = ranks.run(f"bench_ranks:{work}", size, device=device, PYTHONPATH=paths, **{ASKED: json.dumps(asked)})
    return json.loads(outputs[0].splitlines()[-1])


def decoder_rows(given, device):
    """Of each number of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "model.onnx")
        feed = nets.decoder(str(target), "f16", 1, given.past, tuple(map(int, given.decoder.split(","))))
        np.savez(Path(folder, "feed.npz"), **feed)
        sizes = {name: ",".join(map(str, value.shape)) for name, value in feed.items()}
        shapes = [word for name, size in sizes.items() for word in ("--shape", f"{name}={size}")]
        rows = []
        for size in map(int, given.ranks.split(",")):
            if size > 1:
                subprocess.run([sys.executable, "-m", "millpond", "shard", target, "--ranks", str(size), "--no-check",
                                "--out", f"{folder}/parts_{size}", *shapes], check=True, stdout=subprocess.DEVNULL)
            rows.append({"ranks": size, "ms": answer("tokens", size, device, folder=folder, runs=given.runs)})
            one, found = (np.load(f"{folder}/logits_{n}.npy") for n in (rows[0]["ranks"], size))
            rows[-1]["difference"] = float(f"{np.linalg.norm(found - one) / np.linalg.norm(one):.2e}")
            print(f"decoder, {size} ranks: {rows[-1]['ms']:.3f} ms a token", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="1,2", help="numbers of ranks, the first one for comparison")
    parser.add_argument("--sizes", default="8K,256K,1M,16M,64M", help="bytes of each rank's values")
    parser.add_argument("--runs", type=int, default=100, help="of each figure")
    parser.add_argument("--decoder", default=DECODER, help="its layers, width, heads, shared heads, inner width, words")
    parser.add_argument("--past", type=int, default=1024, help="tokens in its caches")
    parser.add_argument("--out", type=Path, help="write to this file instead")
    given = parser.parse_args()
    first = provider.register()[0]
    device = "host" if provider.is_emulated(first) else "cuda"
    result = {**bench_models.setting(first), "command": machine.command("bench/bench_ranks.py"), "sums": {}}
    for size in [each for each in map(int, given.ranks.split(",")) if each > 1]:
        rows = answer("sums", size, device, sizes=[bytes_of(each) for each in given.sizes.split(",")], runs=given.runs)
        result["sums"][size] = rows
        for row in rows:
            print(f"{size} ranks {row}", flush=True)
    result["decoder"] = {"sizes": given.decoder, "past": given.past, "rows": decoder_rows(given, device)}
    machine.save(result, f"ranks-{machine.file_name(result['device'])}", given.out)


if __name__ == "__main__":
    main()
