# SPDX-License-Identifier: Apache-2.0
"""What each rank does in tests/ranks: models with collective operators, and what goes wrong with them."""

import json
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import provider
from onnx import TensorProto, helper

pond = provider.pond
NUMPY = {"float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64, "bool": np.bool_}
FLOATS = ["float", "double", "float16", "bfloat16"]
MOVED = [*FLOATS, "int64", "bool"]
SHAPE = (4, 3, 2)
OURS, MICROSOFTS = "ai.millpond", "com.microsoft"
SOON_S = 30


def model(nodes, kind="float", shape=SHAPE, out=None):
    """From x to y; bfloat16, which numpy lacks, travels as float."""
    carried = "float" if kind == "bfloat16" else kind
    if kind == "bfloat16":
        nodes = [helper.make_node("Cast", ["x"], ["x16"], to=TensorProto.BFLOAT16), *nodes,
                 helper.make_node("Cast", ["y16"], ["y"], to=TensorProto.FLOAT)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "ranks", [info("x", getattr(TensorProto, carried.upper()), shape)],
                              [info("y", getattr(TensorProto, carried.upper()), out)])
    opsets = [helper.make_opsetid(domain, 17 if not domain else 1) for domain in {"", *(n.domain for n in nodes)}]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def collective(op, kind, domain=OURS, **attributes):
    names = ("x16", "y16") if kind == "bfloat16" else ("x", "y")
    return helper.make_node(op, [names[0]], [names[1]], op, domain=domain, **attributes)


def value(rank, kind, shape=SHAPE):
    """Small integers, which every type has exactly."""
    numbers = (np.arange(np.prod(shape)) * 7 + 3 * rank) % 16
    return numbers.reshape(shape).astype(NUMPY.get(kind, np.float32))


def session(made, settings=None, **options):
    device = f"cuda:{os.environ['LOCAL_RANK']}" if os.environ["MILLPOND_DEVICE"] == "cuda" else "host"
    return pond.session(made, device, options=options, session_options=settings, fall_back=False)


def number():
    """Of this rank's device, among those of its kind."""
    return int(os.environ["LOCAL_RANK"]) if os.environ["MILLPOND_DEVICE"] == "cuda" else 0


def same(got, wanted, what):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (what, got.dtype, got.shape, wanted.shape)
    assert np.array_equal(got, wanted), (what, got, wanted)


def expected(op, kind, axis, rank, size):
    every = [value(r, kind) for r in range(size)]
    if op == "AllReduce":
        return sum(every[1:], every[0])
    if op == "AllGather":
        return np.concatenate(every, axis)
    parts = [each.reshape(size, -1)[rank] for each in every]
    return np.concatenate(parts).reshape(SHAPE)


def cases(size):
    """(operator, type, axis, attributes)"""
    for kind in FLOATS:
        yield "AllReduce", kind, 0, {}
    for kind in MOVED:
        for axis in (0, 1, -1) if kind == "float" else (1,):
            yield "AllGather", kind, axis, {"axis": axis, "group_size": size}
        yield "AllToAll", kind, 0, {"group_size": size}


def everything(rank, size):
    """Each operator, type and axis; node by node, as an island of its own, and as one of several nodes below."""
    for op, kind, axis, attributes in cases(size):
        made = model([collective(op, kind, **attributes)], kind)
        wanted = expected(op, kind, axis, rank, size)
        for fusion in (0, 2):
            ours = session(made, fusion=fusion)
            same(ours.run(None, {"x": value(rank, kind)})[0], wanted, (op, kind, axis, fusion))
    chain(rank, size)


def chain(rank, size):
    """An island of several nodes, whose runs are captured from the third on, and with shapes that change."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("AllReduce", ["square"], ["sum"], domain=OURS),
        helper.make_node("Sqrt", ["sum"], ["root"]),
        helper.make_node("AllGather", ["root"], ["all"], domain=OURS, axis=1, group_size=size),
        helper.make_node("Neg", ["all"], ["y"]),
    ]
    made = model(nodes, shape=["n", 3])
    for fusion in (0, 1):
        ours = session(made, fusion=fusion)
        for run, rows in enumerate([2, 2, 2, 2, 2, 5, 5, 2]):
            feeds = [value(r + run, "float", (rows, 3)) for r in range(size)]
            root = np.sqrt(sum(feed * feed for feed in feeds))
            got = ours.run(None, {"x": feeds[rank]})[0]  # sums of small integers are exact, a GPU's root is nearly
            np.testing.assert_allclose(got, -np.concatenate([root] * size, 1), rtol=1e-6, err_msg=f"{fusion} {run}")


def captured(rank, size):
    """A graph of the user's: the same addresses in each run."""
    made = model([helper.make_node("Add", ["x", "x"], ["double"]),
                  helper.make_node("AllReduce", ["double"], ["y"], domain=OURS)], out=SHAPE)
    for fusion in (0, 1):
        ours = session(made, enable_cuda_graph=1, fusion=fusion)
        binding = ours.io_binding()
        x = ort.OrtValue.ortvalue_from_numpy(value(rank, "float"), "cuda", 0)
        y = ort.OrtValue.ortvalue_from_shape_and_type(SHAPE, np.float32, "cuda", 0)
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        for run in range(4):
            x.update_inplace(value(rank + run, "float"))
            ours.run_with_iobinding(binding)
            same(y.numpy(), sum(2 * value(r + run, "float") for r in range(size)), f"run {run}")


def sums_of_sizes(rank, size):
    """From one element to more than a kernel of ours takes, of values whose sums are rounded: in the order of ranks."""
    for kind, dtype in (("float", np.float32), ("double", np.float64), ("float16", np.float16)):
        ours = session(model([collective("AllReduce", kind)], kind, ["n"]))
        for run, count in enumerate([1, 2, 3, 5, 8, 4095, 4096, 4097, 131072, 262144, 262145, 524289, 7, 4096]):
            every = [np.random.default_rng(100 * run + r).standard_normal(count).astype(dtype) for r in range(size)]
            wide = [each.astype(np.float32 if kind == "float16" else dtype) for each in every]
            wanted = sum(wide[1:], wide[0])
            for _ in range(3):  # an island is captured meanwhile
                got = ours.run(None, {"x": every[rank]})[0]
                # One rounding of the sum to float16; of floats and doubles one for each rank, which NCCL adds in its
                # own order. Sums near 0 are off by that of their terms.
                rounding = 2e-3 if kind == "float16" else 1e-6
                np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=rounding, atol=1e-5,
                                           err_msg=f"{kind} {count}")
            if size == 2:  # no order then, and few roundings: the same bits
                same(got, wanted.astype(dtype), f"{kind} {count}")


