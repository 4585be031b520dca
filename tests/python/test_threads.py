# SPDX-License-Identifier: Apache-2.0
"""Threads, the interpreter's lock, its end, and forks. What could hang or crash runs in a process of its own."""

import random
import threading

import millpond
import pytest
from core_kit import run_python


def run_all(count, work):
    """Runs work(number) in threads; passes on what the first of them raised."""
    raised = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


# ---- threads ----


def test_threads_share_a_pool(pool):
    def work(number):
        rng = random.Random(number)
        held = []
        for _ in range(2000):
            if held and rng.random() < 0.5:
                held.pop(rng.randrange(len(held)))
            else:
                held.append(pool.alloc(rng.randrange(1 << rng.randrange(1, 20)), rng.choice((None, 0))))
            assert len({block.address for block in held}) == len(held)

    run_all(8, work)
    assert pool.stats()["in_use"] == 0


def test_buffers_end_on_other_threads(pool):
    lots = [[pool.alloc(1000 + size, 0) for size in range(500)] for _ in range(8)]
    run_all(8, lambda number: lots[number - 1].clear())
    assert pool.stats()["in_use"] == 0


def test_opening_and_closing(pool):
    def work(number):
        for _ in range(200):
            with millpond.Pool(client=f"thread {number}") as mine:
                mine.add_hook(print)
                block = mine.alloc(1000)
            assert block.pool.closed
            del block

    run_all(8, work)
    assert pool.stats()["in_use"] == 0


def test_closing_while_others_use_it():
    """Who comes too late gets an error; nobody gets memory that is gone."""
    for turn in range(20):
        shared = millpond.Pool(client="shared")
        refused = []

        def work(number, shared=shared, refused=refused):
            if number == 0:
                shared.close()
                return
            try:
                for size in range(200):
                    shared.alloc(size * 5000)
                    shared.stats()
                    shared.shrink()
            except millpond.InvalidArgumentError as error:
                refused.append(str(error))

        run_all(5, work)
        assert set(refused) <= {"the pool is closed"}, turn
    with millpond.Pool() as pool:
        assert pool.stats()["in_use"] == 0


def test_hooks_in_many_threads():
    """The hook of each thread frees what that thread holds."""
    run_python("""
        import threading, millpond
        pool = millpond.Pool(options={"max_mem": "8M"})
        held = threading.local()
        calls = []
        def free(size):
            calls.append(size)
            had = bool(getattr(held, "blocks", None))
            held.blocks = []
            return had
        pool.add_hook(free)
        failed = []
        def work():
            held.blocks = []
            for turn in range(300):
                try:
                    held.blocks.append(pool.alloc(1 << 20))
                except millpond.OutOfMemoryError:
                    failed.append(turn)
        threads = [threading.Thread(target=work) for _ in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert calls
        assert pool.stats()["in_use"] == 0, pool.stats()
    """)


def test_hooks_are_removed_while_they_run():
    run_python("""
        import threading, time, millpond
        pool = millpond.Pool(options={"max_mem": "4M"})
        inside, left = threading.Event(), []
        def hook(size):
            inside.set()
            time.sleep(0.2)
            left.append(size)
        pool.add_hook(hook)
        def ask():
            try:
                pool.alloc(5 << 20)
            except millpond.OutOfMemoryError:
                pass
        thread = threading.Thread(target=ask)
        thread.start()
        inside.wait()
        pool.remove_hook(hook)
        assert left == [5 << 20]  # it has waited for the hook
        thread.join()
    """)


# ---- the interpreter's lock ----

WAITING = """
    import sys, threading, time, millpond
    from core_kit import make_stream
    sys.setswitchinterval(1e-4)
    pool = millpond.Pool(options={"max_mem": "96M"})
    stream, entered, go_on = make_stream(pool), threading.Event(), threading.Event()

    def needs_the_interpreter():  # the device runs it, and all that is queued behind waits for it
        entered.set()
        assert go_on.wait(60)

    def later():
        time.sleep(0.3)
        go_on.set()

    def pending():
        stream.call(needs_the_interpreter)
        entered.wait()
        entered.clear()
        threading.Thread(target=later).start()
"""


@pytest.mark.parametrize("call", [
    "pool.shrink()",
    "pool.stream_gone(stream)",
    "del block; pool.alloc(80 << 20)",
    "del block; pool.reserve(80 << 20)",
    "del block; pool.close()",
    "block.free(); pool.alloc(80 << 20, 0)",
    "block.__dlpack__()",
])
def test_what_waits_for_the_device_lets_others_run(call):
    """A call that waits for the device while the device waits for Python would never end."""
    run_python(WAITING + f"""
    block = pool.alloc(40 << 20, stream)
    pending()
    {call}
    go_on.wait()
    """, MILLPOND_HOST="threaded")


def test_short_calls_while_another_thread_waits():
    """One thread waits for the device under the pool's lock; another asks for memory that takes that lock."""
    run_python(WAITING + """
    warm = [pool.alloc(1000, 0) for _ in range(8)]
    block = pool.alloc(40 << 20, stream)
    done = []
    def others():
        for turn in range(200):
            small = pool.alloc(1000 + turn * 5000, 0)
            address = pool.alloc_address(3 << 20)
            pool.free_address(address)
            small.record_use(2)
            pool.stats()
            warm and warm.pop()
            del small
        done.append(True)
    pending()
    shrinking = threading.Thread(target=pool.shrink)
    shrinking.start()
    threads = [threading.Thread(target=others) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    shrinking.join()
    assert len(done) == 3
    """, MILLPOND_HOST="threaded")


def test_the_hook_of_a_request_from_c():
    """Another library asks for memory without the interpreter's lock, and the hook takes it."""
    run_python("""
        import ctypes, threading, millpond
        from core_kit import HostStream
        pool = millpond.Pool(options={"max_mem": "4M"})
        held = [pool.alloc(3 << 20)]
        pool.add_hook(lambda size: (held.clear(), True)[1])
        lib, handle, address = HostStream.library, ctypes.c_void_p(), ctypes.c_void_p()
        results = [lib.mp_pool_open(pool.device.encode(), 0, b"other", None, ctypes.byref(handle))]
        def ask():
            none = ctypes.c_void_p(-1)
            results.append(lib.mp_pool_alloc(handle, ctypes.c_size_t(2 << 20), none, ctypes.byref(address)))
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert results == [0, 0] and held == []
        assert lib.mp_pool_free(handle, address) == 0
        lib.mp_pool_close(handle)
    """)
