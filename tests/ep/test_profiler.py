# SPDX-License-Identifier: Apache-2.0
"""Profiles: what ONNX Runtime writes with `enable_profiling` has the device's work, each piece with its node.

A session that is profiled writes a trace for Perfetto and chrome://tracing; the tests read it as those do.
"""

import collections
import itertools
import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import onnxruntime as ort
import provider
import pytest
import small_models
from onnx import helper, parser
from ort_version import HOLDS_CONTROL_FLOW, OLD_CONTROL_FLOW

TESTS = Path(__file__).resolve().parents[1]
THREADS, RUNS = 3, 6
# Of a GPU's clock against ours. And all events are shifted by the time between ONNX Runtime's look at its clock, before
# it has us begin, and our own: a time slice, where the machine has more to do.
CLOCK_ERROR_US = 20000
ROUNDING_US = 2  # begin and duration are cut to whole microseconds


def profiled(folder, model=None, options=None, name="profile"):
    """A session that writes a trace."""
    prepared = provider.session_options()
    prepared.enable_profiling = True
    prepared.profile_file_prefix = str(folder / name)
    return provider.session(model or small_models.mixed(), provider_options=options, options=prepared)


def ended(session):
    """The events of a session's trace."""
    path = Path(session.end_profiling())
    events = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    return events


def of(events, category, **args):
    return [event for event in events if event.get("cat") == category
            and all(event["args"].get(key) == value for key, value in args.items())]


def nodes(events):
    """Events of nodes on our provider."""
    return of(events, "Node", provider=provider.NAME)


def device_work(events):
    return of(events, "Kernel")


def names_of(event):
    """(operator, name) of the model's nodes that a piece of work is for."""
    return [(node["op_type"], node["name"]) for node in event["args"].get("onnx_nodes", [])]


def work_of(events, op=None, node=None):
    """The device's work for nodes of an operator, or of a name."""
    return [event for event in device_work(events)
            if any(op in (None, each) and node in (None, name) for each, name in names_of(event))]


def kernels(events, op=None, node=None, **args):
    """The kernels; those for nodes of an operator or of a name."""
    chosen = of(events, "Kernel", **args)
    chosen = chosen if op is None and node is None else work_of(chosen, op, node)
    return [event for event in chosen if event["args"]["grid_x"] != "-1"]


def islands(events):
    """Events of groups of nodes that run as one."""
    return [event for event in nodes(events) if event["args"]["op_name"].startswith(provider.NAME)]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """Whether the device is emulated. Skips on a GPU whose work cannot be seen, with the reason."""
    emulated = provider.is_emulated(provider.register()[0])
    code = """
    session = profiled(folder)
    session.run(None, small_models.mixed_feed(2))
    print(len(device_work(ended(session))))
    """
    done = child(code, tmp_path_factory.mktemp("probe"), log_level=2)
    reasons = [line for line in done.stderr.splitlines() if "the profile will have no kernels" in line]
    if reasons and not emulated:
        pytest.skip(reasons[0])
    assert not reasons and int(done.stdout) > 0, done.stderr
    return emulated


def child(code, folder, log_level=3, **environment):
    """Runs code in another Python."""
    start = f"""
    import pathlib, sys
    import onnxruntime
    onnxruntime.set_default_logger_severity({log_level})
    from test_profiler import *
    folder = pathlib.Path({str(folder)!r})
    """
    paths = [str(TESTS / "ep"), str(TESTS.parent / "demo"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}
    script = textwrap.dedent(start) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=240)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def runs_of(events):
    return [event for event in of(events, "Session") if event["name"] == "model_run"]


def is_within(event, outer, shift, error):
    begin, end = event["ts"] + shift, event["ts"] + shift + event["dur"]
    return outer["ts"] - error <= begin and end <= outer["ts"] + outer["dur"] + error


