"""docs/measuring.md names every figure, finding, source and column that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eaglelab.profile.bench import BENCH_DEFINITIONS
from eaglelab.profile.eras import _ERAS
from eaglelab.profile.export import CSV_COLUMNS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`\n]+)`", PAGE))


def codes():
    """First arguments of `Finding(...)`, and those that a variable `code` holds."""
    found = set()
    for folder in ("profile", "actions"):
        for path in (ROOT / "eaglelab" / folder).glob("*.py"):
            found |= set(re.findall(r'(?:Finding\(\s*|code = )"([a-z-]+)"', path.read_text(encoding="utf-8")))
    return found


def test_every_finding_is_explained():
    assert {"closure", "tokens", "steps-mismatch", "client-limited"} <= codes()
    assert codes() <= NAMED


@pytest.mark.parametrize("figure", sorted(set(BENCH_DEFINITIONS) - {"accept_length_ci95", "ci95"}))
def test_every_figure_is_defined(figure):
    assert figure in NAMED


def test_every_source_of_the_accept_length_is_in_its_table():
    assert set(_ERAS) <= NAMED


def test_every_column_is_named():
    """`mean_` ... `p99_` and the suites, `_high` and the like stand for their combinations."""
    suites = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_latency_ms")
    built = {f"{figure}{suite}" for suite in suites for figure in NAMED if re.fullmatch(r"[a-z0-9]+_", figure)}
    built |= {f"output_throughput{end}" for end in NAMED if end.startswith("_")}
    assert set(CSV_COLUMNS) <= NAMED | built
    assert set(suites) <= NAMED
