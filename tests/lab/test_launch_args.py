from __future__ import annotations

import re
from pathlib import Path

import pytest

from eaglelab.lab.standin.args import Release, UsageError, parse, read_config
from eaglelab.lab.standin.spec import resolve, worker_class

SPEC = "--speculative-algorithm EAGLE3 --speculative-num-steps 2 --speculative-eagle-topk 1"
V1, V2 = ("eagle_worker", "EAGLEWorker"), ("eagle_worker_v2", "EAGLEWorkerV2")


def test_flags_are_read_in_every_form_and_unknown_ones_are_kept() -> None:
    args = parse(
        [
            "--model",
            "m",
            "--tp=4",
            "--port",
            "1234",
            "--enable-metrics",
            "--cuda-graph-bs",
            "1",
            "2",
            "4",
            "--trust-remote-code",
        ]
    )
    assert (args.model_path, args.tp_size, args.port, args.enable_metrics) == ("m", 4, 1234, True)
    assert args.served_model_name == "m"
    assert args.other == {"cuda_graph_bs": ["1", "2", "4"], "trust_remote_code": True}
    assert args.as_dict()["trust_remote_code"] is True


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--port 1", "required: --model-path"),
        ("--model-path m --port x", "argument --port: invalid int value: 'x'"),
        ("--model-path m --port", "argument --port: expected one argument"),
        ("stray --model-path m", "unrecognized arguments: stray"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_refused(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(line.split())


@pytest.mark.parametrize(
    ("release", "flags", "env", "chosen"),
    [
        ("0.5.9", "", {}, None),
        ("0.5.9", SPEC, {}, V1),
        ("0.5.9", SPEC, {"SGLANG_ENABLE_SPEC_V2": "1"}, V2),
        ("0.5.2", SPEC, {"SGLANG_ENABLE_SPEC_V2": "1"}, V1),
        ("0.5.12", SPEC, {}, V2),
        ("0.5.12.post1", SPEC, {"SGLANG_ENABLE_SPEC_V2": "0"}, V1),
        ("0.5.12", f"{SPEC} --disable-overlap-schedule", {}, V1),
        ("0.5.13", f"{SPEC} --disable-overlap-schedule", {"SGLANG_ENABLE_SPEC_V2": "0"}, V2),
        ("0.5.23", SPEC, {}, V2),
    ],
)
def test_the_worker_is_the_one_of_the_release(
    release: str, flags: str, env: dict[str, str], chosen: tuple[str, str] | None
) -> None:
    assert worker_class(parse(["--model", "m", *flags.split()]), Release.of(release), env) == chosen


def test_draft_tokens_that_do_not_fit_the_steps_are_adjusted_with_a_warning() -> None:
    args = parse(["--model", "m", *SPEC.split(), "--speculative-num-draft-tokens", "8"])
    resolved, warnings = resolve(args, Release.of("0.5.9"), {})
    assert resolved.speculative_num_draft_tokens == 3
    assert warnings == [
        "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
    ]


@pytest.mark.parametrize(
    ("flags", "env", "notice"),
    [
        ("", {}, "Spec v2 is enabled by default"),
        ("--disable-overlap-schedule", {}, "Spec v1 is used .* because overlap schedule is disabled"),
        ("", {"SGLANG_ENABLE_SPEC_V2": "0"}, "Spec v1 is used .* because SGLANG_ENABLE_SPEC_V2=False"),
    ],
)
def test_releases_with_both_workers_say_which_one_they_use(flags: str, env: dict[str, str], notice: str) -> None:
    args = parse(["--model", "m", *SPEC.split(), *flags.split()])
    _, (warning,) = resolve(args, Release.of("0.5.12"), env)
    assert re.match(notice, warning)
    assert resolve(args, Release.of("0.5.9"), env)[1] == []


def test_without_steps_all_three_are_chosen() -> None:
    args, warnings = resolve(parse(["--model", "m", "--speculative-algorithm", "EAGLE3"]), Release.of("0.5.9"), {})
    chosen = (args.speculative_num_steps, args.speculative_eagle_topk, args.speculative_num_draft_tokens)
    assert (chosen, warnings) == ((3, 1, 4), [])


def test_a_model_without_a_config_is_refused_in_the_words_of_the_library(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"does not appear to have a file named config\.json"):
        read_config(str(tmp_path))


def test_releases_compare_by_number() -> None:
    assert Release.of("0.5.12.post1") >= (0, 5, 12)
    assert Release.of("0.5.9") < Release.of("0.5.10")