def check_times(events, within_nodes):
    """Work begins after its node has, and ends in it (`within_nodes`; all is shifted alike) or in the run around it."""
    by_name = collections.defaultdict(list)
    for node in nodes(events):
        by_name[node["name"]].append(node)
    work = [event for event in device_work(events) if event["args"].get("ort_event_name") is not None]
    pairs = [(event, by_name[event["args"]["ort_event_name"]]) for event in work]
    if within_nodes:
        shifts = {node["ts"] - event["ts"] for event, around in pairs for node in around}
        assert any(all(any(is_within(event, node, shift, ROUNDING_US) for node in around) for event, around in pairs)
                   for shift in {0, *(shift for shift in shifts if abs(shift) <= CLOCK_ERROR_US)}), work
    for event, around in pairs:
        assert any(is_within(event, run, 0, CLOCK_ERROR_US) for run in runs_of(events)), event
        assert any(node["ts"] - CLOCK_ERROR_US <= event["ts"] for node in around), event


# ---- one session ----


def test_trace_is_one_that_viewers_open(emulated, tmp_path):
    session = profiled(tmp_path)
    session.run(None, small_models.mixed_feed(3))
    events = ended(session)
    assert isinstance(events, list)
    for event in events:
        assert event["ph"] == "X" and event["name"] and event["cat"] in {"Session", "Node", "Kernel", "API"}
        assert all(isinstance(event[key], int) for key in ("pid", "tid", "ts", "dur")), event
        assert event["ts"] >= 0 and event["dur"] >= 0, event
    tracks = collections.defaultdict(list)
    for event in device_work(events):
        assert event["pid"] < 0  # the device's rows, beside those of the process
        assert str(event["tid"]) == event["args"]["stream"]
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    error = 0 if emulated else 1 + ROUNDING_US
    for track in tracks.values():  # one stream does one thing at a time
        ordered = sorted(track)
        assert all(end <= begin + 1 + error for (_, end), (begin, _) in itertools.pairwise(ordered)), ordered


