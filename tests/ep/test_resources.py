# SPDX-License-Identifier: Apache-2.0
"""What the provider tells ONNX Runtime and its users of devices: layers of a model, reasons why a device is no use,
options of a living session, several devices, registrations that end.
"""

import numpy as np
import onnx
import onnxruntime as ort
import provider
import pytest
import small_models
from ort_version import ORT
from test_arena import c_child
from test_provider import child, finished

DYNAMIC = "ep.dynamic.workload_type"
TWO = {"MILLPOND_DEVICE": "host", "MILLPOND_HOST_DEVICES": "2"}


# ---- layers: which node is for which device ----


def layered(key, rules, annotations=()):
    """Where the nodes of the small model run, {node: provider}; `annotations` are {node: layer}."""
    proto = onnx.load_from_string(small_models.mixed())
    for node in proto.graph.node:
        if node.name in dict(annotations):
            node.metadata_props.add(key="layer_ann", value=dict(annotations)[node.name])
    options = provider.session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(key, rules)
    session = provider.session(proto.SerializeToString(), options=options, provider_options={"use_tf32": "0"})
    feed = small_models.mixed_feed(3)
    want = ort.InferenceSession(small_models.mixed(), providers=[provider.CPU]).run(None, feed)[0]
    np.testing.assert_allclose(session.run(None, feed)[0], want, rtol=1e-5, atol=1e-5)
    return {name: ep for ep, _, name in provider.assigned_nodes(session)}


RULES = ["cpu(product, tail)", "cpu(=product, =tail); gpu(middle)", "gpu(middle); cpu(tail, product)"]


@pytest.mark.parametrize("rules", RULES)
def test_annotated_layers_are_respected(rules):
    layers = {"product": "product", "bias": "middle", "softmax": "tail", "sum": "middle"}
    where = layered("session.layer_assignment_settings", rules, layers)
    assert where["product"] == where["softmax"] == provider.CPU
    assert where["bias"] == where["sum"] == provider.NAME


@pytest.mark.skipif(ORT < (1, 31), reason="ONNX Runtime 1.31 is the first that looks at names")
def test_layers_by_the_names_of_nodes():
    where = layered("session.name_based_layer_assignment", "cpu(softmax); gpu(product)")
    assert where["softmax"] == provider.CPU and where["product"] == where["bias"] == provider.NAME


def test_nodes_without_a_layer_go_where_they_fit():
    where = layered("session.layer_assignment_settings", "cpu(elsewhere)")
    assert where["product"] == where["softmax"] == provider.NAME


# ---- why a device is no use ----


def reasons(device):
    from onnxruntime.capi import _pybind_state as state

    if not hasattr(state, "get_hardware_device_ep_incompatibility_details"):
        pytest.skip("this ONNX Runtime does not ask")
    return state.get_hardware_device_ep_incompatibility_details(provider.NAME, device)


def test_a_device_of_ours_is_fine():
    [device, *_] = provider.register()
    assert reasons(device.device)["reasons_bitmask"] == 0


def test_a_cpu_is_another_device():
    provider.register()
    cpu = next(device for device in ort.get_ep_devices() if device.ep_name == provider.CPU)
    found = reasons(cpu.device)
    assert found["reasons_bitmask"] == 2 and "NVIDIA" in found["notes"]


NVIDIA_GPU = """
import ctypes
ENTRIES = ort_c.Table("OrtEpApi", ort_c.API.GetEpApi())
environment = Environment()
metadata = ort_c.pairs({})
gpu = ort_c.made(ENTRIES.CreateHardwareDevice, 1, 0x10DE, 0x2330, b"NVIDIA", metadata)
details = ort_c.made(ort_c.API.GetHardwareDeviceEpIncompatibilityDetails, environment.address, ort_c.NAME.encode(), gpu)
mask, notes = ctypes.c_uint32(), ctypes.c_char_p()
ort_c.API.DeviceEpIncompatibilityDetails_GetReasonsBitmask(details, ctypes.byref(mask))
ort_c.API.DeviceEpIncompatibilityDetails_GetNotes(details, ctypes.byref(notes))
notes = notes.value.decode()
emulated = ort_c.read_pairs(ort_c.API.EpDevice_EpMetadata(environment.devices()[0]))["emulated"] == "1"
"""


def test_a_gpu_that_cannot_be_used_says_why():
    """Where there is a GPU, MILLPOND_DEVICE=host is the reason; where there is none, what the driver lacks."""
    c_child(NVIDIA_GPU + """
assert emulated and mask.value != 0
if "MILLPOND_DEVICE=host" not in notes:
    assert mask.value in (1, 4) and "driver" in notes, notes
""", MILLPOND_DEVICE="host")


