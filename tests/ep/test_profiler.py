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
from onnx import helper

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


def kernels(events, **args):
    return [event for event in of(events, "Kernel", **args) if event["args"]["grid_x"] != "-1"]


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


def check_times(events, within_nodes):
    """Work begins after its node has, and ends in it (`within_nodes`) or else in the run around it."""
    error = ROUNDING_US if within_nodes else CLOCK_ERROR_US
    by_name = collections.defaultdict(list)
    for node in nodes(events):
        by_name[node["name"]].append(node)
    for event in device_work(events):
        name = event["args"].get("ort_event_name")
        if name is None:
            continue
        around = by_name[name] if within_nodes else runs_of(events)
        assert any(outer["ts"] - error <= event["ts"]
                   and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + error for outer in around), event
        assert any(node["ts"] - error <= event["ts"] for node in by_name[name]), event


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
    assert {node["args"]["op_name"] for node in nodes(events)} >= {"Gemm", "Softmax", "Add", "MemcpyFromHost"}
    for node in nodes(events):
        work = of(events, "Kernel", ort_event_name=node["name"])
        assert work, f"nothing of {node['name']}"
        assert {event["args"]["ort_op_name"] for event in work} == {node["args"]["op_name"]}
        assert {event["args"]["ort_node_index"] for event in work} == {node["args"]["node_index"]}
        # Each of the two runs has an event of its own.
        assert len({event["args"]["ort_correlation_id"] for event in work}) == 2
    softmax = kernels(events, ort_op_name="Softmax")
    assert len(softmax) == 2 and all("softmax" in event["name"] for event in softmax)
    assert all("add" in event["name"] for event in kernels(events, ort_op_name="Add"))
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
    assert 16 * 8 * 4 in there  # the weights, while the session was made
    assert back == [5 * 8 * 4]
    (inserted,) = of(copies, "Kernel", ort_op_name="MemcpyFromHost")
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
    assert len(kernels(ended(session), ort_op_name="Softmax")) == 1
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
    assert len(kernels(events, ort_op_name="Exp")) == 5 and len(kernels(events, ort_op_name="Neg")) == 3
    assert all("exp" in event["name"] for event in kernels(events, ort_op_name="Exp"))
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
        work = kernels(events, ort_event_name=f"node{i}_kernel_time")
        assert len(work) == count, (i, len(work))
        assert len({event["args"]["ort_correlation_id"] for event in work}) <= count
        assert all(("exp" if i % 2 else "neg") in event["name"] for event in work)
    assert len(kernels(events)) == count * length


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
    session = profiled(folder, chain(4))
    run_threads([session])
    check_chain(ended(session), 4)
    """
    child(code, tmp_path, MILLPOND_HOST=mode)


# ---- graphs ----


def test_replays_of_a_graph_name_the_nodes(emulated, tmp_path):
    session = profiled(tmp_path, chain(4), {"enable_cuda_graph": "1"})
    x = ort.OrtValue.ortvalue_from_numpy(np.ones(64, np.float32), "cuda", 0)
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros(64, np.float32), "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for _ in range(5):
        session.run_with_iobinding(binding)
    events = ended(session)
    replayed = kernels(events, in_graph="1")
    by_node = collections.Counter(event["args"].get("ort_event_name") for event in replayed)
    assert len(by_node) == 4 and len(set(by_node.values())) == 1, by_node
    assert set(by_node) == {f"node{i}_kernel_time" for i in range(4)}
    assert min(by_node.values()) >= 2
    for event in replayed:
        index = int(event["args"]["ort_event_name"].removeprefix("node").removesuffix("_kernel_time"))
        assert ("exp" if index % 2 else "neg") in event["name"]
        assert event["args"]["ort_op_name"] == ("Exp" if index % 2 else "Neg")
    launches = collections.Counter(event["args"]["correlation_id"] for event in replayed)
    assert set(launches.values()) == {4}  # all the kernels of one replay, and of no other


# ---- ranges for profilers of NVIDIA ----


def test_every_node_is_a_range(emulated, tmp_path):
    injection = provider.library_path().absolute().with_name("libnvtx_injection.so")
    if not injection.exists():
        pytest.skip("built without nvtx3/nvToolsExt.h")
    code = f"""
    import ctypes
    session = provider.session(small_models.mixed())
    feed = small_models.mixed_feed(3)
    session.run(None, feed)
    profiler = ctypes.CDLL({str(injection)!r})
    def counter(name):
        return ctypes.c_int.in_dll(profiler, "nvtx_injection_" + name).value
    before = counter("pushes")
    session.run(None, feed)
    ours = [name for where, _, name in provider.assigned_nodes(session) if where == provider.NAME]
    print(counter("pushes") - before, len(ours), counter("pushes") - counter("pops"),
          (ctypes.c_char * 64).in_dll(profiler, "nvtx_injection_last").value.decode())
    """
    done = child(code, tmp_path, NVTX_INJECTION64_PATH=str(injection))
    ranges, ours, open_ranges, *last = done.stdout.split()
    assert int(ranges) == int(ours) + 1 == 4  # with the copy that ONNX Runtime puts in
    assert open_ranges == "0"
    assert last == ["Add", "sum"]
