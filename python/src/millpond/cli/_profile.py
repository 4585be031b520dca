# SPDX-License-Identifier: Apache-2.0
"""`millpond profile`: where the time of a model's runs goes, and what they need at least."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from millpond import _ort_beyond_numpy as beyond
from millpond.cli import FAILED, _explain, _options, _profile_read
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show, milliseconds, size

ROWS_SHOWN = 20
SECONDS_MAX = 10.0
NAME_SHOWN = 60  # characters of a kernel's name


# ---- what a run needs at least ----


def _weight_bytes(value: Any) -> int:
    """Of a tensor; 0 for texts and for what is not known. "tensor(float8e4m3fn)" has 8 bits, "tensor(uint4)" 4."""
    digits = re.search(r"[a-z](\d+)", value.type)
    bits = int(digits.group(1)) if digits else {"tensor(float)": 32, "tensor(double)": 64, "tensor(bool)": 8}.get(
        value.type, 0)
    return (math.prod(value.shape) * bits + 7) // 8 if value.shape is not None else 0


def weight_bytes(model: Any) -> int:
    """Of the weights that every run reads: by some node, other than as a table to look things up in, that is in no body
    of control flow."""
    stands_for = {name: name for name in model.weights}
    for node in model.nodes:  # in the order of the graph
        if node.operator == "Identity" and node.inputs and node.outputs and node.inputs[0] in stands_for:
            stands_for[node.outputs[0]] = stands_for[node.inputs[0]]
    read: set[str] = set()
    for node in model.nodes:
        if node.operator == "Identity" or node.depth > 0:
            continue
        tables = _profile_read.LOOK_UPS.get(node.operator, ())
        read |= {stands_for[name] for i, name in enumerate(node.inputs) if name in stands_for and i not in tables}
    return sum(_weight_bytes(model.values[name]) for name in read)


def _array_bytes(arrays: Iterable[Any]) -> int:
    numbers = (array for array in arrays if getattr(array, "dtype", None) is not None and array.dtype != object)
    return sum(beyond.size_of(array) for array in numbers)


def floor_of(inputs: int, outputs: int, weights: int, bandwidth: float | None, device_us: float | None,
             run_us: float) -> dict[str, Any]:
    """What a run has to move, and how long that takes at `bandwidth` GB/s."""
    whole = inputs + outputs + weights
    us = None if bandwidth is None else whole / bandwidth / 1e3
    return {
        "inputs": inputs, "outputs": outputs, "weights": weights, "bytes": whole, "bandwidth_gb_s": bandwidth, "us": us,
        "share_of_device": us / device_us if us is not None and device_us else None,
        "share_of_run": us / run_us if us is not None and run_us else None,
    }


# ---- the profile ----


def _profile(path: Path, given: dict[str, Any], wishes: Any, runs: int, warmup: int, bandwidth: float | None) -> Any:
    """The result for JSON, and the lanes of the run whose time is the median."""
    from millpond import _onnx_file, _ort_register
    from millpond.cli import _timing

    times: list[float] = []
    outputs: list[int] = []

    def unprofiled(session: Any, feeds: Any) -> None:
        run = beyond.runner(session)
        outputs.append(_array_bytes(run(feeds)))
        times.extend(_timing.repeated(lambda: run(feeds), runs, SECONDS_MAX))

    look = _explain.look_at(path, given, wishes, warmup + runs, unprofiled)
    found = _explain.report(path, look, look.placement)
    seen = _profile_read.runs_of(look.profile, runs)
    if not seen:
        raise Finding(FAILED, f"ONNX Runtime's profile of {path.name} cannot be read, as names in the model, which it "
                              "writes as they are, break it; name the nodes anew")
    steps = _profile_read.Steps(look.told["islands"])
    ours = _ort_register.names()
    device_us = sum(run.device_us for run in seen) / len(seen) if any(run.pieces for run in seen) else None
    latency = _timing.latency(times)
    middle = sorted(seen, key=lambda run: run.us)[len(seen) // 2]
    lanes = _profile_read.chart_of(middle, steps, ours)
    result = {
        "model": str(path),
        "device": found["device"],
        "inputs": found["inputs"],
        "runs": len(seen),
        "warmup": warmup,
        "run_ms": latency.as_dict(),
        "profiled_run_ms": sum(run.us for run in seen) / len(seen) / 1e3,
        "device_us": device_us,
        "operators": _profile_read.by_operator(seen, steps, ours),
        "kernels": _profile_read.by_kernel(seen),
        "floor": floor_of(_array_bytes(look.feeds.values()), outputs[0], weight_bytes(_onnx_file.read(path)), bandwidth,
                          device_us, latency.p50 * 1e3),
        "run": [asdict(lane) for lane in lanes],
    }
    return result, lanes


# ---- for people ----


def head(found: dict[str, Any]) -> str:
    kind = "emulated on the CPU" if found["device"]["emulated"] else "GPU"
    return f"{Path(found['model']).name} on {found['device']['spec']}, {found['device']['name']} ({kind})"


def total(found: dict[str, Any]) -> str:
    text = (f"a run takes {milliseconds(found['run_ms']['p50'])} ms, while it is profiled "
            f"{milliseconds(found['profiled_run_ms'])} ms")
    if found["device_us"] is None:
        return f"{text}; the profile has no work of the device, so times are the host's"
    share = found["device_us"] / found["profiled_run_ms"] / 10
    return f"{text}; the device works for {milliseconds(found['device_us'] / 1e3)} ms of that, {share:.0f} %"


def floor_word(found: dict[str, Any]) -> str:
    floor = found["floor"]
    text = (f"a run moves at least {size(floor['bytes'])}: inputs {size(floor['inputs'])}, outputs "
            f"{size(floor['outputs'])}, weights {size(floor['weights'])}")
    if floor["us"] is None:
        return f"{text}; --bandwidth says how long that takes"
    text += f"; at {floor['bandwidth_gb_s']:g} GB/s that takes {floor['us']:.1f} us"
    if floor["share_of_device"] is not None:
        text += f", {floor['share_of_device'] * 100:.1f} % of the device's time"
    return f"{text}, {floor['share_of_run'] * 100:.1f} % of a run"


def flop_word(found: dict[str, Any]) -> str:
    """Of matrix products in islands, whose sizes the provider tells."""
    flop = sum(row["flop"] for row in found["operators"])
    us = sum(row["us"] for row in found["operators"] if row["flop"])
    if not flop or not us:
        return ""
    unit, word = (1e9, "GFLOP") if flop >= 1e9 else (1e6, "MFLOP") if flop >= 1e6 else (1, "FLOP")
    counted = f"{flop / unit:.4g} {word}"
    return (f"matrix products of islands: {counted}; {flop / us / 1e3:.3g} GFLOP/s in the rows of operators that have "
            "them")


def _count(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def _short(name: str) -> str:
    return name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN - 3]}..."


def operator_table(found: dict[str, Any]) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    bandwidth = found["floor"]["bandwidth_gb_s"]
    rows: list[tuple[object, ...]] = []
    for row in found["operators"]:
        speed = row["gb_s"]
        cells = (row["name"], row["where"], _count(row["count"]), _count(row["launches"]), f"{row['us']:.1f}",
                 f"{row['share'] * 100:.1f}", "-" if speed is None else f"{speed:.3g}")
        floor = "-" if speed is None or bandwidth is None else f"{speed / bandwidth * 100:.1f}"
        rows.append(cells if bandwidth is None else (*cells, floor))
    columns = ("operator", "where", "count", "launches", "us", "%", "GB/s")
    return columns if bandwidth is None else (*columns, "floor %"), rows


def kernel_table(found: dict[str, Any], short: bool) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    rows: list[tuple[object, ...]] = [
        (_short(row["name"]) if short else row["name"], _count(row["count"]), f"{row['us']:.1f}",
         f"{row['us'] / row['count']:.1f}", f"{row['share'] * 100:.1f}") for row in found["kernels"]
    ]
    return ("kernel", "count", "us", "us each", "%"), rows


def _show_table(show: Show, title: str, columns: Sequence[str], rows: list[tuple[object, ...]], texts: int) -> None:
    if not rows:
        return
    show.heading(title)
    show.table(columns, rows[:ROWS_SHOWN], columns[texts:])
    if len(rows) > ROWS_SHOWN:
        show.line(f"and {len(rows) - ROWS_SHOWN} more: --json and --html have all")


def _show(show: Show, found: dict[str, Any]) -> None:
    show.line(head(found))
    show.line(total(found))
    show.line(floor_word(found))
    if words := flop_word(found):
        show.line(words)
    _show_table(show, "By operator, in a run", *operator_table(found), 2)
    _show_table(show, "By kernel, in a run", *kernel_table(found, True), 1)


# ---- the command ----


@click.command("profile")
@click.argument("model", type=_options.MODEL)
@_options.input_options
@_options.session_options
@click.option("--runs", default=10, show_default=True, type=click.IntRange(1), help="Runs that are looked at.")
@click.option("--warmup", default=3, show_default=True, type=click.IntRange(0), help="Runs before them.")
@click.option("--bandwidth", type=click.FloatRange(0, min_open=True), metavar="GB/S",
              help="Of the device's memory, for what a run takes at least.")
@click.option("--html", type=click.Path(dir_okay=False, writable=True, path_type=Path), callback=_options.writable,
              help="Write a page with a flame chart of a run.")
@json_option
def command(
    model: Path, as_json: bool, runs: int, warmup: int, bandwidth: float | None, html: Path | None, **given: Any
) -> None:
    """Profile a model: time by operator and by kernel, beside what a run takes at least.

    The model is run with inputs that are read or made up, while ONNX Runtime keeps a profile. On a GPU its kernels are
    seen through CUPTI.
    """
    if bandwidth is not None and not math.isfinite(bandwidth):
        raise click.UsageError("--bandwidth: say a number of GB/s")
    show = Show(as_json)
    wishes = _options.wishes_of(given)
    with show.progress(1, f"running {model.name}") as step:
        found, lanes = _profile(model, given, wishes, runs, warmup, bandwidth)
        step("done")
    if html is not None:
        from millpond.cli import _profile_page

        html.write_text(_profile_page.page(found, lanes), encoding="utf-8")
    _show(show, found)
    show.data(found)
