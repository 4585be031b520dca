# SPDX-License-Identifier: Apache-2.0
"""The page that `millpond profile --html` writes: a flame chart of a run, and the tables.

One file that fetches nothing; its content security policy allows the one script by its hash. What a model names is
escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from millpond._html import table
from millpond.cli import _explain_page, _profile

if TYPE_CHECKING:
    from millpond.cli._profile_read import Bar, Lane

ROW_HEIGHT = 20
BARS_MAX = 20_000  # of a lane; the shortest are left out

CSS = """
:root { --island: #dde7d2; --run: #e6e8eb; --other: #f6d9d5; --mark: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --island: #2f4023; --run: #333a41; --other: #57302b; --mark: #fb923c; } }
.chart { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; padding: 0 0 8px; }
.lane { position: relative; min-width: 100%; } .lane + .lane { border-top: 1px solid var(--line); }
.lane h3 { position: sticky; left: 0; width: max-content; margin: 0; padding: 4px 8px 2px; font-size: 12px;
  font-weight: normal; color: var(--soft); }
.bars { position: relative; }
.bars div { position: absolute; height: 18px; min-width: 1px; overflow: hidden; white-space: nowrap; font-size: 11px;
  line-height: 18px; text-indent: 3px; border-radius: 2px; box-shadow: inset 0 0 0 .5px var(--paper); cursor: pointer; }
.run { background: var(--run); } .island { background: var(--island); } .node { background: var(--math); }
.other { background: var(--other); }
.bars .kernel { background: var(--kernel); } .bars .move { background: var(--move); }
.key .island { background: var(--island); } .key .node { background: var(--math); }
.key .other { background: var(--other); }
.bars.searched div { opacity: .25; } .bars.searched .hit { opacity: 1; outline: 1.5px solid var(--mark); }
.wide table { margin: 4px 10px; }
form { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin: 12px 0; }
input, button { font: inherit; color: inherit; background: var(--view); border: 1px solid var(--line);
  border-radius: 4px; padding: 2px 8px; }
input { min-width: 260px; }
output { color: var(--soft); } #about { min-height: 4.5em; white-space: pre-line; overflow-wrap: anywhere; }
"""

SCRIPT = """
"use strict";
const chart = document.querySelector(".chart"), lanes = [...document.querySelectorAll(".lane")];
const bars = [...document.querySelectorAll(".bars div")], about = document.getElementById("about");
const search = document.getElementById("search"), found = document.getElementById("found");
let zoom = 1;
function zoomTo(next, at) {
  zoom = Math.min(20000, Math.max(1, next));
  for (const lane of lanes) lane.style.width = zoom * 100 + "%";
  chart.scrollLeft = at * lanes[0].clientWidth - chart.clientWidth / 2;
}
const middle = () => (chart.scrollLeft + chart.clientWidth / 2) / lanes[0].clientWidth;
document.getElementById("in").onclick = () => zoomTo(zoom * 2, middle());
document.getElementById("out").onclick = () => zoomTo(zoom / 2, middle());
document.getElementById("whole").onclick = () => zoomTo(1, 0);
chart.addEventListener("mouseover", (event) => {
  if (event.target.title) about.textContent = event.target.title;
});
chart.addEventListener("click", (event) => {
  const bar = event.target;
  if (!bar.title) return;
  about.textContent = bar.title;
  const begin = parseFloat(bar.style.left), width = Math.max(parseFloat(bar.style.width), 1e-3);
  zoomTo(90 / width, (begin + width / 2) / 100);
});
search.addEventListener("input", () => {
  const word = search.value.trim().toLowerCase();
  let count = 0, time = 0;
  for (const bar of bars) {
    const hit = word !== "" && bar.title.toLowerCase().includes(word);
    bar.classList.toggle("hit", hit);
    if (hit) count += 1;
    if (hit && (bar.className.includes("kernel") || bar.className.includes("move"))) time += Number(bar.dataset.us);
  }
  for (const each of document.querySelectorAll(".bars")) each.classList.toggle("searched", word !== "");
  found.textContent = word === "" ? "" : count + " found, " + time.toFixed(1) + " us of kernels and copies";
});
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
"""


def _bar(bar: Bar, whole: float, begin: float) -> str:
    left, width = (bar.begin - begin) / whole * 100, bar.us / whole * 100
    title = escape(f"{bar.hover}\n{bar.us:.1f} us, from {bar.begin:.1f} us on")
    style = f"left:{left:.6f}%;width:{width:.6f}%;top:{bar.depth * ROW_HEIGHT}px"
    return f'<div class="{bar.kind}" title="{title}" data-us="{bar.us:.3f}" style="{style}">{escape(bar.name)}</div>'


def _lane(lane: Lane, whole: float, begin: float) -> str:
    bars = lane.bars
    if len(bars) > BARS_MAX:
        bars = sorted(bars, key=lambda bar: -bar.us)[:BARS_MAX]
    height = ROW_HEIGHT * (1 + max((bar.depth for bar in bars), default=0))
    more = f", without the {len(lane.bars) - len(bars)} shortest" if len(bars) < len(lane.bars) else ""
    drawn = "".join(_bar(bar, whole, begin) for bar in bars)
    return (f'<div class="lane"><h3>{escape(lane.title)}{more}</h3><div class="bars" style="height:{height}px">{drawn}'
            f"</div></div>")


def chart(lanes: Sequence[Lane]) -> str:
    """The run, from left to right; what is below a bar was done for it."""
    begin = min((bar.begin for lane in lanes for bar in lane.bars), default=0.0)
    end = max((bar.begin + bar.us for lane in lanes for bar in lane.bars), default=0.0)
    return f'<div class="chart">{"".join(_lane(lane, max(end - begin, 1.0), begin) for lane in lanes)}</div>'


def page(found: dict[str, Any], lanes: Sequence[Lane]) -> str:
    """A result of _profile as a page."""
    key = "".join(f'<span class="{kind}">{word}</span>' for kind, word in (
        ("island", "an island"), ("node", "a node, or a step of an island"), ("other", "a node of another provider"),
        ("kernel", "a kernel"), ("move", "a copy or a fill")))
    title = escape(_profile.head(found))
    words = "".join(f"<p>{escape(word)}</p>" for word in (
        _profile.total(found), _profile.floor_word(found), _profile.flop_word(found)) if word)
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"{_explain_page.POLICY}; script-src 'sha256-{digest}'"
    kernels = table(*_profile.kernel_table(found, False))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title>'
        f"<style>{_explain_page.CSS}{CSS}</style></head><body><h1>{title}</h1>{words}"
        f'<h2>A run of median length</h2><p class="key">{key}</p><form><input id="search" type="search" '
        f'placeholder="search operators, nodes, kernels" aria-label="search"><button type="button" id="in">+</button>'
        f'<button type="button" id="out">-</button><button type="button" id="whole">all</button>'
        f'<output id="found"></output></form>{chart(lanes)}'
        f'<p id="about">Point at a bar to see what it is; a click makes it fill the width.</p>'
        f'<h2>By operator</h2><div class="wide">{table(*_profile.operator_table(found))}</div>'
        f'<h2>By kernel</h2><div class="wide">{kernels}</div><script>{SCRIPT}</script></body></html>\n'
    )
