"""What a gate may look like, and what is said of one that cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eaglelab.compare.gate import parse_gate
from eaglelab.compare.metrics import METRICS
from eaglelab.errors import InputError

ANY = (None, False, None, None)


@pytest.mark.parametrize(
    ("text", "metric", "least", "limit", "relative", "where"),
    [
        ("tok_s >= -3%", "tok_s", True, -3, True, ANY),
        ("tok_s>=-3%", "tok_s", True, -3, True, ANY),
        ("  tok_s  >=  -3 %  ", "tok_s", True, -3, True, ANY),
        ("tok_s >= -2", "tok_s", True, -2, False, ANY),
        ("verify_ms <= +0.5", "verify_ms", False, 0.5, False, ANY),
        ("verify_ms <= +.5", "verify_ms", False, 0.5, False, ANY),
        ("ttft_ms <= 0", "ttft_ms", False, 0, False, ANY),
        ("ttft_ms <= 0%", "ttft_ms", False, 0, True, ANY),
        ("accept_length >= -0.05", "accept_length", True, -0.05, False, ANY),
        ("tok_s@2 >= -3%", "tok_s", True, -3, True, (2, False, None, None)),
        ("tok_s @ steps=2 , batch=4 >= -3%", "tok_s", True, -3, True, (2, False, 4, None)),
        ("tok_s@baseline>=-1%", "tok_s", True, -1, True, (None, True, None, None)),
        ("tok_s@batch=1 >= -1%", "tok_s", True, -1, True, (None, False, 1, None)),
        ("tok_s@2,with=NCCL_ALGO=Ring >= -1%", "tok_s", True, -1, True, (2, False, None, "NCCL_ALGO=Ring")),
        ('tok_s@with="A=1 b" >= -1%', "tok_s", True, -1, True, (None, False, None, "A=1 b")),
        ('tok_s@with="" >= -1%', "tok_s", True, -1, True, (None, False, None, "")),
    ],
)
def test_gates_that_can_be_read(text, metric, least, limit, relative, where) -> None:
    gate = parse_gate(text)
    assert (gate.metric.name, gate.least, gate.limit, gate.relative) == (metric, least, limit, relative)
    assert (gate.steps, gate.baseline, gate.batch, gate.variation) == where
    assert gate.text == text


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 0, "it begins with a figure"),
        ("toks >= -3%", 0, "'toks' is no figure"),
        ("tok_s > -3%", 6, ">= or <="),
        ("tok_s == -3%", 6, ">= or <="),
        ("tok_s", 5, ">= or <="),
        ("tok_s >= 3%", 9, "+3 or -3"),
        ("tok_s >= 90", 9, "+90 or -90"),
        ("tok_s >= fast", 9, "a limit"),
        ("tok_s >= nan", 9, "a limit"),
        ("tok_s >= -3% or so", 13, "'or so'"),
        ("tok_s >= -3e9", 11, "'e9'"),
        ("tok_s@ >= -3%", 7, "a setting stands after @"),
        ("tok_s@step=2 >= -3%", 6, "'step' is no term"),
        ("tok_s@2,3 >= -3%", 8, "said twice"),
        ("tok_s@2,baseline >= -3%", 8, "said twice"),
        ("tok_s@batch=four >= -3%", 6, "batch=4"),
        ("tok_s@batch= >= -3%", 6, "batch=4"),
        ("tok_s@steps=² >= -3%", 6, "steps=2"),
    ],
)
def test_a_gate_that_cannot_be_read_is_shown_with_the_place(text: str, at: int, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gate(text)
    message, shown, pointer = caught.value.what.split("\n")
    assert said in message
    assert shown == f"    {text}"
    assert pointer == " " * (4 + at) + "^"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "meant"), [("toks >= -3%", "tok_s"), ("verify <= +1", "verify_ms"), ("tok_s@stesp=2 >= -1%", "steps")]
)
def test_the_nearest_name_is_offered(text: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gate(text)
    assert f"did you mean '{meant}'?" in caught.value.hint


PAGE = (Path(__file__).parents[2] / "docs" / "comparing.md").read_text(encoding="utf-8")


def test_every_gate_of_the_page_can_be_read_and_every_figure_stands_there() -> None:
    gates = re.findall(r"--gate '([^']+)'", PAGE)
    assert len(gates) >= 4
    for gate in gates:
        parse_gate(gate)
    (line,) = [line for line in PAGE.splitlines() if line.startswith("- METRIC: ")]
    assert re.findall(r"`(\w+)`", line) == list(METRICS)
