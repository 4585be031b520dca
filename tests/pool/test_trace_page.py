# SPDX-License-Identifier: Apache-2.0
"""A trace as people look at it: the page in a browser, the snapshot as PyTorch's viewer undoes it, RMM's log.

The browser tests are skipped where there is no Chromium, but not in CI.
"""

import csv
import html
import json
import os
import pickle
import pickletools
import re
import struct
import subprocess
import sys
from pathlib import Path

import needs
import provider
import pytest
import trace_files

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
LENT, FREE, KEPT, WAITING, UNMAPPED = range(5)
# What the reader in PyTorch's MemoryViz.js knows, of protocols up to 4.
OPCODES = {"PROTO", "STOP", "MARK", "EMPTY_DICT", "SETITEMS", "SETITEM", "DICT", "EMPTY_LIST", "APPEND", "APPENDS",
           "LIST", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NEWTRUE", "NEWFALSE", "NONE", "BININT",
           "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "MEMOIZE", "BINPUT",
           "LONG_BINPUT", "BINGET", "LONG_BINGET", "FRAME"}


@pytest.fixture(scope="module", params=["", "arena.expandable=1", "arena.use_cuda_mempool=1"],
                ids=["regions", "expandable", "mempool"])
def traced(request, tmp_path_factory):
    """(folder with trace.pickle, .csv and .html; the pool's statistics when they were written)."""
    folder = tmp_path_factory.mktemp("trace")
    done = subprocess.run([sys.executable, trace_files.__file__, str(folder), *request.param.split()],
                          capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, MILLPOND_EP_LIBRARY=str(provider.library_path())))
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.fixture(scope="module")
def data(traced):
    return trace_files.page_data((traced[0] / "trace.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def snapshot(traced):
    with open(traced[0] / "trace.pickle", "rb") as file:
        return pickle.load(file)


# ---- the data of the page, against the pool's own figures ----


def test_page_says_what_the_pool_says(traced, data):
    about, blocks, events = data
    stats = traced[1]
    lent = [block for block in blocks if block["state"] == LENT]
    assert about["clients"] == trace_files.CLIENTS
    assert about["device"] == "host:0"
    assert about["dropped"] == 0
    assert {**about["stats"], "limit": None} == {**stats, "limit": None}
    assert sum(block["size"] for block in lent) == stats["in_use"]
    assert sum(block["requested"] for block in lent) == stats["requested"]
    assert events[-1]["total"] == stats["total"]
    actions = {event["action"] for event in events}
    assert actions >= {"alloc", "free", "fail"}
    assert all(later["time"] >= event["time"] for event, later in zip(events, events[1:], strict=False))


def test_blocks_fill_their_regions(data):
    about, blocks, _ = data
    for addr, size, expandable, _, first, count in about["regions"]:
        at = addr
        for block in blocks[first:first + count]:
            assert block["addr"] == at
            assert block["size"] > 0
            assert block["state"] != UNMAPPED or expandable
            at += block["size"]
        assert at == addr + size


# ---- the snapshot ----


def test_snapshot_uses_what_the_viewer_reads(traced):
    content = (traced[0] / "trace.pickle").read_bytes()
    used = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(content)]
    assert {name for name, _ in used} <= OPCODES
    assert used[0] == ("PROTO", 4)


def test_segments_are_the_regions(traced, snapshot, data):
    about, blocks, _ = data
    mapped = sum(block["size"] for block in blocks if block["state"] != UNMAPPED)
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == mapped
    assert sum(segment["allocated_size"] for segment in snapshot["segments"]) == traced[1]["in_use"]
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            assert block["state"] in {"active_allocated", "active_pending_free", "inactive"}
            assert bool(block["frames"]) == (block["state"] == "active_allocated")
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
        assert segment["device"] == 0
        assert segment["segment_pool_id"] == (0, 0)
        assert segment["segment_type"] in {"large", "small"}
    names = {frame["name"] for segment in snapshot["segments"] for block in segment["blocks"]
             for frame in block["frames"]}
    assert names >= set(trace_files.CLIENTS)
    assert names - set(trace_files.CLIENTS) <= {"conv1: y", trace_files.HOSTILE}


class Mapped:
    """Addresses that have memory: ranges that do not touch."""

    def __init__(self, ranges):
        self.ranges = []
        for begin, size in sorted(ranges):
            self.add(begin, size)

    def holds(self, begin, size):
        return any(start <= begin and begin + size <= end for start, end in self.ranges)

    def add(self, begin, size):
        end = begin + size
        met = [one for one in self.ranges if one[0] <= end and begin <= one[1]]
        self.ranges = [one for one in self.ranges if one not in met]
        self.ranges.append((min([begin, *(one[0] for one in met)]), max([end, *(one[1] for one in met)])))

    def remove(self, begin, size):
        assert self.holds(begin, size)
        start, end = next(one for one in self.ranges if one[0] <= begin and begin + size <= one[1])
        self.ranges.remove((start, end))
        self.ranges += [one for one in ((start, begin), (begin + size, end)) if one[0] < one[1]]


def test_snapshot_is_undone_as_the_viewer_does(snapshot):
    mapped = Mapped((segment["address"], segment["total_size"]) for segment in snapshot["segments"])
    active = {block["address"]: block["state"] for segment in snapshot["segments"] for block in segment["blocks"]
              if block["state"] != "inactive"}
    assert len(snapshot["device_traces"]) == 1
    for event in reversed(snapshot["device_traces"][0]):
        action, addr, size = event["action"], event.get("addr"), event["size"]
        if action == "alloc":
            assert active.pop(addr) == "active_allocated"
            assert mapped.holds(addr, size)
        elif action == "free_requested":
            assert active[addr] == "active_pending_free"
            active[addr] = "active_allocated"
        elif action == "free_completed":
            assert addr not in active
            assert mapped.holds(addr, size)
            active[addr] = "active_pending_free"
        elif action in {"segment_alloc", "segment_map"}:
            mapped.remove(addr, size)
        elif action in {"segment_free", "segment_unmap"}:
            assert not mapped.holds(addr, 1)
            mapped.add(addr, size)
        else:
            assert action == "oom"
            assert size == 1 << 60
            assert event["device_free"] >= 0
        assert event["frames"][-1]["name"] in trace_files.CLIENTS  # before it, what the memory is for
        assert len(event["frames"]) == 1 or event["frames"][0]["filename"] in {"weights", "activations"}
        assert event["time_us"] > 10**15


# ---- RMM's log ----


def test_csv_is_a_log_that_can_be_replayed(traced, data):
    _, _, events = data
    lines = (traced[0] / "trace.csv").read_text(encoding="ascii").splitlines()
    assert lines[0] == "Thread,Time,Action,Pointer,Size,Stream"
    lent, counts = {}, {"allocate": 0, "free": 0, "allocate failure": 0}
    for row in csv.DictReader(lines):
        counts[row["Action"]] += 1
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", row["Time"])
        assert re.fullmatch(r"0|0x[0-9a-f]+", row["Stream"])
        if row["Action"] == "allocate failure":
            assert row["Pointer"] == "(nil)"
            continue
        assert re.fullmatch(r"0x[0-9a-f]+", row["Pointer"])
        if row["Action"] == "allocate":
            assert lent.setdefault(row["Pointer"], row["Size"]) == row["Size"]
        else:
            assert lent.pop(row["Pointer"]) == row["Size"]
    assert counts["allocate"] == sum(event["action"] == "alloc" for event in events)
    assert 0 < counts["free"] < sum(event["action"] == "free" for event in events)
    assert counts["allocate failure"] == 1


# ---- the page in a browser ----


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """A function that opens an address and returns (what the browser printed, its log)."""
    program = needs.program(*BROWSERS)
    profile = tmp_path_factory.mktemp("profile")
    flags = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr",
             "--window-size=1280,2000", "--virtual-time-budget=5000", f"--user-data-dir={profile}"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # the browser's own sandbox refuses to run as root

    def run(address, *more):
        done = subprocess.run([program, *flags, *more, address], capture_output=True, text=True, timeout=120,
                              check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return run


@pytest.fixture(scope="module")
def page(traced):
    return (traced[0] / "trace.html").as_uri()


def figure(dom, name):
    return re.search(f'<dd id="{name}" data-value="([^"]*)"', dom).group(1)


def strips(dom):
    """(size, lent, fragmentation) of every strip."""
    found = re.findall(r'<div class="region" data-size="(\d+)" data-lent="(\d+)" data-fragmentation="([\d.]+)"', dom)
    return [(int(size), int(lent), fragmentation) for size, lent, fragmentation in found]


def fragmentation(blocks):
    free = [block["size"] for block in blocks if block["state"] in (FREE, KEPT)]
    return f"{1 - max(free) / sum(free) if free else 0:.4f}"


def expected_strips(about, blocks):
    """What the page should show now, region by region; six or more blocks outside the arena share a strip."""
    out, outside = [], []
    alone = sum(reserved for _, _, _, reserved, _, _ in about["regions"]) >= 6
    for _, size, _, reserved, first, count in about["regions"]:
        own = blocks[first:first + count]
        if reserved and alone:
            outside += own
        else:
            out.append((size, sum(block["size"] for block in own if block["state"] == LENT), fragmentation(own)))
    if outside:
        out.append((sum(block["size"] for block in outside),
                    sum(block["size"] for block in outside if block["state"] == LENT), fragmentation(outside)))
    return out


def test_page_shows_the_pool(browse, page, traced, data):
    about, blocks, events = data
    dom, log = browse(page, "--dump-dom")
    assert log == []
    assert 'data-ready="yes"' in dom
    assert re.search(r'<p class="notice" id="fault" role="alert" hidden="?"?', dom)
    stats = traced[1]
    assert int(figure(dom, "lent")) == stats["in_use"]
    assert int(figure(dom, "asked")) == stats["requested"]
    assert int(figure(dom, "had")) == stats["total"]
    assert int(figure(dom, "failures")) == stats["failures"] == 1
    free = [block["size"] for block in blocks if block["state"] in (FREE, KEPT)]
    assert int(figure(dom, "free")) == sum(free)
    assert figure(dom, "fragmentation") == fragmentation(blocks)
    shown = re.sub(r"<[^>]*>", "\n", re.sub(r"<(script|style)\b.*?</\1>", "", dom, flags=re.S))
    for word in ("In use", "Requested", "Reserved from the device", "in use", "peak in use"):  # as other tools have it
        assert f"\n{word}\n" in shown, word
    assert not re.search(r"\b(lent|asked for|had from)\b", shown)
    assert strips(dom) == expected_strips(about, blocks)
    assert f"{len(events):,} events" in dom
    assert "out of memory, once" in dom


def test_names_do_not_become_markup(browse, page):
    dom, _ = browse(page, "--dump-dom")
    assert dom.count(html.escape(trace_files.HOSTILE, quote=False)) >= 2  # legend and tables
    assert 'id="evil"' not in dom
    assert "<b id=evil>" not in dom


def test_page_goes_back_in_time(browse, page, data):
    about, blocks, events = data
    for moment in (0, 1, len(events) // 3, len(events) - 50):
        lent = {block["addr"]: block for block in blocks if block["state"] == LENT}
        for event in reversed(events[moment:]):
            if event["action"] == "alloc":
                del lent[event["addr"]]
            elif event["action"] == "free":
                lent[event["addr"]] = event
        dom, log = browse(f"{page}#event={moment}&by=stream&axis=event&width=scale", "--dump-dom")
        assert log == []
        assert f'data-event="{moment}"' in dom
        assert int(figure(dom, "lent")) == sum(block["size"] for block in lent.values())
        assert int(figure(dom, "asked")) == sum(block["requested"] for block in lent.values())
        shown = strips(dom)
        assert sum(own for _, own, _ in shown) == int(figure(dom, "lent"))
        if moment > 0:
            had = events[moment - 1]["total"]
            assert int(figure(dom, "had")) == had
            in_arena = any(not reserved for _, _, _, reserved, _, _ in about["regions"])
            assert sum(size for size, _, _ in shown) >= had or not in_arena  # the driver's pool has some more


def test_page_asks_nobody_else(traced):
    text = (traced[0] / "trace.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', text) == ["data:,"]
    assert not re.search(r"https?:|\bfetch\(|XMLHttpRequest|import\(|@import", text)


def picture(content):
    """(width, height) of a PNG."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


def test_page_is_drawn_in_light_and_dark(browse, page, tmp_path):
    pictures = []
    for name, more in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
        path = tmp_path / f"{name}.png"
        _, log = browse(page, f"--screenshot={path}", *more)
        assert log == []
        pictures.append(path.read_bytes())
        assert picture(pictures[-1]) == (1280, 2000)
        assert len(pictures[-1]) > 50_000  # an empty page has a tenth of it
    assert pictures[0] != pictures[1]


# ---- what memory is for ----


def run_in_page(browse, path, folder, script, *more, address=""):
    """What a function of the page's own parts gives, as from JSON. The page's policy would not let it run, so that is
    taken out of a copy."""
    text = path.read_text(encoding="utf-8")
    text, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert count == 1
    copy = folder / "copy.html"
    script = f"<script>document.body.dataset.result = JSON.stringify((() => {{{script}}})())</script>"
    copy.write_text(text.replace("</body>", f"{script}</body>"), encoding="utf-8")
    dom, log = browse(copy.as_uri() + address, "--dump-dom", *more)
    assert log == []
    return json.loads(html.unescape(re.search(r'data-result="([^"]*)"', dom).group(1)))


def test_page_knows_what_memory_is_for(traced, data):
    _, blocks, events = data
    lent = [block["label"] for block in blocks if block["state"] == LENT]
    assert ["weights", "", trace_files.HOSTILE] in lent
    assert ["activations", "conv1", "y"] in lent
    assert ["other", "", ""] in lent
    assert {tuple(event["label"]) for event in events if event["action"] == "free"} >= {("activations", "conv1", "y")}


def test_page_shows_what_is_known_of_memory_besides(browse, traced, data, tmp_path):
    about = data[0]
    label = about["labels"].index(["activations", "conv1", "y"])
    lines = trace_files.NOTE.splitlines()
    assert about["notes"] == {str(label): [*lines[:2], lines[2][:255]]}  # a line has its limit
    shown = run_in_page(browse, traced[0] / "trace.html", tmp_path, """
        const block = Model.blocks.find((one) => one.state === STATE.LENT && Labels.text(one.label).node === 'conv1');
        return Describe.detail(block).filter((one) => one.tagName === 'PRE').map((one) => one.textContent);""")
    assert shown == ["\n".join([*lines[:2], lines[2][:255]])]


@pytest.mark.parametrize(("by", "names"), [("kind", {"weights", "activations", "other"}),
                                           ("node", {"weights", "conv1", "without a label"})])
def test_page_is_coloured_by_what_memory_is_for(browse, traced, page, data, by, names):
    dom, log = browse(f"{page}#by={by}", "--dump-dom")
    assert log == []
    legend = re.search(r'<ul id="legend".*?</ul>', dom, re.S).group(0)
    assert set(re.findall(r'<b title="([^"]*)">', legend)) == names


def matching(blocks, query):
    tests = {"conv1": lambda block: block["label"][1] == "conv1",
             "KIND:weights": lambda block: block["label"][0] == "weights",
             "size > 1 M": lambda block: block["requested"] > 1 << 20,
             "size>=1M conv1": lambda block: block["requested"] >= 1 << 20 and block["label"][1] == "conv1",
             "<4K client:onnx": lambda block: block["requested"] < 4 << 10 and block["client"] == 0,
             "nothing at all": lambda block: False}
    return [block for block in blocks if block["state"] == LENT and tests[query](block)]


@pytest.mark.parametrize("query", ["conv1", "KIND:weights", "size > 1 M", "size>=1M conv1", "<4K client:onnx",
                                   "nothing at all"])
def test_page_finds_blocks(browse, page, data, query):
    dom, log = browse(f"{page}#find={query.replace(' ', '%20').replace('>', '%3E').replace('<', '%3C')}", "--dump-dom")
    assert log == []
    found = matching(data[1], query)
    assert int(re.search(r'id="found"[^>]*data-blocks="(\d+)"', dom).group(1)) == len(found)
    assert dom.count('title="Show it in its region"') == min(12, len(found))


def test_page_saves_what_is_found(browse, traced, data, tmp_path):
    about, blocks, _ = data
    table, text = run_in_page(browse, traced[0] / "trace.html", tmp_path,
                              "return [Export.csv(Find.found()), Export.json(Find.found(), 7, 'conv1')]",
                              address="#find=conv1")
    found = matching(blocks, "conv1")
    rows = list(csv.DictReader(table.splitlines()))
    sizes = sorted(block["size"] for block in found)
    assert len(sizes) > 0
    assert sorted(int(row["size"]) for row in rows) == sizes
    assert {(row["kind"], row["node"], row["tensor"]) for row in rows} == {("activations", "conv1", "y")}
    parsed = json.loads(text)
    assert (parsed["event"], parsed["query"], parsed["device"]) == (7, "conv1", about["device"])
    assert sorted(block["size"] for block in parsed["blocks"]) == sizes
    base = int(about["base"], 16)
    assert {int(block["address"], 16) for block in parsed["blocks"]} == {base + block["addr"] for block in found}


def test_saved_tables_hold_no_formulas(browse, traced, tmp_path):
    cells = run_in_page(browse, traced[0] / "trace.html", tmp_path, """
        const {text} = Labels;
        Labels.text = () => ({kind: 'other', node: '=1+1', tensor: 'a,"b"'});
        return Export.csv(Find.found().slice(0, 1));""")
    [row] = csv.DictReader(cells.splitlines())
    assert (row["node"], row["tensor"]) == ("'=1+1", 'a,"b"')


def test_page_fits_a_phone(browse, traced, tmp_path):
    wide, inner, cut = run_in_page(browse, traced[0] / "trace.html", tmp_path, """
        const edge = innerWidth;
        const all = [...document.querySelectorAll('td, th, h2, button')];
        const cut = all.filter((one) => one.getBoundingClientRect().right > edge);
        return [document.documentElement.scrollWidth, edge, cut.map((one) => one.textContent)];""",
                                   "--window-size=360,2000")
    assert cut == []
    assert wide <= inner


def many_clients(folder):
    """A page of 20 clients, each with as much."""
    program = """if True:
        import sys, pool_c
        pools = [pool_c.Pool(f"client {i}", device="host:0") for i in range(20)]
        pools[0].trace(1000)
        for pool in pools:
            pool.alloc(1 << 20)
        pools[0].write_trace(2, sys.argv[1])
        """
    path = folder / "many.html"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=120,
                          check=False, env=dict(os.environ, MILLPOND_EP_LIBRARY=str(provider.library_path()),
                                                PYTHONPATH=str(Path(__file__).resolve().parents[1] / "ep")))
    assert done.returncode == 0, done.stderr
    return path


def test_others_can_be_opened(browse, tmp_path):
    path = many_clients(tmp_path)
    dom, _ = browse(path.as_uri(), "--dump-dom")
    assert re.search(r'<button[^>]*aria-expanded="false"[^>]*>13 others</button>', dom)
    names, opened, back = run_in_page(browse, path, tmp_path, """
        const names = () => [...document.querySelectorAll('#legend b')].map((one) => one.textContent);
        const few = names();
        document.querySelector('#legend button').click();
        const all = names();
        document.querySelector('#legend button').click();
        return [few, all, names()];""")
    assert len(names) == 7
    assert sorted(opened) == sorted(f"client {i}" for i in range(20))
    assert back == names


def test_words_end_where_pale_begins(browse, traced, tmp_path):
    drawn = run_in_page(browse, traced[0] / "trace.html", tmp_path, """
        const words = [];
        const fill = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
          words.push(x + this.measureText(text).width);
          return fill.call(this, text, x, y);
        };
        const canvas = document.createElement('canvas');
        canvas.style.cssText = 'width: 400px; height: 30px';
        document.body.append(canvas);
        const block = {...Find.found()[0], addr: 0, size: 1000, requested: 400};
        const blocks = [block];
        const view = {from: 0, to: 1000, chosen: -1};
        Strip.draw(canvas, blocks, Strip.layOut(blocks), view, Groups.of('client', false), null);
        return words;""")
    assert len(drawn) == 1
    assert drawn[0] <= 160