def replayed(rank, size):
    """Many sums in a graph of the user's, launched often: each takes what the one before made."""
    count, depth = 4096, 24
    names = ["x", *(f"s{i}" for i in range(1, depth)), "y"]
    nodes = []
    for i, (a, b) in enumerate(zip(names, names[1:], strict=False)):
        nodes += [helper.make_node("AllReduce", [a], [f"t{i}"], domain=OURS),
                  helper.make_node("Mul", [f"t{i}", "share"], [b])]
    made = model(nodes, "float16", [count], [count])
    made.graph.initializer.append(helper.make_tensor("share", TensorProto.FLOAT16, [], [1 / size]))
    device, ours = number(), session(made, enable_cuda_graph=1)
    binding = ours.io_binding()
    x = ort.OrtValue.ortvalue_from_numpy(np.zeros(count, np.float16), "cuda", device)
    y = ort.OrtValue.ortvalue_from_shape_and_type([count], np.float16, "cuda", device)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for run in range(200):
        every = [(np.arange(count) * (r + 1) + run) % 32 * size for r in range(size)]
        x.update_inplace(every[rank].astype(np.float16))
        ours.run_with_iobinding(binding)
        wanted = sum(every) / size
        exact = np.ones(count, bool) if size in (2, 4) else wanted == np.round(wanted)
        got = y.numpy()
        assert np.array_equal(got[exact], wanted.astype(np.float16)[exact]), f"run {run}"


def two_streams(rank, size):
    """Sessions with streams of their own that take turns, without a wait in between."""
    count, device = 4096, number()
    made = model([helper.make_node("AllReduce", ["x"], ["t"], domain=OURS),
                  helper.make_node("AllReduce", ["t"], ["y"], domain=OURS)], "float", [count], [count])
    both = [session(made) for _ in range(2)]
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    bindings, outs = [], []
    for i, ours in enumerate(both):
        binding = ours.io_binding()
        x = np.arange(count, dtype=np.float32) % 97 + rank + i
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "cuda", device))
        outs.append(ort.OrtValue.ortvalue_from_shape_and_type([count], np.float32, "cuda", device))
        binding.bind_ortvalue_output("y", outs[-1])
        bindings.append(binding)
    for _ in range(50):
        for ours, binding in zip(both, bindings, strict=True):
            ours.run_with_iobinding(binding, options)
    for i, (ours, binding) in enumerate(zip(both, bindings, strict=True)):
        ours.run_with_iobinding(binding)
        wanted = size * sum(np.arange(count) % 97 + r + i for r in range(size))
        same(outs[i].numpy(), wanted.astype(np.float32), f"session {i}")


