#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of measured figures in the documents, written from the results in bench/results.

    figures.py [--check]

A table stands between the lines "<!-- figures: NAME -->" and "<!-- end of figures -->", and NAME is one of those below.
--check: fails where a document has other figures than the results, and changes nothing.
"""

import json
import re
import sys

import generated
from generated import ROOT

RESULTS = ROOT / "bench/results"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOWER = 1.05  # what runs differ by is less
PLACE = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def load(name, device="h200"):
    return json.loads((RESULTS / f"{name}-nvidia-{device}.json").read_text(encoding="utf-8"))


def number(value):
    """Three digits, or more of a whole number."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def table(columns, rows):
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join(['---', *['---:'] * (len(columns) - 1)])} |"
    yield from (f"| {' | '.join(row)} |" for row in rows)


# ---- the pool ----

ALLOCATORS = {"default": "millpond", "expandable": "millpond-expandable", "cudaMallocAsync": "cuda-async",
              "RMM pool": "rmm-pool", "RMM arena": "rmm-arena"}
GROWING = {**ALLOCATORS, "RMM pool": "rmm-pool-grow", "RMM arena": None}  # reserving half of the device is no figure
POOL_ROWS = (  # what is said, case, row, metric, whose
    ("a pair of 256 bytes, p50", "pair", "256 B", "p50_ns", ALLOCATORS),
    ("a pair of 256 bytes, p99.9", "pair", "256 B", "p999_ns", ALLOCATORS),
    ("free and allocate among 100,000 blocks", "live", "100000 blocks", "ns", ALLOCATORS),
    ("RMM's random_allocations, 10,000 up to 1 MiB, warm, ms", "random", "10000 x 1 MiB", "warm_ms", ALLOCATORS),
    ("1 thread, million pairs a second", "threads", "1, own streams", "mops", ALLOCATORS),
    ("16 threads on own streams", "threads", "16, own streams", "mops", ALLOCATORS),
    ("inference, varying lengths: an operation, warm", "replay", "inference.csv.gz", "warm_ns", ALLOCATORS),
    ("the same: peak reserved / peak allocated", "replay", "inference.csv.gz", "reserved_ratio", GROWING),
    ("a Numba and CuPy pipeline: peak reserved / peak allocated", "replay", "pipeline.csv.gz", "reserved_ratio",
     GROWING),
    ("a training step: peak reserved / peak allocated", "replay", "training.csv.gz", "reserved_ratio", GROWING),
    ("the same: an operation, warm", "replay", "training.csv.gz", "warm_ns", ALLOCATORS),
)


def pool_values():
    """(case, row, metric) -> allocator -> its figures."""
    return {(row["case"], row["row"].strip(), row["metric"]): row["values"] for row in load("pool")["rows"]}


def pool():
    found = pool_values()

    def cell(values, name):
        return number((values.get(name) or [None])[0])

    rows = [[said, *(cell(found[case, row, metric], name) for name in whose.values())]
            for said, case, row, metric, whose in POOL_ROWS]
    return table(["", *ALLOCATORS], rows)


# ---- the provider ----


def islands():
    """Of each model its first input."""
    ways = ("islands", "nodes", "graph")
    first, found = {}, {}
    for row in load("islands")["results"]:
        label = first.setdefault(row["model"], row["label"])
        if label == row["label"]:
            found.setdefault(row["model"], {})[row["way"]] = row.get("ms")
    rows = [[f"{model}, {first[model]}" if first[model] else model, *(milliseconds(times.get(way)) for way in ways)]
            for model, times in found.items()]
    return table(["model", "by default", "node by node", "as a graph captured by the user"], rows)


def milliseconds(value):
    return "-" if value is None else f"{value:.3f}"


def providers():
    """Each model by default, and by each way of ONNX Runtime's CUDA provider."""
    ways = {"Millpond": "default", "CUDA provider": "plain", "channels last": "nhwc", "as a graph": "graph"}
    rows = [[", ".join(filter(None, (row["model"], row["label"]))),
             *(milliseconds(row.get(way, {}).get("ms")) for way in ways.values()),
             number(1 / row["ratio"]) if "ratio" in row else "-"]
            for row in load("in-tree")["rows"]]
    return table(["model", *ways, "times as fast as the fastest of these"], rows)


