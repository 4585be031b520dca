# SPDX-License-Identifier: Apache-2.0
"""Options of a session: where they are looked for, what becomes of bad ones, what each of them does."""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import provider
import pytest
import small_models
import tolerance
from onnx import TensorProto, helper, numpy_helper
from test_arena import c_child

OWN, FAMILY = f"ep.{provider.NAME.lower()}.", "ep.cuda."
DEFAULTS = {
    "prefer_nhwc": "0",
    "use_tf32": "1",
    "enable_cudnn": "1",
    "cudnn_conv_use_max_workspace": "1",
    "cudnn_conv_algo_search": "EXHAUSTIVE",
    "cudnn_conv1d_pad_to_nc1d": "0",
    "fuse_conv_bias": "0",
    "enable_skip_layer_norm_strict_mode": "0",
    "sdpa_kernel": "0",
    "partition_memory_limit": "0",
    "tunable_op_enable": "0",
    "tunable_op_tuning_enable": "0",
    "tunable_op_max_tuning_duration_ms": "0",
    "device_id": "0",
    "gpu_external_alloc": "0x0",
    "gpu_external_free": "0x0",
    "gpu_external_empty_cache": "0x0",
}
FLAGS = (
    "prefer_nhwc",
    "use_tf32",
    "enable_cudnn",
    "cudnn_conv_use_max_workspace",
    "cudnn_conv1d_pad_to_nc1d",
    "fuse_conv_bias",
    "enable_skip_layer_norm_strict_mode",
    "tunable_op_enable",
)


def session_with(given=None, entries=None):
    """A session with options of the provider, and with entries of the session's configuration."""
    options = provider.session_options(threads=1, log_level=2)
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    return provider.session(small_models.add_chain(2), provider_options=given, options=options)


def effective(given=None, entries=None):
    return provider.pond.effective_options(session_with(given, entries))


def plain(given):
    """A session that ONNX Runtime makes by itself, for which an option that is not taken is a warning."""
    provider.register()
    options = provider.session_options(threads=1, log_level=2)
    return ort.InferenceSession(small_models.add_chain(2), options, providers=[(provider.NAME, given), provider.CPU])


def warnings(capfd):
    return capfd.readouterr().err


def test_defaults():
    options = effective()
    assert {key: options.get(key) for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("key", FLAGS)
@pytest.mark.parametrize("prefix", [OWN, FAMILY, ""])
@pytest.mark.parametrize(("text", "means"), [("1", "1"), ("TRUE", "1"), ("0", "0"), ("False", "0")])
def test_flags_are_read_in_each_place(key, prefix, text, means):
    assert effective(entries={prefix + key: text})[key] == means


@pytest.mark.parametrize(
    ("key", "alias", "text", "means"),
    [("prefer_nhwc", "prefer_nhwc_layout", "1", "1"), ("cudnn_conv_algo_search", "cudnn_conv_algo", "2", "DEFAULT")],
)
@pytest.mark.parametrize("prefix", [OWN, FAMILY, ""])
def test_aliases(key, alias, text, means, prefix):
    assert effective(entries={prefix + alias: text})[key] == means


def test_the_order_of_places():
    """The provider's own prefix goes before ep.cuda., and that before the bare key; an alias is behind its key."""
    entries = {OWN + "sdpa_kernel": "1", FAMILY + "sdpa_kernel": "2", "sdpa_kernel": "3"}
    for wanted in ("1", "2", "3"):
        assert effective(entries=entries)["sdpa_kernel"] == wanted
        entries.pop(next(iter(entries)))
    both = {"prefer_nhwc": "0", "prefer_nhwc_layout": "1"}
    assert effective(entries=both)["prefer_nhwc"] == "0"
    assert effective(entries=both | {FAMILY + "prefer_nhwc_layout": "1"})["prefer_nhwc"] == "1"


@pytest.mark.parametrize(
    ("text", "means"),
    [("exhaustive", "EXHAUSTIVE"), ("0", "EXHAUSTIVE"), ("1", "HEURISTIC"), ("2", "DEFAULT")],
)
def test_searches_have_names_and_numbers(text, means):
    assert effective({"cudnn_conv_algo_search": text})["cudnn_conv_algo_search"] == means


@pytest.mark.parametrize("key", list(DEFAULTS))
@pytest.mark.parametrize("text", ["", "perhaps", "-1", "1x", " 1"])
def test_bad_values_warn_and_the_default_stays(key, text, capfd):
    if key == "device_id":
        entries = {FAMILY + key: text}  # ONNX Runtime sets our own one; it comes first
        assert effective(entries=entries)[key] == "0"
        return
    assert effective(entries={FAMILY + key: text})[key] == DEFAULTS[key]
    text_seen = warnings(capfd)
    assert f'{key} is "{text}"' in text_seen and "is kept" in text_seen


@pytest.mark.parametrize("given", ['options={"device_id": {}}', 'config={"ep.cuda.device_id": {}}',
                                   'config={"device_id": {}}'])
def test_a_device_id_of_another_device_is_refused(given):
    make = given.replace("{}", "number")
    c_child(f"""
        environment = Environment()
        first, second = environment.devices()
        def make(number, device):
            return environment.session(sums(), {make}, device=device)
        for device, right, wrong in ((first, 0, 1), (second, 1, 0), (first, 0, 7)):
            refused(lambda: make(wrong, device), f"device_id is {{wrong}}", f"given device {{right}}")
            session = make(right, device)
            check(session, 1000)
            session.close()
    """, MILLPOND_DEVICE="host", MILLPOND_HOST_DEVICES="2")  # fmt: skip


def test_addresses_are_decimal_or_hexadecimal(capfd):
    """One function without the other is ignored with a warning that can only follow a value that was read."""
    for text in ("4096", "0x1000"):
        assert effective({"gpu_external_alloc": text})["gpu_external_alloc"] == "0x0"
        assert "must both be set" in warnings(capfd)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("prefer_nwhc", "prefer_nhwc"),
        ("prefer_nhwc_layuot", "prefer_nhwc_layout"),
        ("cudnn_conv_algo_serach", "cudnn_conv_algo_search"),
        ("use_tf23", "use_tf32"),
    ],
)
def test_unknown_keys_have_a_neighbour(key, near, capfd):
    for unknown in (lambda: plain({key: "1"}), lambda: effective(entries={FAMILY + key: "1"})):
        unknown()
        assert f"no option '{key}'; did you mean '{near}'?" in warnings(capfd)


