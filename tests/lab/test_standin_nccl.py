"""The lab's NCCL: it has no way to gather logits where a real one had none."""

from __future__ import annotations

import pytest

from eaglelab.lab.standin.nccl import CaptureError, capture
from eaglelab.sweep.nccl_choice import nccl_conflict


@pytest.mark.parametrize("value", ["", "Ring", "^Tree", "tree,ring", "allreduce:Tree", "Ring;allreduce:Tree"])
def test_graphs_are_captured_where_there_is_a_way(value: str) -> None:
    capture({"NCCL_ALGO": value}, 8)
    assert nccl_conflict({"NCCL_ALGO": value}, {}, world=8, nodes=1, version=None) is None


@pytest.mark.parametrize("value", ["Tree", "tree,NVLSTree", "Ring;allgather:Tree", "^Ring,NVLS,PAT,CollNetDirect"])
def test_a_capture_fails_as_sglangs_does_where_there_is_none(value: str) -> None:
    with pytest.raises(CaptureError) as failed:
        capture({"NCCL_ALGO": value}, 2)
    first, *advice = str(failed.value).splitlines()
    assert first == "Capture cuda graph failed: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"
    assert "mem-fraction-static" in advice[1]
    assert nccl_conflict({"NCCL_ALGO": value}, {}, world=2, nodes=1, version=None) is not None
    capture({"NCCL_ALGO": value}, 1)
