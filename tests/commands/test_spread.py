"""sweep --spread on hosts in memory: loads dealt out, hosts that die or differ, one set of figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_host import WORKER, WORKER_PATH, FakeHost

from eaglelab.remote.pipe import LinkLost

SMALL = ("--num-prompts", "4", "--repeats", "4", "--output-len", "64", "--json")
STEPS = ("--steps", "1,2,3,5", "--separate-loads")


@pytest.fixture
def three(own: Path, fakes: dict[str, FakeHost]) -> dict[str, FakeHost]:
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  b: {}", "  b: {}\n  c: {}"))
    fakes["c"] = FakeHost()
    for fake in fakes.values():
        fake.facts["sglang_version"] = "0.5.12.dev1"
    return fakes


def loads(fake: FakeHost) -> list[str]:
    return [load.id.removesuffix("-c1") for load in fake.begun]


def as_found(fakes: dict[str, FakeHost]) -> bool:
    return all(fake.files[WORKER_PATH] == WORKER and not fake.alive for fake in fakes.values())


def test_each_host_measures_the_reference_and_every_other_load_is_made_once(invoke, own, three) -> None:
    done = invoke("sweep", "--host", "a,b,c", "--spread", *STEPS, *SMALL)
    assert done.code == 0, done.err
    made = {name: loads(fake) for name, fake in three.items()}
    assert {found[0] for found in made.values()} == {"baseline"}
    assert sorted(load for found in made.values() for load in found[1:]) == ["k1", "k2", "k3", "k5"]
    assert as_found(three)


def test_all_figures_are_one_set_which_is_ranked_and_names_the_host_of_each(invoke, own, three) -> None:
    done = invoke("sweep", "--host", "a,b,c", "--spread", *STEPS, *SMALL)
    found = json.loads((Path(done.json["bundle"]) / "measurements.json").read_text())
    assert {(each["steps"], each["profiled"]) for each in found["measurements"]} >= {(1, False), (2, False), (5, False)}
    assert all(each["load"].split("/")[0] in "abc" for each in found["measurements"])
    (ranked,) = found["rankings"]
    assert {each["steps"] for each in ranked["ranking"]["settings"]} == {None, 1, 2, 3, 5}
    assert ranked["ranking"]["loads"] == 5
    assert any(finding["code"] == "reference-across-hosts" for finding in found["findings"])
    assert "the settings come from 3 hosts" in " ".join(done.err.split())
    spread = done.json["spread"]
    assert spread["reference"] == {"steps": None, "variation": ""}
    assert spread["left"] == []
    assert sorted(row["host"] for row in spread["settings"] if row["steps"] is None) == ["a", "b", "c"]


def test_a_host_that_dies_gives_its_load_to_the_others(invoke, own, three) -> None:
    start = three["b"].op_load_start

    def dies(id: str, run: str, spec: Any, requests: Any) -> Any:  # noqa: A002
        if id.startswith("k"):
            three["b"].fail["load_start"] = three["b"].fail["status"] = LinkLost("gone", where="b")
            raise LinkLost("gone", where="b")
        return start(id, run, spec, requests)

    three["b"].op_load_start = dies
    done = invoke("sweep", "--host", "a,b,c", "--spread", *STEPS, *SMALL)
    assert done.code in (1, 3), done.err
    assert done.json["hosts"]["b"]["ok"] is False
    made = sorted(load for name in "ac" for load in loads(three[name])[1:])
    assert made == ["k1", "k2", "k3", "k5"]
    assert done.json["spread"]["left"] == []
    assert {row["steps"] for row in done.json["spread"]["settings"]} == {None, 1, 2, 3, 5}


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"gpus": [{"index": "0", "name": "another GPU"}]}, "GPUs: 1 x simulated GPU"),
        ({"sglang_version": "0.5.13.dev1"}, "SGLang: 0.5.12.dev1 on a and c, 0.5.13.dev1 on b"),
    ],
)
def test_hosts_that_are_not_equal_are_refused_before_a_load_is_spent(invoke, own, three, facts, what: str) -> None:
    three["b"].facts.update(facts)
    done = invoke("sweep", "--host", "a,b,c", "--spread", *STEPS, *SMALL)
    assert done.code == 1
    assert what in done.json["hosts"]["a"]["error"]["what"]
    assert [loads(fake) for fake in three.values()] == [[], [], []]
    assert all("start" not in fake.ops() for fake in three.values())


def test_a_host_that_cannot_be_read_is_left_out_and_the_others_measure_all(invoke, own, three) -> None:
    three["c"].fail["facts"] = LinkLost("no route", where="c")
    done = invoke("sweep", "--host", "a,b,c", "--spread", *STEPS, *SMALL)
    assert done.code == 1
    assert sorted(load for name in "ab" for load in loads(three[name])[1:]) == ["k1", "k2", "k3", "k5"]
    assert len(done.json["spread"]["settings"]) == 6


def test_a_setting_that_fails_fails_on_one_host_only(invoke, own, three) -> None:
    for fake in three.values():
        fake.load_faults["k3"] = "server dies"
    done = invoke("sweep", "--host", "a,b,c", "--spread", *STEPS, *SMALL)
    assert done.code == 1
    assert sum(load == "k3" for fake in three.values() for load in loads(fake)) == 1
    found = json.loads((Path(done.json["bundle"]) / "measurements.json").read_text())
    assert [each["steps"] for each in found["failed"]] == [3]
    assert as_found(three)


def test_a_check_shows_the_plan_and_measures_nothing(invoke, own, three) -> None:
    done = invoke("sweep", "--host", "a,b,c", "--spread", "--check", *STEPS, *SMALL)
    assert done.code == 0, done.err
    assert [loads(fake) for fake in three.values()] == [[], [], []]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--host", "a"], "one host is nothing to spread over"),
        (["--host", "a,b", "--client", "sglang"], "SGLang's own client is not spread"),
    ],
)
def test_what_cannot_be_spread_is_refused_before_a_host_is_contacted(invoke, own, three, options, what: str) -> None:
    done = invoke("sweep", "--spread", *STEPS, *options, "--json")
    assert done.code == 2
    assert done.json["error"]["what"] == what
    assert three["a"].calls == []


@pytest.mark.parametrize("dying", ["abc", "a"])
def test_where_the_reference_dies_of_its_step_counts_each_of_them_is_measured_all_the_same(
    invoke, own, three, dying: str
) -> None:
    for name in dying:
        three[name].dies_with.add("--speculative-adaptive")
    done = invoke("sweep", "--host", "a,b,c", "--spread", "--no-baseline", "--steps", "1,2,3", *SMALL)
    assert done.code == 0, done.err
    made = {name: loads(fake) for name, fake in three.items()}
    assert {made[name][0] for name in dying} == {"k1"}
    rest = sorted(load for name in dying for load in made[name][1:])
    assert rest == ["k2", "k3"] or (dying == "a" and set(rest) <= {"k2", "k3"})
    assert all(made[name] == ["k1-2-3"] for name in {*"abc"} - {*dying})  # what it measured is not loaded again
    found = json.loads((Path(done.json["bundle"]) / "measurements.json").read_text())
    assert {each["steps"] for each in found["measurements"]} == {1, 2, 3}
    assert done.json["spread"]["left"] == []
    assert as_found(three)