def test_every_node_has_its_kernels(emulated, tmp_path):
    session = profiled(tmp_path)
    for _ in range(2):
        session.run(None, small_models.mixed_feed(3))
    events = ended(session)
    check_times(events, within_nodes=emulated)
    assert {op for event in device_work(events) for op, _ in names_of(event)} >= {
        "Gemm", "Softmax", "Add", "MemcpyFromHost"}
    for node in nodes(events):
        work = of(events, "Kernel", ort_event_name=node["name"])
        assert work, f"nothing of {node['name']}"
        assert {event["args"]["ort_op_name"] for event in work} == {node["args"]["op_name"]}
        assert {event["args"]["ort_node_index"] for event in work} == {node["args"]["node_index"]}
        # Each of the two runs has an event of its own.
        assert len({event["args"]["ort_correlation_id"] for event in work}) == 2
    softmax = kernels(events, op="Softmax")
    assert len(softmax) == 2 and all("softmax" in event["name"] for event in softmax)
    assert {name for event in softmax for _, name in names_of(event)} >= {"softmax"}
    assert all("add" in event["name"] for event in kernels(events, node="sum"))
    for event in kernels(events):
        sizes = [int(event["args"][key]) for key in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")]
        assert all(size >= 1 for size in sizes) and np.prod(sizes[3:]) <= 1024
        assert int(event["args"]["correlation_id"]) > 0 and "in_graph" not in event["args"]


def test_copies_have_their_bytes(emulated, tmp_path):
    session = profiled(tmp_path)
    feed = small_models.mixed_feed(5)
    session.run(None, feed)
    events = ended(session)
    copies = [event for event in device_work(events) if event["name"].startswith("Memcpy")]
    for key in (f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"):
        assert all(event["args"][key] == "-1" for event in copies)
    there = {int(event["args"]["bytes"]) for event in copies if event["name"] == "MemcpyHostToDevice"}
    back = [int(event["args"]["bytes"]) for event in copies if event["name"] == "MemcpyDeviceToHost"]
    assert feed["x"].nbytes in there
    assert max(there) >= 16 * 8 * 4  # the weights; those of an island go with others
    assert back == [5 * 8 * 4]
    (inserted,) = work_of(copies, op="MemcpyFromHost")
    assert inserted["args"]["bytes"] == "4" and inserted["name"] == "MemcpyHostToDevice"


def test_a_closed_session_has_written_its_trace(emulated, tmp_path):
    session = profiled(tmp_path)
    session.run(None, small_models.mixed_feed(3))
    del session
    (path,) = tmp_path.glob("profile*.json")
    assert kernels(json.loads(path.read_text(encoding="utf-8")))


def test_runs_after_the_profile_are_no_part_of_it(emulated, tmp_path):
    session = profiled(tmp_path)
    feed = small_models.mixed_feed(3)
    expected = session.run(None, feed)[0]
    assert len(kernels(ended(session), op="Softmax")) == 1
    np.testing.assert_array_equal(session.run(None, feed)[0], expected)
    assert not list(tmp_path.iterdir())


def test_a_run_that_fails_leaves_the_profile_right(emulated, tmp_path):
    nodes_of = [helper.make_node("Exp", ["x"], ["e"], name="exp"),
                helper.make_node("Reshape", ["e", "shape"], ["y"], name="reshape"),
                helper.make_node("Neg", ["y"], ["z"], name="neg")]
    model = small_models.model(nodes_of, {"x": ["n"]}, {"z": ["a", "b"]}, {"shape": np.array([-1, 4], np.int64)})
    session = profiled(tmp_path, model)
    for count in (8, 6, 12, 7, 4):  # 6 and 7 are not multiples of 4
        feed = {"x": np.ones(count, np.float32)}
        if count % 4:
            with pytest.raises(Exception, match="(?i)reshape"):
                session.run(None, feed)
        else:
            session.run(None, feed)
    events = ended(session)
    # An island is planned as a whole before anything of it runs.
    whole = {event["args"]["ort_event_name"] for op in ("Exp", "Neg") for event in kernels(events, op=op)}
    assert len(kernels(events, op="Exp")) == (3 if len(whole) == 1 else 5) and len(kernels(events, op="Neg")) == 3
    assert all("exp" in event["name"] for event in kernels(events, op="Exp"))
    check_times(events, within_nodes=emulated)


# ---- several sessions, several threads ----


def chain(length):
    names = ["x", *(f"t{i}" for i in range(length - 1)), "y"]
    return small_models.model(
        [helper.make_node("Exp" if i % 2 else "Neg", [a], [b], name=f"node{i}")
         for i, (a, b) in enumerate(itertools.pairwise(names))], {"x": ["n"]}, {"y": ["n"]})


def run_threads(sessions):
    """Runs every session on threads of its own, all at once."""
    faults = []

    def work(session):
        try:
            for _ in range(RUNS):
                session.run(None, {"x": np.ones(64, np.float32)})
        except Exception as error:  # told by the test's own thread
            faults.append(error)

    threads = [threading.Thread(target=work, args=[session]) for session in sessions for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults


def check_chain(events, length):
    """Every node of every run has one kernel, and each kernel one event."""
    count = THREADS * RUNS
    for i in range(length):
        work = kernels(events, node=f"node{i}")
        assert len(work) == count, (i, len(work))
        assert len({event["args"]["ort_correlation_id"] for event in work}) <= count
        assert all(("Exp" if i % 2 else "Neg", f"node{i}") in names_of(event) for event in work)
        assert all(("exp" if i % 2 else "neg") in event["name"] for event in work if len(names_of(event)) == 1)
    assert all(names_of(event) for event in kernels(events))


def test_sessions_and_threads_keep_their_own(emulated, tmp_path):
    lengths = (3, 5)
    sessions = [profiled(tmp_path, chain(length), name=f"s{length}") for length in lengths]
    plain = provider.session(chain(4))
    run_threads([*sessions, plain])
    for session, length in zip(sessions, lengths, strict=True):
        check_chain(ended(session), length)
    session = profiled(tmp_path, chain(2))  # and again, after all have gone
    run_threads([session])
    check_chain(ended(session), 2)


@pytest.mark.parametrize("mode", ["threaded", "adversarial:1", "adversarial:2"])
def test_work_that_is_done_later(emulated, tmp_path, mode):
    if not emulated:
        pytest.skip("the emulated device's own modes")
    code = """
    session = profiled(folder)
    for rows in (3, 4):
        session.run(None, small_models.mixed_feed(rows))
    events = ended(session)
    check_times(events, within_nodes=False)
    for node in nodes(events):
        assert of(events, "Kernel", ort_event_name=node["name"]), node
    assert len(kernels(events, node="softmax")) == 2
    session = profiled(folder, chain(4))
    run_threads([session])
    check_chain(ended(session), 4)
    """
    child(code, tmp_path, MILLPOND_HOST=mode)


# ---- graphs ----


def bound(session):
    """A binding of a chain's values on the device."""
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(np.ones(64, np.float32), "cuda", 0))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros(64, np.float32), "cuda", 0))
    return binding


