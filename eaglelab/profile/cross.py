"""The accept length from every source there is, side by side: they must agree, each within what its definition allows.

All mean tokens per verify and request, bonus token included. What differs is which verifies they are over, and how the
end of a request counts; `tolerance` of each reading says how far it may lie from the reference for that. `release` is
SGLang's version, for the definition that goes with the figure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eaglelab.profile.acceptance import Acceptance
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.eras import definition
from eaglelab.profile.findings import Finding
from eaglelab.profile.metrics import parse_metrics
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.stats import rounded
from eaglelab.profile.student import t_quantile

__all__ = [
    "Reading",
    "agree",
    "cross_finding",
    "from_decode_lines",
    "from_meta",
    "from_metrics",
    "from_probe",
    "from_server_info",
]

LOG_INTERVAL = 40
"""Decode cycles between two of SGLang's decode lines (`--decode-log-interval`); gauges and averages move only then."""

_SIGMAS = 3.0
_RISK = 0.0027  # that of three standard deviations
_PRINTED = 0.005
_ROUNDING = 0.001
_OTHER_REQUESTS = 0.05


@dataclass(frozen=True)
class Reading:
    """An accept length from one source. `count` counts `unit`s behind it, None where the source does not say how many.

    `tolerance` is how far it may lie from the reference (tokens a verify). `agrees` is None for the reference itself and
    for what cannot be compared.
    """

    source: str
    value: float
    count: int | None
    unit: str
    definition: str
    tolerance: float | None
    agrees: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "source": self.source,
            "accept_length": rounded(self.value),
            "count": self.count,
            "unit": self.unit,
            "definition": self.definition,
            "tolerance": rounded(self.tolerance),
            "agrees": self.agrees,
        }


def from_probe(acceptance: Acceptance | None) -> Reading | None:
    """The probe's, over all measured decode cycles: the reference wherever it is there."""
    if acceptance is None:
        return None
    source = "probe"
    return Reading(source, acceptance.length, acceptance.verifies, "verifies", definition(source, None), _ROUNDING)


def from_meta(samples: Iterable[RequestSample], steps: int, release: str | None = None) -> Reading | None:
    """From `meta_info` of the same requests (`spec_verify_ct` from 0.4.2 on, correct drafts from 0.5.4 on).

    The server's own `spec_accept_length` is completion_tokens / spec_verify_ct and counts prefill's token as one of
    decode; that bias (one token a request) is not repeated here. Last verifies differ from the probe's by up to `steps`
    drafts a request, and with overlap the probe has one verify more.
    """
    known = [sample for sample in samples if sample.answered and sample.verifies]
    if not known:
        return None
    verifies = sum(sample.verifies or 0 for sample in known)
    tolerance = _ROUNDING + (steps + 1) * len(known) / verifies
    if all(sample.correct_drafts is not None for sample in known):
        value = 1 + sum(sample.correct_drafts or 0 for sample in known) / verifies
        said = definition("meta_info", release)
    else:
        value = sum(sample.tokens - 1 for sample in known) / verifies
        said = definition("meta_info", "0.4.2")
    return Reading("meta_info", value, verifies, "verifies", said, tolerance)


def from_server_info(info: Mapping[str, Any], *, alone: bool, release: str | None = None) -> Reading | None:
    """`avg_spec_accept_length` of `/get_server_info` (0.4.3.post3 on): of all requests since the start or the last flush.

    It moves with the decode lines only, and of several data-parallel ranks it is the first one's. Without `alone` (other
    step counts ran since then) it cannot be compared.
    """
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states else info
    value = state.get("avg_spec_accept_length") if isinstance(state, Mapping) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        return None
    tolerance = _OTHER_REQUESTS * value if alone else None
    return Reading("server_info", float(value), None, "verifies", definition("server_info", release), tolerance)


