# SPDX-License-Identifier: Apache-2.0
"""`millpond explain`: what becomes of a model: its islands, their steps and kernels, and what is outside."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click

from millpond import _ort_beyond_numpy as beyond
from millpond.cli import FAILED, _options
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show, size

RUNS = 8
NODES_SHOWN = 3  # of a step
ROWS_SHOWN = 400  # steps of an island


# ---- a session that is looked at ----


@dataclass
class Look:
    """A model on the provider, after some runs of which ONNX Runtime kept a profile."""

    device: Any
    fusion: str
    placement: Any
    feeds: dict[str, Any]
    sources: dict[str, str]
    told: dict[str, Any]  # by the provider
    profile: list[dict[str, Any]] = field(default_factory=list)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The device's work."""
        return [event for event in self.profile if event.get("cat") == "Kernel"]


def _events(path: Path) -> list[dict[str, Any]]:
    """An empty list where a name of the model, which ONNX Runtime writes as it is, breaks the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError:
        return []


def look_at(
    path: Path, given: dict[str, Any], wishes: Any, runs: int, after: Callable[[Any, Any], None] | None = None
) -> Look:
    """`after` gets the session and the feeds when the profile has ended."""
    import millpond.onnxruntime as mort
    from millpond import _ort_islands, _ort_options, _ort_placement
    from millpond._ort_native import ort
    from millpond.cli import _inputs

    device = _options.find_device(given["device"])
    options = _options.provider_options(given["options"])
    with tempfile.TemporaryDirectory(prefix="millpond-") as folder:
        prepared = _options.quiet(ort.SessionOptions(), given["threads"])
        _ort_islands.ask(prepared)
        prepared.enable_profiling = True
        prepared.profile_file_prefix = str(Path(folder) / "profile")
        session = mort.session(str(path), device, options=options, session_options=prepared)
        feeds = _inputs.feeds(session, wishes)
        for _ in range(runs):
            beyond.run(session, None, feeds)
        told = _ort_islands.islands_of(session)
        profile = _events(Path(session.end_profiling()))
        if after is not None:
            after(session, feeds)
        return Look(device, _ort_options.effective_options(session)["fusion"], _ort_placement.placement_of(session),
                    feeds, dict(wishes.sources), told, profile)


def _with_reasons(path: Path, look: Look, given: dict[str, Any]) -> Any:
    """The placement with a reason for each node that is on another provider."""
    import millpond.onnxruntime as mort
    from millpond import _ort_placement

    options = _options.provider_options(given["options"])

    def again(prepared: Any, more: dict[str, str]) -> Any:
        quiet = _options.quiet(prepared, given["threads"])
        return mort.session(str(path), look.device, options=options | more, session_options=quiet)

    return _ort_placement.explained(look.placement, again)


# ---- what is told of it ----


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def node_word(node: dict[str, str]) -> str:
    """ "Softmax 'attention/softmax'" """
    return f"{node['op_type']} {node['name']!r}" if node["name"] else node["op_type"]


def nodes_word(nodes: list[dict[str, str]], most: int = NODES_SHOWN) -> str:
    named = ", ".join(node_word(node) for node in nodes[:most])
    return named + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


def shape_word(value: dict[str, Any]) -> str:
    """ "f32[2,3]" """
    return f"{value['type']}[{','.join(map(str, value['shape']))}]" if "shape" in value else "-"


def is_view(step: dict[str, Any]) -> bool:
    """Whether the result lies where an input does, so that nothing is copied."""
    def spot(value: dict[str, Any]) -> tuple[Any, ...]:
        return value["place"], value.get("offset"), value.get("index")

    spots = [spot(value) for value in step["in"] if value["place"] in ("block", "kept", "input", "output")]
    return "body" not in step and all(kernel["kind"] == "copy" for kernel in step["kernels"]) and any(
        spot(value) in spots for value in step["out"]
    )


def kernel_word(kernel: dict[str, Any]) -> str:
    kind = kernel["kind"]
    if kind == "product":
        batch = f"{kernel['batch']} x " if kernel["batch"] > 1 else ""
        return f"product {batch}{kernel['m']}x{kernel['n']}x{kernel['k']}"
    if kind == "kernel":
        return kernel["name"] or "kernel"
    word = kernel["name"] if kind == "collective" else kind
    return word if kind == "convolution" else f"{word} of {size(kernel['bytes'])}"


def kernels_word(step: dict[str, Any]) -> str:
    if is_view(step):
        return "none: a view"
    if "body" in step:
        return f"{plural(step['trips'], 'iteration')} of {plural(len(step['body']['steps']), 'step')}"
    counted = Counter(kernel_word(kernel) for kernel in step["kernels"])
    return ", ".join(name + (f" x{count}" if count > 1 else "") for name, count in counted.items()) or "none"


def _total(values: list[dict[str, Any]]) -> int:
    return sum({value["name"]: value["bytes"] for value in values}.values())


def _add_sums(step: dict[str, Any]) -> None:
    view = is_view(step)
    step["is_view"] = view
    step["bytes_read"] = 0 if view else _total(step["in"])
    step["bytes_written"] = 0 if view else _total(step["out"])


def _add_times(island: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Of each step the device's time in a run, in µs (the median), and the kernels seen; of one program only, since a
    profile does not tell programs apart."""
    times: dict[int, Counter[str]] = defaultdict(Counter)
    seen: dict[int, set[str]] = defaultdict(set)
    programs = island["programs"]
    steps = programs[0]["steps"] if len(programs) == 1 else []
    for event in events:
        args = event["args"]
        if args.get("ort_event_name") == f"{island['event']}_kernel_time" and "island_step" in args:
            number = int(args["island_step"])
            if number >= len(steps) or args["onnx_nodes"] != steps[number]["nodes"]:
                continue  # a step of a loop's body
            times[number][args["ort_correlation_id"]] += int(args["duration_ns"])
            seen[number].add(event["name"])
    for i, step in enumerate(steps):
        step["device_us"] = round(median(times[i].values() or [0]) / 1e3, 3) if events else None
        step["seen"] = sorted(seen[i])