def compiled():
    """Networks beside torch.compile, by the better of its calls with and without guards."""
    rows = [[row["model"], milliseconds(row["ms"]), milliseconds(min(row["torch_ms"], row["unguarded_ms"])),
             number(row["ratio"]), number(row["first_s"]), number(row["compile_s"])]
            for row in load("torch")["results"] if "ratio" in row]
    return table(["", "Millpond, ms", "torch.compile", "ratio", "a session's first result, s", "compiling, s"], rows)


def first():
    """First results of processes that have no compiled kernels but those of the package, and their memory."""
    rows = [[row["model"], *(figure for way in ("cold", "in-tree")
                             for figure in (number(row[way]["first_s"]), f"{row[way]['mib']:,.0f}"))]
            for row in load("first")["rows"]]
    return table(["", "Millpond, s", "MiB", "CUDA provider, s", "MiB"], rows)


def calls():
    """Sessions as programs call them, by default options, beside the ordinary runs of ONNX Runtime's CUDA provider."""
    kinds = {"arrays": "NumPy arrays", "threads": "the same from four threads",
             "batches": "2 to 64 images, bound on the device"}
    rows = [[f"{what}, {len(load(f'in-tree-{kind}')['rows'])} rows", "", "",
             number(load(f"in-tree-{kind}")["geometric_mean"])] for kind, what in kinds.items()]
    for row in load("in-tree-sizes")["rows"]:
        for what, figure, ratio in (("repeated sizes", "ms", "ratio"), ("new sizes", "new_ms", "new_ratio")):
            rows.append([f"{row['model'].replace('_open', '')}, {what}", number(row["default"][figure]),
                         number(row["plain"][figure]), f"{row[ratio]:.3f}" if row[ratio] < 0.1 else number(row[ratio])])
    return table(["", "Millpond, ms a run", "CUDA provider", "ratio"], rows)


def quantized():
    """Networks that ONNX Runtime has quantised, beside ordinary runs of its CUDA provider, and floats here."""
    floats = {row["model"]: row["default"]["ms"] for row in load("in-tree")["rows"]}
    rows = [[row["model"], milliseconds(row["default"]["ms"]), milliseconds(row["plain"]["ms"]),
             f"{row['ratio']:.3f}", milliseconds(floats.get(row["model"].rpartition("_")[0] + "_f32"))]
            for row in load("in-tree-quantized")["rows"]]
    return table(["", "Millpond, ms", "CUDA provider", "ratio", "Millpond in float32"], rows)


def rated(name):
    """How many rows of a comparison have a ratio, their mean, how many are slower, and the slowest."""
    found = load(f"in-tree-{name}")
    rows = sorted((row for row in found["rows"] if "ratio" in row), key=lambda row: -row["ratio"])
    slow = [row for row in rows if row["ratio"] > SLOWER]
    slowest = ", ".join(f"{row['model']} {number(row['ratio'])}" for row in rows[:3])
    return [str(len(rows)), number(found["geometric_mean"]), str(len(slow)), slowest]


def rates(tables):
    return table(["", "rows", "mean ratio", "rows above 1.05", "the slowest rows, by ratio"],
                 [[what, *rated(name)] for name, what in tables.items()])


def singles():
    """Models of one operator beside the ordinary runs of ONNX Runtime's CUDA provider, the slowest of each table."""
    return rates({"operators": "operators, at usual sizes", "shapes": "unusual sizes",
                  "kinds": "doubles, integers, bytes", "contrib": "more of com.microsoft",
                  "operators-bf16": "operators in bfloat16", "shapes-bf16": "unusual sizes in bfloat16"})


def kinds():
    """Networks of further kinds beside the CUDA provider's better of an ordinary run and a graph."""
    return rates({"networks": "kinds of transformers and torchvision, float16", "timm": "kinds of timm, float16",
                  "detectors": "torchvision's detectors, float32 and float16",
                  "written": "other kinds, float32 and float16",
                  "tools": "as ONNX Runtime's tools rewrite them",
                  "dynamo": "exported by torch's newer exporter, float16",
                  "bf16": "encoders and decoders in bfloat16"})


def peaks_of_four():
    """The most memory that four libraries have had together, with pools of their own and with one, in MiB."""
    results = load("one-pool")
    return [max(phase["used_after"] for phase in results[kind]["phases"]) >> 20 for kind in ("own", "one")]


def shared():
    peaks = peaks_of_four()
    return table(["", "memory of the GPU, MiB"], [["a pool for each of the four", f"{peaks[0]:,}"],
                                                  ["one pool", f"{peaks[1]:,}"]])


