"""Where cycles are short, one of several is timed; all of them are counted."""

from __future__ import annotations

import random

import pytest

SHORT = {"draft": 0.5, "verify": 2.5, "extend": 0.6, "after": 0.4}
"""4 ms a cycle: of ten cycles one is timed (80 us in 40 ms are 0.2 %)."""


@pytest.mark.parametrize(
    ("verify", "untimed"),
    [(38.0, 0), (37.0, 50), (8.5, 75), (2.5, 90), (0.5, 95)],
    ids=["40.8 ms", "39.8 ms", "10 ms", "4 ms", "2 ms"],
)
def test_so_many_cycles_are_timed_as_cost_less_than_a_share_of_their_time(machine, records, verify, untimed):
    m = machine()
    parts = {"verify": verify} if verify > 5 else {**SHORT, "verify": verify}
    for _ in range(303):
        m.cycle(**parts)
    first, _, third = records()
    assert (first["cycles"], first["dropped"]["untimed"]) == (100, 0)  # until it is known how long they are
    assert third["decode_cycles"] == 100
    assert third["dropped"]["untimed"] == pytest.approx(untimed, abs=1)  # a group may begin before the block


def test_how_many_are_timed_follows_the_pace(machine, records):
    m = machine(every=20)
    for parts in (SHORT, {}, SHORT):
        for _ in range(100):
            m.cycle(**parts)
    untimed = [block["dropped"]["untimed"] for block in records()]
    assert untimed[0] == 0
    assert [untimed[3], untimed[8], untimed[13]] == pytest.approx([18, 14, 18], abs=2)  # groups of 10, of 4, of 10


def test_cycles_that_are_not_timed_ask_cuda_for_nothing_but_the_end_of_a_timed_one(machine):
    m = machine(every=1000, timed=4)
    m.cycle()
    asked = []
    for cycle in m.probe._ring:
        cycle.records = [lambda _stream, index=index: asked.append(index) for index in range(4)]
    before = m.probe._next
    for _ in range(80):
        m.cycle()
    timed = [m.probe._ring[number].timed for number in range(before, before + 80)]
    assert sum(timed) == pytest.approx(20, abs=1)
    wanted = []
    for number, each in enumerate(timed):
        follows = m.probe._ring[before + number - 1].timed
        wanted += [0, 1, 2, 3] if each else [0] if follows else []
    assert asked == wanted


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
def test_a_timed_cycle_has_its_own_times_and_tokens(machine, records, overlap, v2):
    m = machine(every=60, timed=3)
    cycle = overlap(m).cycle if v2 else m.cycle
    for number in range(200):
        cycle([number % 3], draft=1.0 + number % 3, **({} if v2 else {"after": 0.5 + number % 3}))
    blocks = records()
    assert [block["decode_cycles"] for block in blocks] == [60] * 3
    for block in blocks:
        assert block["correct_hist"] == [20, 20, 20]
        assert block["cycles"] == pytest.approx(20, abs=2)
        assert block["event_ms"]["draft"] == [float(tokens) for tokens in block["kept_tokens"]]
        if not v2:
            assert block["event_ms"]["other"] == [tokens - 0.5 for tokens in block["kept_tokens"]]


def test_the_cycles_of_a_block_are_read_in_one_that_is_not_timed(machine, records):
    m = machine(every=50, timed=2)
    for _ in range(310):
        m.cycle()
    blocks = records()
    assert len(blocks) == 6
    assert [block["dropped"]["write"] for block in blocks] == [0] * 6


def test_what_recurs_every_so_many_cycles_is_among_the_timed_ones_as_often_as_among_all(machine, records):
    # SGLang writes a line every 40 decode cycles: a fixed stride of 4 would time all of these, or none.
    m = machine(every=100, timed=4)
    for number in range(8040):
        m.cycle(after=3.0 if number % 40 == 0 else 1.0)
    other = [ms for block in records() for ms in block["event_ms"]["other"]]
    assert len(other) == pytest.approx(2000, abs=2)
    assert 30 <= other.count(3.0) <= 70


def test_synchronising_times_every_cycle(machine, records):
    m = machine(sync=True)
    for _ in range(303):
        m.cycle(**SHORT)
    assert [block["dropped"]["untimed"] for block in records()] == [0, 0, 0]


def test_what_is_asked_for_by_hand_holds_whatever_the_pace(machine, records):
    m = machine(every=30, timed=3)
    for _ in range(95):
        m.cycle(verify=100.0)
    assert [block["dropped"]["untimed"] for block in records()] == [20, 20, 20]


def test_all_ranks_time_the_same_cycles(machine, records):
    made = [machine(every=10_000, timed=5) for _ in range(2)]
    for m in made:
        for _ in range(100):
            m.cycle()
    one, other = ([cycle.timed for cycle in m.probe._ring[:100]] for m in made)
    assert one == other
    assert sum(one) == 20


def _driven(m, seed):
    """Requests of several sizes and step counts that come, go and pause, some unmeasured, a worker that raises now and then."""
    chance = random.Random(seed)
    for request in range(60):
        if chance.random() < 0.9:
            m.prefill()
        if chance.random() < 0.1:
            m.flush()
        size, steps = chance.choice((1, 1, 2, 4)), chance.choice((1, 2, 5))
        rid = "p=0/" if chance.random() < 0.2 else "r"
        for _ in range(chance.randrange(1, 40)):
            correct = [chance.randrange(steps + 1) for _ in range(size)]
            m.cycle(correct, steps=steps, batch=m.batch(size, rid=f"{rid}{request}-"), **SHORT)
        if chance.random() < 0.1:
            m.probe.enter()
            m.probe.begin(m.worker, m.batch(size))
    m.flush()


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_the_same_however_few_are_timed(machine, records, tmp_path, seed):
    found = []
    for timed in (1, None, 2, 7, 1000):
        folder = tmp_path / f"timed-{timed}"
        m = machine(every=25, timed=timed, directory=str(folder))
        _driven(m, seed)
        (file,) = folder.iterdir()
        (tmp_path / "records").unlink(missing_ok=True)
        (tmp_path / "records").symlink_to(folder)
        counts = {}
        for block in records():
            key = block["steps"], block["batch_size"]
            hist, cycles, tokens = counts.get(key, ([0] * 6, 0, 0))
            hist = [sum(pair) for pair in zip(hist, block["correct_hist"] + [0] * 6, strict=False)]
            counts[key] = hist, cycles + block["decode_cycles"], tokens + block["tokens"]
            assert block["cycles"] + sum(block["dropped"].values()) == block["decode_cycles"]
            assert set(block["event_ms"]["total"]) <= {4.0}
        found.append((counts, sum(block["skipped"] for block in records())))
        assert file.stat().st_size > 0
    assert all(each == found[0] for each in found)
    assert len(found[0][0]) >= 6
