# SPDX-License-Identifier: Apache-2.0
"""Values shared between ONNX Runtime and other libraries: the same memory, its life, its type, its order."""

import gc
import sys
import threading
import weakref

import millpond
import numpy as np
import onnx_kit
import pytest
from core_kit import run_python
from ort_kit import Interface, Packed, mort, on_device, ort, ort_types, values

FOUR = np.arange(4, dtype=np.float32)


# ---- to ONNX Runtime ----


@pytest.mark.parametrize("kind", ort_types.TYPES, ids=lambda kind: kind.name)
def test_a_buffer_of_each_type(ort_pool, kind):
    buffer = ort_pool.alloc(24 * kind.bytes)
    value = mort.as_ortvalue(buffer, dtype=kind.name, shape=(2, 3, 4))
    assert value.data_ptr() == buffer.address and value.device_name() == "cuda"
    assert value.data_type() == kind.tensor and value.shape() == [2, 3, 4]
    assert mort.as_array(value).dtype == kind.name
    assert mort.as_ortvalue(buffer, dtype=kind.name).shape() == [24]


def test_dtypes_are_told_in_many_ways(ort_pool):
    buffer = ort_pool.alloc(16)
    for dtype in ("float32", np.float32, np.dtype("float32"), "<f4"):
        assert mort.as_ortvalue(buffer, dtype=dtype).data_type() == "tensor(float)"
    assert mort.as_ortvalue(buffer, dtype=bool).data_type() == "tensor(bool)"
    assert mort.as_ortvalue(buffer).data_type() == "tensor(uint8)"


def test_what_does_not_fit_is_refused(ort_pool):
    buffer = ort_pool.alloc(10)
    for wrong, part in (({"dtype": "float32"}, "not a whole number of float32"), ({"shape": (11,)}, "cannot be uint8"),
                        ({"shape": (-1,)}, "cannot be uint8"), ({"dtype": "int64", "shape": (2,)}, "cannot be int64"),
                        ({"dtype": "complex64"}, "takes no device arrays of complex64"),
                        ({"dtype": "datetime64"}, "it takes float32, float64")):
        with pytest.raises(millpond.InvalidArgumentError, match=part):
            mort.as_ortvalue(buffer, **wrong)
    with pytest.raises(millpond.InvalidArgumentError, match="dtype and shape are for a Buffer"):
        mort.as_ortvalue(FOUR, dtype="float32")
    with pytest.raises(millpond.InvalidArgumentError, match="a list is not an array"):
        mort.as_ortvalue([1, 2])


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 4), (2, 1, 2)])
def test_shapes(ort_pool, shape):
    buffer = on_device(ort_pool, FOUR)
    for array in (Interface(buffer, "float32", shape), Packed(buffer, 2, 32, shape)):
        value = mort.as_ortvalue(array, stream=None)
        assert tuple(value.shape()) == shape
        assert mort.as_array(value).numpy().tolist() == FOUR[: int(np.prod(shape))].reshape(shape).tolist()


def test_arrays_of_other_libraries_share_their_memory(ort_pool):
    buffer = on_device(ort_pool, FOUR)
    for array in (Interface(buffer, "float32", (2, 2)), Packed(buffer, 2, 32, (2, 2))):
        value = mort.as_ortvalue(array)
        assert value.data_ptr() == buffer.address and value.shape() == [2, 2]
        value.update_inplace(np.full((2, 2), 7, np.float32))
        assert values(buffer, "float32", (4,)).tolist() == [7] * 4
        value.update_inplace(FOUR.reshape(2, 2))


def test_bool_is_told_from_uint8(ort_pool):
    buffer = on_device(ort_pool, np.array([1, 0, 1, 1], np.uint8))
    for array, kind in ((Interface(buffer, "bool", (4,)), "bool"), (Interface(buffer, "uint8", (4,)), "uint8"),
                        (Packed(buffer, 6, 8, (4,)), "bool"), (Packed(buffer, 1, 8, (4,)), "uint8"),
                        (Packed(buffer, 1, 8, (4,), dtype="torch.bool"), "bool"),
                        (Packed(buffer, 1, 8, (4,), dtype=np.dtype("bool")), "bool")):
        value = mort.as_ortvalue(array)
        assert value.data_type() == f"tensor({kind})"
        assert mort.as_array(value).numpy().tolist() == np.array([1, 0, 1, 1]).astype(kind).tolist()


