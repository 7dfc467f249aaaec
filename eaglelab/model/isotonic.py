"""The nearest sequence that never falls."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["rising"]


def rising(values: Sequence[float]) -> list[float]:
    """By least squares: neighbours that fall are pooled to their mean (pool adjacent violators, Ayer et al., 1955)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, size = pools.pop()
            total, count = total + before, count + size
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]
