#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times requests to a model: in the process, one by one and in batches, and through Ray Serve, by handle and by HTTP.

    bench_serve.py [--seconds 5] [--callers 1,8,32] [--only direct,handle,http] [--replicas 1] [--gpus 1]
                   [--model FILE --input x=1,3,224,224] [--batch 16] [--wait-s 0.002] [--repeats 3] [--out FILE]
    bench_serve.py --table FILE

Without --model it is two products with a Relu between, for --rows rows of 1,024 floats. Callers are threads, each of
which asks again when it has its answer. A figure is the median of the repeats. The package is the one that PYTHONPATH
names; `handle` and `http` need ray[serve]. HTTP requests have their tensors as bytes. With --gpus 0.5 and --replicas 2
two replicas share a GPU. Without a GPU it is the emulated device that is timed.
"""

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import machine  # noqa: E402  (beside this file)

ROUTES = ("direct", "handle", "http")
WIDTH, HIDDEN = 1024, 4096
WARM = 20  # requests of each caller before any is timed


def make_model(path):
    from onnx import TensorProto, helper, numpy_helper, save

    generator = np.random.default_rng(0)
    weights = {name: generator.standard_normal(shape).astype(np.float32) / 64
               for name, shape in (("a", (WIDTH, HIDDEN)), ("b", (HIDDEN, WIDTH)))}
    nodes = [helper.make_node("MatMul", ["x", "a"], ["p"]), helper.make_node("Relu", ["p"], ["q"]),
             helper.make_node("MatMul", ["q", "b"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "bench", ends[:1], ends[1:],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return str(path)


# ---- callers ----


def drive(make_call, callers, seconds):
    """Requests a second, and ms of the median and the slowest hundredth; make_call() gives each caller a function."""
    times, errors = [[] for _ in range(callers)], []
    barrier = threading.Barrier(callers + 1)

    def work(own):
        try:
            call = make_call()
            for _ in range(WARM):
                call()
            barrier.wait()
            until = time.perf_counter() + seconds
            while (begin := time.perf_counter()) < until:
                call()
                own.append(time.perf_counter() - begin)
        except Exception as error:  # noqa: BLE001  it is the result of the row
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(own,)) for own in times]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - begin
    if errors:
        raise next((each for each in errors if not isinstance(each, threading.BrokenBarrierError)), errors[0])
    every = sorted(ms for own in times for ms in own)
    return {"requests_s": len(every) / spent, "p50_ms": every[len(every) // 2] * 1e3,
            "p99_ms": every[min(len(every) - 1, len(every) * 99 // 100)] * 1e3}


def direct_rows(options, model, inputs):
    import millpond.serving

    models = millpond.serving.Models()
    models.update({"model": model})
    for callers in options.callers:
        yield f"direct, {callers} callers", drive(lambda: lambda: models.run("model", inputs), callers, options.seconds)
    several = [inputs] * options.batch
    found = drive(lambda: lambda: models.run_batch("model", several), 1, options.seconds)
    found["requests_s"] *= options.batch
    yield f"direct, batches of {options.batch}", found
    models.close()


def http_call(port, inputs):
    """A function that asks once, on a connection that is kept."""
    head = json.dumps({
        "inputs": [{"name": name, "shape": list(array.shape), "datatype": "FP32",
                    "parameters": {"binary_data_size": array.nbytes}} for name, array in inputs.items()],
        "parameters": {"binary_data_output": True}}).encode()
    body = head + b"".join(array.tobytes() for array in inputs.values())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def call():
        connection.request("POST", "/v2/models/model/infer", body, {"Inference-Header-Content-Length": str(len(head))})
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"status {reply.status}: {text[:300]!r}")

    return call


def ray_rows(options, model, inputs):
    import millpond.ray_serve
    import ray
    from ray import serve

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"log_level": "ERROR"})
        deployment = serve.deployment(
            millpond.ray_serve.Predictor, num_replicas=options.replicas, max_ongoing_requests=4 * options.batch,
            ray_actor_options={"num_cpus": 0.5, "num_gpus": options.gpus},
            user_config={"models": {"model": model}, "batch": {"size": options.batch, "wait_s": options.wait_s}})
        handle = serve.run(deployment.bind(), route_prefix="/")
        for callers in options.callers:
            if "handle" in options.only:
                yield f"handle, {callers} callers", drive(
                    lambda: lambda: handle.infer.remote("model", inputs).result(), callers, options.seconds)
            if "http" in options.only:
                yield f"http, {callers} callers", drive(lambda: http_call(port, inputs), callers, options.seconds)
        serve.shutdown()
    finally:
        ray.shutdown()


# ---- the command line ----


def input_of(text):
    """("x", (1, 3, 224, 224)) of "x=1,3,224,224"."""
    name, _, sizes = text.partition("=")
    return name, tuple(int(size) for size in sizes.split(","))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row")
    parser.add_argument("--callers", type=lambda text: [int(word) for word in text.split(",")], default=[1, 8, 32])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ROUTES))
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--gpus", type=float, help="of each replica; by default 1, without a GPU 0")
    parser.add_argument("--model", help="an ONNX file whose inputs are floats")
    parser.add_argument("--input", type=input_of, action="append", help="NAME=SIZE,SIZE,... of an input of --model")
    parser.add_argument("--rows", type=int, default=1, help="of a request, without --model")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--wait-s", type=float, default=0.002)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="by default bench/results/serve-<device>.json")
    parser.add_argument("--table", type=Path, metavar="FILE", help="show a file of results again")
    options = parser.parse_args()
    unknown = set(options.only) - set(ROUTES)
    if unknown:
        parser.error(f"no route {sorted(unknown)[0]!r}; there are {', '.join(ROUTES)}")
    if options.model and not options.input:
        parser.error("--model needs --input for each of its inputs")
    return options


def measure(options, model, inputs):
    """{row: {figure: [of each repeat]}}"""
    found = {}
    for _ in range(options.repeats):
        rows = direct_rows(options, model, inputs) if "direct" in options.only else ()
        served = ray_rows(options, model, inputs) if {"handle", "http"} & set(options.only) else ()
        for source in (rows, served):
            for name, figures in source:
                for figure, value in figures.items():
                    found.setdefault(name, {}).setdefault(figure, []).append(value)
    return {name: {figure: [statistics.median(values), min(values), max(values)] for figure, values in each.items()}
            for name, each in found.items()}


def show(result):
    print(f"{result['device']}{' (emulated)' if result['emulated'] else ''}, {result['cpu']}; {result['replicas']} "
          f"replicas of {result['gpus']:g} GPU; {result['repeats']} repeats")
    print("| | requests a second | p50, ms | p99, ms |\n| --- | ---: | ---: | ---: |")
    for name, figures in result["rows"].items():
        print(f"| {name} | {figures['requests_s'][0]:,.0f} | {figures['p50_ms'][0]:.2f} | {figures['p99_ms'][0]:.2f} |")


def main():
    options = parse()
    if options.table:
        show(json.loads(options.table.read_text(encoding="utf-8")))
        return
    import millpond

    pool = millpond.Pool()
    options.gpus = (0.0 if pool.is_emulated else 1.0) if options.gpus is None else options.gpus
    generator = np.random.default_rng(1)
    shapes = options.input or [("x", (options.rows, WIDTH))]
    inputs = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes}
    with tempfile.TemporaryDirectory(prefix="millpond-") as folder:
        rows = measure(options, options.model or make_model(Path(folder, "bench.onnx")), inputs)
    result = {"device": pool.device_name, "emulated": pool.is_emulated, "cpu": machine.cpu(),
              "commit": machine.commit(), "command": machine.command("bench/bench_serve.py"),
              "environment": machine.environment(), "time": machine.now(), "replicas": options.replicas,
              "gpus": options.gpus, "repeats": options.repeats, "values": "median, least, most of the repeats",
              "rows": rows}
    out = options.out or machine.ROOT / "bench" / "results" / f"serve-{machine.file_name(result['device'])}.json"
    os.makedirs(out.parent, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    show(result)


if __name__ == "__main__":
    main()
