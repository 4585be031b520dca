# SPDX-License-Identifier: Apache-2.0
"""`millpond run`: one model, looked at closely."""

from __future__ import annotations

import functools
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from millpond import _ort_beyond_numpy as beyond
from millpond.cli import FAILED, _options, _show
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show, milliseconds

OPERATORS_SHOWN = 6
REASONS_SHOWN = 8
SECONDS_MAX = 10.0


class Subject:
    """A model on the provider, with what was seen of it."""

    def __init__(self, path: Path, given: dict[str, Any]) -> None:
        import millpond.onnxruntime as mort
        from millpond import _ort_placement, _ort_register
        from millpond._ort_native import ort

        self.device = _options.find_device(given["device"])
        options = _options.provider_options(given["options"])
        self.before = 0
        if not any(key.lower().startswith("arena.") for key in options):  # those count where the session is the first
            pool = _ort_register.pool_of(self.device)
            self.before = pool.stats()["in_use"]
            pool.reset_peaks()

        def made(prepared: Any, more: dict[str, str]) -> Any:
            quiet = _options.quiet(prepared, given["threads"])
            return mort.session(str(path), self.device, options={**options, **more}, session_options=quiet)

        started = time.perf_counter()
        self.session = made(ort.SessionOptions(), {})
        self.load_ms = (time.perf_counter() - started) * 1e3
        self._explained = functools.partial(_ort_placement.explained, _ort_placement.placement_of(self.session), made)
        self.pool = _ort_register.pool_of(self.device)
        self.names = [output.name for output in self.session.get_outputs()]
        self.run = beyond.runner(self.session, self.names)

    @functools.cached_property
    def placement(self) -> Any:
        """Where the nodes run. To be asked for after the memory: it may take another session."""
        return self._explained()

    def memory(self) -> dict[str, Any]:
        """Bytes of the pool: in use now, and the peak since the session was begun, and reserved from the device."""
        stats = self.pool.stats()
        return {
            "in_use": stats["in_use"],
            "in_use_before": self.before,
            "in_use_max": stats["in_use_max"],
            "total_max": stats["total_max"],
            "allocs": stats["allocs"],
        }


def reasons(placement: Any) -> list[tuple[str, str, int]]:
    """(operator, reason, how many nodes) of what is not on the device."""
    counted = Counter((node.title, node.reason or "not known") for node in placement.elsewhere)
    return [(operator, reason, count) for (operator, reason), count in counted.most_common()]


def show_nodes(show: Show, placement: Any) -> None:
    show.heading("Where the nodes run")
    rows = []
    for provider, operators in sorted(placement.counts.items(), reverse=True):
        named = ", ".join(f"{operator} {count}" for operator, count in operators.most_common(OPERATORS_SHOWN))
        more = len(operators) - OPERATORS_SHOWN
        rows.append((provider, sum(operators.values()), named + (f", and {more} more" if more > 0 else "")))
    show.table(["provider", "nodes", "operators"], rows, ["nodes"])
    found = reasons(placement)
    if found:
        show.heading("Why not on the device")
        show.table(["operator", "nodes", "reason"], [(op, count, why) for op, why, count in found[:REASONS_SHOWN]],
                   ["nodes"])
        if len(found) > REASONS_SHOWN:
            show.line(f"and {len(found) - REASONS_SHOWN} more: --json has all")


def show_outputs(show: Show, differences: list[Any]) -> None:
    show.heading("Outputs, and how far they are from the CPU's")
    rows = []
    for each in differences:
        shape = "-" if each.shape is None else "x".join(map(str, each.shape)) or "scalar"
        largest, relative = (("-" if value is None else f"{value:.2e}") for value in (each.largest, each.relative))
        rows.append((each.output, each.type, shape, largest, relative, "yes" if each.ok else "no", each.note))
    show.table(["output", "type", "shape", "largest", "relative", "agrees", ""], rows, ["largest", "relative"])


def show_latency(show: Show, latencies: dict[str, Any]) -> None:
    show.heading("Latency of a run, ms")
    rows = [
        (name, each.runs, *(milliseconds(value) for value in (each.least, each.p50, each.p90, each.p99, each.most)))
        for name, each in latencies.items()
    ]
    columns = ["provider", "runs", "least", "p50", "p90", "p99", "most"]
    show.table(columns, rows, columns[1:])


def show_memory(show: Show, memory: dict[str, Any], load_ms: float) -> None:
    show.heading("Memory of the pool")
    size = _show.size
    show.line(
        f"peak {size(memory['in_use_max'])} in use ({size(memory['in_use_before'])} of it before), "
        f"{size(memory['total_max'])} reserved from the device; {memory['allocs']} allocations; "
        f"loaded in {load_ms:.0f} ms"
    )


