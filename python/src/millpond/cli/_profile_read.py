# SPDX-License-Identifier: Apache-2.0
"""What a profile of ONNX Runtime's says: times by operator and by kernel, and what a run consists of.

docs/profiling.md describes the events. A piece of the device's work belongs to the run in which it was queued, not to
the one in which it was done: its correlation id is when the event of ONNX Runtime's began, by another clock's zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

SLACK_US = 2  # begins and ids are cut to whole microseconds
NODE_TIME = "_kernel_time"  # behind the name of a node in the name of its event
OPERATORS_NAMED = 3  # of a piece that is for several
FUSED = "Fused"  # a step made of any element-wise nodes, whose own names say more
# Operators of which some inputs, here by number, are tables that a run reads a part of.
LOOK_UPS = {
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "GatherBlockQuantized": (0, 2, 3),
    "EmbedLayerNormalization": (2, 3, 4), "MoE": range(2, 64), "QMoE": range(2, 64),
}


@dataclass
class Piece:
    """A kernel, copy or fill of the device."""

    event: Event
    us: float
    group: str  # what was queued together: an event of ONNX Runtime's in a run; empty: of no node
    step: int | None  # of an island
    nodes: tuple[tuple[str, str], ...]  # (operator, name)

    @property
    def name(self) -> str:
        return self.event["name"]


@dataclass
class Run:
    begin: int
    us: int
    nodes: list[Event] = field(default_factory=list)  # ONNX Runtime's own events, on the host
    pieces: list[Piece] = field(default_factory=list)

    @property
    def device_us(self) -> float:
        return sum(piece.us for piece in self.pieces)


def _zero(events: Iterable[Event], nodes: Iterable[Event]) -> int | None:
    """What to take off a correlation id to get a begin as ONNX Runtime's events have it."""
    begins: defaultdict[str, list[int]] = defaultdict(list)
    for node in nodes:
        begins[node["name"]].append(node["ts"])
    ids = {(event["args"]["ort_event_name"], int(event["args"]["ort_correlation_id"])) for event in events
           if "ort_event_name" in event["args"] and "ort_correlation_id" in event["args"]}
    found = Counter(number - begin for name, number in ids for begin in begins[name])
    return found.most_common(1)[0][0] if found else None


def _piece(event: Event) -> Piece:
    args = event["args"]
    step = args.get("island_step")
    nodes = tuple((node["op_type"], node["name"]) for node in args.get("onnx_nodes", ()))
    group = f"{args['ort_event_name']} {args['ort_correlation_id']}" if "ort_event_name" in args else ""
    return Piece(event, int(args["duration_ns"]) / 1e3, group, None if step is None else int(step), nodes)


def runs_of(profile: Sequence[Event], count: int) -> list[Run]:
    """The last `count` runs."""
    began = sorted((event for event in profile if event["name"] == "model_run" and event.get("cat") == "Session"),
                   key=lambda event: event["ts"])
    runs = [Run(event["ts"], event["dur"]) for event in began]
    begins = [run.begin for run in runs]

    def run_at(time: int) -> Run | None:
        number = bisect_right(begins, time + SLACK_US) - 1
        found = runs[number] if number >= 0 else None
        return found if found is not None and time <= found.begin + found.us + SLACK_US else None

    nodes = [event for event in profile if event.get("cat") == "Node" and "op_name" in event["args"]]
    for event in nodes:
        if (run := run_at(event["ts"])) is not None:
            run.nodes.append(event)
    kernels = [event for event in profile if event.get("cat") == "Kernel"]
    zero = _zero(kernels, nodes)
    for event in kernels:
        known = zero is not None and "ort_correlation_id" in event["args"]
        time = int(event["args"]["ort_correlation_id"]) - zero if known and zero is not None else event["ts"]
        if (run := run_at(time)) is not None:
            run.pieces.append(_piece(event))
    return runs[-count:]


# ---- tables ----


@dataclass
class Sum:
    """Of a row; all over the runs."""

    us: float = 0.0
    count: int = 0  # nodes, or steps
    launches: int = 0
    bytes: int | None = 0  # read and written, where each step's are known
    flop: int = 0  # of matrix products


