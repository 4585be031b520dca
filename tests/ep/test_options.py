# SPDX-License-Identifier: Apache-2.0
"""Options of a session: where they are looked for, what becomes of bad ones, what each of them does."""

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
)


def session_with(given=None, entries=None):
    """A session with options of the provider, and with entries of the session's configuration."""
    options = provider.session_options(threads=1, log_level=2)
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    return provider.session(small_models.add_chain(2), provider_options=given, options=options)


def effective(given=None, entries=None):
    return provider.pond.effective_options(session_with(given, entries))


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
    effective({key: "1"})
    assert f"no option '{key}'; did you mean '{near}'?" in warnings(capfd)


def test_unknown_keys_of_others_are_left_alone(capfd):
    effective(entries={"ep.cuda.no_such_key": "1", "no_such_key": "1", "ep.other.use_tf23": "1"})
    assert "no option" not in warnings(capfd)
    effective({"no_such_key": "1"})
    assert "no option 'no_such_key'; it is ignored" in warnings(capfd)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("gpu_mem_limit", "arena.max_mem"),
        ("arena_extend_strategy", "arena.extend_strategy"),
        ("tunable_op_enable", "tuned"),
    ],
)
def test_names_of_the_built_in_provider_are_explained(key, advice, capfd):
    effective({key: "1"})
    text = warnings(capfd)
    assert f"no option '{key}'" in text and advice in text


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
