"""Work in a thread behind the one that hands it over: nothing is lost, and no failure stays unseen on either side."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from eaglelab.behind import Behind


def test_all_items_are_worked_on_in_their_order_before_it_is_left() -> None:
    seen: list[int] = []
    with Behind[int](seen.extend, 2) as behind:
        for number in range(100):
            behind.put(number)
    assert seen == list(range(100))


def test_no_more_than_so_many_wait() -> None:
    go, handed = threading.Event(), []

    def work(items: Iterator[int]) -> None:
        next(items)
        go.wait(5)
        list(items)

    def hand() -> None:
        with Behind[int](work, 2) as behind:
            for number in range(10):
                behind.put(number)
                handed.append(number)

    thread = threading.Thread(target=hand)
    thread.start()
    thread.join(0.3)
    assert len(handed) <= 3  # one is worked on, two wait
    go.set()
    thread.join(5)
    assert handed == list(range(10))


def test_a_failure_of_the_work_is_raised_and_ends_the_handing_over() -> None:
    def work(items: Iterator[int]) -> None:
        for number in items:
            if number == 3:
                raise OSError("the disk is full")

    handed = []

    def hand() -> None:
        with Behind[int](work, 1) as behind:
            for number in range(1000):
                behind.put(number)
                handed.append(number)

    with pytest.raises(OSError, match="the disk is full"):
        hand()
    assert len(handed) < 10


def test_a_failure_at_the_last_item_is_raised_too() -> None:
    def work(items: Iterator[int]) -> None:
        list(items)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"), Behind[int](work, 5) as behind:
        behind.put(1)


def test_what_ends_the_handing_over_drops_the_rest_and_stays_the_failure() -> None:
    begun, seen, held = threading.Event(), [], []

    def work(items: Iterator[int]) -> None:
        for number in items:
            seen.append(number)
            begun.set()
            held.append(behind._dropping.wait(60))

    behind = Behind[int](work, 5)

    def hand() -> None:
        with behind:
            for number in range(4):
                behind.put(number)
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hand()
    assert (seen, held) == ([0], [True])
    assert all(thread.name != "behind" for thread in threading.enumerate())


def test_work_that_is_dropped_is_told_so_and_cannot_take_it_for_the_end() -> None:
    ends = []

    def work(items: Iterator[int]) -> None:
        list(items)
        ends.append("whole")

    def hand() -> None:
        with Behind[int](work, 5) as behind:
            behind.put(1)
            raise ValueError

    with pytest.raises(ValueError):
        hand()
    assert ends == []