def _idle(island: dict[str, Any]) -> list[dict[str, str]]:
    """The nodes that have no work in a run."""
    def key(node: dict[str, str]) -> tuple[str, str]:
        return node["op_type"], node["name"]

    works = Counter(key(node) for program in island["programs"][:1] for step in program["steps"]
                    for node in step["nodes"])
    idle = []
    for node in island["nodes"]:
        if works[key(node)] > 0:
            works[key(node)] -= 1
        else:
            idle.append(node)
    return idle


def _outside(placement: Any, told: list[dict[str, str]]) -> list[dict[str, str]]:
    """Nodes that are in no island: on this provider as the provider says, on others as placement does."""
    from millpond import _ort_register as register

    reasons = {(node["op_type"], node["name"]): node["reason"] for node in told}
    found = []
    ours = register.names()
    for node in placement.nodes:
        here = node.provider in ours
        reason = reasons.get((node.operator, node.name)) if here else node.reason or "not known"
        if reason is not None:
            found.append({"provider": node.provider, "operator": node.title, "name": node.name, "reason": reason})
    return found


def _in_a_row(program: dict[str, Any]) -> None:
    """Makes one list of the steps of a program's segments: of those behind one, the last used. "segments" says what the
    host waits for between them; "next" has all that is planned."""
    joined = program.get("joined")  # both branches of Ifs, which is what runs then
    chain = [{**joined, "next": []} if joined else program]
    while chain[-1]["next"]:
        chain.append(chain[-1]["next"][0])
    program["segments"] = [
        {"steps": len(each["steps"]), "read_back": each["read_back"], "loops": each["loops"],
         "continuations": len(each["next"])} for each in chain
    ]
    program["block_bytes"] = max(each["block_bytes"] for each in chain)
    program["sum_bytes"] = max(each["sum_bytes"] for each in chain)
    program["copies"] = [copy for each in chain for copy in each["copies"]]
    program["steps"] = [step for each in chain for step in each["steps"]]


def report(path: Path, look: Look, placement: Any) -> dict[str, Any]:
    islands, events = look.told["islands"], look.events
    for island in islands:
        for program in island["programs"]:
            _in_a_row(program)
            for step in program["steps"]:
                _add_sums(step)
        _add_times(island, events)
        island["idle"] = _idle(island)
    off = look.fusion == "0"
    return {
        "model": str(path),
        "device": {"spec": look.device.spec, "name": look.device.name, "emulated": look.device.is_emulated},
        "inputs": [{"name": name, "type": value.dtype.name, "shape": list(value.shape),
                    "source": look.sources.get(name)} for name, value in look.feeds.items()],
        "fusion": look.fusion,
        "nodes": len(placement.nodes),
        "islands": islands,
        "outside": [
            {"provider": node.provider, "operator": node.title, "name": node.name,
             "reason": node.reason or "there are no islands with fusion=0"} for node in placement.nodes
        ] if off else _outside(placement, look.told["outside"]),
    }


# ---- for people ----


def summary(island: dict[str, Any]) -> str:
    words = [f"{plural(len(island['nodes']), 'node')}, {plural(island['rewrites'], 'rewrite')}"]
    for program in island["programs"][:1]:
        kernels = sum(len(step["kernels"]) for step in program["steps"] if not step["is_view"])
        words.append(f"{plural(len(program['steps']), 'step')}, {plural(kernels, 'launch', 'launches')}")
        if len(program["segments"]) > 1:
            words.append(f"{len(program['segments'])} segments, between which the host waits for data")
        words.append(f"a block of {size(program['block_bytes'])} for {size(program['sum_bytes'])} of values")
        if program["copies"]:
            words.append(f"{plural(len(program['copies']), 'output')} copied")
        times = [step.get("device_us") for step in program["steps"]]
        if times and all(time is not None for time in times):
            words.append(f"{sum(times):.1f} us on the device")
    if island["idle"]:
        counted = Counter(node["op_type"] for node in island["idle"]).most_common(4)
        named = ", ".join(f"{name} {count}" for name, count in counted)
        words.append(f"{plural(len(island['idle']), 'node')} without work in a run ({named})")
    return "; ".join(words)


