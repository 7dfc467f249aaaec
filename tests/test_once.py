from __future__ import annotations

import threading

import pytest

from eaglelab.once import Once


def test_what_is_asked_again_is_not_worked_out_again() -> None:
    once, asked = Once(), []
    assert [once(lambda: 1), once(lambda: 1)] == [1, 1]

    def work(number: int) -> int:
        asked.append(number)
        return number * 2

    assert [once(work, 1), once(work, 1), once(work, 2)] == [2, 2, 4]
    assert asked == [1, 2]


def test_threads_that_ask_at_once_wait_for_the_first() -> None:
    once, asked, begin = Once(), [], threading.Barrier(8)
    found: list[object] = []

    def work(name: str) -> object:
        asked.append(name)
        threading.Event().wait(0.05)
        return object()

    def ask() -> None:
        begin.wait()
        found.append(once(work, "x"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == ["x"]
    assert len(set(map(id, found))) == 1


def test_what_failed_fails_for_all_who_ask() -> None:
    once, asked = Once(), []

    def work() -> None:
        asked.append(1)
        raise ValueError("broken")

    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            once(work)
    assert asked == [1]


def test_whoever_was_interrupted_leaves_it_to_the_next() -> None:
    once, results = Once(), [KeyboardInterrupt(), 7]

    def work() -> int:
        found = results.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    with pytest.raises(KeyboardInterrupt):
        once(work)
    assert once(work) == 7
