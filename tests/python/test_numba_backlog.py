# SPDX-License-Identifier: Apache-2.0
"""When freed blocks of Numba may be allocated again: the order of driver calls, captures, lost contexts, threads."""

import gc
import threading

import pytest
from millpond._numba_backlog import Backlog, ContextGoneError, Driver
from millpond._numba_binding import CtypesBinding

MIB = 1 << 20


class Result(int):
    """A result of the driver, which has a name."""

    name = "CUDA_ERROR_OF_THE_TEST"


class Binding:
    """Records the calls that the real binding would make. `answers` has what else than success they give."""

    CU_STREAM_LEGACY = 1
    CUstream = staticmethod(lambda handle: f"stream {handle}")

    CUresult = CtypesBinding.CUresult  # test_numba_own.py holds these against NVIDIA's
    CUstreamCaptureMode = CtypesBinding.CUstreamCaptureMode
    CUstreamCaptureStatus = CtypesBinding.CUstreamCaptureStatus
    CUevent_flags = CtypesBinding.CUevent_flags
    CUstream_flags = CtypesBinding.CUstream_flags

    VALUES = {"cuThreadExchangeStreamCaptureMode": 0, "cuStreamIsCapturing": 0, "cuEventCreate": "event",
              "cuStreamGetFlags": 0, "cuCtxPopCurrent": "context"}

    def __init__(self):
        self.calls = []
        self.answers = {}

    def __getattr__(self, name):
        def call(*args):
            self.calls.append((name, *args))
            return self.answers.get(name, (Result(0), *([self.VALUES[name]] if name in self.VALUES else [])))

        return call

    def work(self):
        """What was asked for, without the calls that lead into the context and out of it."""
        around = ("cuCtxPushCurrent", "cuCtxPopCurrent", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing")
        return [call for call in self.calls if call[0] not in around]


@pytest.fixture
def binding():
    return Binding()


@pytest.fixture
def driver(binding):
    return Driver(binding, "context")


FENCE = [("cuEventRecord", "event", "stream 1"), ("cuStreamWaitEvent", "stream 1", "event", 0)]


def test_fence_puts_something_into_the_legacy_stream(driver, binding):
    assert driver.fence()
    assert binding.work() == [("cuEventCreate", 2), *FENCE]
    binding.calls.clear()
    assert driver.fence()
    assert binding.calls == [
        ("cuCtxPushCurrent", "context"),
        ("cuThreadExchangeStreamCaptureMode", 2),
        ("cuStreamIsCapturing", "stream 1"),
        *FENCE,
        ("cuThreadExchangeStreamCaptureMode", 0),
        ("cuCtxPopCurrent",),
    ]


def test_waits(driver, binding):
    assert driver.wait() and binding.work() == [("cuStreamSynchronize", "stream 1")]
    binding.calls.clear()
    assert driver.wait_for_all() and binding.work() == [("cuCtxSynchronize",)]


@pytest.mark.parametrize("answer", [(Result(906), None), (Result(0), 1)])
@pytest.mark.parametrize("name", ["fence", "wait", "wait_for_all"])
def test_captures_are_left_alone(driver, binding, name, answer):
    binding.answers["cuStreamIsCapturing"] = answer
    assert not getattr(driver, name)() and binding.work() == []


@pytest.mark.parametrize("failing", ["cuCtxPushCurrent", "cuEventRecord", "cuStreamWaitEvent", "cuStreamIsCapturing"])
def test_failures_leave_the_thread_s_context(driver, binding, failing):
    binding.answers[failing] = (Result(700), None)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_OF_THE_TEST"):
        driver.fence()
    names = [call[0] for call in binding.calls]
    assert names.count("cuCtxPopCurrent") == (names.count("cuCtxPushCurrent") if failing != "cuCtxPushCurrent" else 0)
    assert names.count("cuThreadExchangeStreamCaptureMode") in (0, 2)


@pytest.mark.parametrize("code", [4, 201, 400, 709])
def test_a_lost_context_is_told_from_a_failure(driver, binding, code):
    binding.answers["cuCtxPushCurrent"] = (Result(code),)
    with pytest.raises(ContextGoneError):
        driver.fence()


def test_blocking_streams(driver, binding):
    assert driver.is_blocking(0x5000)
    binding.answers["cuStreamGetFlags"] = (Result(0), 1)
    assert not driver.is_blocking(0x5000)
    binding.answers["cuStreamGetFlags"] = (Result(400), None)
    assert not driver.is_blocking(0x5000)  # not known: taken for one that keeps no order


def test_the_event_goes_with_the_driver(binding):
    driver = Driver(binding, "context")
    driver.fence()
    binding.calls.clear()
    del driver
    assert binding.work() == [("cuEventDestroy", "event")]


# ---- the backlog ----


def test_nothing_is_freed_before_the_fence(driver, binding):
    backlog = Backlog(lambda block: binding.calls.append(("free", block)), driver.fence)
    for block in range(63):
        backlog.give(block, 100)
    assert binding.calls == [] and len(backlog) == 63
    backlog.give(63, 100)
    assert binding.work()[-66:] == [*FENCE, *(("free", block) for block in range(64))]


def test_what_comes_during_the_fence_waits_for_the_next(binding):
    freed = []

    def fence():
        backlog.give("late", 1)
        return True

    backlog = Backlog(freed.append, fence)
    backlog.give("early", 1)
    assert backlog.flush() == 1 and freed == ["early"] and len(backlog) == 1
    backlog._fence = lambda: True
    assert backlog.flush() == 1 and freed == ["early", "late"]


def test_a_fence_that_cannot_be_leaves_the_blocks(driver, binding):
    freed = []
    backlog = Backlog(freed.append, driver.fence)
    binding.answers["cuStreamIsCapturing"] = (Result(906), None)
    for block in range(100):
        backlog.give(block, MIB)
    assert freed == [] and backlog.flush() == 0
    binding.answers.clear()
    assert backlog.flush() == 100 and freed == list(range(100))


def test_blocks_of_a_lost_context_are_forgotten(driver, binding):
    freed = []
    backlog = Backlog(freed.append, driver.fence)
    backlog.give(1, 1)
    binding.answers["cuCtxPushCurrent"] = (Result(709),)
    backlog.flush()
    binding.calls.clear()
    for block in range(1000):
        backlog.give(block, MIB)
    assert freed == [] and binding.calls == [] and len(backlog) < 64


def test_a_broken_gpu_raises_nothing(driver, binding):
    backlog = Backlog(lambda block: None, driver.fence)
    binding.answers["cuEventRecord"] = (Result(700),)
    for block in range(200):
        backlog.give(block, MIB)
    assert backlog.flush() == 0 and len(backlog) == 200


def test_frees_that_fail_do_not_stop_the_others():
    freed = []

    def free(block):
        if block % 2:
            raise ValueError(block)
        freed.append(block)

    backlog = Backlog(free, lambda: True)
    for block in range(10):
        backlog.give(block, 1)
    backlog.flush()
    assert freed == [0, 2, 4, 6, 8]


def test_the_end_of_a_backlog_flushes_it():
    freed = []
    backlog = Backlog(freed.append, lambda: True)
    backlog.give(1, 1)
    del backlog
    gc.collect()
    assert freed == [1]


def test_a_flush_inside_a_flush_does_nothing():
    freed = []

    def free(block):
        freed.append(block)
        assert backlog.flush(patient=True) == 0  # as a garbage collection there may ask for it

    backlog = Backlog(free, lambda: True)
    backlog.give(1, 1)
    backlog.give(2, 1)
    assert backlog.flush() == 2 and freed == [1, 2]


def test_threads_lose_no_block():
    freed = []
    backlog = Backlog(freed.append, lambda: True)

    def work(first):
        for block in range(first, first + 5000):
            backlog.give(block, 4096)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 20000, 5000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backlog.flush(patient=True)
    assert sorted(freed) == list(range(20000))


def test_a_patient_flush_waits_for_another_thread():
    inside, go = threading.Event(), threading.Event()

    def fence():
        inside.set()
        return go.wait(30)

    backlog = Backlog(lambda block: None, fence)
    backlog.give(1, 1)
    thread = threading.Thread(target=backlog.flush)
    thread.start()
    assert inside.wait(30)
    backlog.give(2, 1)
    assert backlog.flush() == 0  # the other one is at it
    threading.Timer(0.05, go.set).start()
    assert backlog.flush(patient=True) == 1
    thread.join()
