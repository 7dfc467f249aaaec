"""Who is given which load of a sweep that is spread, whoever comes, goes and comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eaglelab.sweep.deck import Deck, without_dead
from eaglelab.sweep.matrix import Variation
from eaglelab.sweep.plan import Load

LOADS = [Load((steps,), Variation()) for steps in range(1, 7)]
FOLDERS = [load.folder for load in LOADS]
HOSTS = ("a", "b", "c")


def test_each_host_is_given_the_load_that_it_was_at_before_any_other() -> None:
    deck = Deck.of(LOADS[:3], (), {"b": "k1", "c": "k3"})
    assert [deck.take(host) for host in ("a", "b", "c")] == [LOADS[1], LOADS[0], LOADS[2]]


def test_what_was_measured_before_is_not_dealt_and_no_claim_brings_it_back() -> None:
    deck = Deck.of(LOADS[:3], ["k1"], {"a": "k1"})
    assert [deck.take("a"), deck.take("a")] == [LOADS[1], LOADS[2]]


def test_a_load_that_another_host_may_still_come_for_waits_for_it_until_it_leaves() -> None:
    deck = Deck.of(LOADS[:1], (), {"b": "k1"})
    assert deck.take("a") is None
    assert deck.over is False
    deck.leave("b")
    assert deck.take("a") == LOADS[0]


def test_a_host_that_no_longer_runs_its_load_lets_others_have_it() -> None:
    deck = Deck.of(LOADS[:2], (), {"b": "k1"})
    deck.disclaim("b")
    assert deck.take("a") == LOADS[0]


def test_of_two_hosts_that_were_at_one_load_the_first_has_it_and_the_other_takes_the_next() -> None:
    deck = Deck.of(LOADS[:2], (), {"a": "k1", "b": "k1"})
    assert [deck.take("b"), deck.take("a")] == [LOADS[1], LOADS[0]]


def test_a_claim_to_a_load_that_the_plan_does_not_have_is_none() -> None:
    assert Deck.of(LOADS[:1], (), {"b": "k9"}).take("a") == LOADS[0]


def test_a_load_whose_server_died_of_its_several_step_counts_is_not_tried_again() -> None:
    several = Load((1, 2), Variation())
    assert without_dead([several, LOADS[3]], {several.folder: several.apart}) == [LOADS[0], LOADS[1], LOADS[3]]
    assert without_dead([several], {}) == [several]


class Cluster:
    """Hosts that take, make, lose and give back loads as they are told to, one thing at a time."""

    def __init__(self, kept: list[str], claims: dict[str, str], gone: set[str]) -> None:
        self.here = [host for host in HOSTS if host not in gone] or ["a"]
        self.deck = Deck.of(LOADS, kept, {host: claim for host, claim in claims.items() if host in self.here})
        self.made: list[Load] = []
        self.of: dict[str, list[Load]] = {host: [] for host in HOSTS}

    def turn(self, host: str, dies: bool) -> None:
        had = self.deck.at_work.get(host)
        if dies and len(self.here) > 1:
            self.here.remove(host)
            self.deck.leave(host)
            return
        if had is not None:
            self.made.append(had)
        self.deck.made(host)
        load = self.deck.take(host)
        if load is not None:
            self.of[host].append(load)


@given(
    kept=st.lists(st.sampled_from(FOLDERS), unique=True),
    claims=st.dictionaries(st.sampled_from(HOSTS), st.sampled_from(FOLDERS)),
    gone=st.sets(st.sampled_from(HOSTS), max_size=2),
    turns=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30),
)
def test_every_load_is_measured_once_in_all_tries_whoever_dies(kept, claims, gone, turns) -> None:
    cluster = Cluster(kept, claims, gone)
    for number, dies in turns:
        cluster.turn(cluster.here[number % len(cluster.here)], dies)
        at_work = list(cluster.deck.at_work.values())
        there = [*cluster.deck.waiting, *at_work, *cluster.made]
        assert sorted(load.folder for load in there) == sorted(set(FOLDERS) - set(kept))  # nothing lost, nothing twice
    for _ in range(len(LOADS) + 1):
        for host in cluster.here:
            cluster.turn(host, dies=False)
    assert cluster.deck.over
    assert sorted([*kept, *(load.folder for load in cluster.made)]) == sorted(FOLDERS)


@given(
    kept=st.lists(st.sampled_from(FOLDERS), unique=True),
    claims=st.dictionaries(st.sampled_from(HOSTS), st.sampled_from(FOLDERS)),
    order=st.permutations(HOSTS),
)
def test_a_load_that_runs_on_is_adopted_by_its_host_in_whatever_order_hosts_come(kept, claims, order) -> None:
    cluster = Cluster(kept, claims, set())
    for host in order:
        cluster.turn(host, dies=False)
    for host, claim in claims.items():
        first = next(other for other in claims if claims[other] == claim)
        if claim not in kept and host == first:
            assert cluster.of[host][0].folder == claim
