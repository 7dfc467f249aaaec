"""The model against figures that others published, and against our own of an H200; docs/model.md states the errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from figures import CASES, WITH_LENGTHS, chosen, error_rows, h200, off, table, whole_rows

from eaglelab.model.from_run import seen_of_run
from eaglelab.model.prediction import predict
from eaglelab.profile.measurement_set import from_json
from eaglelab.runs.evidence import RunEvidence

PUBLIC = [name for name in WITH_LENGTHS if not name.startswith("H200")]


def best(rates: dict[int, float]) -> int:
    return max(rates, key=lambda steps: rates[steps])


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("way", ["ends", "three"])
def test_the_fastest_count_of_a_public_table_is_found(name: str, way: str) -> None:
    found = table(name)
    errors = off(found, chosen(sorted(found))[way])
    measured = {steps: each.rate(1) for steps, each in found.items()}
    assert best({steps: rate * (1 + errors[steps]) for steps, rate in measured.items()}) == best(measured)


@pytest.mark.parametrize(("name", "worst"), [("A/E3", 0.040), ("A/E1", 0.010), ("B", 0.041), ("C", 0.042)])
def test_both_ends_of_a_public_table_predict_what_is_between_to_about_four_percent(name: str, worst: float) -> None:
    """Two are a little over the 4 % that was hoped for; a curve that suits those (it sags) misses the others (they bulge)."""
    found = table(name)
    assert max(map(abs, off(found, chosen(sorted(found))["ends"]).values())) <= worst


@pytest.mark.parametrize("name", WITH_LENGTHS)
def test_three_counts_of_a_table_predict_it_to_four_percent(name: str) -> None:
    found = table(name)
    assert max(map(abs, off(found, chosen(sorted(found))["three"]).values())) <= 0.04


@pytest.mark.parametrize("worker", ["v2", "v1"])
def test_three_counts_from_two_on_predict_an_h200_to_two_and_a_half_percent(worker: str) -> None:
    """A straight line through 2 and 8 steps is up to 7 % off where the host sets the pace."""
    found = h200(worker)
    assert max(map(abs, off(found, (2, 3, 8)).values())) <= 0.025
    if worker == "v2":
        assert predict(1, [found[steps] for steps in (2, 3, 8)]).cycle.shape == "floor"
        assert 0.07 < max(map(abs, off(found, (2, 8)).values())) < 0.08


@pytest.mark.parametrize("worker", ["v2", "v1"])
@pytest.mark.parametrize("calibrated", [(2, 8), (2, 3, 8), (2, 5, 8)])
def test_the_fastest_count_of_an_h200_is_found_or_asked_for(worker: str, calibrated: tuple[int, ...]) -> None:
    found = h200(worker)
    prediction = predict(1, [found[steps] for steps in calibrated])
    fastest = max(found, key=lambda steps: found[steps].rate(1))
    assert fastest in calibrated or prediction.at(fastest).high >= prediction.at(prediction.best).tok_s


def page_rows() -> list[str]:
    """All rows of both tables."""
    measured = from_json((CASES / "lab-sweep.json").read_text(encoding="utf-8"))
    run = RunEvidence("r", "sim", "sweep", Path(), True, measured=measured)
    lab = {batch: {each.steps: each for each in seen_of_run(run, batch)} for batch in (1, 4)}
    figures = {
        "H200 v2": (1, h200("v2")),
        "H200 v1": (1, h200("v1")),
        "lab, 1 request": (1, lab[1]),
        "lab, 4 requests": (4, lab[4]),
    }
    ways = {name: [(2, 8), (2, 3, 8), (2, 5, 8)] if "H200" in name else [(2, 10), (2, 5, 10)] for name in figures}
    return [*error_rows(), *whole_rows(figures, ways)]


def test_the_page_states_the_errors_that_the_model_makes(project: Path) -> None:
    """After a change of the model: `PYTHONPATH=.:tests/model python tests/model/test_public_tables.py` prints the rows."""
    page = (project / "docs/model.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in page_rows() if row not in page] == []


if __name__ == "__main__":
    sys.stdout.write("\n".join(page_rows()) + "\n")
