"""What the cost of measuring is measured with: the order of its requests, and which of them count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from gpu.lab_truth import LabTruth
from gpu.validate.budget import Budget
from gpu.validate.client import Answer, Ask
from gpu.validate.experiments import cost
from gpu.validate.site import Site


@dataclass
class Block:
    decode_cycles: int


@dataclass
class FakeWindow:
    """Blocks of 100 cycles, 40 that were written early, and 30 that were left when they were asked for."""

    blocks = (Block(100), Block(40), Block(100), Block(30))
    decode_cycles = 270
    cycles = 220

    @property
    def times(self) -> FakeWindow:
        return self

    def rank(self, _number: int) -> FakeWindow:
        return self


@dataclass
class FakeServer:
    """Records what it is asked, and where its records were marked."""

    asked: list[Ask] = field(default_factory=list)
    marked_after: int = -1

    @property
    def client(self) -> FakeServer:
        return self

    probe = client
    truth = LabTruth(0.6, seed=1, vocabulary=1000)

    def serve(self, _setting: object, _budget: Budget) -> FakeServer:
        return self

    def lead(self, steps: int) -> None:
        assert steps == 3

    def ask(self, request: Ask) -> Answer:
        self.asked.append(request)
        return Answer(request.rid, tuple(range(request.tokens)), 10, 0.02, 0.07)

    def mark(self) -> int:
        self.marked_after = len(self.asked)
        return self.marked_after

    def since(self, _mark: int) -> FakeWindow:
        return FakeWindow()

    def about(self) -> dict[str, Any]:
        return {"simulated": False}


def taken() -> tuple[FakeServer, dict[str, Any]]:
    server = FakeServer()
    (part,) = (each for each in cost.experiment().parts if each.name == "cost-small-v2")
    return server, part.run(cast("Site", server), Budget(600))


def test_each_request_is_sent_four_times_on_off_off_on() -> None:
    server, _ = taken()
    quads = [server.asked[first : first + 4] for first in range(0, len(server.asked), 4)]
    for quad in quads:
        assert [ask.rid.split("/")[1] for ask in quad] == ["p=1", "p=0", "p=0", "p=1"]
        assert len({tuple(ask.prompt) for ask in quad}) == 1
        assert {ask.tokens for ask in quad} == {20}
    assert len({ask.rid for ask in server.asked}) == len(server.asked)
    assert len({tuple(quad[0].prompt) for quad in quads}) == len(quads)


def test_the_first_two_quads_do_not_count_and_are_before_the_mark() -> None:
    server, data = taken()
    assert server.marked_after == 8
    assert len(data["pairs"]) == 200
    assert len(server.asked) == 8 + 400
    assert data["pairs"][0]["on"] == {"tokens": 20, "verifies": 10, "first_s": 0.02, "last_s": 0.07}


def test_cycles_written_before_a_hundred_had_gathered_are_told_and_the_rest_at_the_end_is_none_of_them() -> None:
    _, data = taken()
    assert (data["cycles"], data["timed"], data["written_early"]) == (270, 220, 40)
