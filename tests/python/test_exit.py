# SPDX-License-Identifier: Apache-2.0
"""The end of the interpreter, other interpreters, and forks; each in a process of its own."""

import sys

import pytest
from core_kit import ON_GPU, run_python

# ---- the end ----


@pytest.mark.parametrize("alive", [
    "block = pool.alloc(5000)",
    "blocks = [pool.alloc(5000, 0) for _ in range(1000)]",
    "import builtins; builtins.block = pool.alloc(5000)",
    "import sys; sys.block = pool.alloc(5000); sys.modules['block'] = pool.alloc(5000)",
    "class Node: pass\nnode = Node(); node.me = node; node.block = pool.alloc(5000); del node",
    "import atexit; block = pool.alloc(5000); atexit.register(lambda: (block.free(), pool.close()))",
    "import atexit; atexit.register(pool.alloc, 5000)",
    "import weakref\nclass Owner: pass\nowner = Owner(); weakref.finalize(owner, pool.alloc(5000).free)",
    "view = memoryview(pool.alloc(5000)) if pool.is_emulated else None",
    "capsule = pool.alloc(5000).__dlpack__(stream=-1)",
    "capture = pool.capture_begin(0); pool.capture_end(0)",
    "pool.add_hook(lambda size: pool.stats() and False)",
    "import gc; gc.disable(); loop = []; loop.append(loop); loop.append(pool.alloc(5000)); del loop",
    "def f():\n    block = pool.alloc(5000)\n    yield\ng = f(); next(g)",
    "import threading; keep = threading.local(); keep.block = pool.alloc(5000)",
    "block = pool.reserve(5000)",
    "class Late:\n    def __del__(self): self.block.free()\nlate = Late(); late.block = pool.alloc(5000)",
    "class Late:\n    def __del__(self): pool.alloc(100)\nlate = Late(); late.pool = pool",
    "import millpond; millpond.Pool = None; import sys; sys.modules.pop('millpond'); block = pool.alloc(5000)",
])
def test_alive_at_exit(alive):
    run_python("import millpond\npool = millpond.Pool()\n" + alive)


def test_numpy_arrays_at_exit():
    pytest.importorskip("numpy")
    run_python("""
        import builtins, sys, numpy, millpond
        pool = millpond.Pool()
        builtins.array = numpy.from_dlpack(pool.alloc(5000))
        sys.array = numpy.frombuffer(pool.alloc(5000), numpy.uint8)
        array = numpy.from_dlpack(pool.alloc(5000))
        del pool
    """, MILLPOND_DEVICE="host")


# Who calls CUDA's driver while the process ends may crash in it.
needs_no_driver = pytest.mark.skipif(ON_GPU, reason="CUDA's driver must not be called while a process ends")


@pytest.mark.parametrize("work", [
    "pool.alloc(1000)", "pool.stats()", *(pytest.param(work, marks=needs_no_driver) for work in (
        "pool.alloc(3 << 20)", "pool.shrink()", "millpond.Pool().close()"))])
def test_daemon_threads_at_exit(work):
    """The process ends while threads allocate and free."""
    for _ in range(3):
        run_python(f"""
            import threading, time, millpond
            pool = millpond.Pool()
            held = [pool.alloc(100)]
            def loop():
                while True:
                    {work}
            for _ in range(4):
                threading.Thread(target=loop, daemon=True).start()
            time.sleep(0.05)
        """)


@needs_no_driver
def test_hooks_are_not_called_after_the_end():
    """A daemon thread runs out of memory again and again while the interpreter ends."""
    for _ in range(3):
        run_python("""
            import threading, time, millpond
            pool = millpond.Pool(options={"max_mem": "4M"})
            called = threading.Event()
            def hook(size):
                called.set()
                return False
            pool.add_hook(hook)
            def loop():
                while True:
                    try:
                        pool.alloc(5 << 20)
                    except millpond.OutOfMemoryError:
                        pass
            threading.Thread(target=loop, daemon=True).start()
            called.wait()
        """)


def test_no_hooks_are_added_at_the_end():
    said = run_python("""
        import atexit
        def late():
            try:
                pool.add_hook(print)
            except millpond.UnsupportedError as error:
                print(error)
        atexit.register(late)  # runs after what millpond has registered
        import millpond
        pool = millpond.Pool()
    """)
    assert said == "the interpreter is ending; no hook would be called\n"


def test_sys_exit_and_exceptions():
    run_python("import millpond, sys; block = millpond.Pool().alloc(100); sys.exit(3)", status=3)
    run_python("import millpond, os; block = millpond.Pool().alloc(100); os._exit(4)", status=4)
    run_python("import millpond; block = millpond.Pool().alloc(100); 1 / 0", status=1, quiet=False)


def test_it_can_be_imported_anew():
    run_python("""
        import sys, millpond
        pool = millpond.Pool()
        block = pool.alloc(100)
        old = millpond
        for name in [name for name in sys.modules if name.startswith("millpond")]:
            del sys.modules[name]
        import millpond
        assert millpond is not old
        assert millpond.Pool is old.Pool and millpond.Error is old.Error
        assert isinstance(block, millpond.Buffer)
        del block
        assert millpond.Pool().stats()["in_use"] == 0
    """)


# ---- other processes and interpreters ----


def test_forked_children():
    """A child can do nothing with a pool, and ends without a word about the blocks it has inherited."""
    run_python("""
        import os, gc, warnings, millpond
        warnings.filterwarnings("ignore", "This process .* is multi-threaded")  # with CUDA's driver it is
        pool = millpond.Pool()
        blocks = [pool.alloc(5000, 0) for _ in range(10)]
        pool.add_hook(print)
        view = blocks.pop().__dlpack__(stream=-1)
        child = os.fork()
        if child == 0:
            for call in (lambda: pool.alloc(100), pool.stats, lambda: millpond.Pool(), lambda: blocks[0].free(),
                         lambda: pool.add_hook(repr), lambda: pool.free_address(blocks[1].address)):
                try:
                    call()
                except millpond.UnsupportedError as error:
                    assert "spawn" in str(error), error
                else:
                    os._exit(9)
            del blocks[3:], view
            gc.collect()
            pool.close()
            if not pool.is_emulated:  # CUDA's own work at exit is not for children of a fork
                os._exit(5)
            raise SystemExit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        del blocks, view
        gc.collect()
        assert pool.stats()["in_use"] == 0, pool.stats()
    """)


def test_multiprocessing_with_spawn():
    run_python("""
        import multiprocessing, sys, millpond
        block = millpond.Pool().alloc(100)
        multiprocessing.set_start_method("spawn")
        with multiprocessing.Pool(1) as workers:
            assert workers.apply(eval, ("__import__('millpond').Pool().alloc(7).size",)) == 7
    """)


def test_other_interpreters_are_refused():
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    pytest.importorskip(module)
    inner = """
try:
    import millpond
except ImportError as error:
    assert "main interpreter" in str(error) or "subinterpreters" in str(error), error
else:
    raise AssertionError
"""
    run_python(f"""
        import {module} as interpreters, millpond
        block = millpond.Pool().alloc(100)
        other = interpreters.create()
        failed = interpreters.run_string(other, {inner!r})
        assert failed is None, failed
        interpreters.destroy(other)
        del block
    """, quiet=False)