def check_replays(events, length):
    """Gives how many replays there were, each of which names all the nodes of a chain."""
    replayed = kernels(events, in_graph="1")
    by_node = collections.Counter(pair for event in replayed for pair in names_of(event))
    assert set(by_node) == {("Exp" if i % 2 else "Neg", f"node{i}") for i in range(length)}, by_node
    (count,) = set(by_node.values())
    for event in replayed:
        if len(names_of(event)) == 1:
            assert names_of(event)[0][0].lower() in event["name"]
    launches = collections.defaultdict(list)
    for event in replayed:
        launches[event["args"]["correlation_id"]] += names_of(event)
    assert {len(each) for each in launches.values()} == {length}  # all the kernels of one replay, and of no other
    assert len(launches) == count
    return count


def test_replays_of_a_graph_name_the_nodes(emulated, tmp_path):
    session = profiled(tmp_path, chain(4), {"enable_cuda_graph": "1"})
    binding = bound(session)
    for _ in range(5):
        session.run_with_iobinding(binding)
    assert check_replays(ended(session), 4) >= 2


def test_replays_of_an_island_name_the_nodes(emulated, tmp_path):
    """An island is captured at its third run with the same addresses."""
    session = profiled(tmp_path, chain(6), {"fusion": "1"})
    binding = bound(session)
    for _ in range(6):
        session.run_with_iobinding(binding)
    events = ended(session)
    assert len(islands(events)) == 6
    if len(kernels(events)) >= 3 * 6:  # fewer are not worth a graph
        assert check_replays(events, 6) == 4
    for i in range(6):
        assert len(kernels(events, node=f"node{i}")) == 6


