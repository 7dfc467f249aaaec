"""A ranking in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator

from eaglelab.profile.ranking import MINIMUM_RELEVANT, Comparison, Ranked, Ranking

__all__ = ["ranking_sentences"]


def ranking_sentences(ranking: Ranking) -> tuple[str, ...]:
    """The winner first, then the settings from fast to slow, then what the rounds could not tell."""
    return tuple(_sentences(ranking))


def _sentences(ranking: Ranking) -> Iterator[str]:
    winner = ranking.entry(ranking.winner)
    yield f"{_figures(winner)}{_ties(ranking)}."
    for entry in ranking.entries:
        if entry is not winner:
            yield f"{_figures(entry)}{_place(entry, ranking)}."
    if ranking.undetectable is not None and ranking.undetectable > MINIMUM_RELEVANT:
        more = "" if ranking.settled else "; measure more rounds before relying on the winner"
        yield (
            f"{ranking.rounds} rounds may have missed a difference of up to {100 * ranking.undetectable:.1f} % between "
            f"{ranking.fastest.words} and the settings tied with it{more}."
        )
    if ranking.left_out:
        numbers = ", ".join(str(number) for number in ranking.left_out)
        yield f"Left out, because a setting is missing or incomplete there: rounds {numbers}."
    if ranking.set_aside:
        names = ", ".join(key.words for key in ranking.set_aside)
        yield f"Not ranked, for want of two complete rounds: {names}."
    if ranking.loads > 1:
        yield (
            f"Measured in {ranking.loads} separate loads: their rounds are paired by prompts and not by time, and no interval "
            "covers what differs between loads."
        )


def _figures(entry: Ranked) -> str:
    name, over = entry.key.words, ""
    if entry.baseline is not None and entry.over_baseline is not None:
        baseline = "its own baseline" if entry.baseline.variation else "the baseline"
        over = f", {_difference(entry.over_baseline)} {baseline} ({_ends(entry.over_baseline)})"
    return f"{name[0].upper()}{name[1:]}: {entry.tok_s:.1f} tok/s{over}"


def _ties(ranking: Ranking) -> str:
    others = [entry for entry in ranking.entries if entry.group == 0 and entry.key != ranking.winner]
    if not others:
        return ""
    named = ", ".join(f"{entry.key.words} ({entry.tok_s:.1f})" for entry in others)
    return f"; {named} {'is a tie' if len(others) == 1 else 'are ties'}, and the simplest wins"


def _place(entry: Ranked, ranking: Ranking) -> str:
    if entry.group == 0:
        return f"; a tie with {ranking.winner.words}"
    if entry.over_baseline is None and entry.to_best is not None:
        return f", {_difference(entry.to_best)} {ranking.fastest.words}"
    return ""


def _difference(comparison: Comparison) -> str:
    return f"{abs(comparison.percent):.1f} % {'over' if comparison.percent >= 0 else 'under'}"


def _ends(comparison: Comparison) -> str:
    """The interval in the sense of the difference: `4.9 to 6.3`, and for `under` both ends turned round."""
    low, high = (100 * (end - 1) for end in comparison.ci95)
    if comparison.percent < 0:
        low, high = -high, -low
    return f"{low:.1f} to {high:.1f}"
