"""Which releases and flags let one load serve several step counts."""

from __future__ import annotations

import pytest

from eaglelab.host import Speculative
from eaglelab.sweep.one_load import adaptive_config, release, why_not_one_load

EAGLE3 = Speculative(draft_model_path="/draft")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.9", (0, 5, 9)),
        ("0.5.12.post1", (0, 5, 12)),
        ("v0.5.13rc1", (0, 5, 13)),
        ("0.5.16.dev20+gabc", (0, 5, 16)),
        ("unknown", None),
        ("0.5", None),
    ],
)
def test_a_release_is_its_first_three_numbers(version: str, expected: tuple[int, int, int] | None) -> None:
    assert release(version) == expected


@pytest.mark.parametrize("version", ["0.5.12", "0.5.12.post1", "0.5.13", "0.5.16", "0.5.23", "0.6.0", "1.0.0"])
def test_releases_from_0_5_12_on_serve_all_step_counts_in_one_load(version: str) -> None:
    assert why_not_one_load(version, EAGLE3, {}) is None


@pytest.mark.parametrize("version", ["0.4.6", "0.5.9", "0.5.10.post1"])
def test_older_releases_need_a_load_each_and_the_reason_names_the_release(version: str) -> None:
    why = why_not_one_load(version, EAGLE3, {})
    assert why is not None
    assert version in why


def test_0_5_11_can_only_without_overlap() -> None:
    assert "disable-overlap-schedule" in str(why_not_one_load("0.5.11", EAGLE3, {}))
    assert why_not_one_load("0.5.11", EAGLE3, {"disable-overlap-schedule": True}) is None


def test_an_unknown_release_gets_a_load_each() -> None:
    assert "unknown" in str(why_not_one_load("unknown", EAGLE3, {}))


def test_what_sglang_itself_refuses_is_refused_here_before_a_load_is_spent() -> None:
    tree = Speculative(draft_model_path="/draft", eagle_topk=4, num_draft_tokens=16)
    assert "top-k" in str(why_not_one_load("0.5.16", tree, {}))
    standalone = Speculative(draft_model_path="/draft", algorithm="STANDALONE")
    assert "STANDALONE" in str(why_not_one_load("0.5.16", standalone, {}))
    assert "enable-dp-attention" in str(why_not_one_load("0.5.16", EAGLE3, {"enable-dp-attention": True}))
    assert why_not_one_load("0.5.16", EAGLE3, {"enable-dp-attention": False}) is None


def test_the_config_is_flat_up_to_0_5_12_and_keyed_by_batch_size_after() -> None:
    flat = adaptive_config("0.5.12.post1", (5, 1, 2))
    assert flat["candidate_steps"] == [1, 2, 5]
    assert flat["warmup_batches"] == 10**9
    assert adaptive_config("0.5.13", (5, 1, 2)) == {"1": flat}
