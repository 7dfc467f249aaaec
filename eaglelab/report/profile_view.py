"""A profile in the terminal: phases on both clocks, acceptance, rate, what limits, and how the ranks differ."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eaglelab.profile.acceptance import Acceptance
from eaglelab.profile.definitions import PHASES
from eaglelab.profile.phases import Phase
from eaglelab.profile.summary import Profile, Setting
from eaglelab.report.cells import MISSING, Bar, figure, interval, left, ms, note, percent, plain_table, spread, tok_s

__all__ = ["profile_table"]

# Survival columns that fit 80 characters.
_ACROSS = 10


def profile_table(profile: Profile) -> RenderableType:
    """All settings of a profile, one after the other."""
    parts: list[RenderableType] = []
    if profile.simulated:
        parts += [Text(f"{profile.simulated}: figures of a model, not of hardware", style="bold"), ""]
    for index, setting in enumerate(profile.settings):
        parts += [""] if index else []
        parts.append(_setting(setting, profile.sglang))
    parts += [note(f"note: {text}") for text in profile.notes]
    return Group(*parts)


def _setting(setting: Setting, sglang: Sequence[str]) -> RenderableType:
    parts: list[RenderableType] = [Text(_title(setting, sglang), style="bold")]
    if setting.phases:
        parts += [_phases(setting.phases), ""]
    parts += [_figures(setting), ""]
    if setting.acceptance is not None and setting.acceptance.survival:
        parts += [*_survival(setting.acceptance), ""]
    if len(setting.ranks) > 1:
        parts += [_ranks(setting), ""]
    parts += [note(text) for text in (setting.limit, setting.host_timers) if text]
    return Group(*parts)


def _title(setting: Setting, sglang: Sequence[str]) -> str:
    words = [setting.worker, f"steps {setting.steps}", f"batch size {setting.batch_size}"]
    words += [f"SGLang {' and '.join(sglang)}"] if sglang else []
    words += [f"rank {setting.rank} of {setting.world}"] if setting.world > 1 else []
    words += ["synchronising at every mark"] if setting.sync else []
    return ", ".join(words)


def _phases(phases: Sequence[Phase]) -> Table:
    table = left(plain_table("phase", "GPU ms", "+/-95%", "median", "p95", "share%", "", "host ms", "off %"), 6)
    for phase in phases:
        total = phase.name == "total"
        error = phase.host_error_percent
        table.add_row(
            phase.name,
            ms(phase.event.mean),
            spread(phase.event, 3),
            ms(phase.event.median),
            ms(phase.event.p95),
            percent(phase.event_share),
            "" if total or phase.event_share is None else Bar(phase.event_share),
            ms(phase.host.mean),
            MISSING if error is None else f"{round(error):+d}",
            style="bold" if total else None,
        )
    return table


def _figures(setting: Setting) -> Table:
    table = left(plain_table("figure", "value", "95% interval", "what it is"), 3)
    accepted, rate = setting.acceptance, setting.rate
    if accepted is not None:
        definition = f"tokens per verify, bonus token included; {accepted.verifies} verifies"
        table.add_row("accept length", figure(accepted.length, 2), interval(accepted.ci95, 2), definition)
        table.add_row("correct drafts", figure(accepted.correct_drafts, 2), "", "accept length - 1")
    if rate is not None:
        clock = "tokens of timed cycles / their GPU time"
        table.add_row("tok/s a request", tok_s(rate.per_request), interval(rate.per_request_ci95, 1), clock)
        if rate.batch_size > 1:
            batch = f"{rate.batch_size} requests together"
            table.add_row("tok/s in all", tok_s(rate.in_all), interval(rate.ci95, 1), batch)
    table.add_row("cycles timed", str(setting.cycles), "", Text(_cycles(setting)))
    return table


def _cycles(setting: Setting) -> str:
    reasons = {reason: count for reason, count in setting.dropped.items() if count}
    untimed = reasons.pop("untimed", 0)
    dropped = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in reasons.items())
    text = f"of {setting.decode_cycles}"
    text += f"; {untimed} left out so that measuring stays cheap" if untimed else ""
    text += f"; dropped: {dropped or 'none'}"
    text += f"; unmeasured on request: {setting.skipped}" if setting.skipped else ""
    return text + (f"; accepted count unknown: {setting.unknown}" if setting.unknown else "")


def _survival(accepted: Acceptance) -> list[Table]:
    tables = []
    for begin in range(0, len(accepted.survival), _ACROSS):
        end = min(begin + _ACROSS, len(accepted.survival))
        table = plain_table("drafts k", *(str(k) for k in range(begin + 1, end + 1)))
        table.add_row("S_k", *(figure(share, 3) for share in accepted.survival[begin:end]))
        table.add_row("given k-1", *(figure(share, 3) for share in accepted.conditional[begin:end]))
        tables.append(table)
    return tables


def _ranks(setting: Setting) -> Table:
    table = plain_table("rank", "cycles", *(f"{phase} ms" for phase in PHASES), text=0)
    for rank in setting.ranks:
        table.add_row(str(rank.rank), str(rank.cycles), *(ms(rank.event_ms.get(phase)) for phase in PHASES))
    skew = setting.skew_ms
    if skew is not None:
        table.add_row("skew", "", *(ms(skew[phase]) for phase in PHASES), style="bold")
    return table
