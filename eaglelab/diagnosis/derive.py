"""Facts that follow from others by a division: they are there wherever both sides are, whoever gave those."""

from __future__ import annotations

from collections.abc import Mapping

from eaglelab.diagnosis.facts import Fact, Facts

__all__ = ["derived"]

_QUOTIENTS = (
    ("verify_over_plain", "verify_ms", "plain_ms"),
    ("cycle_over_plain", "cycle_ms", "plain_ms"),
    ("speedup", "tok_s", "plain_tok_s"),
    ("draft_share", "draft_ms", "cycle_ms"),
    ("verify_share", "verify_ms", "cycle_ms"),
    ("other_share", "other_ms", "cycle_ms"),
    ("draft_slope_share", "draft_slope_ms", "plain_ms"),
    ("skew_share", "skew_ms", "cycle_ms"),
)
"""Name, and what is divided by what. cycle / plain step is the accept length at which tokens cost the same both ways."""


def derived(facts: Facts) -> Facts:
    """The same with what follows from it, for each setting."""
    return Facts(facts.whole, {label: {**_quotients(each), **each} for label, each in facts.settings.items()})


def _quotients(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    found = {}
    for name, above, below in _QUOTIENTS:
        if above in facts and below in facts:
            top, bottom = facts[above].value, facts[below].value
            if isinstance(top, int | float) and isinstance(bottom, int | float) and bottom > 0:
                found[name] = Fact(top / bottom, f"{above} / {below}")
    return found
