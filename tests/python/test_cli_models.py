# SPDX-License-Identifier: Apache-2.0
"""`millpond run`, `bench` and `parity`."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx_kit
import pytest
from cli_kit import refused, run, run_json

ort = pytest.importorskip("onnxruntime", minversion="1.26", reason="ONNX Runtime 1.26 is not installed")

from millpond import _ort_beyond_numpy as beyond  # noqa: E402
from millpond import _parity_table  # noqa: E402
from millpond.cli import _bench_compare, _bench_plot, _compare, _inputs, _parity, _timing  # noqa: E402
from millpond.cli._app import Finding  # noqa: E402

PROVIDER, CPU = "CudaPluginExecutionProvider", "CPUExecutionProvider"
REGRESSOR = "ai.onnx.ml.LinearRegressor"  # on the CPU in every build


# ---- run ----


def test_run(models):
    found = run_json("run", models / "mixed.onnx", "--dim", "n=3", "--seed", "5")
    assert found["nodes"][CPU] == {REGRESSOR: 1} and sum(found["nodes"][PROVIDER].values()) == 3
    assert found["elsewhere"] == [{"operator": REGRESSOR, "reason": "no kernel for this operator", "nodes": 1}]
    assert [(each["name"], each["shape"], each["source"]) for each in found["inputs"]] == [
        ("x", [3, 16], "random"), ("q", [1, 4], "random")]
    (output,) = found["outputs"]
    assert output["ok"] and found["agrees"] and output["relative"] < 5e-3 and output["shape"] == [3, 8]
    for name in ("millpond", "CPU"):
        times = found["latency_ms"][name]
        assert times["runs"] == 20
        assert 0 < times["least"] <= times["p50"] <= times["p90"] <= times["p99"] <= times["most"]
    memory = found["memory"]
    assert memory.keys() == {"in_use", "in_use_before", "in_use_max", "total_max", "allocs"}
    assert memory["in_use_max"] > memory["in_use_before"] and memory["total_max"] >= memory["in_use_max"]
    out, said = run("run", models / "mixed.onnx")
    assert said == ""
    for part in ("Where the nodes run", "Why not on the device", "Latency of a run", "Memory of the pool", "p99"):
        assert part in out


def test_the_same_seed_gives_the_same(models, tmp_path):
    saved = []
    for seed in (1, 1, 2):
        path = tmp_path / f"{len(saved)}.npz"
        run("run", models / "add.onnx", "--seed", seed, "--save", path, "--no-compare", "--runs", 1)
        with np.load(path) as archive:
            saved.append(archive["y"])
    assert np.array_equal(saved[0], saved[1]) and not np.array_equal(saved[0], saved[2])


def test_inputs_from_files(models, tmp_path):
    x, q = np.full((2, 16), 3.0), np.ones((1, 4), np.float32)
    np.save(tmp_path / "x.npy", x)  # doubles, which become floats
    np.savez(tmp_path / "both.npz", x=x.astype(np.float32), q=q)
    np.save(tmp_path / "four.npy", np.arange(4, dtype=np.float32))
    found = run_json("run", models / "mixed.onnx", "--input", f"x={tmp_path}/x.npy", "--fill", "q=2")
    assert [each["source"] for each in found["inputs"]] == [f"{tmp_path}/x.npy", "filled with 2"]
    found = run_json("run", models / "mixed.onnx", "--input", tmp_path / "both.npz")
    assert {each["source"] for each in found["inputs"]} == {f"{tmp_path}/both.npz"}
    run("run", models / "add.onnx", "--input", tmp_path / "four.npy", "--save", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["y"].tolist() == [1, 2, 3, 4]


def test_pictures(models, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    image.fromarray(pixels).save(tmp_path / "small.png")
    image.fromarray(pixels).resize((60, 40), image.Resampling.NEAREST).save(tmp_path / "large.png")

    def result(model, *more):
        run("run", models / f"{model}.onnx", *more, "--save", tmp_path / "out.npz")
        with np.load(tmp_path / "out.npz") as archive:
            return archive["out"]

    small = f"image={tmp_path}/small.png"
    np.testing.assert_allclose(-result("picture", "--input", small)[0], pixels.transpose(2, 0, 1) / 255, rtol=1e-6)
    shifted = result("picture", "--input", tmp_path / "small.png", "--mean", "0.5,0.25,0", "--std", "0.5,1,2")
    wanted = (pixels / 255 - [0.5, 0.25, 0]) / [0.5, 1, 2]
    np.testing.assert_allclose(shifted[0], -wanted.transpose(2, 0, 1), rtol=1e-5, atol=1e-6)
    assert result("picture", "--input", small, "--shape", "image=1,3,8,9").shape == (1, 3, 8, 9)
    assert np.array_equal(result("pixels", "--input", small)[0], pixels)
    assert result("pixels", "--input", f"image={tmp_path}/large.png").shape == (1, 4, 6, 3)
    (tmp_path / "bad.png").write_bytes(b"no picture")
    assert "cannot be read as a picture" in refused("run", models / "picture.onnx", "--input", tmp_path / "bad.png")
    assert "is a picture, and the model's input 'x'" in refused("run", models / "add.onnx", "--input",
                                                               tmp_path / "small.png")


@pytest.mark.parametrize(("model", "arguments", "part"), [
    ("picture", [], "the size of dimension 2 of the input 'image' (n,3,h,w) is open; say --dim h=N or --shape image="),
    ("add", ["--shape", "z=4"], "no input 'z'; it has x"), ("add", ["--fill", "z=4"], "no input 'z'"),
    ("add", ["--shape", "x"], "say --shape NAME=1,3,224,224"), ("add", ["--shape", "x=a,b"], "no list of numbers"),
    ("add", ["--shape", "x=-4"], "negative"), ("add", ["--input", "/nowhere.npy"], "there is no file /nowhere.npy"),
    ("mixed", ["--input", __file__], "cannot be read"), ("add", ["--option", "use_tf32"], "say --option KEY=VALUE"),
    ("add", ["--tolerance", "-1"], "--tolerance"), ("add", ["--runs", "0"], "--runs"),
    ("add", ["--tolerance", "nan"], "nan is not a finite number"), ("add", ["--seed", "-1"], "--seed"),
    ("add", ["--threads", "100000"], "--threads"),
    ("add", ["--device", "abacus"], None),
])
def test_wrong_inputs(models, model, arguments, part):
    status = 3 if part is None else 2
    said = refused("run", models / f"{model}.onnx", *arguments, status=status)
    assert (part or "--device abacus: there is no such device here, only ") in said


def test_files_that_do_not_fit(models, tmp_path):
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    np.save(tmp_path / "three.npy", np.zeros(3, np.float32))
    np.savez(tmp_path / "other.npz", nothing=np.zeros(4))
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object))
    for file, part in (("text", "is <U1, and the model's input 'x' is a tensor(float)"), ("objects", "cannot be read")):
        assert part in refused("run", models / "add.onnx", "--input", tmp_path / f"{file}.npy")
    assert "no input 'nothing'; it has x" in refused("run", models / "add.onnx", "--input", tmp_path / "other.npz")
    assert "say for which input" in refused("run", models / "mixed.onnx", "--input", tmp_path / "three.npy")
    said = refused("run", models / "add.onnx", "--input", tmp_path / "three.npy")
    assert "ONNX Runtime: " in said and "x" in said


def test_a_model_that_is_none(models):
    assert "ONNX Runtime: " in refused("run", models / "broken.onnx")


def test_outputs_that_differ(models, monkeypatch):
    """A tolerance of nothing at all, on a model whose sums the two providers round differently."""
    data = json.loads(run("run", models / "mixed.onnx", "--dim", "n=50", "--tolerance", 0, "--json", status=1)[0])
    assert not data["agrees"] and not data["outputs"][0]["ok"] and data["outputs"][0]["largest"] > 0
    said = run("run", models / "mixed.onnx", "--dim", "n=50", "--tolerance", 0, status=1)[1]
    assert said == "millpond: outputs differ from the CPU's: y\n"
    run("run", models / "mixed.onnx", "--dim", "n=50", "--tolerance", 0, "--no-compare")


def test_options_of_the_provider(models):
    said = refused("run", models / "add.onnx", "--option", "arena.max_mem=lots")
    assert said.startswith('millpond: arena.max_mem is "lots"; use a number of bytes')
    assert 'use_tf32 is "perhaps"' in refused("run", models / "mixed.onnx", "--option", "use_tf32=perhaps")
    assert "did you mean 'use_tf32'" in refused("bench", models / "mixed.onnx", "--option", "usetf32=1")
    said = run("run", models / "add.onnx", "--option", "arena.max_mem=1", status=1)[1]
    assert "arena.max_mem (1 bytes)" in said.splitlines()[-1]
    assert run("run", models / "mixed.onnx", "--option", "use_tf32=0", "--threads", 1)[1] == ""


def test_the_device_asked_for_has_precedence(models):
    found = run_json("run", models / "add.onnx", "--device", "host", MILLPOND_DEVICE="cuda")
    assert found["device"] == {"spec": "host:0", "name": "Millpond emulated device", "emulated": True}
    found = run_json("run", models / "add.onnx", "--device", "host:1", MILLPOND_HOST_DEVICES="2")
    assert found["device"]["spec"] == "host:1"
    said = refused("run", models / "add.onnx", "--device", "host:7", status=3)
    assert said.startswith("millpond: --device host:7: there is no device") and "MILLPOND_DEVICE" not in said
    said = refused("run", models / "add.onnx", "--device", "cuda:99", status=3)
    assert said.startswith("millpond: --device cuda:99: ") and "MILLPOND_DEVICE" not in said and ".so:" not in said


def test_a_folder_that_is_not_there(models, tmp_path):
    for command, option in (("run", "--save"), ("bench", "--output")):
        said = refused(command, models / "add.onnx", option, tmp_path / "none" / "file")
        assert said == f"millpond: {option} {tmp_path}/none/file: there is no folder {tmp_path}/none\n"


# ---- comparing ----


def arrays(*values, dtype=np.float32):
    return [np.array(value, dtype) for value in values]


@pytest.mark.parametrize(("result", "expected", "ok", "largest"), [
    ([1.0, 2.0], [1.0, 2.0], True, 0), ([1.0, 2.001], [1.0, 2.0], True, 0.001), ([1.0, 3.0], [1.0, 2.0], False, 1),
    ([np.nan, 1], [np.nan, 1], True, 0), ([np.nan, 1], [0, 1], False, np.inf), ([0, 1], [np.nan, 1], False, np.inf),
    ([np.inf, 1], [np.inf, 1], True, 0), ([-np.inf, 1], [np.inf, 1], False, np.inf), ([], [], True, 0),
    ([0.0], [0.0], True, 0), ([1e-9], [0.0], True, 1e-9), ([1.0], [0.0], False, 1)])
def test_floats_are_compared(result, expected, ok, largest):
    found = _compare.compare("y", *arrays(result, expected))
    assert found.ok == ok and found.largest == pytest.approx(largest, rel=1e-2)


def test_other_values_are_compared():
    assert _compare.compare("y", *arrays([1, 2], [1, 2], dtype=np.int64)).ok
    assert not _compare.compare("y", *arrays([1, 2], [1, 3], dtype=np.int64)).ok
    assert not _compare.compare("y", *arrays([1 << 62, 2], [(1 << 62) + 1, 2], dtype=np.int64)).ok  # one double
    assert _compare.compare("y", *arrays([100, 2], [100, 3], dtype=np.int64), 0.1).ok
    assert not _compare.compare("y", np.zeros(2, np.float32), np.zeros(3, np.float32)).ok
    assert "float64" in _compare.compare("y", np.zeros(2, np.float32), np.zeros(2)).note
    assert _compare.compare("y", np.array(["a"]), np.array(["a"])).ok
    assert not _compare.compare("y", np.array(["a"]), np.array(["b"])).ok
    assert _compare.compare("y", [np.zeros(2), np.ones(2)], [np.zeros(2), np.ones(2)]).ok
    assert not _compare.compare("y", [np.zeros(2), np.ones(2)], [np.zeros(2), np.zeros(2)]).ok
    assert not _compare.compare("y", [np.zeros(2)], []).ok
    assert _compare.compare("y", {"a": 1}, {"a": 1}).ok
    assert _compare.compare("y", *arrays([1.02], [1], dtype=np.float16)).ok  # its limit is wider
    assert not _compare.compare("y", *arrays([1.02], [1])).ok


def test_latency():
    found = _timing.latency(list(range(1, 101)))
    assert (found.runs, found.least, found.most) == (100, 1, 100)
    assert found.p50 == pytest.approx(50.5) and found.p90 == pytest.approx(90.1) and found.p99 == pytest.approx(99.01)
    assert len(_timing.repeated(lambda: None, 7, 60)) == 7
    assert len(_timing.repeated(lambda: None, 7, 0)) == 1


def test_random_inputs_have_the_model_s_types():
    for kind, dtype in ((onnx_kit.BOOL, "bool"), (onnx_kit.INT64, "int64"), (onnx_kit.FLOAT16, "float16"),
                        (onnx_kit.UINT8, "uint8"), (onnx_kit.DOUBLE, "float64")):
        same = onnx_kit.model([onnx_kit.Node("Identity", ["x"], ["y"])], {"x": (kind, [50])}, {"y": (kind, [50])})
        session = ort.InferenceSession(same, providers=[CPU])
        value = _inputs.feeds(session, _inputs.Wishes())["x"]
        assert value.dtype == dtype and len(np.unique(value)) > 1


# ---- types that ONNX Runtime makes no arrays of ----


@pytest.mark.parametrize("kind", beyond.TYPES, ids=lambda kind: kind.name)
def test_types_that_numpy_lacks(kind, tmp_path):
    """Of such an input and to such an output; an odd number of elements, so that some bytes are not full."""
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    dtype = beyond.dtype(kind.name)
    path, given, saved = tmp_path / "cast.onnx", tmp_path / "x.npy", tmp_path / "y.npz"
    casts = [onnx_kit.Node("Cast", ["x"], ["f"], attributes={"to": onnx_kit.FLOAT}),
             onnx_kit.Node("Cast", ["f"], ["y"], attributes={"to": kind.number})]
    size = (kind.number, [1, 3])
    path.write_bytes(onnx_kit.model(casts, {"x": size}, {"y": size, "f": [1, 3]}, opset=25))
    plain = np.array([[0, 1, 1]], np.float32 if kind.is_float else np.int32)
    own = [] if dtype.kind == "f" else [plain.astype(dtype)]  # whose file NumPy itself does not read
    for x in (plain, *own):
        np.save(given, x)
        found = run_json("run", path, "--input", given, "--save", saved, "--runs", 1)
        assert found["inputs"][0]["type"] == kind.name and found["agrees"] in (True, None)
        with np.load(saved) as outputs:
            assert np.array_equal(outputs["y"].astype(np.float32), x.astype(np.float32))
            assert np.array_equal(outputs["f"], x.astype(np.float32))


def test_types_that_numpy_lacks_in_other_commands(tmp_path):
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    path, size = tmp_path / "int4.onnx", {"x": (22, ["n", 3])}
    casts = [onnx_kit.Node("Cast", ["x"], ["f"], attributes={"to": onnx_kit.FLOAT}),
             onnx_kit.Node("Cast", ["f"], ["y"], attributes={"to": 22})]
    path.write_bytes(onnx_kit.model(casts, size, {"y": size["x"]}, opset=25))
    assert run_json("explain", path)["nodes"]
    assert run_json("explain", path, "--bisect")
    assert run_json("profile", path, "--runs", 1)["floor"]["outputs"] == 2
    rows = run_json("bench", path, "--seconds", 0.02, "--repeats", 1, "--provider", "millpond")["rows"]
    assert rows[0]["runs"] > 0


def test_values_that_are_not_made_up(tmp_path):
    path = tmp_path / "text.onnx"
    path.write_bytes(onnx_kit.model([onnx_kit.Node("Identity", ["x"], ["y"])], {"x": (onnx_kit.STRING, [2])},
                                    {"y": (onnx_kit.STRING, [2])}))
    assert "the input 'x', are not made up; give --input x=FILE" in refused("run", path)


def test_a_model_that_cannot_be_loaded_is_one_sentence(tmp_path):
    """Whatever ONNX Runtime logs beside its error."""
    path = tmp_path / "old.onnx"
    path.write_bytes(onnx_kit.model([onnx_kit.Node("Relu", ["x"], ["y"], "early")], {"x": [2]}, {"y": [2]}, opset=5))
    for command in ("run", "explain", "profile", "parity"):
        assert "no provider has a kernel for the node 'early' of the operator Relu" in refused(command, path, status=3)
    path.write_bytes(onnx_kit.model([onnx_kit.Node("Relu", ["q"], ["y"])], {"x": [2]}, {"y": [2]}))
    for command in ("run", "explain", "profile"):
        assert "'q'" in refused(command, path)


@pytest.fixture
def squares(tmp_path):
    """y = x * x in bfloat16, which the CPU provider has no multiplication for."""
    size = {"x": (onnx_kit.BFLOAT16, ["n", 8])}
    path = tmp_path / "squares.onnx"
    path.write_bytes(onnx_kit.model([onnx_kit.Node("Mul", ["x", "x"], ["y"])], size, {"y": size["x"]}))
    return path


def test_bfloat16_is_run(squares, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(3, 8)
    given, saved = tmp_path / "x.npy", tmp_path / "y.npz"
    for array in (x, x.astype(ml_dtypes.bfloat16)):  # the latter comes back from the file as two bytes of anything
        np.save(given, array)
        found = run_json("run", squares, "--input", given, "--save", saved, "--runs", 1)
        assert found["inputs"][0]["type"] == "bfloat16" and found["agrees"] is None
        assert "CPU provider cannot run squares.onnx" in found["not_compared"]
        rounded = x.astype(ml_dtypes.bfloat16)
        with np.load(saved) as outputs:
            assert outputs["y"].dtype == np.float32
            assert np.array_equal(outputs["y"], (rounded * rounded).astype(np.float32))
    assert "Not compared" in run("run", squares, "--runs", 1)[0]


def test_bfloat16_in_other_commands(squares):
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    assert run_json("explain", squares)["nodes"]
    assert run_json("profile", squares, "--runs", 2)["floor"]["outputs"] == 16
    for bind in ((), ("--bind",)):
        rows = run_json("bench", squares, "--seconds", 0.02, "--repeats", 1, *bind, "--provider", "millpond",
                        "--provider", "cpu")["rows"]
        assert rows[0]["runs"] > 0 and "cannot run squares.onnx" in rows[1]["note"]


def test_bfloat16_is_compared():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    one = np.ones(4, ml_dtypes.bfloat16)
    assert _compare.compare("y", one, one).ok and _compare.compare("y", one * ml_dtypes.bfloat16(1.0625), one).ok
    assert not _compare.compare("y", one * ml_dtypes.bfloat16(1.25), one).ok


# ---- bench ----


def test_bench(models, tmp_path):
    path = tmp_path / "out.json"
    found = run_json("bench", models / "add.onnx", models / "mixed.onnx", "--seconds", 0.02, "--repeats", 3,
                     "--output", path, "--provider", "millpond", "--provider", "cpu")
    assert json.loads(path.read_text()) == found
    assert found["onnxruntime"] == ort.__version__ and found["repeats"] == 3 and not found["bind"]
    rows = {(row["model"], row["provider"]): row for row in found["rows"]}
    assert set(rows) == {(model, provider) for model in ("add.onnx", "mixed.onnx") for provider in ("millpond", "cpu")}
    for (_, provider), row in rows.items():
        assert len(row["blocks"]) == 3 and row["runs"] >= 3 and row["least"] <= row["median"] <= row["most"]
        assert (row["relative"] is None) == (provider == "cpu")
    assert rows["mixed.onnx", "millpond"]["relative"] < 5e-3
    out, _ = run("bench", models / "add.onnx", "--seconds", 0.02, "--repeats", 2, "--bind")
    assert "CPU / this" in out and "add.onnx  millpond" in out


def test_bench_plots_latencies_and_memory(models, tmp_path):
    file = tmp_path / "both.svg"
    turns = ("--seconds", 0.01, "--repeats", 2)
    found = run_json("bench", models / "add.onnx", models / "mixed.onnx", *turns, "--plot", file)
    assert not {"times", "memory"} & found["rows"][0].keys()
    root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    said = [text.text for text in root.iterfind(".//{*}text")]
    lines = [path.get("class") for path in root.iterfind(".//{*}path") if "line" in path.get("class")]
    for model in ("add.onnx", "mixed.onnx"):
        assert model in said
    assert len([text for text in said if text.startswith(("millpond: ", "cpu: "))]) == 4
    assert lines.count("line one dashed") == 2 and "line two" in lines
    (tmp_path / "again").mkdir()
    again = shutil.copy(models / "add.onnx", tmp_path / "again" / "add.onnx")
    run("bench", models / "add.onnx", again, *QUICK, "--plot", file)
    assert file.read_text(encoding="utf-8").count(">add.onnx<") == 2  # a name in common
    assert "MiB" not in file.read_text(encoding="utf-8")  # nothing ran on the pool
    assert "there is no folder" in refused("bench", models / "add.onnx", "--plot", tmp_path / "no" / "a.svg")


def test_axes_of_plots():
    axis = _bench_plot.Axis(0.9, 31, 0, 100, log=True)
    assert axis.ticks() == [1, 2, 5, 10, 20] and axis(0.9) == 0 and axis(31) == pytest.approx(100)
    assert _bench_plot.Axis(3.1, 3.3, 0, 100, log=True).ticks() == pytest.approx([3.1, 3.15, 3.2, 3.25, 3.3])
    assert _bench_plot.Axis(0, 0, 0, 100).ticks() == pytest.approx([0, 0.5, 1])
    assert _bench_plot.Axis(5, 5, 0, 100)(5) == 0  # all runs took the same time
    assert _bench_plot._shares([2.0]) == [(2.0, 0.0), (2.0, 0.0), (2.0, 1.0)]
    many = _bench_plot._thinned([(i, i % 7, i % 5) for i in range(12345)])
    assert len(many) <= _bench_plot.POINTS_MAX and many[-1][0] == 12344 and all(s[1:] == (6, 4) for s in many[:-1])


def test_bench_with_providers_that_are_not_there(models):
    has_cuda = "CUDAExecutionProvider" in ort.get_available_providers()
    if has_cuda:
        pytest.skip("this ONNX Runtime has a CUDA provider of its own")
    found = run_json("bench", models / "add.onnx", "--seconds", 0.01, "--repeats", 1, "--provider", "cpu",
                     "--provider", "cuda")
    notes = {row["provider"]: row["note"] for row in found["rows"]}
    assert notes["cpu"] == "" and "onnxruntime-gpu has" in notes["cuda"]
    out, said = run("bench", models / "add.onnx", "--provider", "cuda", status=3)
    assert said == "millpond: nothing could be timed\n" and "onnxruntime-gpu" in out


QUICK = ("--seconds", 0.01, "--repeats", 2, "--provider", "cpu")


def earlier(path, factor, **changes):
    """What a bench wrote, as if each turn had taken `factor` as long."""
    found = json.loads(path.read_text())
    for row in found["rows"]:
        row.update({key: row[key] * factor for key in ("median", "least", "most")})
    path.write_text(json.dumps(found | changes))


def test_bench_compares_with_an_earlier_one(models, tmp_path):
    old = tmp_path / "old.json"
    both = [models / "add.onnx", models / "mixed.onnx"]
    run("bench", *both, *QUICK, "--output", old)
    earlier(old, 1e6)  # a turn may have lost its core meanwhile
    compared = run_json("bench", models / "add.onnx", *QUICK, "--compare", old, "--fail-above", 5)["compared"]
    (row,) = compared["rows"]
    assert (row["model"], row["provider"], row["overlap"]) == ("add.onnx", "cpu", False)
    assert row["ratio"] == row["now"] / row["before"] < 1
    assert compared["gone"] == [{"model": "mixed.onnx", "provider": "cpu"}] and compared["unlike"] == []
    earlier(old, 1e-9, onnxruntime="1.0")
    out, said = run("bench", *both, *QUICK, "--compare", old, "--fail-above", 20, status=1)
    assert said.startswith("millpond: slower by more than 20 %: add.onnx on cpu by ") and "mixed.onnx on cpu by" in said
    assert "not alike: version of ONNX Runtime" in out and re.search(r"add\.onnx +cpu .* slower\n", out)
    assert "slower" in run("bench", *both, *QUICK, "--compare", old)[0]  # and well, without a limit


def test_rows_that_are_compared():
    def row(median, spread=0.0, provider="cpu"):
        ends = (None, None) if median is None else (median - spread, median + spread)
        return {"model": "m", "provider": provider, "median": median, "least": ends[0], "most": ends[1]}

    def compared(rows, now):
        old = _bench_compare.Earlier.__new__(_bench_compare.Earlier)
        old.path, old.result, old.rows = Path("old.json"), {}, {("m", "cpu"): rows}
        return _bench_compare.compare(old, {"rows": now, "device": None, "onnxruntime": None, "bind": None})

    two = compared([row(2.0), row(4.0)], [row(3.0), row(3.0)])  # models of one name are told apart by their order
    assert [each["ratio"] for each in two["rows"]] == [1.5, 0.75] and two["gone"] == []
    assert _bench_compare.slower(two, 50) == "" and "m on cpu by 50 %" in _bench_compare.slower(two, 49.9)
    assert compared([row(2.0, 0.6)], [row(3.0, 0.4)])["rows"][0]["overlap"]
    assert not compared([row(2.0, 0.5)], [row(3.0, 0.4)])["rows"][0]["overlap"]
    for rows, now in (([row(None)], [row(1.0)]), ([row(1.0)], [row(None)]), ([row(1.0)], [row(1.0, provider="cuda")])):
        assert _bench_compare.slower(compared(rows, now), 5) == "nothing could be compared"


@pytest.mark.parametrize(("text", "part"), [
    ("{", "is not JSON"), ("[" * 100000, "is not JSON"), ("[]", "is not what `millpond bench"),
    ('{"rows": 1}', "is not what"), ('{"rows": [{"model": "m"}]}', "is not what"),
    ('{"rows": [{"model": "m", "provider": "cpu", "median": 0}]}', "is not what"),
    ('{"rows": [{"model": "m", "provider": "cpu", "median": NaN}]}', "is not what"),
    ('{"rows": [{"model": "m", "provider": "cpu", "median": 1}]}', "none of what is to be timed; it has m on cpu"),
])
def test_bench_refuses_what_is_no_bench(models, tmp_path, text, part):
    old = tmp_path / "old.json"
    old.write_text(text)
    assert part in refused("bench", models / "add.onnx", *QUICK, "--compare", old)


def test_a_limit_needs_something_to_compare_with(models):
    assert "--fail-above needs --compare" in refused("bench", models / "add.onnx", "--fail-above", 5)


def test_bench_keeps_values_on_the_device(models):
    from millpond.cli import _bench
    from ort_kit import mort

    session = mort.session(models / "add.onnx")
    bound = _bench.Bound(session, 0, lambda array: _bench._in_pool(array, mort.devices()[0]))
    for _ in range(2):
        assert bound({"x": np.arange(4, dtype=np.float32)}) is None
    (output,) = bound.binding.get_outputs()
    assert output.device_name() == "cuda" and output.numpy().tolist() == [1, 2, 3, 4]


# ---- parity ----


def test_parity_of_the_provider():
    from millpond._ort_placement import Kernels

    found = run_json("parity")
    mine = {operator for operator in Kernels().all if operator[1] not in _parity_table.INSERTED}
    assert found["operators"] == len(mine) and found["theirs"] == len(_parity_table.theirs()) > 200
    (onnx,) = [each for each in found["domains"] if each["domain"] == "ai.onnx"]
    assert "Relu" in onnx["here"] and "Relu" not in onnx["missing"] and set(onnx["missing"]).isdisjoint(onnx["here"])
    assert found["versions"]["Relu"][-1] >= 14
    for each in found["domains"]:
        assert each["covered"] + each["partly"] == len(set(each["here"]) & set(each["theirs"]))
    relu = found["differences"].get("Relu", {"state": "covered", "missing_versions": [], "missing_types": {}})
    assert relu["state"] == "covered" and not relu["missing_versions"] and not relu["missing_types"]
    text = run("parity", "--missing", "--wider")[0]
    assert "Missing here, com.microsoft" in text and "Here in part" in text and "Wider here" in text


def test_versions_and_types_are_compared():
    row = _parity_table.Row
    mine = {("", "A"): {1: {"T": {"float"}}, 7: {"T": {"float", "int8"}, "U": {"bool"}}, 30: {"T": {"float"}}},
            ("", "B"): {6: {"T": {"float", "double"}}}, ("x", "Mine"): {1: {}}}
    theirs = {("", "A"): [row(1, 6, {"T": {"float", "double", "bfloat16"}}), row(7, 13, {"T": {"float"}}),
                          row(14, None, {"T": {"float"}})],
              ("", "B"): [row(1, 6, {"T": {"float"}})], ("", "C"): [row(1, None, {})]}
    allowed = {("", "A"): {1: {"T": {"float", "double"}}, 7: {"T": {"float", "int8"}}, 13: {}, 30: {}},
               ("", "B"): {1: {}, 6: {}, 13: {}}, ("", "C"): {1: {}}}
    found = _parity_table.compare(mine, theirs, allowed)
    assert {name: each.state for (_, name), each in found.items()} == {
        "A": "partly", "B": "partly", "C": "missing", "Mine": "only here"}
    a, b = found["", "A"], found["", "B"]
    assert (a.missing_versions, a.missing_types) == ([13], {1: {"T": {"double"}}})
    assert (a.wider_versions, a.wider_types) == ([], {7: {"T": {"int8"}}})
    assert (b.missing_versions, b.missing_types, b.wider_types) == ([1], {}, {6: {"T": {"double"}}})
    assert a.is_wider and b.is_wider and not found["x", "Mine"].is_wider
    assert _parity_table.by_domain(found) == [
        {"domain": "ai.onnx", "covered": 0, "partly": 2, "missing": 1, "only here": 0, "wider": 2},
        {"domain": "x", "covered": 0, "partly": 0, "missing": 0, "only here": 1, "wider": 0}]
    assert _parity_table.types_by_version({7: {"T": {"b", "a"}}, 9: {"T": {"a", "b"}}}) == "T: a, b (9, 7)"


def test_kernels_are_checked_against_schemas():
    """What is registered is sound; of what is not, each part is named."""
    if _parity.runtime() >= _parity.SCHEMAS_OF:
        assert run_json("parity")["against_schemas"] == []
    allowed = {("", "A"): {7: {"T": {"float", "int8"}, "U": {"bool"}}}}
    assert _parity_table.against_schemas({("", "A"): {7: {"T": {"float"}, "U": {"bool"}}}}, allowed) == []
    wrong = {("", "A"): {6: {"T": {"float"}}, 7: {"T": {"float", "double", "bfloat16"}, "T1": {"bool"}}},
             ("x", "B"): {1: {"T": {"float"}}}}
    assert _parity_table.against_schemas(wrong, allowed) == [
        "A: no schema begins with version 6",
        "A version 7: the schema does not allow bfloat16, double for T",
        "A version 7: the schema has no type constraint T1; it has T, U",
        "x.B: no schema begins with version 1"]


def test_parity_ends_with_1_where_a_kernel_has_no_schema(monkeypatch):
    monkeypatch.setattr(_parity, "SCHEMAS_OF", (1, 0))
    monkeypatch.setattr(_parity_table, "known", lambda schemas: {})
    monkeypatch.setattr(_parity_table, "ours", lambda kernels: {("", "A"): {6: {"T": {"float"}}}})
    with pytest.raises(Finding, match="no schema of ONNX Runtime has: 1"):
        _parity.command.callback((), missing=False, wider=False, as_json=True)


def test_parity_of_models(models):
    assert "0 not covered" in run("parity", models / "add.onnx")[0]
    (found,) = json.loads(run("parity", models / "mixed.onnx", "--json", status=1)[0])
    assert found["operators"][0] == {"operator": REGRESSOR, "version": 1, "nodes": 1,
                                     "why": "no kernel for this operator", "in_cuda": False}
    assert (found["on_device"], found["shape_work"], found["uncovered"]) == (3, 0, 1)
    assert run("parity", models / "mixed.onnx", status=1)[1] == "millpond: nodes that are not covered: 1\n"
    (found,) = run_json("parity", models / "shapes.onnx")
    assert found["uncovered"] == 0 and found["shape_work"] >= 1
    assert len(json.loads(run("parity", models / "add.onnx", models / "mixed.onnx", "--json", status=1)[0])) == 2
    assert "no ONNX model" in refused("parity", models / "broken.onnx")


def test_parity_of_a_folder(models, tmp_path):
    (tmp_path / "below").mkdir()
    for name in ("add", "mixed", "broken"):
        (tmp_path / "below" / f"{name}.onnx").write_bytes((models / f"{name}.onnx").read_bytes())
    out, said = run("parity", tmp_path, status=1)
    assert said == "millpond: models that cannot be loaded: 1; nodes that are not covered: 1\n"
    assert "3 models" in out and REGRESSOR in out.partition("3 models")[2]
    found = json.loads(run("parity", tmp_path, "--json", status=1)[0])
    assert [Path(each["model"]).stem for each in found] == ["add", "broken", "mixed"]
    assert "no ONNX model" in found[1]["error"] and found[0]["uncovered"] == 0
    (tmp_path / "none").mkdir()
    assert "no model (*.onnx)" in run("parity", tmp_path / "none", status=2)[1]




def test_versions_and_functions_in_a_model(tmp_path):
    function = onnx_kit.block(1, "Twice") + onnx_kit.block(10, "mine")
    path = tmp_path / "model.onnx"
    nodes = [onnx_kit.Node("Twice", ["x"], ["y"], "", "mine"), onnx_kit.Node("Relu", ["y"], ["z"])]
    path.write_bytes(onnx_kit.model(nodes, {"x": [1]}, {"z": [1]}, opset=5, domains=["mine"])
                     + onnx_kit.block(25, function))
    lines = {line.operator: line for line in _parity.static_lines(path)}
    assert lines["mine.Twice"].why == "a function of the model, whose nodes take its place"
    assert lines["Relu"].why.startswith("no kernel for version 1; there are 6, ")


def test_the_table_is_whole():
    table = _parity_table.theirs()
    assert ("", "Relu") in table and ("com.microsoft", "Attention") in table
    assert all(row.first <= (row.last or row.first) for rows in table.values() for row in rows)
    assert any("float16" in kinds for row in table["", "Relu"] for kinds in row.types.values())
