# SPDX-License-Identifier: Apache-2.0
"""Values shared with ONNX Runtime and streams: what is waited for, and memory that others still use."""

import millpond
import numpy as np
import pytest
from core_kit import run_python
from ort_kit import Interface, Packed, mort, ort_values

FOUR = np.arange(4, dtype=np.float32)


def test_streams_that_arrays_name(ort_pool):
    plain = ort_pool.alloc(16)
    on_default = ort_pool.alloc(16, 0)
    assert ort_values.stream_of(plain) is None and ort_values.stream_of(on_default) in (0, 1)
    assert ort_values.stream_of(Interface(plain, "float32", (4,), stream=77)) == 77
    assert ort_values.stream_of(Interface(plain, "float32", (4,))) == ort_values.LEGACY_STREAM
    packed = Packed(plain, 2, 32, (4,))
    assert ort_values.stream_of(packed) == ort_values.LEGACY_STREAM
    assert packed.streams == [ort_values.LEGACY_STREAM]
    assert ort_values.stream_of(FOUR) is None


@pytest.mark.parametrize("form", ["buffer", "interface", "named", "none"])
def test_a_value_is_made_after_the_work_on_its_stream(form):
    """The work takes its time; whoever did not wait would read what was there before."""
    run_python(f"""
        import ctypes, time
        import numpy as np
        import millpond, millpond.onnxruntime as mort
        from core_kit import make_stream
        from ort_kit import Interface
        pool = millpond.Pool(mort.devices()[0].spec)
        stream = make_stream(pool)
        buffer = pool.alloc(16, stream)
        events = []
        def work():
            time.sleep(0.2)
            events.append("done")
        stream.call(work)
        form = {form!r}
        array = buffer if form == "buffer" else Interface(buffer, "float32", (4,),
                                                          stream=stream.handle if form == "interface" else None)
        given = {{"named": {{"stream": stream}}, "none": {{"stream": None}}}}.get(form, {{}})
        value = mort.as_ortvalue(array, **given)
        assert events == ([] if form == "none" else ["done"]), (form, events)
        stream.synchronize()
        assert events == ["done"]
        del value, array, buffer
        pool.stream_gone(stream)
        stream.destroy()
    """, MILLPOND_HOST="threaded")


@pytest.mark.parametrize("told", ["record_use", "dlpack", "nobody"])
def test_memory_that_a_stream_still_uses_is_not_lent(told):
    """The only memory left is an output that a slow stream still reads: it is reused only after that work. Not so
    where nobody has told of that stream; then the memory is allocated while the work is under way."""
    out = run_python("""
        import dataclasses, gc, sys, time
        import numpy as np
        import millpond, millpond.onnxruntime as mort, onnx_kit
        from core_kit import make_stream
        count = 4 << 20
        session = mort.session(onnx_kit.add_one((count,)))
        pool = millpond.Pool(mort.devices()[0].spec)
        x = mort.as_ortvalue(pool.alloc(4 * count), dtype="float32")
        y = mort.run(session, {"x": x}, stream=None)["y"]
        address, stream, events, full = y.address, make_stream(pool), [], []
        millpond.set_limit(pool.stats()["total"])
        for size in (1 << 20, 1 << 16, 256):
            try:
                while True:
                    full.append(pool.alloc(size))
            except millpond.OutOfMemoryError:
                pass
        stream.call(lambda: (time.sleep(0.5), events.append("done")))
        if sys.argv[1] == "record_use":
            y.record_use(stream)
        elif sys.argv[1] == "dlpack":  # as on a GPU, where who takes it names a stream
            y.device = dataclasses.replace(y.device, is_emulated=False)
            y.__dlpack__(stream=stream.handle)
        del y
        gc.collect()
        again = pool.alloc(4 * count)
        print(again.address == address, len(events))
        stream.synchronize()
        del again, full, x
        pool.stream_gone(stream)
        stream.destroy()
    """, told, MILLPOND_HOST="threaded")
    assert out.split() == ["True", "0" if told == "nobody" else "1"]


def test_record_use_is_for_the_pool_s_memory(ort_pool):
    if not ort_pool.is_emulated:
        pytest.skip("an address that is nobody's is no memory of a GPU")
    buffer = ort_pool.alloc(16)
    array = mort.as_array(mort.as_ortvalue(Interface(buffer, "float32", (4,))))
    buffer.free()
    with pytest.raises(millpond.NotFoundError):
        array.record_use(1)


def test_runs_with_shared_memory_in_each_mode(ort_pool):
    if not ort_pool.is_emulated:
        pytest.skip("for the emulated device's modes")
    for mode in ("eager", "threaded", "adversarial:1", "adversarial:2"):
        run_python("""
            import gc
            import numpy as np
            import millpond, millpond.onnxruntime as mort, onnx_kit
            from ort_kit import Interface, on_device
            pool = millpond.Pool(mort.devices()[0].spec)
            session = mort.session(onnx_kit.add_one((64,)))
            for round in range(30):
                x = Interface(on_device(pool, np.full(64, round, np.float32)), "float32", (64,))
                y = mort.run(session, {"x": x})["y"]
                z = mort.run(session, {"x": y})["y"]
                assert (y.numpy() == round + 1).all() and (z.numpy() == round + 2).all()
        """, MILLPOND_HOST=mode, quiet=False)  # onnxruntime-gpu says that there is no CUDA
