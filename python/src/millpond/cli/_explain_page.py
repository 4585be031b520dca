# SPDX-License-Identifier: Apache-2.0
"""The page that `millpond explain --html` writes: a picture of each island, and the tables.

One file without scripts, and nothing that it would fetch. What a model names is escaped.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from millpond._html import table
from millpond.cli import _explain
from millpond.cli._show import size

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, EDGE = 208, 46, 24, 34, 16
BOW_MAX = 90  # how far an edge past other boxes swings out
NAME_SHOWN = 30  # characters in a box
SWEEPS = 4  # over the layers, to put boxes below those that they read from

CSS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #5c6670; --line: #c9d0d6; --kernel: #dcecfb;
  --math: #fbe6cf; --view: #f1f3f5; --end: #e3f4e1; --move: #efe4f7; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e8ecef; --soft: #9aa5af; --line: #49525b;
  --kernel: #1f3a55; --math: #57391b; --view: #262b30; --end: #23412a; --move: #3c2b4d; } }
body { margin: 24px auto; max-width: 1200px; padding: 0 16px; background: var(--paper); color: var(--ink);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin-top: 36px; overflow-wrap: anywhere; }
p { color: var(--soft); }
.wide { overflow: auto; border: 1px solid var(--line); border-radius: 6px; max-height: 90vh; }
svg { display: block; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .small { fill: var(--soft); font-size: 11px; }
svg rect { stroke: var(--line); } svg path { stroke: var(--soft); fill: none; opacity: .6; }
.kernel { fill: var(--kernel); } .math { fill: var(--math); } .view { fill: var(--view); } .end { fill: var(--end); }
.move { fill: var(--move); }
.key span { display: inline-block; padding: 0 8px; margin-right: 8px; border-radius: 4px; color: var(--ink); }
.key .kernel { background: var(--kernel); } .key .math { background: var(--math); }
.key .view { background: var(--view); } .key .end { background: var(--end); } .key .move { background: var(--move); }
table { border-collapse: collapse; font-size: 13px; } caption { text-align: left; color: var(--soft); }
th, td { text-align: left; padding: 2px 12px 2px 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
details { margin: 10px 0; } summary { cursor: pointer; } pre { overflow: auto; font-size: 12px; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


# ---- the graph ----


@dataclass
class Box:
    """A step, or an end: an input or an output of the island."""

    title: str
    name: str
    note: str
    kind: str  # of its colour
    hover: str
    reads: list[int]  # boxes
    layer: int = 0
    place: float = 0.0  # in its layer


def _hover(step: dict[str, Any]) -> str:
    lines = [_explain.node_word(node) for node in step["nodes"]]
    lines += [f"reads {value['name']} {_explain.shape_word(value)}, {value['place']}" for value in step["in"]]
    lines += [f"makes {value['name']} {_explain.shape_word(value)}, {value['place']}" for value in step["out"]]
    lines += [f"{_explain.kernel_word(kernel)}" for kernel in step["kernels"]]
    lines += [f"seen: {name}" for name in step.get("seen", ())]
    return "\n".join(lines)


def _kind(step: dict[str, Any]) -> str:
    kinds = {kernel["kind"] for kernel in step["kernels"]}
    if step["is_view"] or not kinds:
        return "view"
    return "math" if kinds & {"product", "convolution", "collective"} else "kernel" if "kernel" in kinds else "move"


def _note(step: dict[str, Any]) -> str:
    if step["is_view"]:
        return "a view"
    time = step.get("device_us")
    return f"{size(step['bytes_read'])} in, {size(step['bytes_written'])} out" + (
        "" if time is None else f", {time:.1f} us"
    )


def boxes_of(program: dict[str, Any]) -> list[Box]:
    """Inputs, steps and outputs, in an order in which each comes behind what it reads."""
    boxes: list[Box] = []
    makers: dict[str, int] = {}
    for value in program["inputs"]:
        makers[value["name"]] = len(boxes)
        boxes.append(Box("input", value["name"], _explain.shape_word(value), "end", value["name"], []))
    for number, step in enumerate(program["steps"]):
        reads = sorted({makers[value["name"]] for value in step["in"] if value["name"] in makers})
        name = _explain.nodes_word(step["nodes"], 1) if len(step["nodes"]) != 1 else step["nodes"][0]["name"]
        boxes.append(Box(f"{number}  {step['op']}", name, _note(step), _kind(step), _hover(step), reads))
        for value in step["out"]:
            makers[value["name"]] = len(boxes) - 1
    outputs = [value for step in program["steps"] for value in step["out"] if value["place"] == "output"]
    read = {value["name"] for step in program["steps"] for value in step["in"]}
    for value in outputs:
        if value["name"] not in read:
            boxes.append(Box("output", value["name"], _explain.shape_word(value), "end", value["name"],
                             [makers[value["name"]]]))
    return boxes


def lay_out(boxes: list[Box]) -> list[list[int]]:
    """Layers of boxes: each in the one behind the last that it reads; ordered so that edges are short."""
    for box in boxes:
        box.layer = 1 + max((boxes[i].layer for i in box.reads), default=-1)
    users: list[list[int]] = [[] for _ in boxes]
    for number, box in enumerate(boxes):
        for i in box.reads:
            users[i].append(number)
    for number, box in enumerate(boxes):
        if not box.reads and users[number]:  # an input stands right before who reads it first
            box.layer = max(0, min(boxes[user].layer for user in users[number]) - 1)
    layers: list[list[int]] = [[] for _ in range(1 + max((box.layer for box in boxes), default=-1))]
    for number, box in enumerate(boxes):
        box.place = float(len(layers[box.layer]))
        layers[box.layer].append(number)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _order(boxes, layer, users, sweep % 2 == 0)
    return layers


def _order(boxes: list[Box], layer: list[int], users: list[list[int]], downwards: bool) -> None:
    def wanted(number: int) -> float:
        near = boxes[number].reads if downwards else users[number]
        return sum(boxes[i].place for i in near) / len(near) if near else boxes[number].place

    layer.sort(key=lambda number: (wanted(number), number))
    for place, number in enumerate(layer):
        boxes[number].place = float(place)


# ---- the picture ----


def _short(text: str) -> str:
    return text if len(text) <= NAME_SHOWN else f"...{text[3 - NAME_SHOWN:]}"


def _corner(box: Box, width: int, in_layer: int) -> tuple[float, float]:
    """Left and top; layers are centred."""
    used = in_layer * (BOX_WIDTH + GAP_X) - GAP_X
    return EDGE + (width - used) / 2 + box.place * (BOX_WIDTH + GAP_X), EDGE + box.layer * (BOX_HEIGHT + GAP_Y)


def _edge(start: tuple[float, float], end: tuple[float, float], layers: int) -> str:
    """From below one box to above another; past boxes of layers between, on the right of all three."""
    if layers > 1:
        right, top, below = start[0] + BOX_WIDTH, start[1] + BOX_HEIGHT / 2, end[1] + BOX_HEIGHT / 2
        side = max(right, end[0] + BOX_WIDTH) + min(BOW_MAX, 16 + 8 * layers)
        return (f'<path d="M{right:.0f} {top:.0f}C{side:.0f} {top:.0f} {side:.0f} {below:.0f} '
                f'{end[0] + BOX_WIDTH:.0f} {below:.0f}"/>')
    left, top, target = start[0] + BOX_WIDTH / 2, start[1] + BOX_HEIGHT, end[0] + BOX_WIDTH / 2
    middle = (top + end[1]) / 2
    return (f'<path d="M{left:.0f} {top:.0f}C{left:.0f} {middle:.0f} {target:.0f} {middle:.0f} '
            f'{target:.0f} {end[1]:.0f}"/>')


def picture(program: dict[str, Any]) -> str:
    """A program as SVG."""
    boxes = boxes_of(program)
    layers = lay_out(boxes)
    most = max(map(len, layers), default=1)
    width = most * (BOX_WIDTH + GAP_X) - GAP_X
    height = len(layers) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    corners = [_corner(box, width, len(layers[box.layer])) for box in boxes]
    parts = [
        _edge(corners[i], corner, box.layer - boxes[i].layer)
        for corner, box in zip(corners, boxes, strict=True) for i in box.reads
    ]
    for (x, y), box in zip(corners, boxes, strict=True):
        parts.append(
            f'<g><title>{escape(box.hover)}</title><rect x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="5" class="{box.kind}"/>'
            f'<text x="{x + 8:.0f}" y="{y + 15:.0f}">{escape(_short(box.title))}</text>'
            f'<text x="{x + 8:.0f}" y="{y + 28:.0f}" class="small">{escape(_short(box.name))}</text>'
            f'<text x="{x + 8:.0f}" y="{y + 41:.0f}" class="small">{escape(box.note)}</text></g>'
        )
    full = width + 2 * EDGE + BOW_MAX, height + 2 * EDGE
    return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{full[0]}" height="{full[1]}" '
            f'viewBox="0 0 {full[0]} {full[1]}"><title>steps and the values between them</title>{"".join(parts)}</svg>')


# ---- the page ----


def _texts(island: dict[str, Any]) -> str:
    return "".join(
        f"<details><summary>{what}</summary><pre>{escape(island[key])}</pre></details>"
        for key, what in (("before", "The graph before the passes"), ("after", "The graph after the passes"))
    )


def _program(program: dict[str, Any]) -> str:
    rows = [_explain.step_row(i, step) for i, step in enumerate(program["steps"])]
    columns = ("step", "operator", "nodes", "kernels", "read", "written", "result", "us")
    inputs = " ".join(f"{value['name']} {_explain.shape_word(value)}" for value in program["inputs"])
    return (f'<p>for {escape(inputs or "no inputs")}</p><div class="wide">{picture(program)}</div>'
            f"<details><summary>Its steps as a table</summary>{table(columns, rows)}</details>")


def _island(island: dict[str, Any]) -> str:
    programs = "".join(map(_program, island["programs"])) or f"<p>{_explain.without_programs(island)}</p>"
    return (f"<h2>{escape(island['name'])}</h2><p>{escape(_explain.summary(island))}</p>{programs}{_texts(island)}")


def _outside(found: dict[str, Any]) -> str:
    rows = [(each["provider"], each["operator"], each["name"], each["reason"]) for each in found["outside"]]
    return f"<h2>Outside of islands</h2>{table(('provider', 'operator', 'name', 'reason'), rows)}" if rows else ""


def page(found: dict[str, Any]) -> str:
    """A report of _explain.report as a page."""
    key = "".join(f'<span class="{kind}">{word}</span>' for kind, word in (
        ("kernel", "a kernel of ours"), ("math", "a product, a convolution, work of all ranks"),
        ("move", "a copy or a fill"), ("view", "no work"), ("end", "an input or output")))
    title = escape(_explain.head(found))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title><style>{CSS}</style></head>'
        f'<body><h1>{title}</h1><p class="key">{key}</p>{"".join(map(_island, found["islands"]))}{_outside(found)}'
        f"</body></html>\n"
    )
