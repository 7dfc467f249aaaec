from __future__ import annotations

from typing import Any

import pytest

from eaglelab.diagnosis.facts import Sheet
from eaglelab.diagnosis.of_models import put_draft, put_target
from eaglelab.diagnosis.workers import expected_worker, file_of_worker, release_numbers

TARGET = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "vocab_size": 163840,
}


def of_target(config: dict[str, Any]) -> Sheet:
    sheet = Sheet()
    put_target(sheet, config, "config.json")
    return sheet


def of_draft(config: dict[str, Any]) -> Sheet:
    sheet = Sheet()
    put_draft(sheet, config, "config.json")
    return sheet


def test_without_a_config_of_layers_sglang_takes_the_inputs_of_three_of_its_own() -> None:
    assert of_target(TARGET).value("default_layers") == (2, 30, 58)
    assert of_target({**TARGET, "num_hidden_layers": 32}).value("default_layers") == (2, 16, 29)


def test_the_layers_of_a_config_are_outputs_so_the_inputs_taken_are_one_more() -> None:
    sheet = of_draft({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}})
    assert sheet.value("draft_says_layers") is True
    assert sheet.value("captured_layers") == (2, 30, 58)


@pytest.mark.parametrize("config", [{}, {"eagle_config": None}, {"eagle_config": {"use_aux_hidden_state": True}}])
def test_a_draft_without_layers_says_so(config: dict[str, Any]) -> None:
    sheet = of_draft({"vocab_size": 1, **config})
    assert sheet.value("draft_says_layers") is False
    assert sheet.value("captured_layers") is None


def test_the_hidden_size_that_a_draft_takes_is_that_of_its_target_where_it_names_one() -> None:
    assert of_draft({"hidden_size": 4096}).value("draft_target_hidden_size") == 4096
    assert of_draft({"hidden_size": 2048, "target_hidden_size": 7168}).value("draft_target_hidden_size") == 7168


def test_a_model_that_sees_is_known_by_its_language_model() -> None:
    sheet = of_target({"architectures": ["KimiK25ForConditionalGeneration"], "text_config": TARGET})
    assert (sheet.value("target_layers"), sheet.value("target_hidden_size")) == (61, 7168)


@pytest.mark.parametrize("name", ["n_routed_experts", "num_local_experts", "num_experts"])
def test_experts_are_known_by_any_of_their_names(name: str) -> None:
    assert of_target({**TARGET, name: 384, "num_experts_per_tok": 8}).value("target_experts") == 384


def test_no_config_is_nothing_and_one_without_quantisation_is_not_quantised() -> None:
    assert of_target({}).facts == {}
    assert of_target(TARGET).value("target_quantisation") == ""
    assert of_target({**TARGET, "quantization_config": {"quant_method": "fp8"}}).value("target_quantisation") == "fp8"


@pytest.mark.parametrize(
    "config", [{"hidden_size": "4096"}, {"architectures": "x"}, {"vocab_size": True}, {"torch_dtype": 16}]
)
def test_a_config_of_other_shapes_is_passed_over(config: dict[str, Any]) -> None:
    assert set(of_target(config).facts) == {"target_quantisation"}


@pytest.mark.parametrize(
    ("version", "algorithm", "topk", "flags", "env", "worker"),
    [
        ("0.4.6", "EAGLE3", 1, {}, {"SGLANG_ENABLE_SPEC_V2": "1"}, "EAGLEWorker"),
        ("0.5.3.post2", "EAGLE", 1, {}, {}, "EAGLEWorker"),
        ("0.5.3.post2", "EAGLE", 1, {"enable-beta-spec": True}, {}, "EAGLEWorkerV2"),
        ("0.5.6", "EAGLE3", 1, {}, {"SGLANG_ENABLE_SPEC_V2": "1"}, "EAGLEWorker"),
        ("0.5.6", "EAGLE", 1, {}, {"SGLANG_ENABLE_SPEC_V2": "1"}, "EAGLEWorkerV2"),
        ("0.5.9", "EAGLE3", 1, {}, {}, "EAGLEWorker"),
        ("0.5.9", "EAGLE3", 1, {}, {"SGLANG_ENABLE_SPEC_V2": "true"}, "EAGLEWorkerV2"),
        ("0.5.11", "EAGLE3", 1, {}, {}, "EAGLEWorkerV2"),
        ("0.5.12.post1", "EAGLE3", 4, {}, {}, "EAGLEWorker"),
        ("0.5.12", "EAGLE3", 1, {"disable-overlap-schedule": True}, {}, "EAGLEWorker"),
        ("0.5.12", "EAGLE3", 1, {}, {"SGLANG_ENABLE_SPEC_V2": "0"}, "EAGLEWorker"),
        ("0.5.13", "EAGLE3", 4, {}, {"SGLANG_ENABLE_SPEC_V2": "0"}, "EAGLEWorkerV2"),
        ("0.5.23", "EAGLE3", 1, {"disable-overlap-schedule": True}, {}, "EAGLEWorkerV2"),
    ],
)
def test_each_release_runs_the_worker_of_its_era(
    version: str, algorithm: str, topk: int, flags: dict[str, object], env: dict[str, str], worker: str
) -> None:
    found = expected_worker(version, algorithm, topk, flags, env)
    assert found is not None
    assert (found.worker, found.file) == (worker, file_of_worker(worker))
    assert version in found.why


@pytest.mark.parametrize(
    ("version", "algorithm", "flags"),
    [("main", "EAGLE3", {}), ("0.5.12", "NGRAM", {}), ("0.5.12", "EAGLE", {"enable-multi-layer-eagle": True})],
)
def test_what_is_not_known_is_not_guessed(version: str, algorithm: str, flags: dict[str, object]) -> None:
    assert expected_worker(version, algorithm, 1, flags, {}) is None


def test_releases_compare_as_numbers() -> None:
    assert release_numbers("0.5.12.post1") > release_numbers("0.5.12") > release_numbers("0.5.9")  # type: ignore[operator]
    assert release_numbers("0.5.9.dev1") == (0, 5, 9)
    assert release_numbers("0.0.0.dev1") is None
