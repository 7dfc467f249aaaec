"""What a run or a log says, in a sentence: how fast, against what, what limits it, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eaglelab.diagnosis import Diagnosis
from eaglelab.model.explained import Explained
from eaglelab.profile.blocks import Block
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.measurement_set import MeasurementSet, rankings
from eaglelab.profile.phases import limiting_phase
from eaglelab.profile.ranking import Ranking
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.summary import Setting
from eaglelab.runs.evidence import RunEvidence

__all__ = ["Headline", "log_headline", "next_step", "run_headline"]


@dataclass(frozen=True)
class Headline:
    """`sentences`: one for each batch size, one at least. `following`: the first thing to try, None where nothing is."""

    sentences: tuple[str, ...]
    following: str | None

    @property
    def line(self) -> str:
        """The first sentence with what to do next."""
        return f"{self.sentences[0]}; next: {self.following}" if self.following else self.sentences[0]


def run_headline(evidence: RunEvidence, explained: Sequence[Explained], diagnoses: Sequence[Diagnosis]) -> Headline:
    """What a run found."""
    told = list(_ranked(evidence)) or list(_profiled(list(evidence.settings())))
    if not told:
        told = ["SGLang's own client measured; the probe was off" if evidence.serving else "nothing was measured"]
    settled = evidence.measured is None or all(each.settled for each in rankings(evidence.measured).values())
    return Headline(tuple(told), next_step(explained, diagnoses, settled=settled))


def log_headline(report: LogReport, explained: Sequence[Explained], diagnoses: Sequence[Diagnosis]) -> Headline:
    """The same of a log: of the probe's records, else of its newest block, else of SGLang's decode lines."""
    told = list(_profiled(report.profile.settings)) if report.profile else []
    if not told and report.blocks:
        told = [_block(report.blocks[-1])]
    if not told:
        told = list(_decoded(report)) or ["nothing in this log says anything about speed"]
    return Headline(tuple(told), next_step(explained, diagnoses))


def next_step(explained: Sequence[Explained], diagnoses: Sequence[Diagnosis], *, settled: bool = True) -> str | None:
    """The first thing to try.

    What the gravest diagnosis says that is more than possible; else more rounds where a ranking is not `settled`; else the
    step counts that the model wants measured; else what a possible diagnosis says.
    """
    told = [each for each in diagnoses if each.try_next]
    grave = [each for each in told if each.severity in ("alarm", "warning")]
    sure = next((each for each in grave if each.certainty != "possible"), None)
    if sure is not None:
        return sure.try_next[0].rstrip(".")
    if not settled:
        return "measure more rounds (--repeats), so that the ranking settles"
    for each in explained:
        if each.load_next:
            counts = ",".join(map(str, each.load_next))
            return f"measure what may be faster: --steps {counts} at batch size {each.batch}"
    return next((each.try_next[0].rstrip(".") for each in (*grave, *told)), None)


def _ranked(evidence: RunEvidence) -> Iterator[str]:
    measured = evidence.measured
    if measured is None:
        return
    ranked = rankings(measured)
    for batch, ranking in ranked.items():
        where = f"Concurrency {batch}, " if len(ranked) > 1 else ""
        yield f"{where}{_winner(ranking)}{_limit(_of(measured, ranking.winner, batch))}"
    if not ranked:
        yield from _profiled([each.setting for each in measured.measurements if each.setting is not None])


def _winner(ranking: Ranking) -> str:
    entry = ranking.entry(ranking.winner)
    parts = [f"{entry.key.words}: {entry.tok_s:.1f} tok/s"]
    if entry.over_baseline is not None:
        percent = entry.over_baseline.percent
        parts.append(f"{abs(percent):.1f} % {'over' if percent >= 0 else 'under'} the baseline")
    elif entry.key.steps is None:
        parts.append("and no step count is faster")
    if not ranking.settled:
        parts.append("not settled yet")
    return ", ".join(parts)


def _of(measured: MeasurementSet, key: SettingKey, batch: int) -> Setting | None:
    found = (each for each in measured.measurements if each.result.key == key and each.result.batch == batch)
    return next((each.setting for each in found if each.setting is not None), None)


def _limit(setting: Setting | None) -> str:
    limit = limiting_phase(setting.phases) if setting else None
    if limit is None or limit.event_share is None:
        return ""
    return f"; {limit.name} limits ({100 * limit.event_share:.0f} % of the cycle)"


def _profiled(settings: Sequence[Setting]) -> Iterator[str]:
    for setting in settings[:3]:
        parts = [f"{setting.steps} step{'' if setting.steps == 1 else 's'}, batch size {setting.batch_size}:"]
        if setting.rate is not None:
            parts.append(f"{setting.rate.in_all:.1f} tok/s under the probe,")
        if setting.acceptance is not None:
            parts.append(f"accept length {setting.acceptance.length:.2f}")
        yield " ".join(parts).rstrip(",:") + _limit(setting)


def _block(block: Block) -> str:
    parts = []
    if block.tok_s is not None:
        parts.append(f"{block.tok_s:.1f} tok/s")
    if block.accept_length is not None:
        lacking = block.printed_accept_length is not None and block.printed_accept_length != block.accept_length
        printed = f" (printed: {block.printed_accept_length:.2f}, without the bonus token)" if lacking else ""
        parts.append(f"{block.accept_length:.2f} tokens a verify{printed}")
    if block.shares:
        phase, share = max(block.shares.items(), key=lambda item: item[1])
        clock = "GPU time" if block.ours else "host timers, which put the draft's GPU time into verify"
        parts.append(f"{phase} {share:.1f} % of the cycle by {clock}")
    return f"{'; '.join(parts) or 'a block without figures'}, as of line {block.text.line}"


def _decoded(report: LogReport) -> Iterator[str]:
    groups = [group for group in report.decode if group.throughput is not None]
    for group in sorted(groups, key=lambda group: -group.lines)[:2]:
        if group.throughput is not None:
            accepted = f", accept length {group.accept_length.mean:.2f}" if group.accept_length else ""
            plural = "" if group.running_requests == 1 else "s"
            yield (
                f"{group.running_requests} running request{plural}: {group.throughput.mean:.1f} tok/s in all by SGLang's "
                f"decode lines{accepted}"
            )