def _save(path: Path, names: list[str], results: list[Any]) -> None:
    import numpy as np

    def plain(result: Any) -> Any:  # a file of NumPy's has no types but its own
        if beyond.type_of(result) is None:
            return result
        return result.astype(np.float32 if beyond.is_float(result) else np.int8)

    arrays = {
        name: plain(result)
        for name, result in zip(names, results, strict=True) if isinstance(result, np.ndarray)
    }
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def _beside_cpu(
    path: Path, subject: Subject, feeds: dict[str, Any], results: list[Any], given: dict[str, Any], runs: dict[str, Any]
) -> tuple[list[Any], str]:
    """The differences from the CPU provider, whose way is put into `runs`, or why there are none."""
    from millpond.cli import _compare

    try:
        reference = _options.cpu_session(path, given["threads"])
    except Finding as finding:
        return [], str(finding)
    runs["CPU"] = beyond.runner(reference, subject.names)
    return [
        _compare.compare(name, result, wanted, given["tolerance"])
        for name, result, wanted in zip(subject.names, results, runs["CPU"](feeds), strict=True)
    ], ""


@click.command("run")
@click.argument("model", type=_options.MODEL)
@_options.input_options
@_options.session_options
@click.option("--runs", default=20, show_default=True, type=click.IntRange(1), help="Timed runs, for 10 s at most.")
@click.option("--warmup", default=2, show_default=True, type=click.IntRange(0), help="Runs before them.")
@click.option("--compare/--no-compare", default=True, help="Beside ONNX Runtime's CPU provider, or not.")
@click.option("--tolerance", type=_options.Finite(0), help="Largest relative difference that passes.  [default: 0.005 "
              "for floats, 0.03 for float16, 0.1 for bfloat16 and fewer bits; integers must be equal]")
@click.option("--save", type=click.Path(dir_okay=False, writable=True, path_type=Path), callback=_options.writable,
              help="Write outputs to a .npz.")
@json_option
def command(model: Path, as_json: bool, **given: Any) -> None:
    """Run a model: where its nodes run, how far its outputs are from the CPU's, how long it takes, what memory.

    Inputs that no file gives are made up. Ends with 1 where an output differs by more than the tolerance.
    """
    from millpond.cli import _inputs, _timing

    show = Show(as_json)
    wishes = _options.wishes_of(given)
    with show.progress(4, f"loading {model.name}") as step:
        subject = Subject(model, given)
        feeds = _inputs.feeds(subject.session, wishes)
        step("first run")
        results = subject.run(feeds)
        for _ in range(given["warmup"]):
            subject.run(feeds)
        step("timed runs")
        runs = {"millpond": subject.run}
        differences, alone = _beside_cpu(model, subject, feeds, results, given, runs) if given["compare"] else ([], "")
        latencies = {
            name: _timing.latency(_timing.repeated(lambda run=run: run(feeds), given["runs"], SECONDS_MAX))
            for name, run in runs.items()
        }
        step("done", 2)
    if given["save"]:
        _save(given["save"], subject.names, results)
    _report(show, model, subject, feeds, wishes.sources, differences, alone, latencies)
    wrong = [each.output for each in differences if not each.ok]
    if wrong:
        raise Finding(FAILED, f"outputs differ from the CPU's: {', '.join(wrong)}")


def _report(
    show: Show, model: Path, subject: Subject, feeds: dict[str, Any], sources: dict[str, str], differences: list[Any],
    alone: str, latencies: dict[str, Any],
) -> None:
    device = subject.device
    inputs = [
        {"name": name, "type": value.dtype.name, "shape": list(value.shape), "source": sources.get(name)}
        for name, value in feeds.items()
    ]
    kind = "emulated on the CPU" if device.is_emulated else "GPU"
    show.line(f"{model.name} on {device.spec}, {device.name} ({kind})")
    show.table(["input", "type", "shape", "values"],
               [(each["name"], each["type"], "x".join(map(str, each["shape"])) or "scalar", each["source"])
                for each in inputs])
    memory = subject.memory()
    show_nodes(show, subject.placement)
    if differences:
        show_outputs(show, differences)
    if alone:
        show.heading("Not compared")
        show.line(alone)
    show_latency(show, latencies)
    show_memory(show, memory, subject.load_ms)
    show.data({
        "model": str(model),
        "device": {"spec": device.spec, "name": device.name, "emulated": device.is_emulated},
        "inputs": inputs,
        "nodes": subject.placement.counts,
        "elsewhere": [
            {"operator": operator, "reason": reason, "nodes": count}
            for operator, reason, count in reasons(subject.placement)
        ],
        "outputs": [asdict(each) for each in differences],
        "not_compared": alone or None,
        "agrees": all(each.ok for each in differences) if differences else None,
        "latency_ms": {name: each.as_dict() for name, each in latencies.items()},
        "memory": memory,
        "load_ms": subject.load_ms,
    })
