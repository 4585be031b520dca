# SPDX-License-Identifier: Apache-2.0
"""Compiled models (ep.context_enable): written, loaded, and what is wrong with those that others have written."""

import contextlib
import hashlib
import os
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import provider
import pytest
import small_models
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import _pybind_state as state
from registered import registry
from test_islands import block

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.search(r"^onnxruntime==(\S+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M)[1]
VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])
HEAD = struct.Struct("<8sII32sQ32s")  # graph/store_private.h
MUTATIONS = int(os.environ.get("MILLPOND_MUTATIONS", "25"))  # tests/graph/store_test.c has thousands


def options(**entries):
    made = provider.session_options(log_level=2)
    for key, value in entries.items():
        made.add_session_config_entry("ep." + key, str(value))
    return made


def session(model, **entries):
    return provider.session(model, provider_options={"use_tf32": "0"}, options=options(**entries))


def compiled(model, path, embed=1, **entries):
    """A session that writes the compiled model of `model`, and that model."""
    made = session(model, context_enable=1, context_file_path=path, context_embed_mode=embed, **entries)
    return made, onnx.load(path, load_external_data=False)


def contexts(model):
    return [node for node in model.graph.node if node.op_type == "EPContext"]


def attribute(node, name):
    return next(helper.get_attribute_value(one) for one in node.attribute if one.name == name)


def feed(of, rows=3, seed=0):
    rng = np.random.default_rng(seed)
    return {one.name: rng.standard_normal([d if isinstance(d, int) else rows for d in one.shape]).astype(np.float32)
            for one in of.get_inputs()}  # fmt: skip


