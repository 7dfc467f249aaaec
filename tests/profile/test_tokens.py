"""The token identities, held against workers as the lab's tests know them: v1, v2, and v2 that notices the end late."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.lab.standin.acceptance import Acceptance
from eaglelab.profile.records import CycleBlock, Identity
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.tokens import check_tokens, count_tokens

ACCEPTANCE = Acceptance(1, (0.6, 0.4, 0.3))
KINDS = ("v1", "v2", "v2 late")


def served(kind, text, tokens, steps):
    """One request: what the probe counts of it, and the sample with the server's counts."""
    position, probe, server = 1, Counter(), Counter()
    while position < tokens:
        correct = ACCEPTANCE.correct_drafts(text, position, steps)
        server[correct] += 1
        probe[min(correct, tokens - position - 1) if kind == "v1" else correct] += 1
        position += correct + 1
    if kind == "v2 late":
        probe[ACCEPTANCE.correct_drafts(text, position, steps)] += 1
    histogram = tuple(server[j] for j in range(steps + 1))
    verifies = server.total() or None
    correct = None if verifies is None else sum(j * count for j, count in server.items())
    return probe, RequestSample(
        tokens, 0.1, 1.0, verifies=verifies, correct_drafts=correct, correct_hist=histogram if verifies else None
    )


def block(kind, counted, steps, *, rank=0, unknown=0):
    worker = "EAGLEWorker" if kind == "v1" else "EAGLEWorkerV2"
    histogram = tuple(counted[j] for j in range(steps + 1))
    tokens = sum((j + 1) * count for j, count in counted.items())
    return CycleBlock(
        Identity("1.2.0", "0.5.12", worker, rank, 2, 1, 0.0, 100, False),
        steps=steps,
        batch_size=1,
        decode_cycles=counted.total() + unknown,
        cycles=0,
        tokens=tokens,
        correct_hist=histogram,
        unknown=unknown,
        dropped={},
        skipped=0,
        kept_tokens=(),
        event_ms={},
        host_ms={},
    )


def measured(kind, lengths, steps=3):
    pairs = [served(kind, f"prompt {number}", tokens, steps) for number, tokens in enumerate(lengths)]
    counted = sum((probe for probe, _ in pairs), Counter())
    return [sample for _, sample in pairs], [block(kind, counted, steps), block(kind, counted, steps, rank=1)]


@pytest.mark.parametrize("kind", KINDS)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6), steps=st.integers(1, 5))
def test_the_identities_hold_for_every_worker(kind, lengths, steps):
    samples, blocks = measured(kind, lengths, steps)
    assert check_tokens(count_tokens(samples, blocks)).severity == "ok"
    bare = [replace(sample, verifies=None, correct_drafts=None, correct_hist=None) for sample in samples]
    assert check_tokens(count_tokens(bare, blocks)).severity == "ok"


def test_every_figure_is_in_the_finding():
    samples, blocks = measured("v1", (40, 30))
    finding = check_tokens(count_tokens(samples, blocks))
    assert finding.numbers["client_tokens"] == 70
    assert finding.numbers["probe_tokens"] == 68
    assert finding.numbers["thrown_away"] == 0
    assert finding.sentence == "Clients received 70 tokens, the probe counted 68 and 2 came from prefill."


def test_tokens_made_after_the_end_are_told():
    samples, blocks = measured("v2 late", (40, 30))
    finding = check_tokens(count_tokens(samples, blocks))
    assert finding.numbers["thrown_away"] == finding.numbers["probe_tokens"] - 68 > 0
    assert "were made after a request's end and thrown away" in finding.sentence


@pytest.mark.parametrize("kind", KINDS[:2])
def test_one_token_too_many_is_an_alarm(kind):
    samples, (own, _) = measured(kind, (40, 30))
    first = Counter(dict(enumerate(own.correct_hist)))
    first[0] -= 1
    first[1] += 1
    finding = check_tokens(count_tokens(samples, [block(kind, first, 3)]))
    assert finding.severity == "alarm"


@pytest.mark.parametrize("kind", KINDS[:2])
def test_one_cycle_lost_is_an_alarm(kind):
    samples, (own, _) = measured(kind, (40, 30))
    found = Counter(dict(enumerate(own.correct_hist)))
    found[0] -= 1
    assert check_tokens(count_tokens(samples, [block(kind, found, 3)])).severity == "alarm"


def test_late_workers_are_held_to_the_servers_histogram():
    samples, (own, _) = measured("v2 late", (40, 30))
    found = Counter(dict(enumerate(own.correct_hist)))
    found[0] -= 3
    found[3] += 3
    finding = check_tokens(count_tokens(samples, [block("v2 late", found, 3)]))
    assert finding.severity == "alarm"
    assert "the server counted more verifies with 0 correct drafts than the probe" in finding.sentence


def test_the_servers_own_counts_must_fit_what_arrived():
    samples, blocks = measured("v2", (40, 30))
    finding = check_tokens(count_tokens([replace(samples[0], correct_drafts=90), samples[1]], blocks))
    assert "where clients received 68" in finding.sentence
    lost = check_tokens(count_tokens([replace(sample, arrived=sample.tokens - 1) for sample in samples], blocks))
    assert "68 token ids arrived where the server says 70" in lost.sentence


def test_a_request_that_was_not_measured_does_not_fit():
    samples, blocks = measured("v1", (40, 30))
    finding = check_tokens(count_tokens([*samples, RequestSample(20, 0.1, 1.0, verifies=9, correct_drafts=10)], blocks))
    assert "the probe counted 68 tokens where clients received 87 from decode" in finding.sentence


def test_cycles_of_unknown_count_leave_nothing_to_compare():
    samples, _ = measured("v2", (40,))
    finding = check_tokens(count_tokens(samples, [block("v2", Counter({0: 3}), 3, unknown=2)]))
    assert finding.severity == "note"
    assert finding.numbers["unknown_cycles"] == 2


def test_without_the_servers_histogram_its_sums_are_held_to():
    samples, (own, _) = measured("v2", (40, 30))
    bare = [replace(sample, correct_hist=None) for sample in samples]
    assert check_tokens(count_tokens(bare, [own])).severity == "ok"
    assert check_tokens(count_tokens(bare, [replace(own, tokens=own.tokens + 1)])).severity == "alarm"


def test_more_cycles_after_the_end_than_requests_are_an_alarm():
    samples, (own, _) = measured("v2 late", (40, 30))
    found = Counter(dict(enumerate(own.correct_hist)))
    found[0] += 1
    finding = check_tokens(count_tokens(samples, [block("v2 late", found, 3)]))
    assert "3 is not between 0 and one a request" in finding.sentence
