"""What the agent finds of flags and variables in a release's sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglelab.remote.agent.checkup import flags_not_known, variables_not_known

ARGUMENTS = """
    model_path: str
    parser.add_argument("--port")
    parser.add_argument("--tp-size")
    parser.add_argument("--mem-fraction-static")
    parser.add_argument("--disable-custom-all-reduce")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "srt/layers").mkdir(parents=True)
    (tmp_path / "srt/server_args.py").write_text(ARGUMENTS)
    (tmp_path / "srt/layers/moe.py").write_text('x = get_bool_env_var("SGLANG_MOE_PADDING")\n')
    (tmp_path / "srt/environ.py").write_text("SGLANG_ENABLE_SPEC_V2 = EnvBool(False)\n")
    return tmp_path


def test_a_flag_that_no_source_has_is_unknown_and_the_nearest_is_named(package: Path) -> None:
    found = flags_not_known(str(package), ["disable-custom-allreduce", "tp-size"])
    assert found["unknown"] == {"disable-custom-allreduce": "disable-custom-all-reduce"}


def test_a_variable_of_sglang_that_no_file_names_is_unknown_wherever_in_the_package_others_are(package: Path) -> None:
    names = ["SGLANG_MOE_PADDING", "SGLANG_ENABLE_SPEC_V3", "SGLANG_ZZZ"]
    found = variables_not_known(str(package), names)
    assert found == {"known": 2, "unknown": {"SGLANG_ENABLE_SPEC_V3": "SGLANG_ENABLE_SPEC_V2", "SGLANG_ZZZ": None}}


def test_a_variable_that_is_a_part_of_another_is_not_that_one(package: Path) -> None:
    assert variables_not_known(str(package), ["SGLANG_MOE"])["unknown"].keys() == {"SGLANG_MOE"}


def test_of_variables_of_other_libraries_nothing_is_said(package: Path) -> None:
    assert variables_not_known(str(package), ["NCCL_ALGO", "CUDA_VISIBLE_DEVICES"]) is None


def test_where_no_variable_is_found_at_all_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("pass\n")
    assert variables_not_known(str(tmp_path), ["SGLANG_MOE_PADDING"]) is None