def says_who_sums(rank, size):
    """Whether the profile has the kernel of small sums, as RANK_WORK_KERNEL says."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ort.SessionOptions()
        settings.enable_profiling = True
        settings.profile_file_prefix = str(Path(folder, "profile"))
        ours = session(model([collective("AllReduce", "float")]), settings, fusion=0)
        same(ours.run(None, {"x": value(rank, "float")})[0], expected("AllReduce", "float", 0, rank, size), "profiled")
        events = json.loads(Path(ours.end_profiling()).read_text(encoding="utf-8"))
    names = {event["name"] for event in events if event["cat"] == "Kernel"}
    if not names and os.environ["MILLPOND_DEVICE"] == "cuda":
        print("the profile has no kernels, as without CUPTI")
        return
    assert names, events
    assert any("peer_sum_f32" in name for name in names) == (os.environ["RANK_WORK_KERNEL"] == "1"), names


def other_ways(rank, size):
    """Sessions that ONNX Runtime makes, by the provider's name, which wants the schemas named, and by its device."""
    made = model([collective("AllReduce", "float")]).SerializeToString()
    theirs = model([collective("AllReduce", "float", MICROSOFTS)]).SerializeToString()
    provider.register()
    wanted = expected("AllReduce", "float", 0, rank, size)
    for text in (made, theirs):
        options = ort.SessionOptions()
        options.register_custom_ops_library(str(provider.library_path()))
        by_name = ort.InferenceSession(text, options, providers=[provider.NAME, provider.CPU])
        same(by_name.run(None, {"x": value(rank, "float")})[0], wanted, "by name")
        for providers in ([], [provider.CPU]):
            ours = pond.session(text, "host", providers=providers)
            same(ours.run(None, {"x": value(rank, "float")})[0], wanted, "with us")
    options = ort.SessionOptions()
    options.add_provider_for_devices(provider.devices(), {})
    for run in range(2):  # the schemas are the process's
        by_device = ort.InferenceSession(made, options)
        same(by_device.run(None, {"x": value(rank, "float")})[0], wanted, f"by device, {run}")


def refused(ours, feed, *texts):
    begun = time.monotonic()
    try:
        ours.run(None, {"x": feed})
    except Exception as error:  # ONNX Runtime's errors have many classes
        assert all(text in str(error) for text in texts), str(error)
        assert time.monotonic() - begun < SOON_S, "the error came late"
        return
    raise AssertionError(f"no error with {texts}")


def mismatched(rank, size):
    """A shape, and then an operator, that another rank does not have; what agrees goes on afterwards."""
    sums = session(model([collective("AllReduce", "float")], shape=["n", 3, 2]), fusion=0)
    island = session(model([helper.make_node("Abs", ["x"], ["a"]),
                            helper.make_node("AllReduce", ["a"], ["y"], domain=OURS)], shape=["n", 3, 2]))
    gathers = session(model([collective("AllGather", "float", axis=0, group_size=size)]))
    plain = value(rank, "float")
    wanted = expected("AllReduce", "float", 0, rank, size)
    for ours in (sums, island):
        same(ours.run(None, {"x": plain})[0], wanted, "before")
        refused(ours, value(rank, "float", (5 if rank == 1 else 4, 3, 2)),
                "rank 1 does AllReduce of 30 float where rank 0 does AllReduce of 24 float")
        same(ours.run(None, {"x": plain})[0], wanted, "behind")
    refused(gathers if rank == size - 1 else sums, plain, f"rank {size - 1} does AllGather of 24 float")
    same(sums.run(None, {"x": plain})[0], wanted, "at the end")


def mismatched_at_first(rank, size):
    """The same where ranks are asked only once for a shape, as on GPUs."""
    ours = session(model([collective("AllReduce", "float")], shape=["n", 3, 2]))
    refused(ours, value(rank, "float", (5 if rank == 1 else 4, 3, 2)),
            "rank 1 does AllReduce of 30 float where rank 0 does AllReduce of 24 float")
    same(ours.run(None, {"x": value(rank, "float")})[0], expected("AllReduce", "float", 0, rank, size), "behind")


def misses_rank_two(rank, size):
    ours = session(model([collective("AllReduce", "float")]))
    refused(ours, value(rank, "float"), f"of {size} ranks 1 did not come within 4 s: rank 2;")


def rank_one_is_killed(rank, size):
    ours = session(model([collective("AllReduce", "float")]), fusion=1)
    for _ in range(5):
        ours.run(None, {"x": value(rank, "float")})
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):
        refused(ours, value(rank, "float"), "rank 1: it has gone (", "); restart all ranks")


def queued(rank, size):
    """Work that is queued and runs on threads: errors come from the wait."""
    ours = session(model([collective("AllReduce", "float")], shape=["n", 3, 2]), fusion=0)
    same(ours.run(None, {"x": value(rank, "float")})[0], expected("AllReduce", "float", 0, rank, size), "queued")
    refused(ours, value(rank, "float", (5 if rank == 1 else 4, 3, 2)), "rank 1 does AllReduce of 30 float")
