# SPDX-License-Identifier: Apache-2.0
"""Traces of allocations as files: the CSV log that RMM writes and replays, small enough to keep.

A file has the columns Thread, Time, Action (allocate, free), Pointer, Size, Stream. Threads and streams are numbered in
order of appearance, and a pointer is the smallest number that no live block has: what matters of a trace is who holds
how much for how long, not where it lay.
"""

import csv
import gzip
import heapq
import io
from collections import namedtuple
from pathlib import Path

HEADER = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"]
ALLOCATE, FREE = "allocate", "free"

Event = namedtuple("Event", "time action pointer size thread stream", defaults=(0, 0))  # time: seconds
Operation = namedtuple("Operation", "allocate slot size thread stream")


def operations(events):
    """Operations on numbered slots. What was never allocated is not freed, and a free has its block's size."""
    live, unused, made = {}, [], 0
    threads, streams = {}, {}
    for event in events:
        if event.action == ALLOCATE:
            if event.pointer in live:
                continue  # its free was not seen
            slot = heapq.heappop(unused) if unused else made
            made = max(made, slot + 1)
            live[event.pointer] = (slot, event.size)
        elif event.action == FREE and event.pointer in live:
            slot, _ = live[event.pointer]
        else:
            continue
        size = live[event.pointer][1]
        if event.action == FREE:
            del live[event.pointer]
            heapq.heappush(unused, slot)
        thread = threads.setdefault(event.thread, len(threads))
        stream = streams.setdefault(event.stream, len(streams))
        yield event.time, Operation(event.action == ALLOCATE, slot, max(size, 1), thread, stream)


def time_of_day(seconds):
    """Milliseconds, written as RMM writes microseconds."""
    ms = round(seconds * 1e3)
    return f"{ms // 3600000:02d}:{ms // 60000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000 * 1000:06d}"


def text_of(events):
    events = list(events)
    start = events[0].time if events else 0
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for time, item in operations(events):
        writer.writerow([item.thread, time_of_day(time - start), ALLOCATE if item.allocate else FREE,
                         f"0x{item.slot + 1:x}", item.size, item.stream])
    return out.getvalue()


def write(path, events, bytes_max=None):
    """Writes as many of the first events as fit; returns how many."""
    events = list(events)
    while True:
        packed = gzip.compress(text_of(events).encode(), 9, mtime=0)
        if bytes_max is None or len(packed) <= bytes_max or not events:
            Path(path).write_bytes(packed)
            return len(events)
        events = events[: min(len(events) - 1, int(len(events) * bytes_max / len(packed) * 0.98))]


def read(path):
    """The operations of a file, gzip'd or not."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        events = [Event(0, row["Action"], row["Pointer"], int(row["Size"]), row["Thread"], row["Stream"])
                  for row in rows]
    return [item for _, item in operations(events)]


def live_peak(items):
    live = peak = 0
    for item in items:
        live += item.size if item.allocate else -item.size
        peak = max(peak, live)
    return peak


def from_torch(snapshot):
    """The events of a snapshot by torch.cuda.memory._snapshot(), of the device that has most of them."""
    actions = {"alloc": ALLOCATE, "free_requested": FREE}
    trace = max(snapshot["device_traces"], key=len, default=[])
    return [Event(entry["time_us"] / 1e6, actions[entry["action"]], entry["addr"], entry["size"], 0, entry["stream"])
            for entry in trace if entry["action"] in actions]