def profile_runs(tmp_path, code):
    """Runs `code` with `session_of(options)`, a session of a chain whose runs have profiles of their own. Gives the
    events of each by its name."""
    capi = Path(ort.__file__).parent / "capi"
    library = next(iter(sorted(capi.glob("libonnxruntime.so.1*"))), None)
    if library is None:
        pytest.skip(f"this wheel has no C library in {capi}, and its Python module profiles no single runs")
    before = """
    import ort_c
    environment = ort_c.Environment()
    def session_of(**options):
        return environment.session(chain(6), options={"fusion": "1", **options})
    """
    child(before + code, tmp_path, ORT_C_LIBRARY=str(library), MILLPOND_EP_LIBRARY=str(provider.library_path()))
    return {path.name.split("_")[0]: json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.json")}


def check_graph(events):
    """One run of the chain of six, as one launch where that is worth it."""
    assert len(islands(events)) == 1
    work = kernels(events)
    assert [pair for event in work for pair in names_of(event)] == [
        ("Exp" if n % 2 else "Neg", f"node{n}") for n in range(6)]
    if len(work) == 6:  # fewer are not worth a graph
        assert all(event["args"].get("in_graph") == "1" for event in work)


def test_a_profile_of_a_later_run_names_the_nodes(emulated, tmp_path):
    """Runs may be profiled one by one, when an island has been captured for long: for each that is done again."""
    found = profile_runs(tmp_path, """
    session = session_of()
    x = np.ones(64, np.float32)
    expected = session.run(x)
    for i in range(8):
        profile = str(folder / f"run{i}") if i in (4, 6, 7) else None
        assert np.array_equal(session.run(x, profile=profile), expected)
    session.close()
    """)
    assert set(found) == {"run4", "run6", "run7"}
    for events in found.values():
        check_graph(events)


def test_what_is_captured_again_counts_once(emulated, tmp_path):
    """There is room for the graphs of two shapes, however often one of them is profiled."""
    found = profile_runs(tmp_path, """
    session = session_of(fusion_memory="60000")
    few, more = np.ones(64, np.float32), np.ones(6400, np.float32)
    for x in (few, more):
        for _ in range(4):
            session.run(x)
    for i in range(6):
        session.run(few, profile=str(folder / f"few{i}"))
    session.run(more, profile=str(folder / "more"))
    session.close()
    """)
    assert len(found) == 7
    for events in found.values():
        check_graph(events)


def test_work_for_several_nodes_names_them_all(emulated, tmp_path):
    """What a pass made one is told for all the nodes that it was, whatever their names are."""
    names = ['layer "1"', "layer\\2<é>"]
    weights = {"w": np.ones((16, 8), np.float32), "b": np.ones(8, np.float32)}
    model = small_models.model(
        [helper.make_node("MatMul", ["x", "w"], ["p"], name=names[0]),
         helper.make_node("Add", ["p", "b"], ["s"], name=names[1]),
         helper.make_node("Softmax", ["s"], ["y"], name="softmax")],
        {"x": [2, "n", 16]}, {"y": [2, "n", 8]}, weights)
    session = profiled(tmp_path, model, {"fusion": "1"})
    session.run(None, {"x": np.ones((2, 3, 16), np.float32)})
    products = work_of(ended(session), op="MatMul")
    assert products
    for event in products:
        assert names_of(event)[:2] == [("MatMul", names[0]), ("Add", names[1])]


# ---- ranges for profilers of NVIDIA ----


def test_every_node_is_a_range(emulated, tmp_path):
    injection = provider.library_path().absolute().with_name("libnvtx_injection.so")
    if not injection.exists():
        pytest.skip("built without nvtx3/nvToolsExt.h")
    code = f"""
    import ctypes
    from millpond._ort_options import effective_options
    session = provider.session(small_models.mixed())
    feed = small_models.mixed_feed(3)
    session.run(None, feed)
    profiler = ctypes.CDLL({str(injection)!r})
    def counter(name):
        return ctypes.c_int.in_dll(profiler, "nvtx_injection_" + name).value
    before = counter("pushes")
    session.run(None, feed)
    ours = [name for where, _, name in provider.assigned_nodes(session) if where == provider.NAME]
    print(counter("pushes") - before, len(ours), effective_options(session)["fusion"],
          counter("pushes") - counter("pops"),
          (ctypes.c_char * 64).in_dll(profiler, "nvtx_injection_last").value.decode())
    """
    done = child(code, tmp_path, NVTX_INJECTION64_PATH=str(injection))
    ranges, ours, fusion, open_ranges, *last = done.stdout.split()
    islands = int(fusion)  # of 1 the product and what follows; of 2 the sum, too
    assert int(ranges) - islands == int(ours) + 1 == 4  # with the copy that ONNX Runtime puts in
    assert open_ranges == "0"
    assert last == ["Add", "'sum'" if fusion == "2" else "sum"]


@pytest.mark.skipif(not HOLDS_CONTROL_FLOW, reason=OLD_CONTROL_FLOW)
def test_branches_cost_no_look_and_no_copies(emulated, tmp_path):
    """A condition from the device is not read back. It, what is taken, and what is taken within that are one graph."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[n] x, int64 rate) => (float[n] y, float[n] z)
        <int64 fast = {16000}, int64[1] four = {4}> {
            c = Equal(rate, fast)
            y, z = If (c) <
                then_branch = t () => (float[n] p, float[n] q) {
                    a = Softmax(x)
                    s = Shape(x)
                    g = Greater(s, four)
                    b = Squeeze(g)
                    p = If (b) <then_branch = first () => (float[n] u) { u = Softmax(a) },
                                else_branch = second () => (float[n] v) { v = Identity(a) }>
                    r = Softmax(p)
                    q = Softmax(r)
                },
                else_branch = e () => (float[n] p2, float[n] q2) { p2 = Neg(x)  q2 = Softmax(p2) }
            >
        }""")
    session = profiled(tmp_path, model.SerializeToString())
    feed = {"x": np.arange(4, dtype=np.float32), "rate": np.array(16000)}
    for rate in [8000, *[16000] * 6]:
        session.run(None, feed | {"rate": np.array(rate)})
    work = [event for event in device_work(ended(session)) if "ort_event_name" in event["args"]]
    last = max(work, key=lambda event: event["ts"])["args"]["ort_correlation_id"]
    work = [event for event in work if event["args"]["ort_correlation_id"] == last]
    assert [event["name"] for event in work if event["args"]["grid_x"] == "-1"] == []
    assert [event["args"].get("in_graph", "") for event in kernels(work)] == ["1"] * 4
