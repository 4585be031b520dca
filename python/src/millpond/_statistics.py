# SPDX-License-Identifier: Apache-2.0
"""What a part of a program does with a pool."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from millpond._core import InvalidArgumentError

if TYPE_CHECKING:
    from types import TracebackType

    from millpond._core import Pool, Stats

_lock = threading.Lock()
_open: dict[tuple[str, str], list[statistics]] = {}  # of each memory of each device


class statistics:  # noqa: N801  (used as a word: with millpond.statistics(pool) as used)
    """Counts what all users of a pool do with it inside, on every thread.

        with millpond.statistics(pool) as used:
            model(batch)
        print(used.peak, used.allocs)

    The figures are those of this moment inside, and of the end afterwards. Scopes may nest and overlap. The pool's own
    peaks (`stats()["in_use_max"]` and `["total_max"]`) begin anew with each scope.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._begin: Stats | None = None
        self._end: Stats | None = None
        self._peak = 0

    def __enter__(self) -> statistics:
        with _lock:
            scopes = _open.setdefault(self._key(), [])
            self._keep_peaks(scopes)
            self._pool.reset_peaks()
            self._begin, self._end, self._peak = self._pool.stats(), None, 0
            scopes.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            scopes = _open[self._key()]
            try:
                self._end = self._pool.stats()
                self._keep_peaks(scopes)
            finally:  # also where the pool was closed inside
                scopes.remove(self)

    def _key(self) -> tuple[str, str]:
        return self._pool.device, self._pool.memory

    def _keep_peaks(self, scopes: list[statistics]) -> None:
        """Before the pool forgets its peak: it counts for every scope that is open."""
        peak = self._pool.stats()["in_use_max"]
        for each in scopes:
            each._peak = max(each._peak, peak)

    def _now(self) -> tuple[Stats, Stats]:
        if self._begin is None:
            raise InvalidArgumentError("the scope has not begun: use it with `with millpond.statistics(pool) as used:`")
        return self._begin, self._end if self._end is not None else self._pool.stats()

    def _growth(self, figure: Literal["in_use", "allocs", "frees", "failures"]) -> int:
        begin, now = self._now()
        return now[figure] - begin[figure]

    @property
    def peak(self) -> int:
        """The most bytes in use at one time, those that were so at the beginning included."""
        now = self._now()[1]
        return max(self._peak, now["in_use_max"]) if self._end is None else self._peak

    @property
    def in_use(self) -> int:
        """Bytes in use now, or at the end."""
        return self._now()[1]["in_use"]

    @property
    def growth(self) -> int:
        """By how many bytes more is in use than at the beginning; negative where less is."""
        return self._growth("in_use")

    @property
    def allocs(self) -> int:
        """Allocations."""
        return self._growth("allocs")

    @property
    def frees(self) -> int:
        """Blocks freed."""
        return self._growth("frees")

    @property
    def failures(self) -> int:
        """Allocations that failed."""
        return self._growth("failures")

    def __repr__(self) -> str:
        if self._begin is None:
            return f"<millpond.statistics of {self._pool!r}, not begun>"
        return (
            f"<millpond.statistics of {self._pool.memory} memory of {self._pool.device}: peak {self.peak} bytes, "
            f"{self.growth:+} in use, {self.allocs} allocations, {self.frees} frees, {self.failures} failures>"
        )
