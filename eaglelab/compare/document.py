"""A comparison and its verdicts as plain values: `compare` in the JSON of the command.

    comparisons[]   one a candidate
      reference candidate   label, runs[] (run, host, bundle)
      sentences             as they are printed, the headline first
      settings[]            steps variation batch, differences by metric: reference, candidate, difference (in the metric's
                            unit) and percent, each with value and ci95; verdict (tie, higher, lower, unsure), paired,
                            unit, count
      only_reference only_candidate failed    settings of one side, and those that failed in the candidate
      changes[]             what reference candidate unlike
      warnings[]            sentences
      simulated             null or the label of a simulated GPU
      gates[]               gate metric setting held what difference
    definitions     metric -> sentence

Keys stay; new ones may be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eaglelab.compare.comparison import Comparison
from eaglelab.compare.metrics import METRICS
from eaglelab.compare.verdicts import Verdict
from eaglelab.compare.words import sentences

__all__ = ["document"]


def document(judged: Sequence[tuple[Comparison, Sequence[Verdict]]]) -> dict[str, Any]:
    """All of it, as the module describes."""
    return {
        "comparisons": [_comparison(comparison, verdicts) for comparison, verdicts in judged],
        "definitions": {name: metric.definition for name, metric in METRICS.items()},
    }


def _comparison(comparison: Comparison, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "reference": comparison.reference.to_json(),
        "candidate": comparison.candidate.to_json(),
        "sentences": list(sentences(comparison)),
        "settings": [each.to_json() for each in comparison.settings],
        "only_reference": [place.to_json() for place in comparison.only_reference],
        "only_candidate": [place.to_json() for place in comparison.only_candidate],
        "failed": [failure.to_json() for failure in comparison.failed],
        "changes": [change.to_json() for change in comparison.changes],
        "warnings": list(comparison.warnings),
        "simulated": comparison.simulated,
        "gates": [verdict.to_json() for verdict in verdicts],
    }