def test_unknown_keys_of_others_are_left_alone(capfd):
    effective(entries={"no_such_key": "1", "ep.other.use_tf23": "1"})
    assert "no option" not in warnings(capfd)
    for unknown in (lambda: plain({"no_such_key": "1"}), lambda: effective(entries={"ep.cuda.no_such_key": "1"})):
        unknown()
        assert "no option 'no_such_key'; it is ignored" in warnings(capfd)


# ---- what they do ----


def conv_models():
    """(model, feed) of a plane and of a line, each with a bias."""
    generator = np.random.default_rng(2)
    for shape, kernel in (((1, 3, 9, 8), (4, 3, 3, 3)), ((2, 3, 17), (4, 3, 3))):
        weights = [
            numpy_helper.from_array(generator.standard_normal(size, np.float32), name)
            for size, name in ((kernel, "w"), (kernel[:1], "b"))
        ]
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv")
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([node], "conv", [x], [y], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        yield model.SerializeToString(), {"x": generator.standard_normal(shape, np.float32)}


@pytest.mark.parametrize(
    "options",
    [
        {"enable_cudnn": "0"},
        {"prefer_nhwc": "1"},
        {"fuse_conv_bias": "1"},
        {"cudnn_conv1d_pad_to_nc1d": "1"},
        {"cudnn_conv_algo_search": "DEFAULT"},
        {"cudnn_conv_algo_search": "HEURISTIC", "cudnn_conv_use_max_workspace": "0"},
    ],
    ids=lambda options: "-".join(f"{key}={value}" for key, value in options.items()),
)
def test_convolutions_are_right_with_each_option(options):
    for model, feed in conv_models():
        session = provider.session(
            model, provider_options={"use_tf32": "0", **options}, options=provider.session_options(threads=1)
        )
        expected = ort.InferenceSession(model, providers=[provider.CPU]).run(None, feed)[0]
        np.testing.assert_allclose(session.run(None, feed)[0], expected, **tolerance.FLOAT32)


def test_without_cudnn_convolutions_run_on_the_cpu():
    for model, _ in conv_models():
        with_it, without = (
            provider.session(model, provider_options={"enable_cudnn": value}, options=provider.session_options())
            for value in ("1", "0")
        )
        assert provider.assignment(with_it)[provider.NAME]["Conv"] == 1
        assert provider.assignment(without)[provider.CPU]["Conv"] == 1


@pytest.mark.parametrize(("given", "taken", "unknown"), [("8", "0", "8"), ("13", "1", "12"), ("51", "19", "32")])
def test_bits_that_name_no_attention_kernel(given, taken, unknown, capfd):
    assert effective({"sdpa_kernel": given})["sdpa_kernel"] == taken
    sentence = f"sdpa_kernel has bits that name no attention kernel here, {unknown}; it is taken as {taken} (1 is"
    assert sentence in warnings(capfd)


@pytest.mark.parametrize("taken", ["0", "1", "2", "16", "19"])
def test_bits_that_name_attention_kernels_give_no_warning(taken, capfd):
    assert effective({"sdpa_kernel": taken})["sdpa_kernel"] == taken
    assert "sdpa_kernel" not in warnings(capfd)


def test_tuning_needs_what_it_is_for(capfd):
    """As with ONNX Runtime's own provider, measuring alone would be of no use."""
    both = {"tunable_op_enable": "1", "tunable_op_tuning_enable": "1", "tunable_op_max_tuning_duration_ms": "250"}
    found = effective(both)
    assert {key: found[key] for key in both} == both and "tunable" not in warnings(capfd)
    assert effective({"tunable_op_tuning_enable": "1"})["tunable_op_tuning_enable"] == "0"
    assert "tunable_op_tuning_enable is ignored: set tunable_op_enable to 1" in warnings(capfd)


def test_products_that_are_tuned_are_right():
    """On the emulated device they are what they always are."""
    for model, feed in ((small_models.mixed(), small_models.mixed_feed(3)),):
        want = ort.InferenceSession(model, providers=[provider.CPU]).run(None, feed)[0]
        for tuning in ("0", "1"):
            options = {"tunable_op_enable": "1", "tunable_op_tuning_enable": tuning, "use_tf32": "0"}
            got = provider.session(model, provider_options=options).run(None, feed)[0]
            np.testing.assert_allclose(got, want, **tolerance.FLOAT32)


FEW, MANY = 2, 40  # queries


@pytest.mark.parametrize(
    ("bits", "rows", "kernel"),
    [
        ("0", FEW, "attention_few"),
        ("0", MANY, "attention_tile"),
        ("1", FEW, "attention_few"),
        ("1", MANY, "attention_few"),
        ("2", FEW, "attention_tile"),
        ("2", MANY, "attention_tile"),
        ("3", FEW, "attention_few"),
        ("3", MANY, "attention_tile"),
        ("16", FEW, None),
        ("16", MANY, None),
        ("17", MANY, None),
        ("18", FEW, "attention_tile"),
        ("13", MANY, "attention_few"),
    ],
)
def test_attention_runs_the_kernels_that_are_allowed(bits, rows, kernel, tmp_path, capfd):
    heads, size = 2, 8
    names = ["q", "k", "v"]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, heads, None, size]) for name in names]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Attention", names, ["y"])], "attention", kinds, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11).SerializeToString()
    generator = np.random.default_rng(1)
    feed = {name: generator.standard_normal((1, heads, rows, size), np.float32) for name in names}
    options = provider.session_options(threads=1)
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = provider.session(model, provider_options={"sdpa_kernel": bits, "use_tf32": "0"}, options=options)
    got = session.run(None, feed)[0]
    expected = ort.InferenceSession(model, providers=[provider.CPU]).run(None, feed)[0]
    np.testing.assert_allclose(got, expected, **tolerance.FLOAT32)
    ran = {event["name"] for event in json.loads(Path(session.end_profiling()).read_text()) if event["cat"] == "Kernel"}
    unseen = [line for line in capfd.readouterr().err.splitlines() if "the profile will have no kernels" in line]
    if unseen and not provider.is_emulated(provider.register()[0]):
        pytest.skip(unseen[0])  # as without CUPTI
    assert ran
    assert {word for word in ("attention_few", "attention_tile") for name in ran if word in name} == (
        {kernel} if kernel else set()
    )


def test_options_end_with_their_session():
    options = provider.session_options()
    options.add_session_config_entry("millpond.session", "mine")
    session = provider.session(small_models.add_chain(2), provider_options={"use_tf32": "0"}, options=options)
    assert provider.pond.effective_options(session)["use_tf32"] == "0"
    named = ort.SessionOptions()
    named.add_session_config_entry("millpond.session", "mine")
    other = ort.InferenceSession(small_models.add_chain(2), named, providers=[provider.CPU])
    assert provider.pond.effective_options(other)["use_tf32"] == "0"  # names are the user's affair
    del session
    with pytest.raises(provider.pond.InvalidArgumentError, match="'mine' is not on the provider"):
        provider.pond.effective_options(other)