def summary():
    """What it comes to, of each part."""
    in_tree, pair = load("in-tree"), pool_values()["pair", "256 B", "p50_ns"]
    cases = [row["model"] for row in in_tree["rows"] if "ratio" in row]
    own, one = peaks_of_four()
    return table(["measured on an H200", "Millpond", "compared with"], [
        [f"time of {len(set(cases))} models on {len(cases)} inputs, geometric mean, relative to the fastest mode of "
         "ONNX Runtime's CUDA provider", number(in_tree["geometric_mean"]), "1"],
        ["time to allocate and free 256 bytes, ns; compared with `cudaMallocAsync`", number(pair["millpond"][0]),
         number(pair["cuda-async"][0])],
        ["GPU memory of Numba, CuPy, PyTorch and ONNX Runtime in one process, MiB; compared with a pool for each",
         f"{one:,}", f"{own:,}"]])


# ---- language models ----

WAYS = {"Millpond": "here", "Millpond, a graph": "here graph", "CUDA provider": "peer",
        "CUDA provider, a graph": "peer graph"}


def decoding(is_genai, title, figure, shown):
    """Rows of bench_decode.py, through genai or without it."""
    rows = []
    for row in load("decode", "h100")["rows"]:
        if row["label"].startswith("genai") != is_genai:
            continue
        found = [row.get(way, {}) for way in WAYS.values()]
        ratios = [each["of_floor"] for each in found[:2] if "of_floor" in each]
        rows.append([f"{row['model']}, {row['label'].removeprefix('genai, ')}",
                     *(shown(each.get(figure)) for each in found), milliseconds(row["floor_ms"]),
                     number(min(ratios, default=None))])
    return table([title, *WAYS, "floor, ms", "Millpond / floor"], rows)


def steps():
    return decoding(False, "ms", "ms", milliseconds)


def tokens():
    return decoding(True, "tokens a second", "tokens_s", number)


# ---- several processes ----


def size(count):
    unit = next(unit for unit in (20, 10, 0) if count >> unit or unit == 0)
    return f"{count >> unit} {({20: 'MiB', 10: 'KiB', 0: 'bytes'})[unit]}"


def ranks():
    """An AllReduce of two ranks by what queues it, and the bytes of it that a rank sends in a second."""
    ways = {"Millpond": "millpond", "torch": "torch", "torch, a captured graph": "torch graph"}
    rows = [[size(row["bytes"]), *(number(row[way]) for way in ways.values()), number(row["millpond rate"]),
             number(row["torch graph rate"])] for row in load("ranks")["sums"]["2"]]
    return table(["bytes of each rank", *(f"{way}, us" for way in ways), "Millpond, GB/s", "torch, captured, GB/s"],
                 rows)


def decoder_ranks():
    """A token of each text by number of ranks, and how many times as many a second that is."""
    found = load("ranks-decoder")["decoder"]
    rows = [[f"{row['batch']} texts" if row["batch"] > 1 else "1 text", str(row["ranks"]), milliseconds(row["ms"]),
             milliseconds(row.get("graph_ms")), number(row["faster"])] for row in found["rows"]]
    return table([f"{found['model']}, {found['context']:,} tokens", "ranks", "ms a step", "as a graph",
                  "tokens, relative to one rank"], rows)


def handed():
    ways = ("handle, kept", "handle", "through the host")
    rows = [[size(row["bytes"]), *(number(row[way]) for way in ways)] for row in load("ipc")["us"]]
    return table(["us a round", "a handle kept open", "a new handle", "a copy through the host"], rows)


TABLES = {"summary": summary, "pool": pool, "islands": islands, "providers": providers, "compiled": compiled,
          "first": first, "calls": calls, "kinds": kinds,
          "singles": singles, "quantized": quantized, "shared": shared, "steps": steps, "tokens": tokens,
          "ranks": ranks, "decoder_ranks": decoder_ranks, "handed": handed}


def written(text):
    """The text of a document with the figures of today; raises KeyError for a table that there is none of."""
    return PLACE.sub(lambda match: "\n".join([match[1] + "\n".join(TABLES[match[2]]()), match[3]]), text)


def texts():
    return {path: written(path.read_text(encoding="utf-8")) for path in DOCUMENTS}


if __name__ == "__main__":
    sys.exit(generated.main(__doc__, texts, "as bench/results has the figures"))
