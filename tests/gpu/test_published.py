"""What docs/validation says was measured is what its raw results say, worked out once more by the code as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu.validate.__main__ import main
from gpu.validate.experiments import all_checks, experiments
from gpu.validate.results import Results, as_json

PAGES = Path(__file__).parents[2] / "docs/validation"
EXPERIMENTS = experiments(10_000)
PARTS = {part.name for experiment in EXPERIMENTS for part in experiment.parts}
FIGURES = {
    "2026-11-29-h200-truth": 60,  # less 11 of results in an older form, under names that no part has now
    "2026-11-30-h200-cost": 54,  # less 5 of a part that was run twice
    "2026-11-30-h200-loads": 38,
    "2026-11-30-h200-more": 20,
    "2026-11-30-h200-newest": 18,
    "2026-11-30-h200-newest/sglang-0.5.17": 22,
    "2026-11-30-h200-newest/tp2": 21,
}


def figures(checks: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, tuple[str, bool | None]]]:
    """The last digit of how many quads would do hangs on more decimals than the raw results have."""
    for each in (check for found in checks.values() for check in found):
        yield each["figure"], (re.sub(r"\d+ quads like these", "quads like these", each["measured"]), each["met"])


@pytest.mark.parametrize("page", FIGURES)
def test_the_published_figures_are_those_of_the_raw_results(page: str) -> None:
    published = dict(figures(json.loads((PAGES / page / "checks.json").read_text())))
    again = dict(figures(as_json(all_checks(EXPERIMENTS, Results(PAGES / page).load(PARTS)))))
    both = published.keys() & again.keys()
    assert {name: again[name] for name in both} == {name: published[name] for name in both}
    assert len(both) == FIGURES[page]


def test_every_folder_of_results_is_looked_at() -> None:
    assert {str(file.parent.relative_to(PAGES)) for file in PAGES.rglob("checks.json")} == FIGURES.keys()


def test_results_that_are_there_are_told_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", str(PAGES / "2026-11-30-h200-newest")]) == 0
    shown = capsys.readouterr().out
    assert "-0.45 % (-0.93 to +0.02; 800 pairs; +31 us a cycle) | yes |" in shown
    assert main(["--results", str(PAGES / "2026-11-30-h200-newest"), "--only", "time-wall-*"]) == 0
    shown = capsys.readouterr().out
    assert "pairs" not in shown
    assert "sum of phases" in shown
    assert main(["--results", str(PAGES / "2026-11-30-h200-newest/tp2")]) == 1, "a goal was missed"


def test_a_folder_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checks.json").write_text("{}")
    assert main(["--results", str(tmp_path)]) == 2
    assert (
        "no results of such parts are there (PART.json, as in OUT/results, docs/validation/*/;"
        in capsys.readouterr().err
    )
    for text, what in (("{", "time-wall-v1.json: Expecting"), ("3", "time-wall-v1.json: "), ("{}", "KeyError")):
        (tmp_path / "time-wall-v1.json").write_text(text)
        assert main(["--results", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert "a result there is damaged, or not as this version writes it" in said
        assert what in said
    with pytest.raises(SystemExit):
        main(["--results", str(tmp_path / "nowhere")])
    assert "there is no such folder" in capsys.readouterr().err


def test_a_run_needs_to_know_where_results_go_and_a_list_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--lab"])
    assert "--out is needed" in capsys.readouterr().err
    assert main(["--list", "--only", "truth-v2-*"]) == 0
    assert "truth-v2-p0.6-b1" in capsys.readouterr().out
