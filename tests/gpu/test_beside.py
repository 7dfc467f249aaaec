"""Several servers at once: all load together, one that stays away is left out, and all but the site's own are put back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu.validate import beside
from gpu.validate.beside import Beside
from gpu.validate.budget import Budget
from gpu.validate.setting import Setting
from gpu.validate.site import Site
from gpu.validate.workspace import CommandError


class FakeSite:
    """Of the machine it is given: a name, and the names of those that do not come up or do not go away."""

    made: list[FakeSite]

    def __init__(self, machine: Any, _workspace: object = None, say: Any = None) -> None:
        self.machine, self.say, self.rolled_back = machine, say, 0
        type(self).made.append(self)

    def serve(self, setting: Setting, budget: Budget) -> str:
        if self.machine.name in self.machine.broken:
            raise CommandError(f"{self.machine.name} has no memory")
        return f"{self.machine.name} {setting.name}"

    def rollback(self, budget: Budget) -> None:
        self.rolled_back += 1
        if self.machine.name in self.machine.broken:
            raise CommandError("nothing to put back")


def machine(name: str, broken: tuple[str, ...]) -> Any:
    found = SimpleNamespace(name=name, broken=broken, workspace=None, close=lambda: None)
    found.beside = lambda other, _number: machine(other, broken)
    return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    said: list[str] = []

    def make(*broken: str) -> tuple[Beside, list[str]]:
        FakeSite.made = []
        own = FakeSite(machine("one", broken), say=said.append)
        return Beside(
            cast("Site", own), Setting(candidates=(1, 2)), {"k3": Setting(), "off": Setting(probe=False)}
        ), said

    monkeypatch.setattr(beside, "Site", FakeSite)
    return make


def test_all_come_up_and_the_others_are_put_back(made: Any) -> None:
    servers, _ = made()
    own, others = servers.serve(Budget(60))
    assert own == "one v2-p0.6-k1.2"
    assert others == {"k3": "k3 v2-p0.6-k3", "off": "off v2-p0.6-k3-off"}
    servers.close()
    assert [(each.machine.name, each.rolled_back) for each in FakeSite.made] == [("one", 0), ("k3", 1), ("off", 1)]


def test_one_that_stays_away_is_left_out_and_said(made: Any) -> None:
    servers, said = made("off")
    _, others = servers.serve(Budget(60))
    assert list(others) == ["k3"]
    assert servers.failed == {"off": "CommandError: off has no memory"}
    servers.close()
    assert said[-1] == "a server beside is not put back: nothing to put back"


@pytest.mark.parametrize("broken", [("one",), ("k3", "off")])
def test_without_the_sites_own_or_any_other_there_is_nothing_to_compare(made: Any, broken: tuple[str, ...]) -> None:
    servers, _ = made(*broken)
    with pytest.raises(CommandError, match="no memory"):
        servers.serve(Budget(60))
