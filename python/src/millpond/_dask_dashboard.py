# SPDX-License-Identifier: Apache-2.0
"""A page of Dask's dashboard: what the pools of all workers have in use, by client. Runs in the scheduler."""

from __future__ import annotations

import importlib
from typing import Any

PATH = "/pool-memory"
CLIENTS_MAX = 20
_PERIOD_MS = 500
_COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#bab0ac")


def rows_of(scheduler: Any) -> dict[str, list[Any]]:
    """The columns of the picture: a bar for each client of each worker, one behind the other, then what is reserved
    and free, and what is on the host."""
    columns: dict[str, list[Any]] = {name: [] for name in ("worker", "part", "left", "right", "color", "bytes")}
    names: list[str] = []
    for state in sorted(scheduler.workers.values(), key=lambda each: str(each.name)):
        figures = state.metrics.get("millpond")
        if not isinstance(figures, dict):
            continue
        parts = [(name, size) for name, size in sorted(figures["clients"].items()) if size > 0][:CLIENTS_MAX]
        names += [name for name, _ in parts if name not in names]
        used = sum(size for _, size in parts)
        parts.append(("reserved and free", max(figures["reserved"] - used, 0)))
        parts.append(("on the host", figures["on_host"]))
        at = 0
        for part, size in parts:
            color = _COLORS[names.index(part) % (len(_COLORS) - 1)] if part in names else None
            shade = {"reserved and free": "#e8e8e8", "on the host": _COLORS[-1]}.get(part, color)
            for column, value in zip(columns, (str(state.name), part, at, at + size, shade, size), strict=True):
                columns[column].append(value)
            at += size
    return columns


def document(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Draws the page into a document of Bokeh and keeps it up to date."""
    models: Any = importlib.import_module("bokeh.models")
    plotting: Any = importlib.import_module("bokeh.plotting")
    source = models.ColumnDataSource(rows_of(scheduler))
    picture = plotting.figure(
        title="Memory of Millpond's pools", y_range=models.FactorRange(), sizing_mode="stretch_both", tools="",
        name="pool_memory",
    )  # fmt: skip
    picture.hbar(y="worker", left="left", right="right", height=0.8, color="color", source=source)
    picture.xaxis[0].formatter = models.NumeralTickFormatter(format="0.0 b")
    picture.x_range.start = 0
    picture.toolbar_location = None
    picture.add_tools(models.HoverTool(tooltips=[("worker", "@worker"), ("part", "@part"), ("size", "@bytes{0.00 b}")]))

    def update() -> None:
        columns = rows_of(scheduler)
        picture.y_range.factors = sorted(set(columns["worker"]))
        source.data = columns

    update()
    doc.title = "Dask: pool memory"
    doc.add_root(picture)
    doc.add_periodic_callback(update, _PERIOD_MS)


def add_page(scheduler: Any) -> bool:
    """Adds the page to a scheduler's dashboard, once; whether there is one."""
    try:
        core: Any = importlib.import_module("distributed.dashboard.core")
    except ImportError:  # without Bokeh there is no dashboard
        return False
    application = getattr(scheduler, "http_application", None)
    if application is None or getattr(scheduler, "_millpond_page", False):
        return application is not None
    ioloop: Any = importlib.import_module("tornado.ioloop")
    made = core.BokehApplication({PATH: document}, scheduler, prefix="")
    application.add_application(made)
    made.initialize(ioloop.IOLoop.current())
    made.start()
    scheduler._millpond_page = True
    return True
