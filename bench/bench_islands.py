#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times models node by node, as graphs that the user has captured, and as islands in ordinary runs.

    bench/bench_islands.py [--only TEXT] [--seconds 0.7] [--name NAME] [--no-nets]

Inputs and outputs are bound on the device; `numpy_ms` is the same run with NumPy arrays, copies included. The subjects
are those of bench_models.py, a chain of 200 Add, and, where torch, torchvision and transformers are installed,
ResNet-50 and BERT-base with random weights. The three ways are measured one after the other in one process; `relative`
is the norm of the difference from the first. The results go to bench/results/islands-NAME.json.
"""

import argparse
import itertools
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("demo", "tests/models", "tests/ep", "tools")]

import bench_models  # noqa: E402  (beside this file)
import fetch_models  # noqa: E402
import machine  # noqa: E402
import provider  # noqa: E402

WAYS = {
    "nodes": {"fusion": "0"},
    "graph": {"fusion": "0", "enable_cuda_graph": "1"},
    "islands": {"fusion": "1"},
}


def resnets(folder):
    import torch
    import torchvision

    for half in (True, False):
        net = torchvision.models.resnet50(weights=None).eval()
        for batch in (1, 32):
            x = torch.randn(batch, 3, 224, 224)
            net, x = (net.half(), x.half()) if half else (net, x)
            path = folder / "resnet.onnx"
            torch.onnx.export(net, (x,), str(path), dynamo=False, input_names=["x"], output_names=["y"])
            yield f"resnet50_b{batch}_{'f16' if half else 'f32'}", str(path), [("", {"x": x.numpy()})]


def berts(folder):
    import torch
    import transformers

    class Encoder(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, ids, mask):
            return self.net(input_ids=ids, attention_mask=mask).last_hidden_state

    for half in (True, False):
        net = transformers.BertModel(transformers.BertConfig(attn_implementation="eager")).eval()
        encoder = Encoder(net.half() if half else net)
        for batch in (1, 8):
            ids, mask = torch.randint(0, 30000, (batch, 128)), torch.ones(batch, 128, dtype=torch.long)
            path = folder / "bert.onnx"
            torch.onnx.export(encoder, (ids, mask), str(path), dynamo=False, input_names=["ids", "mask"],
                              output_names=["y"])
            feed = {"ids": ids.numpy(), "mask": mask.numpy()}
            yield f"bert_b{batch}_{'f16' if half else 'f32'}", str(path), [("", feed)]


def nets(folder):
    """Networks with random weights, as far as they can be made here."""
    for make in (resnets, berts):
        try:
            yield from make(folder)
        except ImportError as missing:
            print(f"# left out: {missing}", file=sys.stderr)


def measure(session, inputs, seconds, way):
    started = time.perf_counter()
    session.run(None, inputs)
    row = {"first_s": round(time.perf_counter() - started, 3)}
    binding, outputs = bench_models.bound(session, inputs)
    row["ms"] = round(bench_models.median_ms(lambda: session.run_with_iobinding(binding), seconds)[0], 4)
    results = [output.numpy() for output in outputs]
    if way != "graph":  # whose addresses must stay
        row["numpy_ms"] = round(bench_models.median_ms(lambda: session.run(None, inputs), seconds)[0], 4)
    return row, results


def ways_of(name, model, pairs, seconds):
    """A row for each label and way; a way that cannot be measured has its reason."""
    first = {}
    for way, options in WAYS.items():
        try:
            session = provider.session(model, provider_options=options)
            for label, inputs in pairs[: 1 if way == "graph" else None]:
                row, results = measure(session, inputs, seconds, way)
                if label in first:
                    row["relative"] = float(f"{bench_models.relative_norm(results, first[label]):.1e}")
                first.setdefault(label, results)
                yield {"model": name, "label": label, "way": way, **row}
        except Exception as error:  # what cannot be captured is a row, too
            yield {"model": name, "label": "", "way": way, "error": " ".join(str(error).split())[-160:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only subjects whose name holds this; several with commas between")
    parser.add_argument("--seconds", type=float, default=0.7, help="time for each figure")
    parser.add_argument("--name", help="name of the result file; by default after the device")
    parser.add_argument("--no-nets", action="store_true", help="leave out the networks that torch makes")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    device = provider.register()[0]
    result = {**bench_models.setting(device), "command": machine.command("bench/bench_islands.py"), "results": []}
    with tempfile.TemporaryDirectory() as folder:
        trained = bench_models.subjects(fetch_models.default_dir(), args.only)
        made = () if args.no_nets else nets(Path(folder))
        for name, model, pairs in itertools.chain(trained, made):
            if not any(part in name for part in args.only.split(",")):
                continue
            for row in ways_of(name, model, list(pairs), args.seconds):
                result["results"].append(row)
                print(row, flush=True)
    if not result["results"]:
        sys.exit(f"bench_islands: nothing to measure; no subject holds '{args.only}', or no models were fetched")
    machine.save(result, f"islands-{args.name or machine.file_name(result['device'])}")


if __name__ == "__main__":
    main()
