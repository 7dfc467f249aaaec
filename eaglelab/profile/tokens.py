"""Client, probe and server count the same tokens, to the token: what each of them counts, and the identities that follow.

    C  received: `completion_tokens`, the first token of each request included (it is prefill's); the token ids that
       arrived are as many, where the client counted them
    R  requests
    V  the server's verifies (`spec_verify_ct`), D its correct drafts: V + D tokens were made in decode for these requests
    Q  the probe's request-cycles (sum of `correct_hist`), P its tokens, bonus tokens included

Made and received differ at the end of a request only. The last verify may go beyond the limit: the server counts it whole
(V + D), v2's probe too, v1's cuts it. And with overlap (v2) one more cycle may be under way when the end is noticed: the
probe counts it, the server does not. So, with K the largest step count:

    received   C - R <= V + D <= C - R + K R      each last verify at most K tokens beyond the limit
    v1         P = C - R, Q = V                   exactly: nothing made is thrown away
    v2         n = Q - V cycles after the end, 0 <= n <= R, and the probe's histogram is the server's plus n entries
               n = 0: P = V + D exactly

Without the server's counts P is held between C - R and the most that can be thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from eaglelab.profile.findings import Finding, Number
from eaglelab.profile.records import CycleBlock
from eaglelab.profile.samples import RequestSample

__all__ = ["TokenCounts", "check_tokens", "count_tokens"]


@dataclass(frozen=True)
class TokenCounts:
    """The three counts over the same requests; those of verifies are None where some answer lacks them.

    `arrived` counts token ids at the client, None where it did not count. `histogram` is the probe's, `served_histogram` the server's (index j: request-cycles with j correct drafts).
    """

    requests: int
    received: int
    arrived: int | None
    verifies: int | None
    correct_drafts: int | None
    served_histogram: tuple[int, ...] | None
    cycles: int
    made: int
    histogram: tuple[int, ...]
    unknown: int
    steps: int
    cuts_last: bool


def count_tokens(samples: Sequence[RequestSample], blocks: Iterable[CycleBlock]) -> TokenCounts:
    """Add up the measured requests and the blocks that hold all of their cycles, whatever their batch size.

    Blocks of the lowest rank count. Requests that asked not to be measured belong to neither.
    """
    blocks = list(blocks)
    lowest = min((block.identity.rank for block in blocks), default=0)
    own = [block for block in blocks if block.identity.rank == lowest]
    histogram = _added(block.correct_hist for block in own)
    answered = [sample for sample in samples if sample.answered]
    # A request of one token has no decode cycle, and the server no counts for it.
    decoded = [sample for sample in answered if sample.tokens > 1]
    arrived = [sample.arrived for sample in answered]
    verifies = [sample.verifies for sample in decoded]
    correct = [sample.correct_drafts for sample in decoded]
    served = [sample.correct_hist for sample in decoded]
    return TokenCounts(
        requests=len(answered),
        received=sum(sample.tokens for sample in answered),
        arrived=None if None in arrived else sum(count or 0 for count in arrived),
        verifies=None if None in verifies else sum(count or 0 for count in verifies),
        correct_drafts=None if None in correct else sum(count or 0 for count in correct),
        served_histogram=None if None in served else _added(found or () for found in served),
        cycles=sum(histogram),
        made=sum(block.tokens for block in own),
        histogram=histogram,
        unknown=sum(block.unknown for block in own),
        steps=max((block.steps for block in own), default=0),
        cuts_last=all(not block.identity.worker.endswith("V2") for block in own),
    )


def check_tokens(counts: TokenCounts) -> Finding:
    """Hold the counts against the identities: `ok` where all that can be checked holds, else an alarm that says which."""
    numbers: dict[str, Number] = {
        "requests": counts.requests,
        "client_tokens": counts.received,
        "probe_tokens": counts.made,
        "probe_request_cycles": counts.cycles,
        "server_verifies": counts.verifies,
        "server_correct_drafts": counts.correct_drafts,
        "unknown_cycles": counts.unknown,
    }
    if counts.unknown:
        sentence = f"Tokens could not be compared: of {counts.unknown} cycles the probe could not read the count."
        return Finding("tokens", "note", sentence, numbers)
    wrong = [*_of_server(counts), *(_of_v1(counts) if counts.cuts_last else _of_v2(counts))]
    if wrong:
        return Finding("tokens", "alarm", f"Token counts do not agree: {'; '.join(wrong)}.", numbers)
    beyond = counts.made + counts.requests - counts.received
    numbers["thrown_away"] = beyond
    sentence = (
        f"Clients received {counts.received} tokens, the probe counted {counts.made} and {counts.requests} came from prefill"
        + (f"; {beyond} were made after a request's end and thrown away." if beyond else ".")
    )
    return Finding("tokens", "ok", sentence, numbers)


def _of_server(counts: TokenCounts) -> Iterable[str]:
    """What client and server say of the same requests."""
    if counts.arrived is not None and counts.arrived != counts.received:
        yield f"{counts.arrived} token ids arrived where the server says {counts.received}"
    if counts.verifies is None or counts.correct_drafts is None:
        return
    served, decoded = counts.verifies + counts.correct_drafts, counts.received - counts.requests
    if not decoded <= served <= decoded + counts.steps * counts.requests:
        yield f"the server decoded {served} tokens where clients received {decoded}"


def _of_v1(counts: TokenCounts) -> Iterable[str]:
    decoded = counts.received - counts.requests
    if counts.made != decoded:
        yield f"the probe counted {counts.made} tokens where clients received {decoded} from decode"
    if counts.verifies is not None and counts.cycles != counts.verifies:
        yield f"the probe counted {counts.cycles} request-cycles and the server {counts.verifies} verifies"


def _of_v2(counts: TokenCounts) -> Iterable[str]:
    decoded = counts.received - counts.requests
    # At most: K of the last verify, and a whole cycle of K + 1 after it.
    most = decoded + counts.requests * (2 * counts.steps + 1)
    if not decoded <= counts.made <= most:
        yield f"the probe counted {counts.made} tokens where clients received {decoded} from decode (at most {most} fit)"
    if counts.verifies is None:
        return
    after = counts.cycles - counts.verifies
    if not 0 <= after <= counts.requests:
        yield (
            f"the probe counted {counts.cycles} request-cycles and the server {counts.verifies} verifies: "
            f"{after} is not between 0 and one a request"
        )
    elif counts.served_histogram is not None:
        pairs = zip_longest(counts.histogram, counts.served_histogram, fillvalue=0)
        short = [j for j, (ours, servers) in enumerate(pairs) if ours < servers]
        if short:
            yield f"the server counted more verifies with {short[0]} correct drafts than the probe"
    elif after == 0 and counts.correct_drafts is not None and counts.made != counts.verifies + counts.correct_drafts:
        yield f"the probe counted {counts.made} tokens, the server {counts.verifies + counts.correct_drafts}"


def _added(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*histograms, fillvalue=0)))