def same(one, other, rows=3):
    given = feed(one, rows)
    for a, b in zip(one.run(None, given), other.run(None, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("embed", [0, 1])
@pytest.mark.parametrize("source", [block(2), small_models.mixed(), small_models.add_chain(3)])
def test_written_and_loaded(tmp_path, source, embed):
    """The session that compiles, and the one that loads, give what one without either gives."""
    writer, model = compiled(source, tmp_path / "out.onnx", embed)
    assert contexts(model)
    assert all(attribute(node, "embed_mode") == embed for node in contexts(model))
    assert len(list(tmp_path.iterdir())) == 1 + (0 if embed else len(contexts(model)))
    plain, loaded = session(source), session(str(tmp_path / "out.onnx"))
    for rows in (1, 3, 5):
        same(plain, writer, rows)
        same(plain, loaded, rows)


def test_names_and_places(tmp_path):
    """Files lie beside the model, by its name and the prefix; whoever moves one moves both."""
    _, model = compiled(block(), tmp_path / "net.v1.onnx", 0, context_node_name_prefix="left/")
    (node,) = contexts(model)
    name = attribute(node, "ep_cache_context").decode()
    assert name == "net.v1_left_island_0.bin" and (tmp_path / name).is_file()
    assert attribute(node, "source").decode() == provider.NAME
    (tmp_path / name).rename(tmp_path / "elsewhere")
    with pytest.raises(Exception, match=r"cannot open .*net.v1_left_island_0.bin.* belongs beside the model"):
        session(str(tmp_path / "net.v1.onnx"))


def test_from_memory(tmp_path):
    """A model without a path has what is beside it where ep.context_file_path says."""
    writer, model = compiled(block(), tmp_path / "out.onnx", 0)
    with pytest.raises(Exception, match="the model has no path: set ep.context_file_path"):
        session(model.SerializeToString())
    same(writer, session(model.SerializeToString(), context_file_path=tmp_path / "out.onnx"))
    _, embedded = compiled(block(), tmp_path / "in.onnx", 1)
    same(writer, session(embedded.SerializeToString()))


def test_external_constants(tmp_path):
    """ONNX Runtime keeps constants in a file of their own where it is asked to."""
    rng = np.random.default_rng(2)
    weights = {"w": rng.standard_normal((256, 256)).astype(np.float32)}
    source = small_models.model([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
                                {"x": ["n", 256]}, {"y": ["n", 256]}, weights)  # fmt: skip
    writer, model = compiled(source, tmp_path / "out.onnx", 1, context_model_external_initializers_file_name="w.bin")
    assert (tmp_path / "w.bin").stat().st_size >= 256 * 256 * 4 > (tmp_path / "out.onnx").stat().st_size
    same(writer, session(str(tmp_path / "out.onnx")))
    # A model whose constants lie in a file already.
    onnx.save(onnx.load_from_string(source), tmp_path / "far.onnx", save_as_external_data=True, location="far.bin",
              size_threshold=0)  # fmt: skip
    _, model = compiled(str(tmp_path / "far.onnx"), tmp_path / "far_out.onnx", 1)
    same(writer, session(str(tmp_path / "far_out.onnx")))


def test_default_path(tmp_path):
    (tmp_path / "net.onnx").write_bytes(block())
    made = session(str(tmp_path / "net.onnx"), context_enable=1)
    assert (tmp_path / "net_ctx.onnx").is_file()
    same(made, session(str(tmp_path / "net_ctx.onnx")))


@pytest.mark.skipif(not hasattr(ort, "ModelCompiler"), reason="this ONNX Runtime has no ModelCompiler")
@pytest.mark.parametrize("embed", [False, True])
def test_model_compiler(tmp_path, embed):
    path = tmp_path / "net.onnx"
    path.write_bytes(block(2))
    made = options()
    made.add_provider_for_devices(provider.devices()[:1], {"use_tf32": "0"})
    compiler = ort.ModelCompiler(made, str(path), embed_compiled_data_into_model=embed)
    compiler.compile_to_file(str(tmp_path / "out.onnx"))
    assert contexts(onnx.load(tmp_path / "out.onnx"))
    plain = session(block(2))
    same(plain, session(str(tmp_path / "out.onnx")))
    if embed:
        same(plain, session(ort.ModelCompiler(made, str(path), embed_compiled_data_into_model=True).compile_to_bytes()))


def test_compiled_twice(tmp_path):
    compiled(block(), tmp_path / "out.onnx")
    with pytest.raises(Exception, match=r"compiled already|EPContext"):
        compiled(str(tmp_path / "out.onnx"), tmp_path / "again.onnx")


def floats(*names, shape=None):
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]


def branching(inner="Relu", domain=""):
    """A branch with a constant of its own, and a Scan."""
    constant = numpy_helper.from_array(np.arange(4, dtype=np.float32), "own")
    nodes = [helper.make_node(inner, ["h"], ["t"], domain=domain), helper.make_node("Add", ["t", "own"], ["b"])]
    then = helper.make_graph(nodes, "then", [], floats("b"), [constant])
    other = helper.make_graph([helper.make_node("Neg", ["h"], ["c"])], "other", [], floats("c"))
    nodes = [helper.make_node("Add", ["s", "r"], ["u"]), helper.make_node("Mul", ["u", "weight"], ["v"])]
    body = helper.make_graph(nodes, "body", floats("s", "r", shape=[4]), floats("u", "v", shape=[4]))
    nodes = [
        helper.make_node("Exp", ["x"], ["h"]),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["if"]),
        helper.make_node("If", ["if"], ["z"], "branch", then_branch=then, else_branch=other),
        helper.make_node("Scan", ["start", "z"], ["last", "y"], body=body, num_scan_inputs=1),
    ]
    constants = {"zero": np.float32(0), "start": np.zeros(4, np.float32), "weight": np.full(4, 2, np.float32)}
    return small_models.model(nodes, {"x": ["n", 4]}, {"y": ["n", 4], "last": [4]}, constants)


HOLDS = VERSION >= (1, 31)  # before, no island holds nodes with bodies


@pytest.mark.skipif(not HOLDS, reason="before ONNX Runtime 1.31 no island holds nodes with bodies")
@pytest.mark.parametrize("embed", [0, 1])
def test_nodes_with_bodies(tmp_path, embed):
    """They are in islands, with constants of their bodies."""
    writer, model = compiled(branching(), tmp_path / "out.onnx", embed)
    assert [node.op_type for node in model.graph.node] == ["EPContext"]
    plain, loaded = session(branching()), session(str(tmp_path / "out.onnx"))
    for sign in (1, -1):
        given = {"x": np.full((3, 4), sign, np.float32)}
        for a, b, c in zip(*(each.run(None, given) for each in (plain, writer, loaded)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-5)


def test_bodies_that_no_island_holds(tmp_path, capfd):
    """ONNX Runtime cannot write them beside compiled nodes, so nothing is compiled, and the session runs."""
    source = branching("Normalizer", "ai.onnx.ml")
    made = session(source, context_enable=1, context_file_path=tmp_path / "out.onnx", context_embed_mode=1)
    assert "no part of the model is compiled, since node" in capfd.readouterr().err
    assert not (tmp_path / "out.onnx").exists()
    same(session(source), made)


OTHER_NAME = """
import sys, numpy as np, onnxruntime as ort, millpond.onnxruntime as mort
mort.register("CUDAExecutionProvider")
session = mort.session(sys.argv[1])
assert session.get_providers()[0] == "CUDAExecutionProvider"
given = {one.name: np.ones([d if isinstance(d, int) else 2 for d in one.shape], np.float32)
         for one in session.get_inputs()}
print([float(np.abs(y).sum()) > 0 for y in session.run(None, given)])
"""


def test_by_another_name(tmp_path):
    """A provider that was registered by its other name takes what was compiled by the first."""
    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this ONNX Runtime has a provider of that name")
    compiled(block(), tmp_path / "out.onnx")
    done = subprocess.run([sys.executable, "-c", OTHER_NAME, str(tmp_path / "out.onnx")], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[True]\n"), done.stderr


@pytest.mark.skipif(not hasattr(state, "get_model_compatibility_for_ep_devices"), reason="it does not tell Python yet")
def test_what_the_metadata_says(tmp_path):
    """Who has compiled a model ONNX Runtime can ask before it makes a session."""
    _, model = compiled(block(), tmp_path / "out.onnx")
    (known,) = [one for one in model.metadata_props if one.key.startswith("ep_compatibility_info.")]
    verdict = state.OrtCompiledModelCompatibility
    for text, wanted in ((known.value, verdict.EP_SUPPORTED_OPTIMAL), ("another 1.0", verdict.EP_NOT_APPLICABLE),
                         ("millpond 0.0.1 format 1", verdict.EP_UNSUPPORTED)):  # fmt: skip
        assert state.get_model_compatibility_for_ep_devices(provider.devices()[:1], text) == wanted


def test_nodes_of_other_providers(tmp_path, capfd):
    _, model = compiled(block(), tmp_path / "out.onnx")
    for name, value in (("source", b"AnotherExecutionProvider"), ("ep_sdk_version", b"12.1")):
        again = onnx.ModelProto()
        again.CopyFrom(model)
        next(one for one in contexts(again)[0].attribute if one.name == name).s = value
        onnx.save(again, tmp_path / "theirs.onnx")
        with pytest.raises(Exception, match="EPContext"):
            session(str(tmp_path / "theirs.onnx"))
        assert "com.microsoft.EPContext, which neither this provider" in capfd.readouterr().err


# ---- what others have written ----


def broken(model, path, change):
    """The model with another content of its first EPContext."""
    again = onnx.ModelProto()
    again.CopyFrom(model)
    for one in contexts(again)[0].attribute:
        if one.name == "ep_cache_context":
            one.s = change(one.s)
    onnx.save(again, path)
    return str(path)


def resealed(content, body=None, mark=b"MPISLAND", form=None, maker=None):
    """The content with a sum that is right for its body."""
    head = HEAD.unpack(content[: HEAD.size])
    body = content[HEAD.size :] if body is None else body
    return HEAD.pack(mark, head[1] if form is None else form, 0, head[3] if maker is None else maker, len(body),
                     hashlib.sha256(body).digest()) + body  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda c: b"", "too short"),
    (lambda c: c[:50], "too short"),
    (lambda c: resealed(c, mark=b"MPISLANE"), "does not begin as Millpond writes it"),
    (lambda c: c[:-1], "its size is not what it says"),
    (lambda c: c[:-1] + bytes([c[-1] ^ 1]), "its check sum is wrong"),
    (lambda c: resealed(c, form=99), r"made by Millpond .* \(format 99\), and this is .*: compile the model again"),
    (lambda c: resealed(c, maker=b"0.0.9\x1b[31m"), r"made by Millpond 0\.0\.9.* compile the model again"),
    (lambda c: resealed(c, body=c[HEAD.size:] + b"x"), "there is more behind its end"),
    (lambda c: resealed(c, body=b""), "ends too early"),
])  # fmt: skip
def test_sentences(tmp_path, change, sentence):
    _, model = compiled(block(), tmp_path / "out.onnx")
    for at in range(len(model.metadata_props)):  # which ONNX Runtime compares first
        model.metadata_props[at].value = ""
    with pytest.raises(Exception, match="the compiled part '.*' cannot be used: .*" + sentence):
        session(broken(model, tmp_path / "bad.onnx", change))


