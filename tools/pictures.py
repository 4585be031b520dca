#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pictures of the documents, docs/pictures/*.svg; the chart is drawn from bench/results.

    pictures.py [--check]

Each is one file that brings its colours, for light and for dark, and its background, so that it can be read wherever it
is shown. Text is text. --check: fails where a file is not what would be written.
"""

import json
import sys
from html import escape

import generated
from generated import ROOT

FOLDER = ROOT / "docs/pictures"
RESULTS = ROOT / "bench/results"
WIDTH = 520  # so that text is still read on a telephone
STYLE = """
  svg { --panel: #ffffff; --ink: #1b2430; --soft: #4a5566; --line: #6b7686; --teal: #cdeee8; --blue: #d6e4fb;
        --amber: #fbe3b8; --grey: #e9ecf0; --one: #00796b; --own: #c2570c }
  @media (prefers-color-scheme: dark) {
    svg { --panel: #1c212b; --ink: #e8ecf2; --soft: #b3bdcb; --line: #8b97a8; --teal: #0f4a43; --blue: #1f3d66;
          --amber: #5c4312; --grey: #333b48; --one: #2bb3a3; --own: #ef8a3c }
  }
  text { font: 14px system-ui, "Liberation Sans", Arial, sans-serif; fill: var(--ink) }
  .small { font-size: 12px; fill: var(--soft) }
  .strong { font-weight: 600 }
  .panel { fill: var(--panel) }
  .teal { fill: var(--teal) } .blue { fill: var(--blue) } .amber { fill: var(--amber) } .grey { fill: var(--grey) }
  .none { fill: none } .one { fill: var(--one) } .own { fill: var(--own) }
  .edge { stroke: var(--line); stroke-width: 1 } .dashed { stroke-dasharray: 4 3 }
  .arrow { fill: none; stroke: var(--line); stroke-width: 1.5; marker-end: url(#head) }
"""


# ---- parts of a picture ----


def text(x, y, said, kind="", anchor="middle"):
    marks = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{marks}>{escape(said)}</text>'


def rect(x, y, width, height, kind, radius=4):
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" class="{kind}"/>'


def box(x, y, width, height, kind, *lines, first="strong"):
    """A box with lines of text, the first of them bold, in its middle."""
    yield rect(x, y, width, height, f"{kind} edge")
    top = y + height / 2 - 9 * (len(lines) - 1) + 5
    for number, said in enumerate(lines):
        yield text(x + width / 2, top + 18 * number, said, first if number == 0 else "small")


def arrow(*points):
    path = " L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path class="arrow" d="M{path}"/>'


def line(x1, y1, x2, y2, kind="edge"):
    return f'<path class="none {kind}" d="M{x1:g} {y1:g} L{x2:g} {y2:g}"/>'


def picture(title, height, *parts):
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">' \
           '<path d="M0 0 L8 4 L0 8 z" style="fill: var(--line)"/></marker>'
    flat = []
    for part in parts:
        flat.extend([part] if isinstance(part, str) else part)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img">', f"<title>{escape(title)}</title>",
        "<!-- Written by tools/pictures.py. SPDX-License-Identifier: Apache-2.0 -->", f"<style>{STYLE}</style>",
        f"<defs>{head}</defs>", rect(0, 0, WIDTH, height, "panel", 8), *flat, "</svg>", ""])


# ---- pictures ----


def one_pool():
    """Memory in use after each phase, both ways."""
    results = json.loads((RESULTS / "one-pool-nvidia-h200.json").read_text(encoding="utf-8"))
    names = {"onnxruntime": "ONNX", "numba": "Numba", "cupy": "CuPy", "torch": "PyTorch"}
    own, one = ([phase["used_after"] / 2**20 for phase in results[way]["phases"]] for way in ("own", "one"))
    phases = [names[phase["phase"]] for phase in results["own"]["phases"]]
    left, floor, height, step = 52, 232, 170, 58
    top = 12 * 1024
    parts = [text(16, 28, "GPU memory after each phase", "strong", "start"),
             rect(262, 17, 12, 12, "own", 2), text(280, 28, "a pool each", "small", "start"),
             rect(378, 17, 12, 12, "one", 2), text(396, 28, "one pool", "small", "start")]
    for gib in range(0, 13, 4):
        y = floor - height * gib * 1024 / top
        parts += [line(left, y, WIDTH - 12, y, "edge dashed" if gib else "edge"),
                  text(left - 6, y + 4, f"{gib} GiB", "small", "end")]
    for number, (label, many, few) in enumerate(zip(phases, own, one, strict=True)):
        x = left + 6 + step * number - 4 * (number // 4 == 0)
        for offset, value, kind in ((0, many, "own"), (22, few, "one")):
            tall = height * value / top
            parts.append(rect(x + offset, floor - tall, 20, tall, kind, 2))
        parts.append(text(x + 21, floor + 18, label, "small"))
    parts += [text(left + 2 * step, floor + 38, "round 1"), text(left + 6 * step, floor + 38, "round 2"),
              text(WIDTH - 12, floor - height * own[-1] / top - 8, f"{own[-1]:,.0f} MiB", "strong", "end"),
              text(WIDTH - 12, 290, f"With one pool {one[-1]:,.0f} MiB from the first phase to the last. "
                   f"{results['device']}", "small", "end")]
    return picture("GPU memory of four libraries that take turns, with a pool each and with one", 302, *parts)


def block():
    """Calls, three streams and the memory, over time."""
    lanes = {"calls": 58, "stream A": 104, "stream B": 154, "stream C": 204, "memory": 262}
    parts = [text(16, 28, "The life of a block: time runs to the right", "strong", "start")]
    for name, y in lanes.items():
        parts += [text(12, y + 5, name, "small", "start"), line(84, y + 22, WIDTH - 10, y + 22)]
    parts += [text(x, 63, said, "", "start") for x, said in
              ((88, "alloc A"), (168, "record_use B"), (284, "free"), (328, "alloc A"), (396, "free"),
               (440, "alloc C"))]
    parts += [*box(88, 90, 108, 32, "teal", "work"), *box(328, 90, 68, 32, "blue", "work"),
              *box(200, 140, 84, 32, "teal", "work"), *box(440, 190, 70, 32, "amber", "work"),
              text(194, 153, "waits for the", "small", "end"), text(194, 168, "earlier use", "small", "end"),
              text(300, 146, "A: at once,", "small", "start"), text(300, 162, "in its order", "small", "start"),
              arrow((390, 122), (390, 206), (438, 206)), text(384, 210, "C: by an event", "small", "end"),
              rect(88, 248, 196, 32, "teal edge"), text(186, 269, "the block"),
              rect(284, 248, 44, 32, "none edge dashed"), text(306, 269, "free", "small"),
              rect(328, 248, 68, 32, "blue edge"), text(362, 269, "A's"),
              rect(396, 248, 44, 32, "none edge dashed"), text(418, 269, "free", "small"),
              rect(440, 248, 70, 32, "amber edge"), text(475, 269, "C's")]
    return picture("The life of a block of memory on three streams", 300, *parts)


def islands():
    row = ("MatMul", "Add", "Relu", "Shape", "Softmax")
    parts = [text(16, 30, "The nodes of a model", "strong", "start"), rect(16, 42, 404, 64, "none edge dashed", 10)]
    for number, name in enumerate(row):
        parts += box(26 + 78 * number, 56, 72, 36, "grey", name, first="")
        if number:
            parts.append(line(20 + 78 * number, 74, 26 + 78 * number, 74))
    parts += [*box(434, 56, 74, 36, "amber", "a text op", first=""), line(410, 74, 434, 74),
              text(218, 124, "those it takes: an island", "small"), text(471, 124, "CPU provider", "small"),
              arrow((218, 132), (218, 158)), text(230, 150, "passes join and drop nodes", "small", "start"),
              text(16, 178, "Steps, planned once for the shapes that come", "strong", "start"),
              *box(26, 190, 190, 44, "teal", "MatMul + Add + Relu", "one kernel"),
              *box(230, 190, 110, 44, "teal", "Softmax", "one kernel"),
              *box(354, 190, 154, 44, "blue", "Shape", "known while planning"),
              line(216, 212, 230, 212), arrow((218, 240), (218, 266)),
              text(230, 258, "captured from the third such run on", "small", "start"),
              *box(26, 274, 314, 36, "teal", "one graph, one launch a run"),
              *box(354, 274, 154, 36, "grey", "one block of memory", first="small")]
    return picture("From the nodes of a model to one launch", 326, *parts)


def memory():
    """What tiles a region, and what a request tries in turn."""
    def strip(y, pieces):
        x = 16
        for width, kind, said in pieces:
            yield rect(x, y, width, 34, f"{kind} edge", 0)
            if said:
                yield text(x + width / 2, y + 22, said, "small" if "none" in kind else "")
            x += width

    parts = [text(16, 28, "A region is one allocation of the device; chunks tile it", "strong", "start"),
             *strip(40, ((90, "teal", "Numba"), (60, "none dashed", "free"), (120, "blue", "ONNX Runtime"),
                         (70, "amber", "shelf A"), (80, "teal", "CuPy"), (68, "none dashed", "free"))),
             text(16, 104, "Expandable: pages only where chunks are", "strong", "start"),
             *strip(116, ((100, "teal", "PyTorch"), (60, "none dashed", "free"), (130, "grey", "hole, no pages"),
                          (80, "blue", "used"), (118, "grey", "hole, no pages"))),
             text(16, 180, "A request looks, in this order", "strong", "start")]
    steps = (("teal", "shelf", "of its own stream"), ("teal", "bins", "best fit, merged"),
             ("blue", "other streams", "whose work has ended"), ("blue", "gathering", "shelves into bins"),
             ("amber", "growth", "a region, or pages"), ("amber", "the last", "wait, trim, hooks"))
    for number, (kind, name, said) in enumerate(steps):
        x, y = 16 + 166 * (number % 3), 192 + 62 * (number // 3)
        parts += box(x, y, 156, 46, kind, f"{number + 1}. {name}", said)
        if number % 3:
            parts.append(arrow((x - 9, y + 23), (x - 1, y + 23)))
    return picture("Where memory lies, and how a request finds some", 312, *parts)


def architecture():
    users = [(16, "ONNX Runtime", "Python, C, C#, Java"), (186, "Numba, CuPy,", "PyTorch, cuda.core"),
             (356, "a program", "of yours, in C")]
    parts = []
    for x, name, said in users:
        parts += box(x, 14, 148, 46, "grey", name, said)
    parts += [rect(16, 88, 318, 190, "none edge dashed", 8), text(26, 106, "the provider", "strong", "start"),
              text(324, 106, "a plugin of ONNX Runtime", "small", "end"),
              *box(26, 116, 298, 34, "blue", "ep: sessions, placement, islands", first=""),
              *box(26, 154, 298, 34, "blue", "graph: passes, clusters, programs", first=""),
              *box(26, 192, 298, 34, "blue", "op: one row an operator, plans", first=""),
              *box(26, 230, 298, 34, "blue", "kernel: CUDA C for both devices", first=""),
              *box(344, 116, 138, 52, "blue", "millpond", "the Python package"),
              arrow((90, 60), (90, 86)), arrow((260, 60), (260, 74), (413, 74), (413, 114)),
              arrow((496, 60), (496, 296)), text(490, 230, "millpond.h", "small", "end"),
              arrow((175, 278), (175, 296)), arrow((413, 168), (413, 296)),
              rect(16, 298, 496, 168, "none edge dashed", 8), text(26, 318, "libmillpond.so", "strong", "start"),
              text(502, 318, "one for the whole process", "small", "end"),
              *box(26, 328, 476, 46, "teal", "pool", "arena, order between streams, captures, limits, trace"),
              *box(26, 378, 234, 46, "teal", "device: cuda", "driver, NVRTC, cuBLASLt, cuDNN"),
              *box(268, 378, 234, 46, "teal", "device: host", "an emulated GPU on the CPU"),
              *box(26, 428, 476, 30, "teal", "base: status, log, options, library loading", first="")]
    return picture("The layers of Millpond, and who is above them", 480, *parts)


PICTURES = {"architecture": architecture, "block": block, "islands": islands, "memory": memory, "one_pool": one_pool}


def texts():
    return {FOLDER / f"{name}.svg": draw() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    sys.exit(generated.main(__doc__, texts, "as tools/pictures.py draws them"))
