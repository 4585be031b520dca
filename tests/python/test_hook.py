# SPDX-License-Identifier: Apache-2.0
"""Hooks: Python functions that are called before a request fails."""

import gc
import sys
import weakref

import millpond
import pytest
from core_kit import run_python

MIB = 1 << 20

@pytest.fixture
def small():
    """A pool of 4 MiB; only where nobody else has it open."""
    pool = millpond.Pool(client="small", options={"max_mem": 4 * MIB})
    assert pool.stats()["limit"] == 4 * MIB
    yield pool
    pool.close()


def test_hook_frees_buffers(small):
    held = [small.alloc(3 * MIB)]
    asked = []

    def free(size):
        asked.append(size)
        held.clear()
        return True

    small.add_hook(free)
    block = small.alloc(2 * MIB)
    assert asked == [2 * MIB]
    assert held == []
    small.remove_hook(free)
    with pytest.raises(millpond.OutOfMemoryError):
        small.alloc(3 * MIB)
    assert asked == [2 * MIB]
    del block


def test_hooks_run_in_their_order_until_one_helps(small):
    asked, held = [], []
    hooks = [lambda size: asked.append("first"), lambda size: (asked.append("second"), held.clear(), True)[2],
             lambda size: asked.append("third")]
    for hook in hooks:
        small.add_hook(hook)
    held.append(small.alloc(3 * MIB))
    small.alloc(2 * MIB)
    assert asked == ["first", "second"]
    with pytest.raises(millpond.OutOfMemoryError):
        small.alloc(5 * MIB)
    assert asked[2:] == ["first", "second", "third"]
    small.remove_hook(hooks[1])
    with pytest.raises(millpond.OutOfMemoryError):
        small.alloc(5 * MIB)
    assert asked[5:] == ["first", "third"]


class Grumpy:
    def __bool__(self):
        raise ArithmeticError("neither")


@pytest.mark.parametrize("hook", [lambda size: 1 / 0, lambda: True, lambda size: Grumpy()])
def test_what_a_hook_raises_is_reported(small, unraisable, hook):
    small.add_hook(hook)
    with pytest.raises(millpond.OutOfMemoryError):
        small.alloc(5 * MIB)
    assert [(isinstance(error, ArithmeticError | TypeError), where) for error, where in unraisable] == [(True, hook)]


def test_hooks_are_found_by_equality(small):
    class Cache:
        def free(self, size):
            return False

    cache = Cache()
    small.add_hook(cache.free)
    small.remove_hook(cache.free)  # another object for the same method
    with pytest.raises(millpond.NotFoundError, match="Cache.free"):
        small.remove_hook(cache.free)
    watch = weakref.ref(cache)
    del cache
    assert watch() is None


def test_hook_errors(small):
    with pytest.raises(TypeError, match="a hook is a function"):
        small.add_hook(7)
    with pytest.raises(millpond.NotFoundError):
        small.remove_hook(7)


def test_many_hooks(small):
    hooks = [lambda size, n=n: False for n in range(100)]
    before = [sys.getrefcount(hook) for hook in hooks]
    for hook in hooks:
        small.add_hook(hook)
    for hook in hooks:
        small.remove_hook(hook)
    del hook
    assert [sys.getrefcount(hook) for hook in hooks] == before


def test_comparing_hooks_may_change_the_list(small):
    class Odd:
        def __call__(self, size):
            return False

        def __eq__(self, other):
            if other is target and self in odd:
                odd.remove(self)
                small.remove_hook(self)
            return self is other

        __hash__ = object.__hash__

    odd = [Odd(), Odd(), Odd()]

    def target(size):
        return False

    for hook in (target, *odd):
        small.add_hook(hook)
    small.remove_hook(target)
    assert odd == []


def test_inside_a_hook(small):
    """A hook may use the pool, but not wait for its own end."""
    seen = []

    def hook(size):
        seen.append(small.stats()["in_use"])
        small.free_address(small.alloc_address(100))
        with pytest.raises(millpond.OutOfMemoryError):
            small.alloc(5 * MIB)  # this one asks no hook
        with pytest.raises(millpond.UnsupportedError, match="after the request"):
            small.remove_hook(hook)
        return False

    small.add_hook(hook)
    with pytest.raises(millpond.OutOfMemoryError, match="5242880"):
        small.alloc(5 * MIB)
    assert seen == [0]
    small.remove_hook(hook)


@pytest.mark.parametrize("way", ["close", "drop"])
def test_a_pool_that_ends_in_its_hook(way):
    run_python(f"""
        import gc, sys, weakref, millpond
        other = millpond.Pool(client="other", options={{"max_mem": 4 << 20}})
        pools = [millpond.Pool(client="small")]
        def hook(size):
            if "{way}" == "close":
                pools[0].close()
            pools.clear()
            gc.collect()
            return False
        watch = weakref.ref(hook)
        pools[0].add_hook(hook)
        del hook
        for _ in range(2):
            try:
                other.alloc(5 << 20)
            except millpond.OutOfMemoryError:
                pass
            else:
                raise AssertionError
        assert pools == []
        gc.collect()
        assert watch() is None
        for _ in range(40):  # its place is free again
            with millpond.Pool() as pool:
                pool.add_hook(print)
    """)


def test_hooks_go_with_their_pool(small):
    def hook(size):
        raise AssertionError("it is gone")

    counts = [sys.getrefcount(hook)]
    with millpond.Pool(client="small") as other:
        other.add_hook(hook)
    counts.append(sys.getrefcount(hook))
    other = millpond.Pool(client="small")
    other.add_hook(hook)
    del other
    counts.append(sys.getrefcount(hook))
    assert counts == counts[:1] * 3
    with pytest.raises(millpond.OutOfMemoryError):
        small.alloc(5 * MIB)


def test_a_pool_in_a_cycle_with_its_hook_is_collected():
    pool = millpond.Pool(client="test")
    watch = weakref.ref(pool)

    def hook(size, pool=pool):
        return False

    pool.add_hook(hook)
    del pool, hook
    gc.collect()
    assert watch() is None