def test_types_that_numpy_lacks(ort_pool):
    buffer = ort_pool.alloc(8)

    class Bfloat16:
        name = "bfloat16"

    array = Interface(buffer, "float16", (4,), typestr="<V2")
    with pytest.raises(millpond.InvalidArgumentError, match="takes no device arrays of void16"):
        mort.as_ortvalue(Interface(buffer, "V2", (4,)))
    array.dtype = Bfloat16()
    assert mort.as_ortvalue(array).data_type() == "tensor(bfloat16)"
    assert mort.as_ortvalue(Packed(buffer, 4, 16, (4,))).data_type() == "tensor(bfloat16)"
    for code, bits in ((5, 64), (2, 8), (0, 4), (10, 8)):
        with pytest.raises(millpond.InvalidArgumentError, match=f"code {code}, {bits} bits"):
            mort.as_ortvalue(Packed(buffer, code, bits, (4,)))
    for typestr in (">f4", "<c8", "<M8[s]", "<U4"):
        with pytest.raises(millpond.InvalidArgumentError, match="takes no device arrays of the type"):
            mort.as_ortvalue(Interface(buffer, "float32", (2,), typestr=typestr))


@pytest.mark.parametrize(("strides", "shape", "fits"), [
    (None, (2, 2), True), ((8, 4), (2, 2), True), ((4, 8), (2, 2), False), ((16, 4), (2, 2), False),
    ((999, 4), (1, 4), True), ((-4,), (4,), False), ((99, 99), (0, 3), True), ((0,), (4,), False)])
def test_arrays_with_gaps_are_refused(ort_pool, strides, shape, fits):
    array = Interface(ort_pool.alloc(64), "float32", shape, strides=strides)
    if fits:
        assert tuple(mort.as_ortvalue(array).shape()) == shape
    else:
        with pytest.raises(millpond.InvalidArgumentError, match="has gaps or another order.*make such a copy first"):
            mort.as_ortvalue(array)


def test_masks_are_refused(ort_pool):
    with pytest.raises(millpond.InvalidArgumentError, match="masked"):
        mort.as_ortvalue(Interface(ort_pool.alloc(16), "float32", (4,), mask=object()))


def test_memory_of_no_device_of_ours(ort_pool):
    buffer = ort_pool.alloc(16)
    with pytest.raises(millpond.InvalidArgumentError, match="on device 5"):
        mort.as_ortvalue(Packed(buffer, 2, 32, (4,), device=5))
    if ort_pool.is_emulated:  # a GPU's memory, where sessions run on the emulated device
        with pytest.raises(millpond.InvalidArgumentError, match="not memory of the emulated device"):
            mort.as_ortvalue(Interface(buffer, "float32", (4,), data=(0x7F0000001000, False)))


def test_arrays_of_the_host(ort_pool):
    value = mort.as_ortvalue(FOUR)
    assert value.device_name() == "cpu" and value.data_ptr() == FOUR.ctypes.data
    assert mort.as_ortvalue(FOUR[::2]).numpy().tolist() == [0, 2]
    assert mort.as_ortvalue(value) is value
    with millpond.Pool(ort_pool.device, memory="pinned") as pinned:
        buffer = pinned.alloc(16)
        np.frombuffer(buffer, np.float32)[:] = FOUR
        value = mort.as_ortvalue(buffer, dtype="float32", shape=(2, 2))
        assert value.device_name() == "cpu" and value.data_ptr() == buffer.address
        assert value.numpy().tolist() == [[0, 1], [2, 3]]
        del value, buffer
        gc.collect()


# ---- from ONNX Runtime ----


