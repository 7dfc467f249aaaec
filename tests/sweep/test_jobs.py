from __future__ import annotations

import threading

import pytest

from eaglelab.sweep.jobs import JobQueue
from eaglelab.sweep.matrix import Variation
from eaglelab.sweep.plan import Load

LOADS = [Load(None, Variation()), *(Load((steps,), Variation()) for steps in (1, 2))]


def idle() -> None: ...


def test_each_load_is_given_to_one_worker_in_the_order_of_the_plan() -> None:
    queue = JobQueue(LOADS, ["1", "2"])
    assert [queue.take(worker, idle) for worker in ("1", "2", "1")] == LOADS


def test_a_worker_waits_while_another_may_give_its_load_back_and_then_makes_it() -> None:
    queue, taken = JobQueue(LOADS[:1], ["1", "2"]), []
    queue.take("1", idle)
    waiting = threading.Thread(target=lambda: taken.append(queue.take("2", idle)))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    queue.leave("1")
    waiting.join(10)
    assert taken == [LOADS[0]]


def test_loads_that_are_made_instead_come_next() -> None:
    queue = JobQueue(LOADS, ["1"])
    queue.take("1", idle)
    queue.done("1", LOADS[2:])
    assert [queue.take("1", idle), queue.take("1", idle)] == [LOADS[2], LOADS[1]]


def test_nothing_is_left_once_all_are_done() -> None:
    queue = JobQueue(LOADS[:1], ["1", "2"])
    queue.take("1", idle)
    assert queue.left == (LOADS[0],)
    queue.done("1")
    assert queue.take("2", idle) is None
    assert queue.left == ()


def test_a_worker_that_waits_can_be_ended() -> None:
    queue = JobQueue(LOADS[:1], ["1", "2"])
    queue.take("1", idle)

    def ended() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.take("2", ended)


def test_a_closed_queue_gives_out_nothing_and_says_what_is_left() -> None:
    queue = JobQueue(LOADS, ["1"])
    queue.take("1", idle)
    queue.close()
    assert queue.take("1", idle) is None
    assert queue.left == tuple(LOADS)


def test_it_is_over_once_every_worker_has_left_also_with_loads_that_nobody_made() -> None:
    queue = JobQueue(LOADS, ["1", "2"])
    queue.leave("1")
    assert not queue.over
    queue.leave("2")
    assert queue.over


def test_a_load_may_be_made_once_more_and_then_no_more() -> None:
    queue = JobQueue(LOADS, ["1"])
    assert [queue.once_more(LOADS[0]), queue.once_more(LOADS[0]), queue.once_more(LOADS[1])] == [True, False, True]


def test_how_often_a_load_was_begun_before_is_known_also_where_its_worker_was_lost() -> None:
    queue = JobQueue(LOADS, ["1", "2"])
    queue.take("1", idle)
    assert queue.attempt(LOADS[0]) == 0
    queue.leave("1")
    assert queue.take("2", idle) == LOADS[0]
    assert queue.attempt(LOADS[0]) == 1


def test_nobody_else_is_kept_waiting_while_a_worker_that_waits_asks_its_agent() -> None:
    queue, seen = JobQueue(LOADS[:1], ["1", "2"]), []
    queue.take("1", idle)

    def asks() -> None:
        other = threading.Thread(target=lambda: (seen.append(queue.over), queue.done("1")), daemon=True)
        other.start()
        other.join(10)
        seen.append(other.is_alive())

    assert queue.take("2", asks) is None
    assert seen == [False, False]