def step_row(number: int, step: dict[str, Any]) -> tuple[object, ...]:
    time = step.get("device_us")
    return (number, step["op"], nodes_word(step["nodes"]), kernels_word(step), size(step["bytes_read"]),
            size(step["bytes_written"]), " ".join(shape_word(value) for value in step["out"]),
            "-" if time is None else f"{time:.1f}")


def without_programs(island: dict[str, Any]) -> str:
    return ("it is planned as a step of the program around it, or was not reached by these inputs" if island["is_body"]
            else "it was not reached by these inputs")


def _show_island(show: Show, island: dict[str, Any]) -> None:
    show.heading(island["name"])
    show.line(summary(island))
    for program in island["programs"]:
        inputs = " ".join(f"{value['name']} {shape_word(value)}" for value in program["inputs"])
        show.line(f"for {inputs or 'no inputs'}")
        rows = [step_row(i, step) for i, step in enumerate(program["steps"][:ROWS_SHOWN])]
        show.table(["step", "operator", "nodes", "kernels", "read", "written", "result", "us"], rows,
                   ["step", "read", "written", "us"])
        if len(program["steps"]) > ROWS_SHOWN:
            show.line(f"and {len(program['steps']) - ROWS_SHOWN} more: --json and --html have all")
    if not island["programs"]:
        show.line(without_programs(island))


def _show_outside(show: Show, found: dict[str, Any]) -> None:
    counted = Counter((each["provider"], each["operator"], each["reason"]) for each in found["outside"])
    if not counted:
        return
    show.heading("Outside of islands")
    show.table(["provider", "operator", "nodes", "reason"],
               [(provider, operator, count, reason) for (provider, operator, reason), count in counted.most_common()],
               ["nodes"])


def _show_texts(show: Show, island: dict[str, Any]) -> None:
    show.heading(f"{island['name']}, as ONNX Runtime gives it")
    show.line(island["before"])
    show.heading(f"{island['name']}, after {plural(island['rewrites'], 'rewrite')}")
    show.line(island["after"])


def head(found: dict[str, Any]) -> str:
    inside = sum(len(island["nodes"]) for island in found["islands"])
    kind = "emulated on the CPU" if found["device"]["emulated"] else "GPU"
    return (f"{Path(found['model']).name} on {found['device']['spec']}, {found['device']['name']} ({kind}): "
            f"{plural(inside, 'node')} in {plural(len(found['islands']), 'island')}, {len(found['outside'])} outside")


def _show_report(show: Show, found: dict[str, Any], texts: bool) -> None:
    show.line(head(found))
    for island in found["islands"]:
        if texts:
            _show_texts(show, island)
        else:
            _show_island(show, island)
    if not texts:
        _show_outside(show, found)


# ---- the command ----


@click.command("explain")
@click.argument("model", type=_options.MODEL)
@_options.input_options
@_options.session_options
@click.option("--runs", default=RUNS, show_default=True, type=click.IntRange(1), help="Runs that are timed.")
@click.option("--text", "texts", is_flag=True, help="Print the graphs as text, before and after the passes.")
@click.option("--html", type=click.Path(dir_okay=False, writable=True, path_type=Path), callback=_options.writable,
              help="Write a page with a picture of each island.")
@click.option("--bisect", is_flag=True, help="Find the first rewrite that changes a result beyond rounding.")
@click.option("--tolerance", type=_options.Finite(0), help="With --bisect: the largest relative difference that is "
              "rounding.  [default: 0.005 for floats, 0.03 for float16, 0.1 for bfloat16 and fewer bits; integers "
              "must be equal]")
@json_option
def command(
    model: Path, as_json: bool, runs: int, texts: bool, html: Path | None, bisect: bool, tolerance: float | None,
    **given: Any,
) -> None:
    """Explain what becomes of a model: islands, their steps and kernels, what is outside of them and why.

    The model is run with inputs that are read or made up, for their shapes. With --bisect: ends with 1 where a result
    is not the same without rewrites.
    """
    show = Show(as_json)
    wishes = _options.wishes_of(given)
    if bisect:
        _bisect(show, model, given, wishes, tolerance)
        return
    with show.progress(2, f"running {model.name}") as step:
        look = look_at(model, given, wishes, runs)
        step("reasons")
        found = report(model, look, _with_reasons(model, look, given))
        step("done")
    if html is not None:
        from millpond.cli import _explain_page

        html.write_text(_explain_page.page(found), encoding="utf-8")
    _show_report(show, found, texts)
    show.data(found)


def _bisect(show: Show, model: Path, given: dict[str, Any], wishes: Any, tolerance: float | None) -> None:
    from millpond.cli import _explain_bisect

    with show.progress(1, f"looking for a rewrite of {model.name}") as step:
        found = _explain_bisect.search(model, given, wishes, tolerance)
        step("done")
    for line in _explain_bisect.words(found):
        show.line(line)
    show.data(found)
    if not found["agrees"]:
        raise Finding(FAILED, _explain_bisect.verdict(found))
