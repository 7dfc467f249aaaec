"""Structured output, top-p, stalls and prefill elsewhere: told by a run's own data, and each silent without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs_of_numbers import measurement, run, setting

from eaglelab.diagnosis import diagnose, facts_of_log, facts_of_run
from eaglelab.profile.logfile import read_log
from eaglelab.runs.evidence import LoadEvidence, RunEvidence

START = (
    "[2026-10-22 10:27:00 TP0] server_args=ServerArgs(model_path='/m/t', speculative_algorithm='EAGLE3', "
    "speculative_num_steps=3, tp_size=4{more})\n"
)
WATCHDOG = "[2026-10-22 10:29:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"


def told(evidence: RunEvidence, **more: Any) -> set[str]:
    return {each.code for each in diagnose(facts_of_run(evidence, **more))}


def of(*flags: str, temperature: float = 0.7, ms: tuple[float, ...] = (2.0, 20.0, 1.0, 9.0)) -> RunEvidence:
    """Verify takes 2 steps of the plain server, other 28 % of the cycle; requests of eaglelab's own."""
    load = LoadEvidence(
        "k2",
        steps=(2,),
        fingerprint={"command": ["python", "-m", "sglang.launch_server", *flags]},
        workloads={1: {"temperature": temperature, "prompts": None, "random_input_len": None}},
    )
    return run(measurement(None, 1.0), measurement(2, 0.8, found=setting(2, ms=ms)), loads=[load])


def preferred(text: str) -> tuple[str, str]:
    return ("--preferred-sampling-params", text)


def test_requests_that_say_nothing_of_it_are_known_to_ask_for_neither() -> None:
    facts = facts_of_run(of())
    assert (facts.whole["top_p"].value, facts.whole["grammar"].value) == (1.0, False)
    assert not {"verify-renormalises", "grammar-stops-overlap"} & told(of())
    assert "other-heavy" in told(of())


def test_a_servers_own_default_of_top_p_is_what_such_requests_are_sampled_with() -> None:
    evidence = of(*preferred('{"top_p": 0.9}'))
    assert "verify-renormalises" in told(evidence)
    fact = facts_of_run(evidence).whole["top_p"]
    assert (fact.value, fact.source) == (0.9, "preferred_sampling_params in the server's command line")


def test_without_sampling_nothing_is_renormalised() -> None:
    assert "verify-renormalises" not in told(of(*preferred('{"top_p": 0.9}'), temperature=0.0))


@pytest.mark.parametrize("name", ["json_schema", "regex", "ebnf", "structural_tag"])
def test_a_grammar_that_the_server_gives_to_every_request_is_told(name: str) -> None:
    found = told(of(*preferred(f'{{"{name}": "x"}}')))
    assert "grammar-stops-overlap" in found
    assert "other-heavy" not in found


@pytest.mark.parametrize("text", ["{", "[1]", "null", '{"top_p": "high", "regex": null}'])
def test_defaults_that_say_nothing_change_nothing(text: str) -> None:
    facts = facts_of_run(of(*preferred(text)))
    assert (facts.whole["top_p"].value, facts.whole["grammar"].value) == (1.0, False)


def test_of_a_server_that_others_send_requests_to_only_its_flag_tells(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(START.format(more=""))
    assert not {"top_p", "grammar"} & facts_of_log(read_log(log)).whole.keys()
    log.write_text(START.format(more=""", preferred_sampling_params='{"top_p": 0.8}'"""))
    assert facts_of_log(read_log(log)).whole["top_p"].value == 0.8
    log.write_text(START.format(more=", preferred_sampling_params={'top_p': 0.7}"))  # as newer releases print it
    assert facts_of_log(read_log(log)).whole["top_p"].value == 0.7


def test_sglangs_own_client_says_neither(tmp_path: Path) -> None:
    load = LoadEvidence("k2", steps=(2,))
    assert facts_of_run(run(loads=[load], serving={"settings": []})).whole["top_p"].value == 1.0
    assert "top_p" not in facts_of_run(run(loads=[load])).whole


def test_a_watchdog_that_found_the_server_stuck_is_told_of_a_log_and_of_a_run(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(START.format(more="") + 2 * WATCHDOG)
    (stuck,) = [each for each in diagnose(facts_of_log(read_log(log))) if each.code == "server-stuck"]
    assert "found the server stuck 2 times" in stuck.sentence
    assert "server-stuck" in told(of(), log=read_log(log))
    log.write_text(2 * WATCHDOG + START.format(more=""))  # of the server before
    assert "server-stuck" not in told(of(), log=read_log(log))
    log.write_text(START.format(more=""))
    assert "server-stuck" not in told(of(), log=read_log(log))


def handed_off(mode: str | None, where: str) -> RunEvidence:
    """The first cycle gives one token and later ones three."""
    one = measurement(2, 0.8, chunk_tokens=(1, 1, *[3] * 33), verifies=34)
    command = ["x", "--disaggregation-mode", mode] if mode and where == "command line" else ["x"]
    info = {"speculative_num_steps": 2, "disaggregation_mode": mode} if where == "server_info" else {}
    flags = {"disaggregation-mode": mode} if mode and where == "inventory" else {}
    inventory = {"server": {"speculative": {"num_steps": 2}, "flags": flags, "env": {}}}
    load = LoadEvidence("k2", steps=(2,), fingerprint={"command": command})
    return run(one, loads=[load], server_info=info, inventory=inventory)


@pytest.mark.parametrize("where", ["command line", "server_info", "inventory"])
def test_prefill_elsewhere_is_known_wherever_the_server_is_told_so(where: str) -> None:
    assert "hidden-states-lost-at-hand-off" in told(handed_off("decode", where))


def test_prefill_elsewhere_is_read_in_the_log_too(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    for mode, said in (("decode", True), ("null", False)):
        log.write_text(START.format(more=f", disaggregation_mode='{mode}'"))
        found = told(handed_off(None, ""), log=read_log(log))
        assert ("hidden-states-lost-at-hand-off" in found) is said


@pytest.mark.parametrize("mode", ["null", None])
@pytest.mark.parametrize("where", ["command line", "server_info", "inventory"])
def test_a_server_that_does_its_own_prefill_hands_nothing_off(where: str, mode: str | None) -> None:
    assert "hidden-states-lost-at-hand-off" not in told(handed_off(mode, where))
