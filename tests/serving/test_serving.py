# SPDX-License-Identifier: Apache-2.0
"""millpond.serving: several models on a pool, batches, replacement while requests run; millpond.prometheus."""

import gc
import os
import threading

import millpond
import numpy as np
import pytest
from serving_kit import affine, fixed, pair

serving = pytest.importorskip("millpond.serving", reason="ONNX Runtime is not installed")


@pytest.fixture
def models():
    made = serving.Models()
    yield made
    made.close()


def rows(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


# ---- models ----


def test_several_models_share_a_pool(models):
    assert models.update({"double": affine(2), "more": {"path": affine(1, 5), "version": "7"}}) == ["double", "more"]
    x = rows(3)
    assert np.array_equal(models.run("double", {"x": x})["y"], 2 * x)
    assert np.array_equal(models.run("more", {"x": x.tolist()})["y"], x + 5)
    assert (models.names, models["more"].version) == (["double", "more"], "7")
    shares = {share["name"]: share["in_use"] for share in millpond.Pool().clients()}
    assert shares["onnxruntime"] > 0


def test_an_update_loads_what_changed_only(models, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(affine(2))
    assert models.update({"a": str(file), "b": affine(3)}) == ["a", "b"]
    kept = models["a"]
    assert models.update({"a": str(file)}) == []
    assert models["a"] is kept and models.names == ["a"]
    file.write_bytes(affine(4))
    os.utime(file, ns=(1, 1))
    assert models.update({"a": str(file)}) == ["a"]
    assert models.update({"a": {"path": str(file), "version": "2"}}) == ["a"]
    assert models.update({"a": {"path": str(file), "version": "2", "options": {"fusion": 0}}}) == ["a"]
    assert np.array_equal(models.run("a", {"x": rows(1)})["y"], 4 * rows(1))


@pytest.mark.parametrize(("bad", "sentence"), [
    ({"b": b"no model"}, "."), ({"b": "/nowhere/model.onnx"}, "cannot be read"), ({"b": 7}, "neither a path"),
    ({"b": {"path": "x", "speed": 1}}, "'speed' is not known"), ({"b": {"version": "1"}}, "it has no path"),
    ({"b": {"path": affine(1), "options": {"fusiom": 1}}}, "fusion"),
    ({"b": {"path": affine(1), "warm": {"z": [1, 4]}}}, "warm names 'z', and the inputs are x"),
])
def test_a_model_that_cannot_be_loaded_changes_nothing(models, bad, sentence):
    models.update({"a": affine(2)})
    with pytest.raises(Exception, match=sentence):
        models.update({"a": affine(3), **bad})
    assert models.names == ["a"]
    assert np.array_equal(models.run("a", {"x": rows(2)})["y"], 2 * rows(2))
    with pytest.raises(millpond.NotFoundError, match="no model 'b' here; there are a"):
        models.run("b", {})


def test_warm_runs_a_model_before_it_is_used(models):
    models.update({"a": {"path": affine(2), "warm": {"x": [8, 4]}}})
    with pytest.raises(millpond.Error):
        models.update({"a": {"path": affine(3), "warm": {"x": [8, 5]}}})
    assert np.array_equal(models.run("a", {"x": rows(1)})["y"], 2 * rows(1))


def test_read_only_arrays_are_read_where_they_lie(models, monkeypatch):
    """As Ray gives them: views of its object store."""
    models.update({"a": affine(2)})
    x = rows(1000)
    x.flags.writeable = False
    seen = []
    ort = pytest.importorskip("onnxruntime")
    make = ort.OrtValue.ortvalue_from_numpy

    def watched(array, *more):
        seen.append((array.ctypes.data, array.flags.writeable))
        return make(array, *more)

    monkeypatch.setattr(ort.OrtValue, "ortvalue_from_numpy", staticmethod(watched))
    assert np.array_equal(models.run("a", {"x": x})["y"], 2 * x)
    assert seen == [(x.ctypes.data, False)]


def test_replacement_under_load_loses_no_request_and_no_memory(models):
    models.update({"a": affine(2)})
    x, ended, wrong, factors = rows(5), threading.Event(), [], set()

    def work():
        while not ended.is_set():
            y = models.run("a", {"x": x})["y"]
            factor = round(float(y[0, 0] / x[0, 0]))
            factors.add(factor)
            if not np.array_equal(y, factor * x):
                wrong.append(y)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for factor in range(3, 9):
        models.update({"a": affine(factor)})
    ended.set()
    for thread in threads:
        thread.join(30)
    assert wrong == [] and factors <= set(range(2, 9))
    gc.collect()
    pool = millpond.Pool()
    before = pool.stats()["in_use"]
    for factor in (2, 3) * 3:
        models.update({"a": affine(factor)})
        models.run("a", {"x": x})
    gc.collect()
    assert pool.stats()["in_use"] <= before


# ---- batches ----


def test_requests_that_fit_run_as_one(models, monkeypatch):
    models.update({"a": pair()})
    ran = []
    run = serving._run_row
    monkeypatch.setattr(serving, "_run_row", lambda row, inputs, outputs: ran.append(len(inputs["x"]))
                        or run(row, inputs, outputs))
    given = [{"x": rows(n, n), "z": rows(n, 9)} for n in (1, 3, 2)]
    found = models.run_batch("a", given)
    assert ran == [6]
    for request, outputs in zip(given, found, strict=True):
        assert np.array_equal(outputs["sum"], request["x"] + request["z"])
        assert np.array_equal(outputs["difference"], request["x"] - request["z"])
    assert list(models.run_batch("a", given, ["sum"])[0]) == ["sum"]
    assert models.run_batch("a", []) == []


def test_one_bad_request_spoils_no_other(models):
    models.update({"a": pair()})
    good, odd = {"x": rows(2), "z": rows(2, 1)}, {"x": np.zeros((2, 5), np.float32), "z": np.zeros((2, 5), np.float32)}
    lacking, uneven = {"x": rows(1)}, {"x": rows(2), "z": rows(3)}
    found = models.run_batch("a", [good, odd, lacking, good, odd, uneven])
    assert np.array_equal(found[0]["sum"], good["x"] + good["z"]) and np.array_equal(found[3]["sum"], found[0]["sum"])
    assert all(isinstance(found[index], millpond.Error) for index in (1, 2, 4))
    assert "['x', 'z']" in str(found[2]) or "z" in str(found[2])
    assert isinstance(found[5], Exception)


def test_a_model_of_one_size_runs_request_by_request(models):
    models.update({"a": fixed()})
    given = [{"x": rows(2, n)} for n in range(3)]
    for request, outputs in zip(given, models.run_batch("a", given), strict=True):
        assert np.array_equal(outputs["y"], request["x"] + 1)


def test_a_batch_goes_through_pinned_memory_that_comes_back(models):
    models.update({"a": affine(2)})
    pinned = millpond.Pool(memory="pinned")
    before = pinned.stats()
    models.run_batch("a", [{"x": rows(100)}, {"x": rows(50)}])
    gc.collect()
    assert pinned.stats()["allocs"] > before["allocs"] and pinned.stats()["in_use"] == before["in_use"]


def test_models_in_a_row(models, monkeypatch):
    models.update({"first": affine(2), "second": affine(3, 1, "y", "z")})
    row, given = ["first", models["second"]], [{"x": rows(n, n)} for n in (2, 3)]
    assert np.array_equal(models.run(row, given[0])["z"], 6 * given[0]["x"] + 1)
    for request, outputs in zip(given, models.run_batch(row, given), strict=True):
        assert list(outputs) == ["z"] and np.array_equal(outputs["z"], 6 * request["x"] + 1)
    with pytest.raises(millpond.InvalidArgumentError, match="no model was named"):
        models.run([], {})


# ---- the device ----


def test_check_and_bound(models):
    models.check()
    total = millpond.Pool().memory_info()[1]
    try:
        assert models.bound(0.5) == int(total * 0.5) == millpond.get_limit()
        assert models.bound(0.75) == int(total * 0.5)  # a lower limit stays
        assert models.bound(0.25) == int(total * 0.25)
        for part in (0, -1, 1.5, float("nan")):
            with pytest.raises(millpond.InvalidArgumentError, match="fraction"):
                models.bound(part)
        millpond.set_limit(1)
        models.check()  # without memory a device is not broken
        models.close()
        models.check()
    finally:
        millpond.set_limit(0)


def test_prometheus():
    client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    import millpond.prometheus

    registry = client.CollectorRegistry()
    millpond.prometheus.register(registry)
    millpond.prometheus.register(registry)
    pool = millpond.Pool(client="exported")
    with pool.alloc(1000):
        text = client.generate_latest(registry).decode()
    labels = f'client="exported",device="{pool.device}",memory="device"'
    assert f"millpond_client_in_use_bytes{{{labels}}} 1024.0" in text
    assert "millpond_pool_allocations_total{" in text and "# TYPE millpond_pool_in_use_bytes gauge" in text
    assert text.count("# TYPE millpond_pool_reserved_bytes gauge") == 1
