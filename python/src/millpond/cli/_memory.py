# SPDX-License-Identifier: Apache-2.0
"""`millpond memory`: the pools of a running process, once or live."""

from __future__ import annotations

import os
import shutil
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from millpond import NotFoundError, _monitor
from millpond.cli import NOTHING, _options
from millpond.cli._app import Finding, json_option
from millpond.cli._show import Show, rich_table, size

HOW = "start a program with MILLPOND_MONITOR=1, or call millpond.monitor.start() in it"


def choose_process(pid: int | None) -> int:
    """The process asked for, or the only one there is."""
    if pid is not None:
        return pid
    found = _monitor.processes()
    if not found:
        raise Finding(NOTHING, f"no process of yours can be looked at: {HOW}")
    if len(found) > 1:
        raise click.UsageError(f"several processes can be looked at, say which: {', '.join(map(str, found))}")
    return found[0]


def _name(pool: dict[str, Any]) -> str:
    kind = " (emulated)" if pool.get("emulated") else ""
    return f"{pool['memory']} memory of {pool['device']}, {pool.get('name', 'of another library')}{kind}"


def _head(pool: dict[str, Any]) -> str:
    if pool["external"]:
        return "its own program has the figures"
    stats = pool["stats"]
    bound = f" of at most {size(stats['limit'])}" if stats["limit"] is not None else ""
    left = f"; {size(pool['device_free'])} of {size(pool['device_total'])} free there" if pool["device_total"] else ""
    return (
        f"{size(stats['in_use'])} in use, peak {size(stats['in_use_max'])}; {size(stats['total'])} reserved from "
        f"the device{bound}, peak {size(stats['total_max'])}{left}; {stats['failures']} failed allocations"
    )


def _stream(handle: int | None) -> str:
    return "none" if handle is None else "default" if handle in (0, 1) else f"{handle:#x}"


CLIENT_COLUMNS = ("client", "in use", "requested", "blocks", "allocations")
STREAM_COLUMNS = ("stream", "in use", "kept free", "blocks", "allocations")


def _clients(pool: dict[str, Any]) -> list[tuple[object, ...]]:
    held = sorted(pool.get("clients", ()), key=lambda share: -share["in_use"])
    return [(each["name"], size(each["in_use"]), size(each["requested"]), each["blocks"], each["allocs"])
            for each in held]


def _streams(pool: dict[str, Any]) -> list[tuple[object, ...]]:
    held = sorted(pool.get("streams", ()), key=lambda share: -share["in_use"] - share["free"])
    return [(_stream(each["stream"]), size(each["in_use"]), size(each["free"]), each["blocks"], each["allocs"])
            for each in held]


def _title(state: dict[str, Any]) -> str:
    program = os.path.basename(state["program"]) or "python"
    bound = f", all pools at most {size(state['limit'])}" if state["limit"] else ""
    return f"process {state['pid']}, {program}, Millpond {state['millpond']}{bound}"


def show_state(show: Show, state: dict[str, Any]) -> None:
    show.line(_title(state))
    if not state["pools"]:
        show.line("it has no pool yet")
    for pool in state["pools"]:
        show.heading(_name(pool))
        show.line(_head(pool))
        show.table(CLIENT_COLUMNS, _clients(pool), CLIENT_COLUMNS[1:])
        if pool.get("streams"):
            show.line()
            show.table(STREAM_COLUMNS, _streams(pool), STREAM_COLUMNS[1:])


def _live_view(state: dict[str, Any]) -> Group:
    parts: list[Any] = [Text(_title(state), style="bold")]
    for pool in state["pools"]:
        parts += [Text(), Text(_name(pool), style="bold"), Text(_head(pool))]
        parts.append(rich_table(CLIENT_COLUMNS, _clients(pool), CLIENT_COLUMNS[1:]))
        parts.append(rich_table(STREAM_COLUMNS, _streams(pool), STREAM_COLUMNS[1:]))
    return Group(*parts)


def _states(pid: int, seconds: float) -> Iterator[dict[str, Any]]:
    """The state again and again, until the process ends."""
    yield _monitor.ask(pid, "state")
    while True:
        time.sleep(seconds)
        try:
            state = _monitor.ask(pid, "state")
        except NotFoundError:
            return
        yield state


def _line(state: dict[str, Any], pool: dict[str, Any]) -> str:
    stats = pool["stats"]
    return f"{state['time']:.3f}  {pool['device']}  {pool['memory']}  {stats['in_use']}  {stats['total']}"


def watch(show: Show, pid: int, seconds: float, device: str | None = None, memory: str | None = None) -> None:
    """On a terminal in place, else a line a pool and moment: time, device, memory, bytes in use and reserved."""
    if show.out.is_terminal and not show.as_json:
        with Live(console=show.out, auto_refresh=False) as live:
            for state in _states(pid, seconds):
                live.update(_live_view(_chosen_pools(state, device, memory)), refresh=True)
    else:
        for whole in _states(pid, seconds):
            state = _chosen_pools(whole, device, memory)
            for pool in state["pools"]:
                if not pool["external"]:
                    show.line(_line(state, pool))
            show.data(state, in_a_line=True)
            show.out.file.flush()
    show.note(f"process {pid} has ended, or no longer answers")