def test_an_output_is_a_device_array(adder, ort_pool):
    y = mort.run(adder, {"x": FOUR})["y"]
    assert (y.dtype, y.shape, y.ndim, y.size, y.nbytes) == ("float32", (4,), 1, 4, 16)
    assert repr(y) == f"<DeviceArray float32[4] on {ort_pool.device}>"
    assert y.numpy().tolist() == [1, 2, 3, 4]
    assert ort_pool.find(y.address)["client"] == "onnxruntime"
    assert mort.as_ortvalue(y) is y.ortvalue
    if ort_pool.is_emulated:
        view = np.asarray(y)
        assert view.ctypes.data == y.address and view.tolist() == [1, 2, 3, 4]
        packed = np.from_dlpack(y)
        assert packed.ctypes.data == y.address and packed.flags.writeable
        assert not hasattr(y, "__cuda_array_interface__") and y.__dlpack_device__() == (1, 0)
    else:
        assert y.__cuda_array_interface__["data"] == (y.address, False) and y.__cuda_array_interface__["version"] == 3
        assert not hasattr(y, "__array_interface__") and y.__dlpack_device__() == (2, 0)


def test_what_dlpack_may_ask(adder, ort_pool):
    y = mort.run(adder, {"x": FOUR})["y"]
    device = y.__dlpack_device__()
    assert "dltensor_versioned" in repr(y.__dlpack__(max_version=(1, 0)))
    assert "dltensor_versioned" in repr(y.__dlpack__(max_version=(2, 0), dl_device=device, copy=False, stream=-1))
    for older in (None, (0, 8)):
        assert "versioned" not in repr(y.__dlpack__(max_version=older))
    with pytest.raises(BufferError, match="not copied to"):
        y.__dlpack__(dl_device=(2, 7))
    with pytest.raises(BufferError, match="shares its memory"):
        y.__dlpack__(copy=True)
    if ort_pool.is_emulated:
        with pytest.raises(millpond.InvalidArgumentError, match="stream is 5"):
            y.__dlpack__(stream=5)


def test_types_without_a_word_for_the_interface(ort_pool):
    array = mort.as_array(mort.as_ortvalue(ort_pool.alloc(8), dtype="bfloat16"))
    assert not hasattr(array, "__array_interface__") and not hasattr(array, "__cuda_array_interface__")
    assert mort.as_ortvalue(Packed(array, 4, 16, (4,))).data_type() == "tensor(bfloat16)"


def test_bfloat16_of_the_host(ort_pool):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.array([[1.5, -2.25], [np.inf, 3e38]]).astype(ml_dtypes.bfloat16)
    value = mort.as_ortvalue(array)
    assert value.data_type() == "tensor(bfloat16)" and value.shape() == [2, 2]
    for given in (array, array.T, array[:0], array[:1, 0].reshape(())):
        found = mort.as_array(mort.as_ortvalue(given))
        assert found.dtype == given.dtype and found.shape == given.shape and np.array_equal(found, given)
    buffer = ort_pool.alloc(8)
    mort.as_ortvalue(buffer, dtype="uint16", shape=(2, 2)).update_inplace(array.view(np.uint16))
    there = mort.as_array(mort.as_ortvalue(buffer, dtype="bfloat16", shape=(2, 2))).numpy()
    assert there.dtype == array.dtype and np.array_equal(there, array)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4", "float4_e2m1fn", "int2", "uint2"])