def test_a_gpu_that_the_driver_does_not_show():
    c_child(NVIDIA_GPU + """
assert emulated or (mask.value == 2 and "nvidia-smi" in notes), notes
""")


# ---- a limit for weights and outputs ----

SIDE = 64
WEIGHT, OUTPUT = SIDE * SIDE * 4, 2 * SIDE * 4  # bytes


def products(count, shared=False, batch=2):
    """One product after the other, each with a weight of its own or all with one."""
    weights = [
        onnx.numpy_helper.from_array(np.eye(SIDE, dtype=np.float32), f"w{i}") for i in range(1 if shared else count)
    ]
    nodes = [
        onnx.helper.make_node("MatMul", [f"x{i}", f"w{0 if shared else i}"], [f"x{i + 1}"], f"n{i}")
        for i in range(count)
    ]
    kind = onnx.TensorProto.FLOAT
    x = onnx.helper.make_tensor_value_info("x0", kind, [batch, SIDE])
    y = onnx.helper.make_tensor_value_info(f"x{count}", kind, [batch, SIDE])
    graph = onnx.helper.make_graph(nodes, "products", [x], [y], weights)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()


def limited(model, limit, **more):
    options = provider.session_options(threads=1)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = {"partition_memory_limit": str(limit), "use_tf32": "0", **more}
    return provider.session(model, provider_options=given, options=options)


def taken(session):
    return sorted(node for ep, _, node in provider.assigned_nodes(session) if ep == provider.NAME)


