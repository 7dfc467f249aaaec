from __future__ import annotations

import threading

import pytest

from eaglelab.errors import HostError
from eaglelab.sweep.deal import Deal, differences
from eaglelab.sweep.matrix import Variation
from eaglelab.sweep.plan import Load

LOADS = [Load(None, Variation()), *(Load((steps,), Variation()) for steps in (1, 2, 3, 5))]
SAME = {"GPUs": "8 x H200"}


def idle() -> None: ...


def joined(*names: str) -> Deal:
    deal = Deal(names)
    threads = [threading.Thread(target=deal.join, args=(name, SAME, LOADS, idle)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return deal


def test_the_first_load_is_the_reference_of_all_and_the_others_are_made_once() -> None:
    deal = joined("a", "b")
    assert deal.join("a", SAME, LOADS, idle) == LOADS[0]
    taken = [deal.take(name, idle) for name in ("a", "b", "b", "a")]
    assert taken == LOADS[1:]
    assert deal.left == ()


def test_nobody_begins_before_all_are_known() -> None:
    deal, order = Deal(["a", "b"]), []

    def first() -> None:
        deal.join("a", SAME, LOADS, idle)
        order.append("a begins")

    thread = threading.Thread(target=first)
    thread.start()
    thread.join(0.1)
    order.append("b joins")
    deal.join("b", SAME, LOADS, idle)
    thread.join(10)
    assert order == ["b joins", "a begins"]


def test_a_host_that_never_joins_is_not_waited_for() -> None:
    deal = Deal(["a", "b"])
    deal.leave("b")
    assert deal.join("a", SAME, LOADS, idle) == LOADS[0]


def test_the_load_of_a_host_that_dies_goes_to_another_which_waited_for_it() -> None:
    deal = joined("a", "b")
    for _ in LOADS[1:-1]:
        deal.take("a", idle)
    assert deal.take("b", idle) == LOADS[-1]
    got: list[Load | None] = []
    thread = threading.Thread(target=lambda: got.append(deal.take("a", idle)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    deal.leave("b")
    thread.join(10)
    assert got == [LOADS[-1]]
    assert deal.take("a", idle) is None


def test_loads_to_be_made_instead_come_next() -> None:
    deal = joined("a")
    deal.take("a", idle)
    deal.again([LOADS[4], LOADS[1]])
    assert [deal.take("a", idle), deal.take("a", idle)] == [LOADS[4], LOADS[1]]


def test_what_nobody_made_is_left() -> None:
    deal = joined("a")
    deal.take("a", idle)
    deal.leave("a")
    assert deal.left == tuple(LOADS[1:])


def test_hosts_that_are_not_equal_are_refused_on_each_with_what_differs() -> None:
    deal, told = Deal(["a", "b"]), []

    def join(name: str, gpus: str) -> None:
        with pytest.raises(HostError) as caught:
            deal.join(name, {"GPUs": gpus, "SGLang": "0.5.9"}, LOADS, idle)
        told.append(caught.value.what)

    thread = threading.Thread(target=join, args=("b", "8 x H100"))
    thread.start()
    join("a", "8 x H200")
    thread.join(10)
    assert len(told) == 2
    assert "GPUs: " in told[0]
    assert "8 x H100 on b" in told[0]
    assert "SGLang" not in told[0]


def test_who_waits_can_be_ended() -> None:
    def ended() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Deal(["a", "b"]).join("a", SAME, LOADS, ended)


def test_equal_hosts_differ_in_nothing_and_a_value_that_one_lacks_is_a_difference() -> None:
    assert differences({"a": SAME, "b": SAME}) == []
    assert differences({"a": SAME, "b": {}, "c": SAME}) == ["GPUs: 8 x H200 on a and c, None on b"]


@pytest.mark.parametrize("at", ["join", "take"])
def test_nobody_else_is_kept_waiting_while_a_host_that_waits_asks_its_agent(at: str) -> None:
    deal, held = (Deal(["a", "b"]) if at == "join" else joined("a", "b")), []
    if at == "take":
        for _ in LOADS[1:]:
            deal.take("b", idle)

    def asks() -> None:
        other = threading.Thread(target=deal.leave, args=("b",), daemon=True)
        other.start()
        other.join(10)
        held.append(other.is_alive())

    found = deal.join("a", SAME, LOADS, asks) if at == "join" else deal.take("a", asks)
    assert found == (LOADS[0] if at == "join" else LOADS[-1])
    assert held == [False]


def test_instead_of_a_reference_that_died_all_take_the_first_and_the_rest_is_dealt_once() -> None:
    several, other = Load((1, 2, 3), Variation()), Load((5,), Variation())
    deal = Deal(["a"])
    assert deal.join("a", SAME, [several, other], idle) == several
    one, *rest = several.apart
    assert [deal.instead(several, several.apart) for _ in "ab"] == [one, one]
    assert [deal.take("a", idle) for _ in range(4)] == [*rest, other, None]
