"""What a run found, in a line."""

from __future__ import annotations

from eaglelab.runs.headline import headline


def test_a_profile_has_its_speed_and_its_limit() -> None:
    setting = {
        "steps": 2,
        "batch_size": 1,
        "tok_s": {"in_all": 94.04},
        "acceptance": {"accept_length": 1.745},
        "limit": {"phase": "verify"},
    }
    found = headline({"ok": True, "profile": {"settings": [setting]}})
    assert found == "2 steps, batch 1: 94.0 tok/s, accept length 1.75, verify limits"


def test_figures_that_cannot_be_ranked_are_listed() -> None:
    measured = {"steps": None, "batch": 4, "profiled": False, "summary": {"tok_s_in_all": 300.04}}
    found = headline({"measurements": [measured, {**measured, "profiled": True}], "rankings": []})
    assert found == "no speculation: 300.0 tok/s at concurrency 4"


def test_rankings_of_several_concurrencies_are_told_apart() -> None:
    rankings = [{"batch": 1, "sentences": ["One."]}, {"batch": 4, "sentences": ["Four."]}]
    assert headline({"rankings": rankings}) == "[1] One. [4] Four."
    assert headline({"rankings": rankings[:1]}) == "One."


def test_figures_of_sglangs_client_are_listed() -> None:
    served = {"steps": 2, "concurrency": 1, "figures": {"output_throughput": {"mean": 81.06}}}
    assert headline({"settings": [served]}) == "2 steps: 81.1 tok/s at concurrency 1"


def test_a_run_without_figures_is_done() -> None:
    assert headline({"ok": True}) == "done"
