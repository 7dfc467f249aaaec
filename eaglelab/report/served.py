"""What SGLang's own client measured in a run, read back."""

from __future__ import annotations

from eaglelab.profile.measurement_set import Failed
from eaglelab.profile.serving import ServingSet, run_from_json
from eaglelab.runs.evidence import RunEvidence

__all__ = ["served"]


def served(evidence: RunEvidence) -> ServingSet | None:
    """Its settings; None where it measured nothing."""
    found = evidence.serving
    if found is None:
        return None
    return ServingSet(
        runs=tuple(run_from_json(run) for run in found["runs"]),
        simulated=found["simulated"],
        sglang=found["sglang"],
        failed=tuple(Failed(each["steps"], each["variation"], each["what"]) for each in found["failed"]),
        ranked=(evidence.request.get("vars") or {}).get("request_rate") is None,
    )
