# SPDX-License-Identifier: Apache-2.0
"""`millpond bench`: models on several providers, timed in turn so that whatever disturbs the machine disturbs all."""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from millpond import _ort_beyond_numpy as beyond
from millpond.cli import FAILED, NOTHING, _bench_compare, _options
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show, milliseconds

CUDA = "CUDAExecutionProvider"
PROVIDERS = ("millpond", "cpu", "cuda")
RUNS_MAX = 1000
WARNING, FATAL = 2, 4  # levels of ONNX Runtime's log


@dataclass
class Row:
    """A model on a provider. Times are milliseconds; `blocks` are the medians of the repeats."""

    model: str
    provider: str
    load_ms: float = 0.0
    blocks: list[float] = field(default_factory=list)
    runs: int = 0
    relative: float | None = None  # difference of the outputs from the CPU's
    note: str = ""
    times: list[float] = field(default_factory=list)  # of all runs; with --plot, as is what follows
    memory: list[tuple[float, int, int]] = field(default_factory=list)  # after each: seconds, reserved, most in use

    @property
    def median(self) -> float | None:
        return statistics.median(self.blocks) if self.blocks else None


class Entry:
    """A session, how it is run, and its row."""

    def __init__(self, row: Row, session: Any, run: Callable[[dict[str, Any]], Any]) -> None:
        self.row, self.session, self.run = row, session, run

    def time(self, feeds: dict[str, Any], seconds: float, pool: Any) -> None:
        """One turn; with a pool, its memory is looked at behind each run."""
        from millpond.cli import _timing

        after = None if pool is None else lambda: self._look(pool)
        times = _timing.repeated(lambda: self.run(feeds), RUNS_MAX, seconds, after)
        self.row.blocks.append(statistics.median(times))
        self.row.runs += len(times)
        self.row.times += times

    def _look(self, pool: Any) -> None:
        stats = pool.stats()
        self.row.memory.append((time.perf_counter(), stats["total"], stats["in_use_max"]))
        pool.reset_peaks()


def _millpond(path: Path, given: dict[str, Any]) -> tuple[Any, Callable[[dict[str, Any]], Any]]:
    import millpond.onnxruntime as mort
    from millpond._ort_native import ort

    device = _options.find_device(given["device"])
    prepared = _options.quiet(ort.SessionOptions(), given["threads"])
    options = _options.provider_options(given["options"])
    session = mort.session(str(path), device, options=options, session_options=prepared)
    if given["bind"]:
        return session, Bound(session, device.ordinal, lambda array: _in_pool(array, device))
    return session, beyond.runner(session)


def _in_pool(array: Any, device: Any) -> Any:
    """A copy in memory of the pool, as a value."""
    import millpond.onnxruntime as mort
    from millpond import _ort_register

    buffer = _ort_register.pool_of(device).alloc(max(array.nbytes, 1))
    bits = array.view(beyond.BITS) if array.dtype.name == beyond.BFLOAT16 else array
    mort.as_ortvalue(buffer, dtype=bits.dtype, shape=array.shape).update_inplace(bits)
    return mort.as_ortvalue(buffer, dtype=array.dtype, shape=array.shape)


def _cpu(path: Path, given: dict[str, Any]) -> tuple[Any, Callable[[dict[str, Any]], Any]]:
    session = _options.cpu_session(path, given["threads"])
    return session, beyond.runner(session)


