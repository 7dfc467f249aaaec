"""What each figure means, in one sentence. Printed beside the figures, so that a number never travels alone."""

from __future__ import annotations

__all__ = ["DEFINITIONS", "HOST_TIMER_WARNING", "PHASES"]

PHASES = ("draft", "verify", "extend", "other", "total")

DEFINITIONS = {
    "cycle": "one decode iteration of the worker: draft, verify, extend, and other until the next cycle starts",
    "event_ms": "GPU time between CUDA events at the phase boundaries, ms per cycle, kept cycles only",
    "host_ms": (
        "perf_counter on the CPU at the same boundaries, ms per cycle: right for the total, wrong for the split, "
        "because kernels run after the call that launches them has returned"
    ),
    "other": "end of extend to the start of the next cycle: scheduler, sampling, gaps",
    "total": "start of one cycle to the start of the next",
    "share": "mean of the phase / mean of the total, same clock",
    "accept_length": (
        "tokens per verify and request, bonus token included, at least 1.00; "
        "1 + sum(j * correct_hist[j]) / sum(correct_hist) over all decode cycles"
    ),
    "correct_drafts": "accept length - 1: draft tokens accepted per verify and request",
    "survival": "S_k: share of verifies in which at least k drafts were accepted",
    "conditional": "S_k / S_(k-1): given that k - 1 drafts were accepted, how often the k-th was",
    "tok_s_per_request": "tokens of kept cycles / sum of their total event times / batch size",
    "tok_s_in_all": "tokens of kept cycles / sum of their total event times",
    "ci95": "95 % confidence interval of the mean by Student's t, cycles of one run taken as independent",
    "p90": "90th percentile, linear interpolation between neighbours",
    "p95": "95th percentile, the same way",
    "p99": "99th percentile, the same way",
    "skew": "largest minus smallest mean event time among the ranks, ms",
    "host_error_percent": "(host mean - event mean) / event mean * 100; negative: the host timer shows too little",
}

HOST_TIMER_WARNING = (
    "times are host timers: the draft's GPU time is charged to verify and that of re-extend to the next draft; "
    "TOTAL is right, the split is not"
)
