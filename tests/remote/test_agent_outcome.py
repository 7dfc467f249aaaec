"""The times in a request's record: however they round, what came before stays before."""

from __future__ import annotations

from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from eaglelab.remote.agent.exchange import Exchange
from eaglelab.remote.agent.outcome import outcome

gaps = st.floats(0, 1e-3)


@given(began=st.floats(0, 1e7), waited=gaps, steps=st.lists(gaps, min_size=1, max_size=5), ending=gaps)
@example(began=0.0, waited=2.16e-05, steps=[1.0085e-03], ending=0.0)  # rounded each by itself: 1009 against 1008 us
def test_no_chunk_is_recorded_after_the_end_of_its_request(
    began: float, waited: float, steps: list[float], ending: float
) -> None:
    exchange = Exchange(0, b"", began + waited)
    at = exchange.began
    for step in steps:
        at += step
        exchange.times.append(at)
    exchange.tokens = array("q", range(len(steps)))
    exchange.ended = at + ending
    record = outcome(exchange, {"body": {}}, began)
    times = [time for time, _ in record["chunks"]]
    assert [0.0, *times] == sorted([0.0, *times])
    assert times[-1] <= round(record["ended"] - record["started"], 6)
    assert abs(times[-1] - (at - exchange.began)) < 1.1e-6
