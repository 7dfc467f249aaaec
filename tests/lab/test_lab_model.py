from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eaglelab.errors import InputError
from eaglelab.lab.model import DEFAULT_MODEL, read_model
from eaglelab.lab.standin.acceptance import Acceptance, token_id, uniform
from eaglelab.lab.standin.costs import Costs


@pytest.mark.parametrize(("steps", "tokens_a_second"), [(1, 88.5), (2, 94.0), (5, 71.0), (10, 60.0)])
def test_the_model_gives_the_throughput_of_the_history(
    model: dict[str, Any], steps: int, tokens_a_second: float
) -> None:
    acceptance = Acceptance(1, tuple(model["acceptance"]["survival"]))
    assert 1e3 * acceptance.accept_length(steps) / Costs.of(model).cycle(steps) == pytest.approx(
        tokens_a_second, rel=0.005
    )


def test_the_model_gives_the_baseline_of_the_history(model: dict[str, Any]) -> None:
    assert 1e3 / Costs.of(model).plain(1) == pytest.approx(89.0, rel=0.001)


def test_two_steps_are_the_best(model: dict[str, Any]) -> None:
    acceptance, costs = Acceptance(1, (0.4975,)), Costs.of(model)
    throughput = {steps: acceptance.accept_length(steps) / costs.cycle(steps) for steps in range(1, 11)}
    assert max(throughput, key=lambda steps: throughput[steps]) == 2


def test_draft_forwards_are_one_fewer_than_steps(model: dict[str, Any]) -> None:
    costs = Costs.of(model)
    assert [costs.draft(steps, 1) for steps in (0, 1, 2, 5)] == [0.0, 0.0, 0.5, 2.0]


@pytest.mark.parametrize(("steps", "ms"), [(2, 15.80), (5, 23.34), (3, 15.80 + 7.54 / 3), (12, 26.39 + 2 * 3.05 / 5)])
def test_verify_is_linear_between_and_beyond_the_rows(model: dict[str, Any], steps: int, ms: float) -> None:
    assert Costs.of(model).verify(steps, 1) == pytest.approx(ms)


def test_every_cost_of_a_decode_grows_with_the_batch(model: dict[str, Any]) -> None:
    costs = Costs.of(model)
    for cost in (costs.plain, costs.extend, lambda batch: costs.verify(2, batch), lambda batch: costs.draft(2, batch)):
        assert cost(11) == pytest.approx(1.3 * cost(1))


def test_accept_length_is_one_plus_the_survival() -> None:
    assert Acceptance(1, (0.8, 0.5)).accept_length(2) == pytest.approx(2.3)
    assert Acceptance(1, (0.8, 0.4)).accept_length(4) == pytest.approx(1 + 0.8 + 0.4 + 0.2 + 0.1)


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
def test_drawn_accept_lengths_are_those_of_the_model(steps: int) -> None:
    acceptance = Acceptance(7, (0.7, 0.4, 0.3))
    position = cycles = 0
    while position < 20_000:
        position += acceptance.correct_drafts("prompt", position, steps) + 1
        cycles += 1
    assert position / cycles == pytest.approx(acceptance.accept_length(steps), rel=0.01)


def test_one_request_of_1000_tokens_shows_the_accept_length_within_two_percent() -> None:
    acceptance = Acceptance(1, (0.4975,))
    for prompt in ("a", "b", "c", "d", "e", "f", "g", "h"):
        position = cycles = 0
        while position < 1000:
            position += acceptance.correct_drafts(prompt, position, 2) + 1
            cycles += 1
        assert position / cycles == pytest.approx(acceptance.accept_length(2), rel=0.02)


def test_more_steps_find_the_same_right_drafts_and_more() -> None:
    acceptance = Acceptance(3, (0.6,))
    for position in range(500):
        few, many = (acceptance.correct_drafts("p", position, steps) for steps in (2, 9))
        assert few == min(many, 2)


def test_output_depends_on_seed_prompt_and_position_only() -> None:
    assert uniform(1, "p", 700) == uniform(1, "p", 700)
    assert [token_id(1, "p", at, 32000) for at in range(50)] == [token_id(1, "p", at, 32000) for at in range(50)]
    assert [token_id(1, "p", at, 32000) for at in range(50)] != [token_id(1, "q", at, 32000) for at in range(50)]
    assert sorted(uniform(1, "p", at) for at in range(250)) == pytest.approx([(at + 0.5) / 250 for at in range(250)])


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("gpu_ms", "plain"), -1, "gpu_ms.plain: Input should be greater than or equal to 0"),
        (("gpu_ms", "verify"), {}, "gpu_ms.verify"),
        (("gpu_ms", "speed"), 1, "gpu_ms.speed: Extra inputs are not permitted"),
        (("acceptance", "survival"), [0.4, 0.5], "cannot rise with k"),
        (("gpus",), 0, "gpus: Input should be greater than 0"),
    ],
)
def test_a_wrong_model_is_refused_by_field(tmp_path: Path, path: tuple[str, ...], value: Any, message: str) -> None:
    data = yaml.safe_load(DEFAULT_MODEL.read_text(encoding="utf-8"))
    part = data
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    file = tmp_path / "model.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_model(file)
    assert message in refused.value.what
    assert refused.value.where == str(file)


def test_a_missing_or_broken_model_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_model(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("gpus: [", encoding="utf-8")
    with pytest.raises(InputError, match="not YAML"):
        read_model(broken)