def from_decode_lines(
    groups: Sequence[DecodeGroup], wanted: int, *, alone: bool, release: str | None = None
) -> Reading | None:
    """The mean of the log's `accept len` at the wanted number of running requests.

    Lines after idle time are out already. Each is printed with two decimals, so half of the last digit is allowed, and three
    standard errors of the mean, more of few lines (Student's t). Without `alone` (the lines are of several step counts) it
    cannot be compared.
    """
    group = next((each for each in groups if each.running_requests == wanted and each.accept_length), None)
    if group is None or group.accept_length is None:
        return None
    lengths = group.accept_length
    known = alone and lengths.stdev is not None
    error = 0.0
    if lengths.stdev is not None:
        error = t_quantile(_RISK, lengths.count - 1) * lengths.stdev / math.sqrt(lengths.count)
    said = definition("decode_lines", release)
    return Reading("decode_lines", lengths.mean, lengths.count, "lines", said, _PRINTED + error if known else None)


def from_metrics(
    text: str,
    *,
    stdev: float,
    between: float = 0.0,
    batch: int,
    alone: bool = True,
    interval: int = LOG_INTERVAL,
    release: str | None = None,
) -> Reading | None:
    """The gauge `sglang:spec_accept_length` of `/metrics`: of the last logged interval, so of the last requests alone.

    `stdev` is that of single verifies (the probe's), `between` that of the accept length between requests: three standard
    errors of `interval` x `batch` verifies of `batch` requests are allowed. A gauge of 0 has not been set. Of several
    data-parallel ranks it is the mean. Without `alone` (the last interval may be another step count's) it cannot be
    compared.
    """
    gauges = [metric.value for metric in parse_metrics(text).get("sglang:spec_accept_length", ())]
    values = [value for value in gauges if value > 0 and math.isfinite(value)]
    if not values:
        return None
    verifies = interval * batch
    tolerance = _PRINTED + _SIGMAS * math.hypot(stdev / math.sqrt(verifies), between / math.sqrt(batch))
    said = definition("metrics", release)
    return Reading("metrics", statistics.fmean(values), verifies, "verifies", said, tolerance if alone else None)


def agree(readings: Iterable[Reading | None]) -> tuple[Reading, ...]:
    """Compare every reading with the first that is there; give the sources in order of trust, the probe first.

    The allowance is that of the reading plus that of the reference.
    """
    known = [reading for reading in readings if reading is not None]
    if not known:
        return ()
    reference = known[0]
    allowed = reference.tolerance or 0.0
    compared = [
        reading
        if reading.tolerance is None
        else replace(reading, agrees=abs(reading.value - reference.value) <= reading.tolerance + allowed)
        for reading in known[1:]
    ]
    return (reference, *compared)


def cross_finding(readings: Sequence[Reading]) -> Finding:
    """One sentence over all sources: `ok` where those that can be compared agree, an alarm that names the others."""
    if not readings:
        return Finding("accept-length-sources", "note", "The accept length is not known from any source.")
    reference, *others = readings
    compared = [reference, *(reading for reading in others if reading.agrees is not None)]
    shown = [reading for reading in others if reading.agrees is None]
    numbers = {reading.source: reading.value for reading in readings}
    aside = f"; not comparable: {_told(shown)}" if shown else ""
    apart = [reading.source for reading in compared if reading.agrees is False]
    if apart:
        sentence = f"The sources of the accept length do not agree: {_told(compared)}; {', '.join(apart)} beyond what is allowed for{aside}."
        return Finding("accept-length-sources", "alarm", sentence, numbers)
    if len(compared) < 2:
        sentence = f"The accept length is {_told(compared)} and is not cross-checked{aside}."
        return Finding("accept-length-sources", "note", sentence, numbers)
    sentence = f"The sources of the accept length agree: {_told(compared)}{aside}."
    return Finding("accept-length-sources", "ok", sentence, numbers)


def _told(readings: Sequence[Reading]) -> str:
    return ", ".join(f"{reading.value:.3f} by {reading.source}" for reading in readings)
