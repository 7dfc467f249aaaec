"""How a run went over time: accept length and tokens per second, in a bounded number of points however long it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eaglelab.profile.decode_lines import clock, parse_decode_line
from eaglelab.profile.measurement_set import MeasurementSet
from eaglelab.profile.records import CycleBlock, RecordError, parse_record
from eaglelab.profile.setting_key import SettingKey

__all__ = ["MOST", "Moment", "Thinning", "of_decode_lines", "of_probe", "of_requests"]

MOST = 240
"""Points of a line: more than that are no wider than a hair."""

_DECODE, _PREFILL, _NOBODY = b"Decode batch", b"Prefill batch", b"#running-req: 0"


@dataclass(frozen=True)
class Moment:
    """Some time of one setting, as sums, so that neighbours can be joined: `at` (s) is its middle.

    `tokens` in `busy_s` (s, summed over the requests) give tokens per second of a request; `accepted` tokens in `verifies`
    the accept length, bonus token included.
    """

    at: float
    tokens: float
    busy_s: float
    accepted: float
    verifies: float

    @property
    def tok_s(self) -> float | None:
        """Tokens per second of one request."""
        return self.tokens / self.busy_s if self.busy_s > 0 else None

    @property
    def accept_length(self) -> float | None:
        """Tokens per verify and request."""
        return self.accepted / self.verifies if self.verifies else None

    def joined(self, later: Moment) -> Moment:
        """Both as one."""
        return Moment(
            (self.at + later.at) / 2,
            self.tokens + later.tokens,
            self.busy_s + later.busy_s,
            self.accepted + later.accepted,
            self.verifies + later.verifies,
        )


@dataclass
class Thinning:
    """Takes moments in order and keeps at most `most`: where they get more, each two neighbours become one."""

    most: int = MOST
    kept: list[Moment] = field(default_factory=list)
    _each: int = 1
    _open: list[Moment] = field(default_factory=list)

    def add(self, moment: Moment) -> None:
        """Take the next one."""
        self._open.append(moment)
        if len(self._open) == self._each:
            self.kept.append(_join(self._open))
            self._open = []
        if len(self.kept) > self.most:
            pairs = [self.kept[place : place + 2] for place in range(0, len(self.kept), 2)]
            # The odd one at the end waits for the rest of its pair.
            self._open = pairs.pop() if len(pairs[-1]) == 1 else []
            self.kept = [_join(pair) for pair in pairs]
            self._each *= 2

    def moments(self) -> tuple[Moment, ...]:
        """All of them, with what was not yet a whole group at the end."""
        return (*self.kept, *([_join(self._open)] if self._open else []))


def of_requests(measured: MeasurementSet, batch: int) -> dict[SettingKey, tuple[Moment, ...]]:
    """The requests that the probe left alone (all of them where there are none), by setting, in the order of sending.

    `at` is in seconds of the server's clock from the begin of the load's measurement.
    """
    here = [each.result for each in measured.measurements if each.result.batch == batch]
    told = [result for result in here if not result.profiled] or here
    lines: dict[SettingKey, Thinning] = {}
    for result in told:
        sent = [sample for sample in result.requests if sample.answered and sample.start_s is not None]
        for sample in sorted(sent, key=lambda sample: sample.start_s or 0.0):
            at, verifies = (sample.start_s or 0.0) + sample.e2e_s / 2, sample.verifies or 0
            # The first token of a request is prefill's.
            moment = Moment(at, sample.tokens, sample.e2e_s, sample.tokens - 1 if verifies else 0, verifies)
            lines.setdefault(result.key, Thinning()).add(moment)
    return _settled(lines)


def of_probe(lines: Iterable[bytes], batch: int) -> dict[SettingKey, tuple[Moment, ...]]:
    """The blocks of the first rank at one batch size, by step count; `at` is in seconds of wall time from the first.

    `lines` may be those of a whole log. Blocks that were flushed with few cycles in them say little: they are joined until
    there are half as many as in a whole one.
    """
    found: dict[SettingKey, Thinning] = {}
    few: dict[SettingKey, Moment] = {}
    rank, begin = None, 0.0
    for block in _blocks(lines):
        if rank is None:
            rank, begin = block.identity.rank, block.identity.time
        if block.identity.rank != rank or block.batch_size != batch:
            continue
        key, moment = SettingKey(block.steps), _of_block(block, begin)
        moment = few.pop(key).joined(moment) if key in few else moment
        if 2 * moment.verifies < block.identity.every * batch:
            few[key] = moment
        else:
            found.setdefault(key, Thinning()).add(moment)
    return _settled(found)


def of_decode_lines(lines: Iterable[bytes]) -> dict[int, tuple[Moment, ...]]:
    """SGLang's decode lines by the number of running requests; `at` is in seconds from the first that has a time.

    Of many lines `MOST` to twice as many, evenly spread, are read, each for itself: what they say is a mean over its own
    interval already. Those whose interval holds idle time are left out.
    """
    kept: list[bytes] = []
    count, each, idle = 0, 1, True
    for line in lines:
        if _PREFILL in line:
            idle = idle or _NOBODY in line
        elif _DECODE in line:
            if count % each == 0 and not idle:
                kept.append(line)
            count, idle = count + 1, False
            if len(kept) > 2 * MOST:
                kept, each = kept[::2], 2 * each
    found: dict[int, list[Moment]] = {}
    begin = None
    for line in kept:
        told = parse_decode_line(line.decode("utf-8", errors="replace"))
        second = clock(told.time) if told else None
        if told is None or second is None or not told.running_requests or told.throughput is None:
            continue
        begin = second if begin is None else begin
        length = told.accept_length
        moment = Moment(second - begin, told.throughput, told.running_requests, length or 0, 1 if length else 0)
        found.setdefault(told.running_requests, []).append(moment)
    return {running: tuple(found[running]) for running in sorted(found)}


def _blocks(lines: Iterable[bytes]) -> Iterable[CycleBlock]:
    for line in lines:
        if not line.startswith(b"{") or b'"schema"' not in line:
            continue
        try:
            record = parse_record(line)
        except RecordError:
            continue
        if isinstance(record, CycleBlock):
            yield record


def _of_block(block: CycleBlock, begin: float) -> Moment:
    known = [
        (tokens, ms)
        for tokens, ms in zip(block.kept_tokens, block.event_ms["total"], strict=True)
        if tokens is not None
    ]
    verifies = sum(block.correct_hist)
    correct = sum(j * count for j, count in enumerate(block.correct_hist))
    busy_s = block.batch_size * sum(ms for _, ms in known) / 1000
    return Moment(block.identity.time - begin, sum(tokens for tokens, _ in known), busy_s, verifies + correct, verifies)


def _settled(lines: Mapping[SettingKey, Thinning]) -> dict[SettingKey, tuple[Moment, ...]]:
    return {key: lines[key].moments() for key in sorted(lines, key=lambda key: key.simplicity)}


def _join(moments: Sequence[Moment]) -> Moment:
    joined = moments[0]
    for later in moments[1:]:
        joined = joined.joined(later)
    return joined
