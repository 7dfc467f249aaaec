"""Threads that keep in step: meetings, one failure for all, the next try, who is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from eaglelab.errors import HostError
from eaglelab.nodes.lockstep import Apart, Lockstep


def idle() -> None:
    """Nothing to be done meanwhile."""


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """What each came to: its result, or what it raised."""
    found: list[Any] = [None] * len(works)

    def run(at: int, work: Callable[[], Any]) -> None:
        try:
            found[at] = work()
        except BaseException as error:  # noqa: BLE001 - it is the result
            found[at] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive(), "one waits for ever"
    return found


def test_all_hear_what_each_has_said() -> None:
    step = Lockstep(("a", "b"))
    found = in_threads(*(lambda name=name: step.meet(name, "plan", name.upper(), idle) for name in "ab"))
    assert found == [{"a": "A", "b": "B"}] * 2
    assert [list(each) for each in found] == [["a", "b"]] * 2, "by rank, whoever came first"


def test_nobody_begins_before_all_have_come() -> None:
    step, order = Lockstep(("a", "b")), []
    late = threading.Event()

    def slow() -> None:
        late.wait(10)
        order.append("b has come")
        step.meet("b", "patch", None, idle)

    def quick() -> None:
        step.meet("a", "patch", None, late.set)
        order.append("a begins")

    in_threads(slow, quick)
    assert order == ["b has come", "a begins"]


def test_a_failure_ends_those_who_wait_and_those_who_come_later() -> None:
    step = Lockstep(("a", "b", "c"))
    waiting = threading.Event()

    def fails() -> None:
        waiting.wait(10)
        step.fail("b", HostError("no room"))

    waits, _ = in_threads(lambda: step.meet("a", "patch", None, waiting.set), fails)
    with pytest.raises(Apart, match="ended, because b failed"):
        step.meet("c", "patch", None, idle)
    assert isinstance(waits, Apart)
    assert step.failure is not None
    assert (step.failure.name, step.failure.out) == ("b", False)


def test_a_meeting_that_all_have_come_to_holds_though_one_fails_right_after_it() -> None:
    step = Lockstep(("a", "b"))
    waiting = threading.Event()

    def meets_and_fails() -> None:
        waiting.wait(10)
        with step._changed:  # so that `a` cannot look in between
            step._meetings[0].words["b"] = "B"
            step.fail("b", HostError("afterwards"))

    met, _ = in_threads(lambda: step.meet("a", "plan", "A", waiting.set), meets_and_fails)
    assert met == {"a": "A", "b": "B"}


def test_the_first_failure_is_the_one() -> None:
    step = Lockstep(("a", "b"))
    step.fail("b", HostError("first"))
    step.fail("a", HostError("second"))
    assert step.failure is not None
    assert str(step.failure.error) == "first"


def test_the_next_try_begins_once_all_have_put_back_what_was_left() -> None:
    step = Lockstep(("a", "b"))
    step.fail("a", HostError("died"))
    in_threads(*(lambda name=name: step.again(name, idle) for name in "ab"))
    assert step.failure is None
    assert in_threads(*(lambda name=name: step.meet(name, "plan", 1, idle) for name in "ab")) == [{"a": 1, "b": 1}] * 2


def test_there_is_no_next_try_without_one_that_is_gone() -> None:
    step = Lockstep(("a", "b"))
    step.leave("b", HostError("no route"))
    with pytest.raises(Apart, match="b failed"):
        step.again("a", idle)


def test_who_waits_for_one_that_has_come_to_its_end_is_told_so() -> None:
    step = Lockstep(("a", "b"))
    step.leave("b")
    with pytest.raises(Apart, match="b has come to its end already"):
        step.meet("a", "plan", None, idle)


def test_those_who_come_to_different_tasks_are_apart() -> None:
    step = Lockstep(("a", "b"))
    found = in_threads(lambda: step.meet("a", "stop", None, idle), lambda: step.meet("b", "start", None, idle))
    assert all(isinstance(each, Apart) for each in found)
    assert step.failure is not None
    assert "others to" in str(step.failure.error)


def test_what_idle_raises_ends_the_waiting() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Lockstep(("a", "b")).meet("a", "plan", None, interrupted)


def test_an_account_is_not_waited_for_longer_than_asked_nor_of_one_that_is_gone() -> None:
    times = iter(range(100))
    step = Lockstep(("a", "b", "c"), clock=lambda: float(next(times)))
    assert step.account("a", "mine", 3) == {"a": "mine"}
    step.leave("b", HostError("lost"))
    assert step.account("c", "its own", 1e9) == {"a": "mine", "c": "its own"}
