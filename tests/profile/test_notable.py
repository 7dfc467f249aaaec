"""Lines that explain a slow server, and what other programs print of accept lengths."""

from __future__ import annotations

from itertools import permutations

import pytest

from eaglelab.profile.logfile import read_log
from eaglelab.profile.notable import NOTABLE, NOTABLE_PARTS
from eaglelab.profile.tool_lines import TOKENS_WORD, TOOL_WORDS, VERIFIES_WORD

START = "server_args=ServerArgs(model_path='/m')"
RETRACTED = (
    "[2026-09-01 10:00:0{} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, "
    "#new_tokens_gained: 40, #new_token_ratio: 0.5 -> 0.7"
)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (RETRACTED.format(1), "kv-retraction"),
        ("[TP0] Decode out of memory happened. #retracted_reqs: 2, #new_token_ratio: 0.2 -> 0.9", "kv-retraction"),
        ("torch.OutOfMemoryError: Tried to allocate 2 GiB", "out-of-memory"),
        ("RuntimeError: Decode out of memory. Try to lower your batch size.", "out-of-memory"),
        ("Overlap scheduler is disabled when spec v2 is off or using unsupported algorithm", "overlap-disabled"),
        ("The overlap scheduler and mixed chunked prefill are disabled because of eagle", "overlap-disabled"),
        ("Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone", "overlap-disabled"),
        ("Spec v1 is used for eagle/eagle3/standalone speculative decoding because of x.", "spec-v1"),
        ("Spec v2 is enabled by default for eagle/eagle3/standalone speculative decoding.", "spec-v2"),
        ("Custom allreduce is disabled because this process group spans nodes", "custom-all-reduce-disabled"),
        ("Adaptive spec params updated: steps 3 -> 5 (ema_accept_len=3.20)", "adaptive-steps-changed"),
        ("Exception: Capture cuda graph failed: no memory", "graph-capture-failed"),
        ("Capture draft cuda graph end. Time elapsed: 2.31 s. mem usage=0.40 GB.", "draft-graph-captured"),
        ("Overriding the draft model's max_position_embeddings to 32768.", "draft-context-overridden"),
        ("Grammar accept_token failed for req 1 with token 5: x", "grammar-refused-token"),
        ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "watchdog"),
    ],
)
def test_a_notable_line_is_found_under_its_code(line, code):
    (found,) = read_log(["noise\n", f"{line}\n"]).notable
    assert (found.code, found.start, found.line, found.text, found.count) == (code, 0, 2, line, 1)


def test_lines_of_one_code_are_counted_per_server_start():
    report = read_log([RETRACTED.format(1), RETRACTED.format(2), START, RETRACTED.format(3)])
    assert [(line.start, line.line, line.count) for line in report.notable] == [(0, 1, 2), (1, 4, 1)]
    assert report.to_json()["notable"][0]["text"] == RETRACTED.format(1)


def test_a_healthy_log_has_no_notable_line():
    assert read_log(["[2026] Prefill batch, #new-seq: 1", "INFO: 200 OK"]).notable == ()


def test_no_word_hides_another():
    words = [VERIFIES_WORD, TOKENS_WORD, *TOOL_WORDS, *NOTABLE_PARTS]
    assert not [(one, other) for one, other in permutations(words, 2) if one in other]


@pytest.mark.parametrize(
    ("lines", "source", "count", "accept_length"),
    [
        (
            [
                "INFO SpecDecoding metrics: Mean acceptance length: 2.62, Accepted throughput: 15.60 tokens/s",
                "INFO SpecDecoding metrics: Mean acceptance length: 2.38, Accepted throughput: 15.60 tokens/s",
            ],
            "vllm",
            2,
            2.5,
        ),
        (["Accept length:                           2.31      "], "bench_serving", 1, 2.31),
        (["acc_length=3.01", "speed=273.43 token/s"], "send_one", 1, 3.01),
        (
            [
                "Finish: obj=x, out={'meta_info': {'completion_tokens': 101, 'spec_verify_ct': 40}}",
                "Finish: obj=x, out={'meta_info': {'completion_tokens': 21, 'spec_verify_ct': 20}}",
                "Finish: obj=x, out={'meta_info': {'completion_tokens': 21, 'spec_verify_ct': 0}}",
            ],
            "request-log",
            2,
            2.0,
        ),
    ],
)
def test_accept_lengths_of_other_programs_are_read(lines, source, count, accept_length):
    report = read_log(lines)
    (figure,) = report.tools
    assert (figure.source, figure.lines) == (source, count)
    assert figure.accept_length == pytest.approx(accept_length)
    assert not report.empty


def test_the_search_finds_every_notable_word():
    words = [word for words in NOTABLE.values() for word in words]
    assert [word for word in words if not any(part in word for part in NOTABLE_PARTS)] == []
    assert [part for part in NOTABLE_PARTS if not any(part in word for word in words)] == []
