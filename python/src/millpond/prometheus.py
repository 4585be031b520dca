# SPDX-License-Identifier: Apache-2.0
"""The figures of this process's pools for Prometheus, through the package prometheus_client.

    import millpond.prometheus
    millpond.prometheus.register()      # what serves prometheus_client's registry now has millpond_* too

KServe, Dask's workers and many other servers serve that registry under /metrics.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

from millpond import _samples

try:
    _client: Any = importlib.import_module("prometheus_client")
    _core: Any = importlib.import_module("prometheus_client.core")
except ImportError as _error:
    raise ImportError(
        f"millpond.prometheus needs prometheus_client, which cannot be imported ({_error}); "
        "pip install prometheus-client"
    ) from _error

__all__ = ["Collector", "register"]

_lock = threading.Lock()
_registered: list[Any] = []


class Collector:
    """What a registry of prometheus_client asks for figures, at each request for them."""

    def describe(self) -> list[Any]:
        """The metrics without values, so that registering opens no pool."""
        return list(self._families().values())

    def _families(self) -> dict[str, Any]:
        kinds = {False: _core.GaugeMetricFamily, True: _core.CounterMetricFamily}
        return {
            metric.name: kinds[metric.is_counter](metric.name, metric.help, labels=_samples.LABELS)
            for metric in _samples.METRICS
        }

    def collect(self) -> Iterator[Any]:
        """The metrics with the figures of this moment."""
        families = self._families()
        for metric, labels, value in _samples.samples():
            families[metric.name].add_metric(labels, value)
        yield from families.values()


def register(registry: Any = None) -> None:
    """Adds the pools' figures to a registry, by default the one of the process; once, however often it is called."""
    chosen = registry if registry is not None else _client.REGISTRY
    with _lock:
        if not any(each is chosen for each in _registered):
            chosen.register(Collector())
            _registered.append(chosen)
