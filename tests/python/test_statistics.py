# SPDX-License-Identifier: Apache-2.0
"""millpond.statistics: what a part of a program does with a pool."""

import millpond
import pytest

BLOCK = 1 << 20


def test_peak_growth_and_counts(pool):
    old = pool.alloc(BLOCK)
    for _ in range(3):
        pool.alloc(4 * BLOCK).free()  # a peak before the scope is not its own
    with millpond.statistics(pool) as used:
        assert (used.peak, used.growth, used.allocs) == (BLOCK, 0, 0)
        first, second = pool.alloc(BLOCK), pool.alloc(BLOCK)
        assert (used.in_use, used.growth) == (3 * BLOCK, 2 * BLOCK)
        first.free()
    kept = (used.peak, used.in_use, used.growth, used.allocs, used.frees, used.failures)
    assert kept == (3 * BLOCK, 2 * BLOCK, BLOCK, 2, 1, 0)
    old.free()
    second.free()
    pool.alloc(8 * BLOCK).free()
    assert (used.peak, used.in_use, used.growth, used.allocs, used.frees, used.failures) == kept
    assert f"peak {3 * BLOCK} bytes, +{BLOCK} in use, 2 allocations, 1 frees" in repr(used)


def test_scopes_nest_and_overlap(pool):
    outer, inner, late = (millpond.statistics(pool) for _ in range(3))
    with outer:
        pool.alloc(4 * BLOCK).free()
        with inner:
            pool.alloc(BLOCK).free()
            late.__enter__()
        pool.alloc(2 * BLOCK).free()
    late.__exit__(None, None, None)
    assert (outer.peak, inner.peak, late.peak) == (4 * BLOCK, BLOCK, 2 * BLOCK)
    assert (outer.allocs, inner.allocs, late.allocs) == (3, 1, 1)


def test_failures_and_other_users(host):
    with millpond.Pool(client="another") as other, millpond.statistics(host) as used:
        other.alloc(BLOCK).free()
        with pytest.raises(millpond.OutOfMemoryError):
            host.alloc(1 << 50)
    assert (used.allocs, used.failures) == (1, 1)


def test_a_pool_that_is_closed_inside(pool):
    mine = millpond.Pool()
    with pytest.raises(millpond.Error, match="closed"), millpond.statistics(mine) as used:
        mine.close()
    assert used not in millpond._statistics._open[pool.device, pool.memory]


def test_a_scope_has_to_begin(pool):
    used = millpond.statistics(pool)
    with pytest.raises(millpond.InvalidArgumentError, match="has not begun"):
        _ = used.peak
    assert "not begun" in repr(used)
