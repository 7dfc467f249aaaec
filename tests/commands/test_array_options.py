"""sweep --array: what is refused before a host is contacted, and what the inventory says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import FakeHost

SLURM = "    server: {launcher: slurm, slurm: {partition: h200%s}}"


@pytest.fixture
def cluster(own: Path, fakes: dict[str, FakeHost]) -> dict[str, FakeHost]:
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  b: {}", "  b:\n" + SLURM % ""))
    return fakes


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--host", "a", "--array"], "host 'a' runs its servers by the launcher process, which has no jobs"),
        (["--host", "a,b", "--array"], "an array of jobs is one cluster's"),
        (["--host", "b", "--array", "--spread"], "a sweep is spread over hosts or an array of jobs"),
        (["--host", "b", "--array", "--client", "sglang"], "SGLang's own client drives no array"),
        (["--host", "b", "--array", "--keep"], "each job of an array ends once it is measured"),
        (["--host", "b", "--array", "0"], "0 is too small: 1 or more"),
        (["--host", "b", "--array", "many"], "'many' is not a whole number"),
    ],
)
def test_what_cannot_be_an_array_is_refused_before_a_host_is_contacted(invoke, cluster, options, what: str) -> None:
    done = invoke("sweep", "--steps", "1,2", *options, "--json")
    assert done.code == 2
    assert done.json["error"]["what"] == what
    assert done.json["error"]["where"] in ("--array", "b")
    assert cluster["a"].calls == cluster["b"].calls == []


@pytest.mark.parametrize(("more", "place"), [(", array: 0", "array"), (", idle: 0", "idle"), (", idle: soon", "idle")])
def test_a_wrong_value_in_the_inventory_is_named(invoke, own: Path, more: str, place: str) -> None:
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  b: {}", "  b:\n" + SLURM % more))
    done = invoke("sweep", "--host", "b", "--array", "--json")
    assert done.code == 2
    assert place in done.json["error"]["what"]


def test_the_playbooks_of_an_array_are_those_that_a_resumed_run_must_find_again(invoke, own: Path) -> None:
    assert (own / "playbooks/array.yaml").exists()
    (own / "playbooks/array-job.yaml").unlink()
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  b: {}", "  b:\n" + SLURM % ""))
    done = invoke("sweep", "--host", "b", "--array", "--json")
    assert done.code == 2
    assert "there is no playbook 'array-job'" in done.json["error"]["what"]
