from __future__ import annotations

import importlib
import types
from pathlib import Path

import pytest

from eaglelab.lab.standin.stubs import Finder, Stub


@pytest.mark.parametrize(("module", "name"), [("eagle_worker", "EAGLEWorker"), ("eagle_worker_v2", "EAGLEWorkerV2")])
def test_the_real_workers_import_without_torch(stubbed: Finder, package: Path, module: str, name: str) -> None:
    loaded = importlib.import_module(f"sglang.srt.speculative.{module}")
    worker = getattr(loaded, name)
    assert loaded.__file__ == str(package / "sglang" / "srt" / "speculative" / f"{module}.py")
    assert isinstance(vars(worker)["forward_batch_generation"], types.FunctionType)


def test_the_package_tells_its_version_and_place(stubbed: Finder, package: Path) -> None:
    sglang = importlib.import_module("sglang")
    assert sglang.__version__ == "0.5.9"
    assert sglang.__file__ == str(package / "sglang" / "__init__.py")


def test_a_module_that_a_patch_should_have_put_there_is_missing_and_not_a_stub(stubbed: Finder) -> None:
    with pytest.raises(ImportError):
        exec("from sglang.srt.speculative import eaglelab_probe", {})


def test_real_files_see_the_replacement_of_a_module(stubbed: Finder) -> None:
    stand_in = types.SimpleNamespace(perf_counter=lambda: 42.0)
    stubbed.replacements["time"] = stand_in
    worker = importlib.import_module("sglang.srt.speculative.eagle_worker")
    assert worker.time is stand_in
    assert importlib.import_module("time") is not stand_in


def test_a_capital_makes_a_class_and_an_error_can_be_raised(stubbed: Finder) -> None:
    torch = importlib.import_module("torch")
    assert isinstance(torch.Tensor, type)
    assert issubclass(torch.OutOfMemoryError, RuntimeError)
    module = importlib.import_module("torch.nn").Module
    assert module[int] is module
    assert isinstance(torch.float16, Stub)


def test_a_stub_takes_part_in_anything_and_is_false() -> None:
    stub = Stub()
    with stub.context(1, 2) as inner:
        assert not inner
    assert not (stub.size > 1)
    assert not (stub <= 3)
    assert list(stub) == []

    def function() -> None: ...

    assert stub(function) is function
    assert not stub.compile(dynamic=True)
