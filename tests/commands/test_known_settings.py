"""Flags and variables of a sweep that a release does not know, on hosts in memory."""

from __future__ import annotations

from typing import Any

import pytest
from test_on_fake_hosts import CHANGING

SMALL = ("--num-prompts", "2", "--repeats", "2", "--output-len", "32", "--no-probe", "--no-baseline", "--json")
FLAG, VARIABLE = ("--server-arg", "page-sise=1,16"), ("--env", "SGLANG_ENABLE_SPEC_V3=0,1")


def test_a_flag_that_the_release_does_not_know_is_refused_before_a_load_is_spent(
    invoke: Any, own: Any, fakes: Any
) -> None:
    fakes["a"].unknown = {"page-sise": "page-size"}
    done = invoke("sweep", "--steps", "2", *FLAG, *SMALL)
    assert done.code == 1
    said = "SGLang 0.5.9.dev1 does not know --page-sise (did you mean --page-size?): its server would end as it starts"
    assert done.json["error"]["what"] == said
    assert "correct --server-arg and --env" in done.json["error"]["hint"]
    assert not CHANGING & set(fakes["a"].ops())


def test_a_variable_that_nothing_there_reads_is_refused_too(invoke: Any, own: Any, fakes: Any) -> None:
    fakes["a"].unknown = {"SGLANG_ENABLE_SPEC_V3": None}
    done = invoke("sweep", "--steps", "2", *VARIABLE, *SMALL)
    assert done.code == 1
    assert "nothing in SGLang 0.5.9.dev1 reads SGLANG_ENABLE_SPEC_V3: every value" in done.json["error"]["what"]
    assert not CHANGING & set(fakes["a"].ops())


def test_with_anyway_it_is_said_and_measured(invoke: Any, own: Any, fakes: Any) -> None:
    fakes["a"].unknown = {"page-sise": "page-size"}
    done = invoke("sweep", "--steps", "2", *FLAG, "--anyway", *SMALL)
    assert done.code == 0, done.err
    assert "tried all the same: SGLang 0.5.9.dev1 does not know --page-sise" in done.err
    assert len(fakes["a"].begun) == 2


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_what_it_knows_is_measured(invoke: Any, own: Any, fakes: Any, check: tuple[str, ...]) -> None:
    done = invoke("sweep", "--steps", "2", "--server-arg", "page-size=1,16", *VARIABLE, *check, *SMALL)
    assert done.code == 0, done.err
    assert fakes["a"].ops().count("look_up") == 1


def test_a_check_refuses_it_as_well(invoke: Any, own: Any, fakes: Any) -> None:
    fakes["a"].unknown = {"page-sise": "page-size"}
    assert invoke("sweep", "--steps", "2", *FLAG, "--check", *SMALL).code == 1


def test_nothing_is_looked_up_where_nothing_is_varied_or_the_release_lies_in_an_image(
    invoke: Any, own: Any, fakes: Any
) -> None:
    assert invoke("sweep", "--steps", "2", *SMALL).code == 0
    fakes["a"].facts["image"] = "sha256:0"
    assert invoke("sweep", "--steps", "2", *FLAG, *SMALL).code == 0
    assert "look_up" not in fakes["a"].ops()