NAMES = ["../out.bin", "/etc/passwd", "", ".", "sub/out.bin", "no such file", "folder", "pipe"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files(tmp_path, name):
    """Files of the model's folder only, and files only."""
    _, model = compiled(block(), tmp_path / "out.onnx", 0)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Exception, match=r"the compiled part|EPContext"):
        session(broken(model, tmp_path / "bad.onnx", lambda _: name.encode()))


def renamed(content, old, new):
    assert old in content and len(old) == len(new)
    return resealed(content, body=content[HEAD.size :].replace(old, new))


@pytest.mark.parametrize(("old", "new", "sentence"), [
    (b"\x06\0\0\0MatMul", b"\x06\0\0\0Choose", "no operator 'Choose'"),
    (b"\x06\0\0\0Concat", b"\x06\0\0\0Gather", "no operator|Gather"),
    (b"\x04\0\0\0axis", b"\x04\0\0\0axes", "no attribute 'axes'"),
])  # fmt: skip
def test_nodes_that_cannot_be(tmp_path, old, new, sentence):
    _, model = compiled(block(), tmp_path / "out.onnx")
    with pytest.raises(Exception, match=sentence):
        session(broken(model, tmp_path / "bad.onnx", lambda content: renamed(content, old, new)))


TRY = """
import sys
sys.path[:0] = {paths!r}
import numpy as np
import test_context
test_context.mutate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""


def mutate(folder, first, count):
    """Sessions of models whose contents were changed at random, with a right sum; each is refused, or runs."""
    model = onnx.load(folder + "/out.onnx")
    content = attribute(contexts(model)[0], "ep_cache_context")
    refused = 0
    for seed in range(first, first + count):
        rng = random.Random(seed)
        body = bytearray(content[HEAD.size :])
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            at = rng.randrange(len(body))
            kind = rng.randrange(4)
            if kind == 0:
                body[at] = rng.randrange(256)
            elif kind == 1:
                body[at : at + 4] = struct.pack("<i", rng.choice([-1, 0, 1, 2, 5, 7, 1 << 30, -(1 << 31), 255]))
            elif kind == 2:
                del body[at : at + rng.randrange(1, 9)]
            else:
                body[at] ^= 1 << rng.randrange(8)
        path = broken(model, folder + "/bad.onnx", lambda _, body=body: resealed(content, body=bytes(body)))
        print(seed, flush=True)
        try:
            made = session(path)
        except Exception as fault:
            assert "the compiled part" in str(fault) or "island" in str(fault), fault
            refused += 1
            continue
        for rows in (1, 3):
            with contextlib.suppress(Exception):
                made.run(None, feed(made, rows))
    print("refused", refused)


@pytest.mark.parametrize("source", [block(2), small_models.mixed()] + ([branching()] if HOLDS else []))
def test_mutations(tmp_path, source):
    """In a process of its own, which a crash ends."""
    compiled(source, tmp_path / "out.onnx")
    code = TRY.format(paths=sys.path)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), "0", str(MUTATIONS)], text=True, timeout=300,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > MUTATIONS // 2


def test_constants_of_another_type(tmp_path):
    """A model may have other constants than when it was compiled: of other types they are refused."""
    _, model = compiled(block(), tmp_path / "out.onnx")
    for constant in model.graph.initializer:
        if constant.name == "b0":
            constant.CopyFrom(numpy_helper.from_array(np.zeros(48, np.float64), "b0"))
    onnx.save(model, tmp_path / "bad.onnx")
    with pytest.raises(Exception, match="of another type than in the model"):
        session(str(tmp_path / "bad.onnx"))


def test_every_kernel_has_a_signature():
    """Of the operators that islands hold: what is not in the table could not be loaded."""
    table = (ROOT / "src/op/core/signature.def").read_text(encoding="utf-8")
    known = {(domain, name, int(since)) for domain, name, since in
             re.findall(r'^SIGNATURE\("([^"]*)", "([^"]*)", (\d+),', table, re.M)}  # fmt: skip
    outside = {"If", "Loop", "Scan", "MemcpyFromHost", "MemcpyToHost"}
    lacking = {(domain, name, kernel.version_range[0]) for (domain, name), kernels in registry().kernels.items()
               for kernel in kernels if domain in ("", "com.microsoft") and name not in outside}  # fmt: skip
    assert lacking - known == set()


@pytest.mark.skipif(ort.__version__ != PINNED, reason="the table is of the ONNX Runtime of requirements.txt")
def test_signatures_are_current():
    subprocess.run([sys.executable, ROOT / "tools/signatures.py", "--check"], check=True)
