# SPDX-License-Identifier: Apache-2.0
"""The figures of a process's pools as samples for systems that collect metrics: Prometheus, Ray, Triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millpond._core import Error
from millpond._monitor import pool_figures

LABELS = ("device", "memory", "client")  # of every sample; the client is "" in those of a whole pool


@dataclass(frozen=True)
class Metric:
    """What a sample is one of. A counter only grows; names are those of Prometheus without the ending _total."""

    name: str
    help: str
    is_counter: bool = False


_STATS = {  # field of Pool.stats(): the metric
    "in_use": Metric("millpond_pool_in_use_bytes", "Bytes of allocated blocks, with rounding."),
    "requested": Metric("millpond_pool_requested_bytes", "Bytes of allocated blocks, as requested."),
    "in_use_max": Metric("millpond_pool_in_use_max_bytes", "The most bytes that were in use at one time."),
    "total": Metric("millpond_pool_reserved_bytes", "Bytes that the pool has reserved from the device."),
    "total_max": Metric("millpond_pool_reserved_max_bytes", "The most bytes that were reserved at one time."),
    "limit": Metric("millpond_pool_limit_bytes", "arena.max_mem; 0 where there is no limit."),
    "allocs": Metric("millpond_pool_allocations", "Requests that were served.", is_counter=True),
    "frees": Metric("millpond_pool_frees", "Blocks that were freed.", is_counter=True),
    "failures": Metric("millpond_pool_failures", "Requests that ran out of memory.", is_counter=True),
    "extensions": Metric("millpond_pool_extensions", "Times the pool took memory from the device.", is_counter=True),
    "shrinkages": Metric("millpond_pool_shrinkages", "Regions that went back to the device.", is_counter=True),
}
_DEVICE_FREE = Metric("millpond_device_free_bytes", "Free memory of the device itself.")
_DEVICE_TOTAL = Metric("millpond_device_bytes", "Memory of the device.")
_CLIENT_IN_USE = Metric("millpond_client_in_use_bytes", "Bytes of a client's allocated blocks.")

METRICS = (*_STATS.values(), _DEVICE_FREE, _DEVICE_TOTAL, _CLIENT_IN_USE)


def _of_pool(about: dict[str, Any]) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    labels = (about["device"], about["memory"], "")
    for field, metric in _STATS.items():
        yield metric, labels, about["stats"][field] or 0
    yield _DEVICE_FREE, labels, about["device_free"]
    yield _DEVICE_TOTAL, labels, about["device_total"]
    for share in about["clients"]:
        yield _CLIENT_IN_USE, (*labels[:2], share["name"]), share["in_use"]


def samples() -> list[tuple[Metric, tuple[str, ...], float]]:
    """(metric, values of LABELS, value) of each figure of each pool; none in a process that cannot use its pools."""
    try:
        pools = pool_figures()
    except Error:  # a child of a fork
        return []
    return [each for about in pools if not about["external"] for each in _of_pool(about)]
