"""A comparison in sentences: what differs, whether that is sure, what explains it, what changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from eaglelab.compare.comparison import Compared, Comparison
from eaglelab.compare.difference import Change, Difference
from eaglelab.compare.metrics import METRICS, PHASE_METRICS, signed
from eaglelab.compare.observed import Place

__all__ = ["LOADS_NOTE", "SEPARATE_NOTE", "SHARED_NOTE", "headline", "interval_words", "sentences"]

SEPARATE_NOTE = (
    "Each run is a load of its own: an interval covers what varies within these loads, not what another load of the same "
    "server would give. Several runs a side (A1,A2 B1,B2) cover that too."
)
SHARED_NOTE = "Both measured one and the same load of a server: what differs between loads is in none of its figures."
LOADS_NOTE = "The unit is the load: an interval covers what differs from load to load, taken as equal on both sides."

_MOST_CHANGES = 3
_EXPLAINED = 0.8
"""Share of a difference that its causes must make up together to be named as its explanation."""

_MOST_CAUSES = 2


def sentences(comparison: Comparison) -> tuple[str, ...]:
    """The headline, the other settings counted, warnings, and what the intervals cover."""
    return tuple(_sentences(comparison))


def _sentences(comparison: Comparison) -> Iterator[str]:
    yield headline(comparison)
    rated = [each.differences["tok_s"].verdict for each in comparison.settings if "tok_s" in each.differences]
    if len(rated) > 1:
        ties = "tie" if rated.count("tie") == 1 else "ties"
        words = {"higher": "faster", "lower": "slower", "tie": ties, "unsure": "without an interval"}
        counts = [f"{rated.count(verdict)} {word}" for verdict, word in words.items() if verdict in rated]
        yield f"Of {len(rated)} settings: {', '.join(counts)}."
    for side, places in (
        (comparison.reference, comparison.only_reference),
        (comparison.candidate, comparison.only_candidate),
    ):
        if places:
            yield f"Only in {side.label}: {_listed(places)}."
    for failure in comparison.failed:
        yield f"{comparison.candidate.label} failed at {failure.key.words}: {failure.what}."
    yield from comparison.warnings
    if comparison.shared_load:
        yield SHARED_NOTE
    elif comparison.settings:
        yield LOADS_NOTE if comparison.between_loads else SEPARATE_NOTE


def _listed(places: Sequence[Place]) -> str:
    by_batch: dict[int, list[str]] = {}
    for place in places:
        by_batch.setdefault(place.batch, []).append(place.key.words)
    return "; ".join(f"{', '.join(names)} at concurrency {batch}" for batch, names in by_batch.items())


def headline(comparison: Comparison) -> str:
    """`B is 3.1 % slower than A at 2 steps (2.2 to 4.0); verify +0.90 ms explains it; changed: sglang 0.5.9 -> 0.5.12.`"""
    a, b = comparison.reference.label, comparison.candidate.label
    main = _main(comparison)
    if main is None:
        said = f"{a} and {b} have no setting in common"
    elif "tok_s" in main.differences:
        difference = main.differences["tok_s"]
        said = _said(difference, f"{b} is", ("faster", "slower"), f"{a} at {main.place.words}")
    elif "total_ms" in main.differences:
        said = _said(
            main.differences["total_ms"], f"A cycle of {b} is", ("longer", "shorter"), f"{a}'s at {main.place.words}"
        )
    else:
        said = f"{a} and {b} have no figure in common at {main.place.words}"
    cause = None if main is None else _cause(main)
    return "; ".join([said, *([cause] if cause else []), *_changed(comparison)]) + "."


def _main(comparison: Comparison) -> Compared | None:
    """The reference's fastest common setting at the lowest concurrency."""
    lowest = min((each.place.batch for each in comparison.settings), default=0)
    here = [each for each in comparison.settings if each.place.batch == lowest]
    rated = [each for each in here if "tok_s" in each.differences]
    if rated:
        return max(rated, key=lambda each: each.differences["tok_s"].reference)
    return next(iter(here), None)


def _said(difference: Difference, what: str, directions: tuple[str, str], than: str) -> str:
    change = difference.percent or difference.absolute
    unit = " %" if difference.percent else ""
    if difference.verdict == "tie":
        return f"{what} a tie with {than}: {signed(change.value, 1)}{unit} ({interval_words(change, 1)})"
    low_high = "" if change.ci95 is None else f" ({interval_words(_turned(change), 1)})"
    unsure = ", with no interval" if change.ci95 is None else ""
    return f"{what} {abs(change.value):.1f}{unit} {directions[change.value < 0]} than {than}{low_high}{unsure}"


def _turned(change: Change) -> Change:
    """As a size: `slower by 2.2 to 4.0`, not by -4.0 to -2.2."""
    if change.value >= 0 or change.ci95 is None:
        return change
    return Change(-change.value, (-change.ci95[1], -change.ci95[0]))


def interval_words(change: Change, decimals: int) -> str:
    """`2.2 to 4.0`; empty without an interval."""
    if change.ci95 is None:
        return ""
    low, high = (round(end, decimals) + 0.0 for end in change.ci95)  # + 0.0: no minus before a zero
    return f"{low:.{decimals}f} to {high:.{decimals}f}"


def _cause(compared: Compared) -> str | None:
    """What makes up the difference. tok/s is accept length over the length of a cycle, so their logarithms add up."""
    found = compared.differences
    main = found.get("tok_s") or found.get("total_ms")
    total = found.get("total_ms")
    if main is None or main.verdict not in ("higher", "lower") or total is None:
        return None
    rated = "tok_s" in found
    whole = math.log(main.candidate / main.reference)
    mean = (
        (total.candidate - total.reference) / math.log(total.candidate / total.reference) if total.absolute.value else 0
    )
    shares = {
        name: (-1 if rated else 1) * found[name].absolute.value / mean / whole
        for name in PHASE_METRICS
        if mean and name in found
    }
    if rated and "accept_length" in found:
        lengths = found["accept_length"]
        shares["accept_length"] = math.log(lengths.candidate / lengths.reference) / whole
    if not shares:
        return None
    told: list[str] = []
    explained = 0.0
    for name in sorted(shares, key=lambda each: -shares[each])[:_MOST_CAUSES]:
        told.append(f"{METRICS[name].words} {METRICS[name].signed(found[name].absolute.value)}")
        explained += shares[name]
        if explained >= _EXPLAINED:
            return f"{' and '.join(told)} explain{'s' if len(told) == 1 else ''} it"
    return None


def _changed(comparison: Comparison) -> Iterator[str]:
    changes = comparison.changes
    if not changes:
        yield "nothing else is known to have changed"
        return
    more = len(changes) - _MOST_CHANGES
    names = ", ".join(change.words for change in changes[:_MOST_CHANGES])
    yield f"changed: {names}{f' and {more} more' if more > 0 else ''}"
