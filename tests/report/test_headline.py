from __future__ import annotations

import dataclasses

import pytest
from bundles import measured_run, profiled_run

from eaglelab.diagnosis import Diagnosis
from eaglelab.model.explained import Explained
from eaglelab.profile.logfile import read_log
from eaglelab.report.headline import Headline, log_headline, next_step, run_headline
from eaglelab.runs.reading import read_run

EXPLAINED = Explained(
    **dict.fromkeys(field.name for field in dataclasses.fields(Explained)) | {"batch": 4, "load_next": (3, 4)}
)


def diagnosis(severity, certainty, *tries):
    return Diagnosis("code", severity, certainty, "It is so.", try_next=tries)


def of_run(folder, diagnoses=()):
    (evidence,) = read_run(folder)
    return run_headline(evidence, (), diagnoses)


def test_a_sweep_is_its_winner_against_the_baseline_and_what_limits_it(tmp_path):
    found = of_run(measured_run(tmp_path / "r"), [diagnosis("warning", "likely", "try another backend.")])
    assert found.line == (
        "2 steps: 105.6 tok/s, 22.5 % over the baseline; verify limits (88 % of the cycle); next: try another backend"
    )


def test_each_concurrency_has_its_sentence(tmp_path):
    found = of_run(measured_run(tmp_path / "r", concurrency=(1, 2)))
    assert [sentence.split(":")[0] for sentence in found.sentences] == [
        "Concurrency 1, 2 steps",
        "Concurrency 2, 2 steps",
    ]


def test_a_baseline_that_wins_says_that_no_step_count_does(tmp_path):
    assert (
        of_run(measured_run(tmp_path / "r", steps=(5,)))
        .sentences[0]
        .startswith("the baseline: 86.2 tok/s, and no step count is faster")
    )


def test_a_profile_is_its_rate_accept_length_and_limit(tmp_path):
    assert of_run(profiled_run(tmp_path / "r")).sentences == (
        "2 steps, batch size 1: 108.0 tok/s under the probe, accept length 1.90; verify limits (88 % of the cycle)",
    )


def test_decode_lines_tell_their_rate():
    line = (
        "[2026-01-01 10:00:{:02d}] Decode batch, #running-req: 2, #token: 300, token usage: 0.01, accept len: 1.90, "
        "cuda graph: True, gen throughput (token/s): 150.00, #queue-req: 0"
    )
    found = log_headline(read_log([line.format(second) for second in range(1, 9)]), (), ())
    assert found.sentences[0] == ("2 running requests: 150.0 tok/s in all by SGLang's decode lines, accept length 1.90")


@pytest.mark.parametrize(
    ("diagnoses", "explained", "settled", "expected"),
    [
        ([], [], True, None),
        ([diagnosis("note", "certain", "look.")], [], True, "look"),
        ([diagnosis("alarm", "certain", "mend it.")], [EXPLAINED], False, "mend it"),
        ([diagnosis("alarm", "certain")], [], True, None),
        (
            [diagnosis("warning", "possible", "guess")],
            [],
            False,
            "measure more rounds (--repeats), so that the ranking settles",
        ),
        (
            [diagnosis("warning", "possible", "guess")],
            [EXPLAINED],
            True,
            "measure what may be faster: --steps 3,4 at batch size 4",
        ),
        ([diagnosis("note", "certain", "look"), diagnosis("warning", "possible", "guess")], [], True, "guess"),
    ],
)
def test_what_comes_next_is_what_is_surest(diagnoses, explained, settled, expected):
    assert next_step(explained, diagnoses, settled=settled) == expected


def test_without_anything_to_try_the_line_ends_there():
    assert Headline(("It is fast",), None).line == "It is fast"