@pytest.mark.parametrize(
    ("limit", "nodes"),
    [
        (0, 4),
        (4 * (WEIGHT + OUTPUT), 4),
        (4 * (WEIGHT + OUTPUT) - 1, 3),
        (2 * (WEIGHT + OUTPUT), 2),
        (2 * (WEIGHT + OUTPUT) - 1, 1),
        (1, 0),
        ("33K", 2),
    ],
)
def test_nodes_beyond_the_limit_are_left(limit, nodes):
    session = limited(products(4), limit)
    assert taken(session) == [f"n{i}" for i in range(nodes)]
    x = np.random.default_rng(1).standard_normal((2, SIDE), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x0": x})[0], x)  # the weights are 1 and 0, so it is exact


def test_what_is_left_is_said(tmp_path):
    (tmp_path / "model.onnx").write_bytes(products(4))
    done = child(f"""
        ort.set_default_logger_severity(1)
        options = provider.session_options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        limit = {{"partition_memory_limit": "{2 * (WEIGHT + OUTPUT)}"}}
        provider.session({str(tmp_path / "model.onnx")!r}, options=options, provider_options=limit)
    """, MILLPOND_LOG="info")  # fmt: skip
    lines = [line for line in finished(done).stderr.splitlines() if "nodes from" in line]
    said = (
        f"partition_memory_limit of {2 * (WEIGHT + OUTPUT)} bytes: 2 nodes from 'n2' (MatMul) on are left to other "
        f"providers; weights and outputs of those before it need {2 * (WEIGHT + OUTPUT)} bytes"
    )
    assert lines and all(said in line for line in lines)


def test_a_weight_of_several_nodes_counts_once():
    assert len(taken(limited(products(4, shared=True), WEIGHT + 4 * OUTPUT))) == 4
    assert len(taken(limited(products(4, shared=True), WEIGHT + 4 * OUTPUT - 1))) == 3


def test_dimensions_that_are_not_known_count_as_one():
    assert len(taken(limited(products(2, batch="N"), 2 * (WEIGHT + OUTPUT // 2)))) == 2
    assert len(taken(limited(products(2, batch="N"), 2 * (WEIGHT + OUTPUT // 2) - 1))) == 1


def test_nodes_that_were_rewritten_stay():
    """ONNX Runtime asks again after it has changed the layout; what is counted then is not counted twice."""
    weight = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4, 6, 6])
    graph = onnx.helper.make_graph([node], "conv", [x], [y], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    needed = (4 * 3 * 9 + 4 * 36) * 4
    feed = {"x": np.ones((1, 3, 8, 8), np.float32)}
    for limit in (needed, needed - 1):
        session = limited(model.SerializeToString(), limit, prefer_nhwc="1")
        assert (session.run(None, feed)[0] == 27).all()
        assert any(ep == provider.NAME for ep, _, _ in provider.assigned_nodes(session)) == (limit == needed)


# ---- options of a living session ----


def test_memory_is_given_back_when_asked():
    done = child(f"""
        session = provider.session(small_models.add_chain(3, 1 << 20))
        feed = {{"x": np.zeros(1 << 20, np.float32)}}
        session.run(None, feed)
        before = provider.pool_stats()["total"]
        session.set_ep_dynamic_options({{"{DYNAMIC}": "Efficient"}})
        assert provider.pool_stats()["total"] < before
        assert session.run(None, feed)[0].sum() == 3 << 20
        session.set_ep_dynamic_options({{"{DYNAMIC}": "Default"}})
        assert session.run(None, feed)[0].sum() == 3 << 20
    """)
    finished(done)


@pytest.mark.parametrize(("options", "words"), [({"use_tf32": "0"}, "use_tf32"), ({DYNAMIC: "Lazy"}, "Lazy")])
def test_other_options_cannot_change(options, words):
    session = provider.session(small_models.add_chain(2))
    with pytest.raises(Exception, match=words):
        session.set_ep_dynamic_options(options)
    assert session.run(None, {"x": np.zeros(4, np.float32)})[0].tolist() == [2.0] * 4


# ---- several devices ----

TWO_DEVICES = """
devices = provider.register()
assert len(devices) >= 2, devices
def session_on(device, model):
    options = provider.session_options(threads=1)
    options.add_provider_for_devices([device], {"use_tf32": "0"})
    return ort.InferenceSession(model, options)
"""
TWO_RUN = [
    """
    # A value of either device as the input of a session on the other one, in both directions.
    model = small_models.add_chain(3, 1 << 16)
    sessions = [session_on(device, model) for device in devices[:2]]
    x = np.random.default_rng(3).standard_normal(1 << 16).astype(np.float32)
    for home in (0, 1):
        for there in (0, 1):
            value = ort.OrtValue.ortvalue_from_numpy(x, "cuda", home)
            for _ in range(3):
                binding = sessions[there].io_binding()
                binding.bind_ortvalue_input("x", value)
                binding.bind_output("y")
                sessions[there].run_with_iobinding(binding)
                np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], x + 3, rtol=1e-5, atol=1e-5)
    """,
    """
    # Copies between devices, without a session.
    from onnxruntime.capi import _pybind_state as state
    x = np.random.default_rng(4).standard_normal((300, 70)).astype(np.float32)
    for source, target in ((0, 1), (1, 0), (0, 0)):
        a = ort.OrtValue.ortvalue_from_numpy(x, "cuda", source)
        b = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(x), "cuda", target)
        state.copy_tensors([a._ortvalue], [b._ortvalue], None)
        np.testing.assert_array_equal(b.numpy(), x)
    """,
    """
    # A thread for each device, at the same time.
    import threading
    model, faults = small_models.mixed(), []
    want = {rows: expected(rows) for rows in (1, 4, 9)}
    def work(device):
        try:
            session = session_on(device, model)
            for i in range(20):
                rows = (1, 4, 9)[i % 3]
                np.testing.assert_allclose(run(session, rows), want[rows], rtol=1e-5, atol=1e-5)
        except BaseException as fault:
            faults.append(fault)
    threads = [threading.Thread(target=work, args=(device,)) for device in devices[:2] * 2]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not faults, faults[0]
    """,
]


def unindented(text):
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


@pytest.mark.parametrize("mode", ["eager", "threaded", "adversarial:2"])
@pytest.mark.parametrize("code", TWO_RUN, ids=["values", "copies", "threads"])
def test_two_devices(code, mode):
    finished(child(TWO_DEVICES + unindented(code), MILLPOND_HOST=mode, **TWO))


@pytest.mark.parametrize("code", TWO_RUN, ids=["values", "copies", "threads"])
def test_two_gpus(code):
    if len(provider.register()) < 2:
        pytest.skip("there are no two devices")
    finished(child(TWO_DEVICES + unindented(code)))


# ---- the end of a registration ----


@pytest.mark.parametrize("order", ["values", "session", "binding"])
def test_what_outlives_its_registration(order):
    """Values, sessions and bindings that live on after it are used and freed without a crash."""
    done = child(f"""
        session = provider.session(small_models.add_chain(3, 64))
        x = ort.OrtValue.ortvalue_from_numpy(np.ones(64, np.float32), "cuda", 0)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        y = ort.OrtValue.ortvalue_from_shape_and_type([64], np.float32, "cuda", 0)
        binding.bind_ortvalue_output("y", y)
        session.run_with_iobinding(binding)
        try:
            ort.unregister_execution_provider_library(provider.NAME)
        except Exception as error:
            print("refused:", error, file=sys.stderr)
        things = dict(values=[x, y], session=[session], binding=[binding])
        first = things.pop({order!r})
        if {order!r} != "session":
            assert session.run(None, {{"x": np.zeros(64, np.float32)}})[0].tolist() == [3.0] * 64
        del x, y, session, binding
        first.clear()
        gc.collect()
        things.clear()
        gc.collect()
        provider.register()
        assert provider.session(small_models.add_chain(2)).run(None, {{"x": np.zeros(4, np.float32)}})[0].sum() == 8
    """)
    finished(done)