def _cuda(path: Path, given: dict[str, Any]) -> tuple[Any, Callable[[dict[str, Any]], Any]]:
    """ONNX Runtime's own CUDA provider. Raises Finding where it is not there or does not start."""
    from millpond._ort_native import ort
    from millpond._ort_register import CPU

    if CUDA not in ort.get_available_providers():
        raise Finding(NOTHING, "this ONNX Runtime has no CUDA provider of its own; onnxruntime-gpu has")
    options = _options.quiet(ort.SessionOptions(), given["threads"])
    ort.set_default_logger_severity(FATAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it tries
            if hasattr(ort, "preload_dlls"):
                ort.preload_dlls()
            session = ort.InferenceSession(str(path), options, providers=[CUDA, CPU])
    finally:
        ort.set_default_logger_severity(WARNING)
    if session.get_providers()[0] != CUDA:
        raise Finding(NOTHING, "ONNX Runtime's CUDA provider did not start here")
    if given["bind"]:
        return session, Bound(session, 0, lambda array: ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    return session, beyond.runner(session)


class Bound:
    """Runs with inputs and outputs on the device; the inputs are copied there once."""

    def __init__(self, session: Any, ordinal: int, place: Callable[[Any], Any]) -> None:
        self.session, self.ordinal, self.place = session, ordinal, place
        self.inputs: dict[str, Any] | None = None

    def __call__(self, feeds: dict[str, Any]) -> Any:
        from millpond import _ort_binding

        if self.inputs is None:
            self.inputs = {name: self.place(array) for name, array in feeds.items()}
            self.binding = self.session.io_binding()
        for name, value in self.inputs.items():
            self.binding.bind_ortvalue_input(name, value)
        self.binding.clear_binding_outputs()
        for output in self.session.get_outputs():
            _ort_binding.bind_to_device(self.binding, output, self.ordinal)
        self.session.run_with_iobinding(self.binding)
        return None


OPENERS = {"millpond": _millpond, "cpu": _cpu, "cuda": _cuda}


def _open(path: Path, provider: str, given: dict[str, Any]) -> Entry:
    started = time.perf_counter()
    session, run = OPENERS[provider](path, given)
    return Entry(Row(path.name, provider, load_ms=(time.perf_counter() - started) * 1e3), session, run)


def _relative(entry: Entry, feeds: dict[str, Any], expected: list[Any]) -> float | None:
    from millpond.cli import _compare

    results = beyond.run(entry.session, None, feeds)
    found = [_compare.compare("", a, b).relative for a, b in zip(results, expected, strict=True)]
    return max((each for each in found if each is not None), default=None)


def _bench_model(path: Path, providers: tuple[str, ...], given: dict[str, Any], step: Any) -> list[Row]:
    from millpond.cli import _inputs

    entries, absent = [], []
    for provider in providers:
        try:
            entries.append(_open(path, provider, given))
        except Finding as finding:  # the others are still worth their time
            absent.append(Row(path.name, provider, note=str(finding)))
    if not entries:
        return absent
    wishes = _options.wishes_of(given)
    feeds = _inputs.feeds(entries[0].session, wishes)
    reference = next((entry for entry in entries if entry.row.provider == "cpu"), None)
    expected = beyond.run(reference.session, None, feeds) if reference else None
    for entry in entries:
        if expected is not None and entry is not reference:
            entry.row.relative = _relative(entry, feeds, expected)
        for _ in range(given["warmup"]):
            entry.run(feeds)
    started, pool = time.perf_counter(), _pool_to_look_at(given) if given["plot"] else None
    for repeat in range(given["repeats"]):
        for entry in entries:
            step(f"{path.name}, {entry.row.provider}, repeat {repeat + 1}")
            entry.time(feeds, given["seconds"], pool if entry.row.provider == "millpond" else None)
    for entry in entries:
        entry.row.memory = [(at - started, *sizes) for at, *sizes in entry.row.memory]
    return [entry.row for entry in entries] + absent


def _pool_to_look_at(given: dict[str, Any]) -> Any:
    from millpond import _ort_register

    return _ort_register.pool_of(_options.find_device(given["device"]))


def _table(show: Show, rows: list[Row]) -> None:
    cpu = {row.model: row.median for row in rows if row.provider == "cpu"}
    lines = []
    for row in rows:
        base = cpu.get(row.model)
        faster = f"{base / row.median:.2f}" if base and row.median else "-"
        spread = f"{milliseconds(min(row.blocks))} to {milliseconds(max(row.blocks))}" if row.blocks else "-"
        relative = "-" if row.relative is None else f"{row.relative:.1e}"
        lines.append((row.model, row.provider, milliseconds(row.median), spread, faster, relative,
                      f"{row.load_ms:.0f}" if row.blocks else "-", row.note))
    columns = ["model", "provider", "median ms", "repeats", "CPU / this", "relative", "load ms", ""]
    show.table(columns, lines, columns[2:7])


def _as_dict(row: Row) -> dict[str, Any]:
    shown = {key: value for key, value in asdict(row).items() if key not in ("times", "memory")}
    return {**shown, "median": row.median, "least": min(row.blocks, default=None),
            "most": max(row.blocks, default=None)}


@click.command("bench")
@click.argument("models", nargs=-1, required=True, type=_options.MODEL)
@_options.input_options
@_options.session_options
@click.option("--provider", "providers", multiple=True, type=click.Choice(PROVIDERS),
              help="Which to time; by default millpond, cpu, and cuda where ONNX Runtime has it.")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1), help="Turns of each provider.")
