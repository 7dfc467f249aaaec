from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

from eaglelab.commands import together
from eaglelab.commands.together import Manner, Together
from eaglelab.errors import HostError, InputError
from eaglelab.interruption import Interruption

NAMES = ["a", "b", "c", "d", "e"]


class Watched:
    """Work that notes who did it and how many did so at once; `fails` and `waits` (for an event) by name."""

    def __init__(self, fails: str = "", gate: threading.Event | None = None) -> None:
        self.fails, self.gate = fails, gate
        self.done: list[str] = []
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, name: str, stop: Interruption) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            if name in self.fails:
                raise HostError(f"{name} broke")
            time.sleep(0.01)
            with self._lock:
                self.done.append(name)
        finally:
            with self._lock:
                self.now -= 1


def test_all_are_done_and_found_in_the_order_they_were_named() -> None:
    work = Watched()
    found = Together(NAMES, work, Manner()).run()
    assert list(found) == NAMES
    assert all(end.error is None for end in found.values())
    assert sorted(work.done) == NAMES


def test_no_host_is_no_work() -> None:
    assert Together([], Watched(), Manner()).run() == {}


def test_all_are_at_work_at_once() -> None:
    meeting = threading.Barrier(len(NAMES), timeout=60)
    found = Together(NAMES, lambda name, stop: meeting.wait() and None, Manner()).run()
    assert [end.error for end in found.values()] == [None] * 5


@pytest.mark.parametrize("forks", [1, 2])
def test_no_more_than_the_forks_are_at_work_at_once(forks: int) -> None:
    work = Watched()
    Together(NAMES, work, Manner(forks=forks)).run()
    assert work.most <= forks
    assert sorted(work.done) == NAMES


def test_with_one_fork_they_come_in_order() -> None:
    work = Watched()
    Together(NAMES, work, Manner(forks=1)).run()
    assert work.done == NAMES


def test_a_batch_begins_when_the_one_before_it_has_ended() -> None:
    work = Watched()
    Together(NAMES, work, Manner(serial=2)).run()
    assert work.most <= 2
    assert [set(work.done[:2]), set(work.done[2:4]), set(work.done[4:])] == [{"a", "b"}, {"c", "d"}, {"e"}]


def test_a_failure_lets_those_at_work_end_and_begins_no_other() -> None:
    work = Watched(fails="a")
    found = Together(NAMES, work, Manner(serial=2)).run()
    assert list(found) == ["a", "b"]
    assert found["b"].error is None
    assert str(found["a"].error) == "a broke"


def test_after_a_failure_the_others_go_on_where_that_is_asked_for() -> None:
    work = Watched(fails="ac")
    found = Together(NAMES, work, Manner(serial=1, on_failure="continue")).run()
    assert list(found) == NAMES
    assert [name for name, end in found.items() if end.error] == ["a", "c"]


def test_a_failure_ends_those_at_work_where_all_is_to_be_put_back() -> None:
    begun, hung = threading.Event(), []

    def work(name: str, stop: Interruption) -> None:
        if name == "b":
            begun.set()
            stop.sleep(60)
            hung.append(name)
        assert begun.wait(60)
        raise HostError("a broke")

    found = Together(["a", "b", "c"], work, Manner(forks=2, on_failure="rollback")).run()
    assert hung == []
    assert isinstance(found["b"].error, KeyboardInterrupt)
    assert list(found) == ["a", "b"]


def test_how_each_ended_is_told_as_it_ends() -> None:
    told: list[tuple[str, bool]] = []
    Together(
        ["a", "b"], Watched(fails="a"), Manner(forks=1, on_failure="continue"), lambda *end: told.append(end)
    ).run()
    assert [(name, end.error is None) for name, end in told] == [("a", False), ("b", True)]


def test_seconds_are_counted_by_the_clock() -> None:
    times = iter([10.0, 12.5])
    found = Together(["a"], Watched(), Manner(), clock=lambda: next(times)).run()
    assert found["a"].seconds == 2.5


def interrupted(work: Callable[[str, Interruption], None], begun: threading.Barrier) -> Together:
    """Work on three hosts, and a Ctrl-C once all of them are at it."""

    main = threading.get_ident()

    def send() -> None:
        begun.wait()
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=send).start()
    return Together(["a", "b", "c"], work, Manner())


def test_ctrl_c_ends_each_once_so_that_each_can_put_back_what_it_did() -> None:
    begun, back = threading.Barrier(4, timeout=60), []

    def work(name: str, stop: Interruption) -> None:
        stop.begun = True
        begun.wait()
        try:
            stop.sleep(60)
        except KeyboardInterrupt:
            stop.sleep(0.05)  # is not ended again
            back.append(name)
            raise

    found = interrupted(work, begun).run()
    assert sorted(back) == ["a", "b", "c"]
    assert {type(end.error) for end in found.values()} == {KeyboardInterrupt}


def test_a_ctrl_c_that_ended_nothing_is_raised_all_the_same() -> None:
    begun = threading.Barrier(4, timeout=60)

    def work(name: str, stop: Interruption) -> None:
        stop.begun = True
        begun.wait()
        assert stop._asked.wait(60)  # it has come, and is not looked for

    with pytest.raises(KeyboardInterrupt):
        interrupted(work, begun).run()


def test_nobody_waits_for_a_host_that_hangs_before_anything_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_PATIENCE_S", 0.05)
    begun, hang, came_back = threading.Barrier(4, timeout=60), threading.Event(), []

    def work(name: str, stop: Interruption) -> None:
        begun.wait()
        hang.wait(60)
        came_back.append(name)

    found = interrupted(work, begun).run()
    assert came_back == []
    hang.set()
    assert {type(end.error) for end in found.values()} == {KeyboardInterrupt}


@pytest.mark.parametrize("at_work", [True, False])
def test_a_ctrl_c_while_the_first_thread_is_made_ends_what_it_began_and_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, at_work: bool
) -> None:
    begun, back, raised = threading.Event(), [], []

    class Interrupted(threading.Thread):
        def start(self) -> None:
            if self.name != "hosts" or raised:
                super().start()
                return
            if at_work:
                super().start()
                assert begun.wait(60)
            raised.append(self)
            raise KeyboardInterrupt

    def work(name: str, stop: Interruption) -> None:
        begun.set()
        try:
            stop.sleep(60)
        except KeyboardInterrupt:
            back.append(name)
            raise

    monkeypatch.setattr(threading, "Thread", Interrupted)
    together = Together(["a"], work, Manner())
    try:
        found = {name: type(end.error) for name, end in together.run().items()}
    except KeyboardInterrupt:  # let through, it would end the whole suite
        found = {}
    assert found == ({"a": KeyboardInterrupt} if at_work else {})
    assert raised
    assert back == list(found)


def test_what_a_failure_means_must_be_a_word_that_is_known() -> None:
    with pytest.raises(InputError, match="'halt' is nothing that a failure can mean") as caught:
        Manner(on_failure="halt")
    assert caught.value.hint == "one of stop, continue, rollback"
