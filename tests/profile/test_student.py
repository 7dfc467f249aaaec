from __future__ import annotations

import pytest

from eaglelab.profile.stats import t_975
from eaglelab.profile.student import p_two_sided, t_quantile


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    [
        (0.0, 5, 1.0),
        (1.0, 1, 0.5),  # the arctangent: 1 - 2/pi * atan(1)
        (2**0.5, 2, 0.2928932),  # 1 - t / sqrt(2 + t^2)
        (2.5706, 5, 0.05),
        (3.1693, 10, 0.01),
        (-3.1693, 10, 0.01),
        (1.9600, 10**6, 0.05),
    ],
)
def test_p_equals_the_printed_tables_and_closed_forms(t, degrees, p):
    assert p_two_sided(t, degrees) == pytest.approx(p, abs=2e-5)


def test_p_keeps_its_digits_far_out_in_the_tail():
    assert p_two_sided(1e6, 2) == pytest.approx(1e-12, rel=1e-3)
    assert p_two_sided(float("inf"), 2) == 0
    assert p_two_sided(1e-12, 7) == pytest.approx(1)


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 30, 500])
def test_the_quantile_agrees_with_the_table_of_stats(degrees):
    assert t_quantile(0.05, degrees) == pytest.approx(t_975(degrees), abs=2e-4)


@pytest.mark.parametrize("tail", [0.5, 0.01, 0.05 / 15, 1e-9])
def test_the_quantile_is_the_inverse_of_p(tail):
    assert p_two_sided(t_quantile(tail, 6), 6) == pytest.approx(tail, rel=1e-6)


def test_what_is_no_probability_is_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        t_quantile(0, 5)
    with pytest.raises(ValueError, match="at least one degree"):
        p_two_sided(1.0, 0)