def test_few_bits_of_the_host(name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.array([[1, 0, -1], [-2, 1, 0], [1, 1, -2]], np.int8).astype(getattr(ml_dtypes, name))
    for each in (array, array.T, array[:0], array[0], array[:1, 0].reshape(())):
        value = mort.as_ortvalue(each)
        found = mort.as_array(value)
        assert list(value.shape()) == list(each.shape) and found.dtype == array.dtype and found.shape == each.shape
        assert np.array_equal(found.astype(np.float32), each.astype(np.float32))


def test_scalars_of_the_host():
    assert mort.as_ortvalue(np.array(2.5)).shape() == []


def test_bfloat16_without_ml_dtypes(ort_pool, monkeypatch):
    array = mort.as_array(mort.as_ortvalue(ort_pool.alloc(8), dtype="bfloat16"))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(millpond.InvalidArgumentError, match="pip install -U ml_dtypes"):
        array.numpy()


def test_values_of_the_host_and_others(adder):
    assert mort.as_array(ort.OrtValue.ortvalue_from_numpy(FOUR)).tolist() == FOUR.tolist()
    with pytest.raises(millpond.InvalidArgumentError, match="texts by session.run"):
        mort.as_ortvalue(np.array(["a", "b"]))
    with pytest.raises(millpond.InvalidArgumentError, match="a ndarray is not an OrtValue"):
        mort.as_array(FOUR)


# ---- lives ----


def lent(pool):
    gc.collect()
    return pool.stats()["in_use"]


def test_a_value_keeps_its_array(ort_pool):
    before = lent(ort_pool)
    for make in (lambda b: b, lambda b: Interface(b, "float32", (4,)), lambda b: Packed(b, 2, 32, (4,))):
        buffer = on_device(ort_pool, FOUR)
        gone = weakref.ref(buffer)
        value = mort.as_ortvalue(make(buffer))
        del buffer
        assert lent(ort_pool) > before and gone() is not None
        del value
        assert lent(ort_pool) == before and gone() is None


def test_an_array_keeps_its_value(adder, ort_pool):
    x = np.zeros(4, np.float32)
    mort.run(adder, {"x": x})
    before = lent(ort_pool)
    y = mort.run(adder, {"x": x})["y"]
    capsules = [y.__dlpack__(stream=-1), y.__dlpack__(stream=-1, max_version=(1, 0))]
    del y
    assert lent(ort_pool) > before
    del capsules[0]
    assert lent(ort_pool) > before
    capsules.clear()
    assert lent(ort_pool) == before


@pytest.mark.skipif(mort.devices()[0].is_emulated is False, reason="NumPy reads no GPU's memory")
def test_views_keep_the_value(adder, ort_pool):
    mort.run(adder, {"x": FOUR})
    before = lent(ort_pool)
    for view in (np.asarray, np.from_dlpack):
        kept = view(mort.run(adder, {"x": FOUR})["y"])
        assert lent(ort_pool) > before and kept.tolist() == [1, 2, 3, 4]
        del kept
        assert lent(ort_pool) == before


def test_a_bound_value_is_kept_by_the_binding(adder, ort_pool):
    before = lent(ort_pool)
    binding = mort.bind(adder, {"x": Interface(on_device(ort_pool, FOUR), "float32", (4,))})
    assert lent(ort_pool) > before
    assert binding.run()["y"].numpy().tolist() == [1, 2, 3, 4]
    del binding
    assert lent(ort_pool) == before


def test_a_value_may_go_on_another_thread(ort_pool):
    before = lent(ort_pool)
    box = [[mort.as_ortvalue(on_device(ort_pool, FOUR)) for _ in range(50)]]
    threads = [threading.Thread(target=lambda: box and box[0].pop()) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lent(ort_pool) == before


def test_an_exception_on_its_way_survives(ort_pool):
    def fail(value):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        fail(mort.as_ortvalue(ort_pool.alloc(16)))


def test_no_reference_is_lost(ort_pool):
    buffer = on_device(ort_pool, FOUR)
    array = Interface(buffer, "float32", (4,))
    counts = []
    for _ in range(3):
        for _ in range(100):
            mort.as_ortvalue(array)
            mort.as_array(mort.as_ortvalue(array)).__dlpack__(stream=-1)
        gc.collect()
        counts.append(sys.getrefcount(array))
    assert counts[0] == counts[1] == counts[2]


def test_values_that_are_alive_at_the_end():
    run_python("""
        import millpond, sys, threading
        import millpond.onnxruntime as mort
        pool = millpond.Pool()
        kept = [mort.as_ortvalue(pool.alloc(16)) for _ in range(10)]
        sys.kept = kept[:5]  # goes later than this module
        capsule = mort.as_array(kept[0]).__dlpack__(stream=-1)
        cycle = [kept[1]]
        cycle.append(cycle)
    """)


def test_onnx_kit_writes_what_onnx_reads():
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    for model in (onnx_kit.add_one(), onnx_kit.mixed(), onnx_kit.relay(onnx_kit.BOOL)):
        onnx.checker.check_model(onnx.load_from_string(model), full_check=True)
