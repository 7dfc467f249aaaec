"""Waiting for others: looked at the host now and then, told that somebody is there, and ended by what ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eaglelab.errors import LockLost
from eaglelab.idle import LOOK_S, SIGN_S, Idle, Sign


class Waiting:
    """A context whose clock goes on with each call of a sign, by a fifth of a second."""

    def __init__(self, sign: type[Sign] | type[Idle], *about: str) -> None:
        self.now, self.looked, self.told = 100.0, [], []  # type: float, list[float], list[tuple[float, str]]
        self.robbed_at = float("inf")
        self.asked_to_end = False
        context: Any = SimpleNamespace(
            clock=lambda: self.now,
            sleep=self._check,
            client=SimpleNamespace(look=self._look, doing=lambda text: self.told.append((self.now, text))),
            say=SimpleNamespace(progress=lambda _: None),
        )
        self._sign = sign(context, *about)

    def _check(self, seconds: float) -> None:
        assert seconds == 0
        if self.asked_to_end:
            raise KeyboardInterrupt

    def _look(self) -> None:
        self.looked.append(self.now)
        if self.now >= self.robbed_at:
            raise LockLost("the lock was taken over", where="a")

    def go_on(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.2)):
            self.now += 0.2
            self._sign()


KINDS = pytest.mark.parametrize("kind", [(Sign,), (Idle, "the other hosts")], ids=["sign", "idle"])


@KINDS
def test_who_waits_looks_every_few_seconds_whether_the_host_is_its_own_still(kind: Any) -> None:
    waiting = Waiting(*kind)
    waiting.go_on(60)
    assert 10 <= len(waiting.looked) <= 12
    assert waiting.looked[0] - 100 == pytest.approx(LOOK_S, abs=0.3)


@KINDS
def test_a_lock_that_was_taken_over_ends_the_waiting_within_seconds(kind: Any) -> None:
    waiting = Waiting(*kind)
    waiting.robbed_at = 130.1
    with pytest.raises(LockLost):
        waiting.go_on(600)
    assert waiting.now - waiting.robbed_at < LOOK_S + 0.5


@KINDS
def test_an_interrupt_ends_the_waiting_at_once(kind: Any) -> None:
    waiting = Waiting(*kind)
    waiting.asked_to_end = True
    with pytest.raises(KeyboardInterrupt):
        waiting.go_on(0.2)


def test_whom_a_host_waits_for_is_told_there_once_a_minute() -> None:
    waiting = Waiting(Idle, "the other hosts")
    waiting.go_on(2.5 * SIGN_S)
    assert [text for _, text in waiting.told] == ["wait for the other hosts"] * 2