def _chosen_pools(state: dict[str, Any], device: str | None, memory: str | None) -> dict[str, Any]:
    """The state with the pools asked for only. Raises Finding where there are others only."""
    pools = [
        pool for pool in state["pools"] if device in (None, pool["device"]) and memory in (None, pool["memory"])
    ]
    if not pools and (device or memory):
        there = "; ".join(f"{pool['memory']} memory of {pool['device']}" for pool in state["pools"]) or "none"
        wanted = f"{memory or 'any'} memory of {device or 'any device'}"
        raise Finding(NOTHING, f"process {state['pid']} has no pool of {wanted}; it has {there}")
    return {**state, "pools": pools}


def _choose_pool(pid: int, device: str | None, memory: str) -> dict[str, str]:
    """Which pool is meant where one must be: the one asked for, or the only one of this memory."""
    pools = [pool for pool in _monitor.ask(pid, "state")["pools"] if not pool["external"] and pool["memory"] == memory]
    there = ", ".join(pool["device"] for pool in pools)
    if device is None and len(pools) > 1:
        raise click.UsageError(f"the process has several pools of {memory} memory, say which: --device {there}")
    found = [pool for pool in pools if device in (None, pool["device"])]
    if not found:
        wanted = f"{memory} memory{f' of {device}' if device else ''}"
        raise Finding(NOTHING, f"process {pid} has no pool of {wanted}{f', only of {there}' if there else ''}")
    return {"device": found[0]["device"], "memory": memory}


def save_page(pid: int, path: Path, device: str | None, memory: str) -> None:
    """Has the process write its HTML timeline, and moves it to `path`."""
    reply = _monitor.ask(pid, "page", **_choose_pool(pid, device, memory))
    made = _monitor.folder() / Path(reply["file"]).name
    try:
        shutil.move(made, path)
    finally:
        made.unlink(missing_ok=True)


@click.command("memory")
@click.argument("pid", required=False, type=int)
@click.option("--watch", "live", is_flag=True, help="Refresh until the process ends or Ctrl-C.")
@click.option("--every", default=1.0, show_default=True, type=_options.Finite(0.05), help="Seconds between refreshes.")
@click.option("--html", type=click.Path(dir_okay=False, writable=True, path_type=Path), callback=_options.writable,
              help="Save the HTML timeline of a pool.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option("--trace", type=click.IntRange(0, _monitor.EVENTS_MAX), metavar="N",
              help="Have the pool keep its last N events from now on, for the timeline; 0 stops.")
@click.option("--stacks", type=click.IntRange(0, _monitor.STACKS_MAX), metavar="N",
              help="With --trace: keep N Python frames with each allocation.")
@click.option("--dump", is_flag=True, help="Print the pool's page of text: bins, regions, fragmentation.")
@click.option("--device", help="Only pools of this device: cuda:0.")
@click.option("--memory", type=click.Choice(["device", "pinned"]),
              help="Only pools of this memory.  [default: all; device for --html, --trace and --dump]")
@click.option("--list", "as_list", is_flag=True, help="List the processes that can be inspected, one a line.")
@json_option
def command(
    pid: int | None, live: bool, every: float, html: Path | None, open_page: bool, trace: int | None,
    stacks: int | None, dump: bool, device: str | None, memory: str | None, as_list: bool, as_json: bool,
) -> None:
    """Inspect the pools of a running process: usage by client and by stream.

    The process must have been started with MILLPOND_MONITOR=1, or have called millpond.monitor.start(); without PID it
    is the only one that has. Ends with 3 where there is none.
    """
    show = Show(as_json)
    if as_list:
        found = _monitor.processes()
        show.data(found)
        for each in found:
            show.line(str(each))
        return
    if open_page and html is None:
        raise click.UsageError("--open needs --html FILE")
    if stacks is not None and not trace:
        raise click.UsageError("--stacks needs --trace N")
    chosen = choose_process(pid)
    kind = memory or "device"
    if trace is not None:
        _monitor.ask(chosen, "trace", events=trace, stacks=stacks or 0, **_choose_pool(chosen, device, kind))
        show.note(f"the last {trace} events are kept from now on" if trace else "events are no longer kept")
    if html is not None:
        save_page(chosen, html, device, kind)
        show.note(f"{html} is written")
    if open_page and html is not None:
        webbrowser.open(html.absolute().as_uri())
    if dump:
        text = _monitor.ask(chosen, "dump", **_choose_pool(chosen, device, kind))["text"]
        show.line(text.rstrip("\n"))
        show.data({"text": text})
    if html is not None or trace is not None or dump:
        return
    if live:
        watch(show, chosen, every, device, memory)
        return
    state = _chosen_pools(_monitor.ask(chosen, "state"), device, memory)
    show_state(show, state)
    show.data(state)
