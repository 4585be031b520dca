# SPDX-License-Identifier: Apache-2.0
"""What bench_pool.py measures, in words and units, and its results as tables in Markdown."""

import math

# What the project aims at on an NVIDIA H200: (case, row, metric, bound).
AIMS = [
    ("pair", "256 B", "p50_ns", 60), ("pair", "256 B", "p999_ns", 500), ("live", "100000 blocks", "ns", 300),
    ("random", "10000 x 1 MiB", "warm_ms", 3),
]
AIM_SCALING = (16, 8)  # so many threads on own streams, at least so many times the throughput of one

# What is compared: (name in the rows, unit of the table, factor to it, whether more is better).
METRICS = {
    "p50_ns": ("ns", 1, False), "p99_ns": ("ns", 1, False), "p999_ns": ("ns", 1, False), "mean_ns": ("ns", 1, False),
    "ns": ("ns", 1, False), "cold_ms": ("ms", 1, False), "warm_ms": ("ms", 1, False),
    "mops": ("M/s", 1, True), "cold_ratio": ("x", 1, False), "warm_ratio": ("x", 1, False),
    "alloc_p50_ns": ("ns", 1, False), "alloc_p99_ns": ("ns", 1, False), "free_p50_ns": ("ns", 1, False),
    "wall_ratio": ("x", 1, False), "cold_ns": ("ns", 1, False), "warm_ns": ("ns", 1, False),
    "reserved_ratio": ("x", 1, False), "failures_percent": ("%", 1, False), "filled": ("%", 100, True),
    "trim_ms": ("ms", 1, False), "unused_percent": ("%", 1, False), "grow_ms": ("ms", 1, False),
}
WORDS = {
    "pair": "allocate and free one size, one thread",
    "live": "free one and allocate another in a live set, random order",
    "random": "RMM's random_allocations: N blocks up to a size; cold on a fresh pool, warm after it",
    "threads": "free one and allocate another in a set of 64 blocks a thread",
    "handover": "one thread allocates, another frees on another stream",
    "streams": "a block around each of 4 slow kernels a stream: wall time over that without an allocator",
    "pingpong": "freed on a stream at work, wanted on another; wall time over that with two fixed blocks",
    "replay": "recorded traces: time of an operation, peak reserved over peak live",
    "phases": "phases of varying sizes: peak reserved over peak live",
    "full": "churn on a device that is nearly full",
    "trim": "memory given back to the device; unused: what is still had for nothing",
    "python-replay": "recorded traces, from Python",
    "python-pair": "allocate and free one size, from Python",
    "python-live": "a live set, from Python",
    "python-random": "random_allocations, from Python",
}


def short(value, metric):
    value *= METRICS[metric][1]
    if value == 0 or not math.isfinite(value):
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 3)}f}"


def table(result, case, out):
    """One case as a table in Markdown: a line for each row and metric, a column for each backend."""
    rows = [row for row in result["rows"] if row["case"] == case]
    names = [name for name in result["backends"] if any(name in row["values"] for row in rows)]
    out.append(f"\n**{case}**: {WORDS[case]}\n")
    out.append("| row | " + " | ".join(names) + " |")
    out.append("| --- | " + " | ".join("---:" for _ in names) + " |")
    for row in rows:
        cells = []
        for name in names:
            value = row["values"].get(name)
            cell = short(value[0], row["metric"]) if value else ""
            cells.append(row["marks"].get(name, "") + cell + row["better"].get(name, ""))
        unit = METRICS[row["metric"]][0]
        label = row["metric"].rsplit("_", 1)[0] if row["metric"].endswith(("_ns", "_ms", "_percent")) else row["metric"]
        out.append(f"| {row['row']}, {label} ({unit}) | " + " | ".join(cells) + " |")


def aims(result):
    """Lines that say which aims were reached by Millpond as a user gets it."""
    ours = next(iter(result["backends"]))
    found = {(row["case"], row["row"], row["metric"]): row["values"][ours][0]
             for row in result["rows"] if ours in row["values"]}
    for case, row, metric, bound in AIMS:
        value = found.get((case, row, metric))
        if value is not None:
            yield f"{case} {row} {metric}: {value:.3g}, aim < {bound}: {'reached' if value < bound else 'missed'}"
    threads, times = AIM_SCALING
    one, many = (found.get(("threads", f"{count:2d}, own streams", "mops")) for count in (1, threads))
    if one and many:
        word = "reached" if many >= times * one else "missed"
        yield f"{threads} threads on own streams: {many / one:.1f} times one, aim >= {times}: {word}"


def show(result):
    out = [f"{result['device']}{' (emulated)' if result['emulated'] else ''}, {result['driver']}, {result['cpu']}; "
           f"{result['repeats']} repeats, commit {result['commit']}"]
    for case in WORDS:
        if any(row["case"] == case for row in result["rows"]):
            table(result, case, out)
    lost = [f"{row['case']} {row['row']} {row['metric']}: {', '.join(row['better'])}"
            for row in result["rows"] if "!" in row["better"].values()]
    out.append(f"\nRows in which a peer is clearly better: {len(lost)} of {len(result['rows'])}")
    out += [f"- {line}" for line in lost]
    out += ["", *(f"- {line}" for line in aims(result))] if not result["emulated"] else []
    out += [f"- failed: {name}: {reason}" for name, entry in result["backends"].items() for reason in entry["failures"]]
    print("\n".join(out))
