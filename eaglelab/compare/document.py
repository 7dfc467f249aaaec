"""A comparison and its verdicts as plain values: `compare` in the JSON of the command.

    comparisons[]   one a candidate
      reference candidate   label, runs[] (run, host, bundle)
      sentences             as they are printed, the headline first
      settings[]            steps variation batch, differences by metric: reference, candidate, difference (in the metric's
                            unit) and percent, each with value and ci95; verdict (tie, higher, lower, unsure), paired,
                            unit, count
      only_reference only_candidate failed    settings of one side, and those that failed in the candidate
      changes[]             what reference candidate unlike
      findings[]            on the difference, and what may explain the differences: of (both, reference, candidate) and a diagnosis as in report
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
from eaglelab.compare.explained import Explanation
from eaglelab.compare.metrics import METRICS
from eaglelab.compare.verdicts import Verdict
from eaglelab.compare.words import sentences

__all__ = ["document"]


def document(
    judged: Sequence[tuple[Comparison, Sequence[Verdict]]], why: Sequence[Sequence[Explanation]]
) -> dict[str, Any]:
    """All of it, as the module describes. `why`: the explanations of each comparison."""
    return {
        "comparisons": [_comparison(*each, explained) for each, explained in zip(judged, why, strict=True)],
        "definitions": {name: metric.definition for name, metric in METRICS.items()},
    }


def _comparison(comparison: Comparison, verdicts: Sequence[Verdict], why: Sequence[Explanation]) -> dict[str, Any]:
    return {
        "reference": comparison.reference.to_json(),
        "candidate": comparison.candidate.to_json(),
        "sentences": list(sentences(comparison)),
        "settings": [each.to_json() for each in comparison.settings],
        "only_reference": [place.to_json() for place in comparison.only_reference],
        "only_candidate": [place.to_json() for place in comparison.only_candidate],
        "failed": [failure.to_json() for failure in comparison.failed],
        "changes": [change.to_json() for change in comparison.changes],
        "findings": [each.to_json() for each in why],
        "warnings": list(comparison.warnings),
        "simulated": comparison.simulated,
        "gates": [verdict.to_json() for verdict in verdicts],
    }
