"""Measurements of one sweep from several nodes of a cluster, made one set."""

from __future__ import annotations

from eaglelab.profile.bench import BenchResult, RequestSample
from eaglelab.profile.measurement_set import Failed, Measurement, rankings
from eaglelab.profile.nodes import merge_nodes
from eaglelab.profile.setting_key import SettingKey

BASELINE = SettingKey(None)


def measured(steps: int | None, rate: float) -> Measurement:
    samples = [
        RequestSample(100, 0.01, 100 / rate, start_s=number * 100.0, round=number, prompt_tokens=10)
        for number in range(4)
    ]
    return Measurement(BenchResult(steps, 1, tuple(samples), load=f"k{steps}"))


def merge(by_node, failed=()):
    return merge_nodes(by_node, BASELINE, simulated=None, sglang="0.5.9", failed=failed)


def test_of_one_node_all_is_as_it_is() -> None:
    together, spread = merge({"n1": [measured(None, 90.0), measured(2, 99.0)]})
    assert spread is None
    assert [each.result.load for each in together.measurements] == ["kNone", "k2"]


def test_of_two_nodes_each_setting_stands_beside_the_reference_of_its_own() -> None:
    together, spread = merge(
        {"n1": [measured(None, 90.0), measured(2, 99.0)], "n2": [measured(None, 90.9), measured(3, 95.0)]}
    )
    assert spread is not None
    assert {(row.host, row.key.steps, round(row.ratio, 2)) for row in spread.placed} == {
        ("n1", None, 1.0),
        ("n1", 2, 1.1),
        ("n2", None, 1.0),
        ("n2", 3, 1.05),
    }
    assert together.findings[0].code == "reference-across-hosts"


def test_a_setting_of_a_node_without_a_reference_is_in_no_ranking_and_the_reason_is_said() -> None:
    by_node = {"n1": [measured(None, 90.0), measured(2, 99.0)], "n2": [measured(3, 950.0)]}
    together, _ = merge(by_node, [Failed(5, "", "out of memory")])
    assert [(each.steps, each.what) for each in together.failed] == [
        (5, "out of memory"),
        (3, "measured on n2 only, where the baseline could not be: not comparable"),
    ]
    (ranked,) = rankings(together).values()
    assert {entry.key.steps for entry in ranked.entries} == {None, 2}


def test_where_no_node_has_a_reference_the_one_with_most_settings_keeps_its_figures() -> None:
    together, _ = merge({"n1": [measured(1, 90.0)], "n2": [measured(2, 99.0), measured(3, 95.0)]})
    assert [each.steps for each in together.failed] == [1]
    (ranked,) = rankings(together).values()
    assert {entry.key.steps for entry in ranked.entries} == {2, 3}


def test_a_setting_that_another_node_has_too_is_not_lost() -> None:
    together, _ = merge({"n1": [measured(None, 90.0), measured(2, 99.0)], "n2": [measured(2, 98.0)]})
    assert together.failed == ()


def test_nothing_measured_is_an_empty_set() -> None:
    together, spread = merge({}, [Failed(2, "", "out of memory")])
    assert (together.measurements, spread) == ((), None)
    assert [each.steps for each in together.failed] == [2]
