# SPDX-License-Identifier: MIT
"""Statistics of a few rounds: medians, spreads, ratios with their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile with linear interpolation between neighbours (as `numpy.quantile` by default).

    Raises:
        ValueError: no values, or a share outside 0..1.
    """
    if not values or not 0.0 <= share <= 1.0:
        raise ValueError("a quantile needs values and a share between 0 and 1")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones."""
    return quantile(values, 0.5)


def spread(values: Sequence[float]) -> float:
    """`(max - min) / median`: how far single rounds lay apart."""
    return (max(values) - min(values)) / median(values)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with the bounds between which half of the evidence lies."""

    value: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether the bounds leave 1 out, that is whether one side is the faster one by more than the noise."""
        return self.low > 1.0 or self.high < 1.0


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The ratio of two sets of times taken in the same rounds: the median of the rounds' ratios and their quartiles.

    Pairing removes what slowed both sides of a round.

    Raises:
        ValueError: the sets are empty or of different lengths.
    """
    ratios = [one / two for one, two in zip(above, below, strict=True)]
    return Ratio(median(ratios), quantile(ratios, 0.25), quantile(ratios, 0.75))


def unpaired_ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The ratio of the medians of two runs; the bounds set the quartiles of one against those of the other."""
    return Ratio(
        median(above) / median(below),
        quantile(above, 0.25) / quantile(below, 0.75),
        quantile(above, 0.75) / quantile(below, 0.25),
    )