@click.option("--seconds", default=0.5, show_default=True, type=_options.Finite(0, min_open=True),
              help="How long a turn is, at least one run.")
@click.option("--warmup", default=3, show_default=True, type=click.IntRange(0), help="Runs before the first turn.")
@click.option("--bind", is_flag=True, help="Keep inputs and outputs on the device.")
@click.option("--output", type=click.Path(dir_okay=False, writable=True, path_type=Path), callback=_options.writable,
              help="A file for JSON, too.")
@click.option("--plot", metavar="FILE.svg", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              callback=_options.writable, help="A file for a picture of latencies, and of memory over time.")
@click.option("--compare", metavar="OLD.json", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="What an earlier bench wrote, to be compared with.")
@click.option("--fail-above", type=_options.Finite(0), metavar="PERCENT",
              help="With --compare: end with 1 where a model is slower by more.")
@json_option
def command(
    models: tuple[Path, ...], as_json: bool, compare: Path | None, fail_above: float | None, **given: Any
) -> None:
    """Time models beside ONNX Runtime's CPU provider, and its own CUDA provider where there is one.

    The providers take turns. A figure is the median over the turns of the median of a turn. Ends with 3 where nothing
    could be timed.
    """
    if fail_above is not None and compare is None:
        raise click.UsageError("--fail-above needs --compare, which names what to compare with")
    earlier = None if compare is None else _bench_compare.Earlier(compare)
    from millpond._ort_native import ort

    show = Show(as_json)
    providers = given.pop("providers") or _default_providers(ort)
    if earlier is not None:
        earlier.check_shared([(path.name, provider) for path in models for provider in providers])
    rows: list[Row] = []
    with show.progress(len(models) * len(providers) * given["repeats"], "loading") as step:
        for path in models:
            rows += _bench_model(path, providers, given, step)
    device = _options.find_device(given["device"]) if "millpond" in providers else None
    result: dict[str, Any] = {
        "device": device and {"spec": device.spec, "name": device.name, "emulated": device.is_emulated},
        "onnxruntime": ort.__version__,
        "bind": given["bind"],
        "repeats": given["repeats"],
        "rows": [_as_dict(row) for row in rows],
    }
    if earlier is not None:
        result["compared"] = _bench_compare.compare(earlier, result)
    if given["output"]:
        given["output"].write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    where = f"ONNX Runtime {ort.__version__}"
    if device is not None:
        where = f"{device.spec}, {device.name}; {where}"
        show.line(f"On {where}")
    if given["plot"]:
        from millpond.cli import _bench_plot

        given["plot"].write_text(_bench_plot.svg(rows, where), encoding="utf-8")
    _table(show, rows)
    if earlier is not None:
        _bench_compare.show(show, result["compared"])
    show.data(result)
    if not any(row.blocks for row in rows):
        raise Finding(NOTHING, "nothing could be timed")
    if fail_above is not None and (sentence := _bench_compare.slower(result["compared"], fail_above)):
        raise Finding(FAILED, sentence)


def _default_providers(ort: Any) -> tuple[str, ...]:
    return PROVIDERS if CUDA in ort.get_available_providers() else PROVIDERS[:2]
