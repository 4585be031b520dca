# SPDX-License-Identifier: Apache-2.0
"""The pool's figures in the shape of `torch.cuda.memory_stats`.

What tensors have is PyTorch's part of the pool; what is reserved, and all peaks, are the pool's, of all users. The
pool knows no small and large blocks: those of PyTorch's figures are 0 for the small ones.
"""

from __future__ import annotations

from typing import Any

from millpond._core import Pool

CLIENT = "torch"
_NOTHING = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}


def _figure(current: int, peak: int, allocated: int = 0) -> dict[str, int]:
    return {"current": current, "peak": peak, "allocated": allocated, "freed": max(allocated - current, 0)}


def _by_size(figure: dict[str, int]) -> dict[str, dict[str, int]]:
    return {"all": figure, "small_pool": dict(_NOTHING), "large_pool": dict(figure)}


def nested(pool: Pool) -> dict[str, Any]:
    """As torch.cuda.memory_stats_as_nested_dict: counts and bytes."""
    stats = pool.stats()
    share = next((share for share in pool.clients() if share["name"] == CLIENT), None)
    in_use, requested, blocks, allocs = (
        (share["in_use"], share["requested"], share["blocks"], share["allocs"]) if share is not None else (0, 0, 0, 0)
    )
    regions = stats["extensions"] - stats["shrinkages"]
    lent = _figure(in_use, max(stats["in_use_max"], in_use))
    unused = stats["total"] - stats["in_use"]
    grouped = {
        "allocation": _figure(blocks, blocks, allocs),
        "active": _figure(blocks, blocks, allocs),
        "allocated_bytes": lent,
        "active_bytes": lent,
        "requested_bytes": _figure(requested, requested),
        "segment": _figure(max(regions, 0), max(regions, 0), stats["extensions"]),
        "reserved_bytes": _figure(stats["total"], stats["total_max"]),
        "inactive_split": _NOTHING,
        "inactive_split_bytes": _figure(unused, unused),
    }
    return {
        **{name: _by_size(figure) for name, figure in grouped.items()},
        "oversize_allocations": dict(_NOTHING),
        "oversize_segments": dict(_NOTHING),
        "max_split_size": -1,
        "num_alloc_retries": 0,
        "num_device_alloc": stats["extensions"],
        "num_device_free": stats["shrinkages"],
        "num_ooms": stats["failures"],
        "num_sync_all_streams": 0,
    }