def operators_word(nodes: Iterable[tuple[str, str]], made: str | None = None) -> str:
    """`made`: what a pass has made of them."""
    names = list(dict.fromkeys(operator for operator, _ in nodes))
    more = len(names) - OPERATORS_NAMED
    if more > 0 and made not in (None, FUSED):
        return f"{made} of {len(names)} operators"
    return " + ".join(names[:OPERATORS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _flop(step: dict[str, Any]) -> int:
    return sum(2 * each["batch"] * each["m"] * each["n"] * each["k"] for each in step["kernels"]
               if each["kind"] == "product")


class Steps:
    """What the provider says of the steps of its islands; of islands with one program only, as a profile does not tell
    programs apart."""

    def __init__(self, islands: Sequence[dict[str, Any]]) -> None:
        self.names = {f"{island['event']}{NODE_TIME}": island["name"] for island in islands}
        self._steps = {f"{island['event']}{NODE_TIME}": island["programs"][0]["steps"] for island in islands
                       if len(island["programs"]) == 1}

    def of(self, piece: Piece) -> dict[str, Any] | None:
        steps = self._steps.get(piece.event["args"].get("ort_event_name", ""), [])
        if piece.step is None or piece.step >= len(steps):
            return None
        step = steps[piece.step]
        same = [(node["op_type"], node["name"]) for node in step["nodes"]] == list(piece.nodes)
        return step if same and "body" not in step else None

    def cost(self, piece: Piece) -> tuple[int | None, int]:
        """Bytes and FLOP of the step; no bytes for one that may read a part only."""
        step = self.of(piece)
        if step is None:
            return None, 0
        whole = step["op"].rpartition(".")[2] not in LOOK_UPS
        return step["bytes_read"] + step["bytes_written"] if whole else None, _flop(step)

    def word(self, piece: Piece) -> str:
        """The operators of the model; empty for what is of no node."""
        step = self.of(piece)
        return operators_word(piece.nodes, None if step is None else step["op"].rpartition(".")[2])


def _copy_word(piece: Piece) -> str:
    return {"MemcpyHostToDevice": "(inputs)", "MemcpyDeviceToHost": "(outputs)"}.get(piece.name, "(other work)")


def _rows(sums: dict[tuple[str, str], Sum], runs: int) -> list[dict[str, Any]]:
    """The largest first; figures are means of a run."""
    whole = sum(each.us for each in sums.values())
    rows: list[dict[str, Any]] = []
    for (name, where), each in sorted(sums.items(), key=lambda pair: (-pair[1].us, pair[0])):
        known = each.bytes if each.bytes else None
        rows.append({
            "name": name, "where": where, "count": each.count / runs, "launches": each.launches / runs,
            "us": each.us / runs, "share": each.us / whole if whole else 0.0,
            "bytes": None if known is None else known / runs, "flop": each.flop / runs,
            "gb_s": known / each.us / 1e3 if known is not None and each.us else None,
        })
    return rows


def _node_name(event: Event, steps: Steps) -> str:
    return "island" if event["name"] in steps.names else event["args"]["op_name"]


def by_operator(runs: Sequence[Run], steps: Steps, ours: Iterable[str]) -> list[dict[str, Any]]:
    """The device's work, by the operators of the model that it is for, and nodes of other providers. Where the profile
    has no work of the device, the host's times of the provider's nodes stand for it."""
    sums: defaultdict[tuple[str, str], Sum] = defaultdict(Sum)
    blind = not any(run.pieces for run in runs)
    for run in runs:
        seen: set[tuple[Any, ...]] = set()
        for piece in run.pieces:
            row = sums[steps.word(piece) or _copy_word(piece), "device"]
            row.us += piece.us
            row.launches += 1
            key = (piece.group, piece.step, piece.nodes) if piece.nodes else (id(piece),)
            if key in seen:
                continue
            seen.add(key)
            size, flop = steps.cost(piece)
            row.count += 1
            row.bytes = None if row.bytes is None or size is None else row.bytes + size
            row.flop += flop
        for event in run.nodes:
            provider = event["args"].get("provider", "")
            if provider in ours and not blind:
                continue
            row = sums[_node_name(event, steps), "host" if provider in ours else provider]
            row.us += event["dur"]
            row.count += 1
            row.bytes = None
    return _rows(sums, len(runs))


def by_kernel(runs: Sequence[Run]) -> list[dict[str, Any]]:
    sums: defaultdict[tuple[str, str], Sum] = defaultdict(Sum)
    for run in runs:
        for piece in run.pieces:
            row = sums[piece.name, "device"]
            row.us += piece.us
            row.count += 1
            row.launches += 1
            moved = piece.event["args"].get("bytes")
            row.bytes = None if row.bytes is None or moved is None else row.bytes + int(moved)
    return _rows(sums, len(runs))


# ---- the chart ----


@dataclass
class Bar:
    """Of the chart; times in microseconds from the begin of the run."""

    depth: int
    begin: float
    us: float
    name: str
    kind: str
    hover: str


@dataclass
class Lane:
    """What is drawn together: the host's events of a thread, or the work of a stream."""

    title: str
    bars: list[Bar]


def _host_lanes(run: Run, steps: Steps, ours: Iterable[str]) -> list[Lane]:
    threads: defaultdict[int, list[Event]] = defaultdict(list)
    for event in run.nodes:
        threads[event["tid"]].append(event)
    lanes: list[Lane] = []
    for number, events in enumerate(threads.values()):
        bars: list[Bar] = []
        ends: list[int] = []  # of the events around
        for event in sorted(events, key=lambda each: (each["ts"], -each["dur"])):
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            args = event["args"]
            inside = event["name"] in steps.names
            name = steps.names[event["name"]] if inside else (
                f"{args['op_name']} {event['name'].removesuffix(NODE_TIME)}".strip())
            kind = "other" if args.get("provider", "") not in ours else "island" if inside else "node"
            hover = f"{name}\n{args.get('provider', '')}, on the host"
            bars.append(Bar(len(ends), event["ts"] - run.begin, event["dur"], name, kind, hover))
            ends.append(event["ts"] + event["dur"])
        lanes.append(Lane("host" if number == 0 else f"host, thread {number + 1}", bars))
    return lanes


def _span(pieces: Sequence[Piece], run: Run) -> tuple[float, float]:
    begin = pieces[0].event["ts"]
    end = max(piece.event["ts"] + piece.us for piece in pieces)
    return begin - run.begin, end - begin


def _in_rows(pieces: Sequence[Piece], key: Any) -> list[list[Piece]]:
    """Those with the same key that follow each other."""
    rows: list[list[Piece]] = []
    for piece in pieces:
        if rows and key(rows[-1][0]) == key(piece):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return rows


def _node_words(piece: Piece) -> str:
    return ", ".join(f"{operator} {name}".strip() for operator, name in piece.nodes)


def _kernel_bar(piece: Piece, run: Run, depth: int) -> Bar:
    args = piece.event["args"]
    lines = [piece.name, _node_words(piece)]
    if args.get("grid_x", "-1") != "-1":
        lines.append(f"grid {args['grid_x']} x {args['grid_y']} x {args['grid_z']}, "
                     f"block {args['block_x']} x {args['block_y']} x {args['block_z']}")
    if "bytes" in args:
        lines.append(f"{args['bytes']} bytes")
    if "in_graph" in args:
        lines.append("in a replay of a graph")
    kind = "kernel" if args.get("grid_x", "-1") != "-1" else "move"
    return Bar(depth, piece.event["ts"] - run.begin, piece.us, piece.name, kind, "\n".join(filter(None, lines)))


def _stream_lane(stream: str, pieces: list[Piece], run: Run, steps: Steps) -> Lane:
    bars: list[Bar] = []
    pieces.sort(key=lambda piece: piece.event["ts"])
    for together in _in_rows(pieces, lambda piece: piece.group):
        island = steps.names.get(together[0].event["args"].get("ort_event_name", ""))
        if island is not None:
            bars.append(Bar(0, *_span(together, run), island, "island", island))
        for same in _in_rows(together, lambda piece: (piece.step, piece.nodes)):
            depth = 0 if island is None else 1
            if same[0].nodes:
                name = _node_words(same[0])
                step = "" if same[0].step is None else f"step {same[0].step}: "
                bars.append(Bar(depth, *_span(same, run), name, "node", step + name))
                depth += 1
            bars += [_kernel_bar(piece, run, depth) for piece in same]
    return Lane(f"device, stream {stream}", bars)


def chart_of(run: Run, steps: Steps, ours: Iterable[str]) -> list[Lane]:
    """A run, what the host did in it, and what each stream did."""
    streams: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in run.pieces:
        streams[piece.event["args"]["stream"]].append(piece)
    whole = Bar(0, 0.0, run.us, "run", "run", "the run, as the host sees it")
    return [Lane("run", [whole]), *_host_lanes(run, steps, ours),
            *(_stream_lane(stream, pieces, run, steps) for stream, pieces in sorted(streams.items()))]
