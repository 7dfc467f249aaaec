"""What a run measured, as the model wants it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eaglelab.model.explain import explain
from eaglelab.model.explained import Clock, Explained
from eaglelab.model.seen import MOST_STEPS, Plain, Seen
from eaglelab.profile.bench import summarise_bench
from eaglelab.profile.closure import full_load
from eaglelab.profile.measurement_set import Measurement, rankings
from eaglelab.profile.ranking import Ranking
from eaglelab.profile.summary import Setting
from eaglelab.runs.evidence import RunEvidence

__all__ = ["explain_run", "explain_settings", "seen_of_run", "seen_of_setting"]


def explain_run(evidence: RunEvidence, *, all_reduce_share: float | None = None) -> tuple[Explained, ...]:
    """One entry for each variation and batch size at which a step count was measured, in that order.

    Throughput and accept length are those of the requests that ran without the probe, phases and survival the probe's. A
    run that only profiled, or whose requests came at a fixed rate, is explained from the probe's cycles alone.
    `all_reduce_share`: of verify (0 to 1), where it is known.
    """
    usable = _usable(evidence)
    ranked = {} if evidence.measured is None else rankings(evidence.measured)
    explained = []
    for variation, batch in sorted({(each.result.variation, each.result.batch) for each in usable}):
        here = [each for each in usable if each.result.batch == batch]
        seen = seen_of_run(evidence, batch, variation)
        if seen:
            plain = _plain(here, variation, batch)
            found = explain(
                batch,
                seen,
                plain,
                clock=_clock(seen),
                variation=variation,
                all_reduce_share=all_reduce_share,
                ranked_ties=_ties(ranked.get(batch), variation),
            )
            explained.append(found)
    return tuple(explained) or explain_settings(evidence.settings(), all_reduce_share=all_reduce_share)


def seen_of_run(evidence: RunEvidence, batch: int, variation: str = "") -> tuple[Seen, ...]:
    """The step counts that a run measured with requests, at one batch size and variation; to calibrate or to compare."""
    here = [each for each in _usable(evidence) if (each.result.batch, each.result.variation) == (batch, variation)]
    return tuple(_seen(here, batch))


def explain_settings(
    settings: Iterable[Setting],
    *,
    plains: dict[int, Plain] | None = None,
    all_reduce_share: float | None = None,
) -> tuple[Explained, ...]:
    """From the probe's cycles alone, an entry a batch size. `plains`: the baseline by batch size, where it is known.

    Of several settings of one step count and batch size (two workers, say) the one with the most cycles counts.
    """
    longest: dict[tuple[int, int], Setting] = {}
    for setting in settings:
        if setting.batch_size < 1:
            continue
        key = (setting.batch_size, setting.steps)
        if key not in longest or setting.cycles > longest[key].cycles:
            longest[key] = setting
    explained = []
    for batch in sorted({batch for batch, _ in longest}):
        found = [seen_of_setting(setting) for (size, _), setting in longest.items() if size == batch]
        seen = [each for each in found if each is not None]
        if seen:
            explained.append(explain(batch, seen, (plains or {}).get(batch), all_reduce_share=all_reduce_share))
    return tuple(explained)


def seen_of_setting(setting: Setting) -> Seen | None:
    """The probe's cycles of one setting; None where no cycle was timed or nothing is known of what was accepted."""
    events = {phase.name: phase.event.mean for phase in setting.phases}
    accepted, cycle = setting.acceptance, events.get("total")
    if accepted is None or not cycle or not 1 <= setting.steps <= MOST_STEPS:
        return None
    return Seen(
        steps=setting.steps,
        cycle_ms=cycle,
        accept_length=accepted.length,
        tok_s=1000 * setting.batch_size * accepted.length / cycle,
        ci95=None if setting.rate is None else setting.rate.ci95,
        survival=accepted.survival,
        event_ms=events,
        host_ms={phase.name: phase.host.mean for phase in setting.phases},
    )


def _usable(evidence: RunEvidence) -> list[Measurement]:
    """Those whose throughput is the server's and not the rate at which requests were sent, of settings that did not fail."""
    if evidence.measured is None or (evidence.request.get("vars") or {}).get("request_rate") is not None:
        return []
    failed = {each.key for each in evidence.measured.failed}
    return [each for each in evidence.measured.measurements if each.result.key not in failed]


def _seen(measured: Sequence[Measurement], batch: int) -> Iterator[Seen]:
    """One for each step count, of measurements of one variation and batch size."""
    for steps in sorted({each.result.steps for each in measured if each.result.steps}):
        here = [each for each in measured if each.result.steps == steps]
        setting = next((each.setting for each in here if each.setting is not None), None)
        probed = None if setting is None else seen_of_setting(setting)
        unprofiled = next((each for each in here if not each.result.profiled), None)
        seen = probed if unprofiled is None else _of_requests(unprofiled, batch, probed) or probed
        if seen is not None:
            yield seen


def _of_requests(found: Measurement, batch: int, probed: Seen | None) -> Seen | None:
    """From requests that the probe did not measure; None where they do not tell throughput and accept length."""
    summary = summarise_bench(found.result)
    length = summary.accept_length
    if length is None and probed is not None:
        length = probed.accept_length
    rate, steps = summary.throughput, found.result.steps
    if length is None or rate is None or steps is None:
        return None
    decoding = full_load(found.result.requests, batch)
    return Seen(
        steps=steps,
        cycle_ms=1000 * batch * length / (rate.value if decoding is None else decoding.tok_s),
        accept_length=length,
        tok_s=rate.value,
        ci95=rate.ci95,
        survival=probed.survival if probed is not None else tuple(share.value for share in summary.survival),
        event_ms={} if probed is None else probed.event_ms,
        host_ms={} if probed is None else probed.host_ms,
    )


def _plain(measured: Iterable[Measurement], variation: str, batch: int) -> Plain | None:
    """The baseline of this variation, else that of none."""
    results = [each.result for each in measured if each.result.steps is None and not each.result.profiled]
    for name in dict.fromkeys((variation, "")):
        result = next((each for each in results if each.variation == name), None)
        rate = None if result is None else summarise_bench(result).throughput
        if result is not None and rate is not None:
            decoding = full_load(result.requests, batch)
            tok_s = rate.value if decoding is None else decoding.tok_s
            return Plain(rate.value, 1000 * batch / tok_s, rate.ci95)
    return None


def _ties(ranking: Ranking | None, variation: str) -> tuple[int | None, ...]:
    """The step counts of a variation in the ranking's best group; the baseline there is that of the variation."""
    return () if ranking is None else tuple(key.steps for key in ranking.groups[0] if key.variation == variation)


def _clock(seen: Sequence[Seen]) -> Clock:
    return "events" if any(each.event_ms for each in seen) else "clients"
