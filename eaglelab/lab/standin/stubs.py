"""Makes SGLang's own modules importable without torch, CUDA or any other of its requirements.

A finder answers `torch`, `sglang.*` and the like with empty modules: a capitalised name in one is a class that takes
anything, any other name is a `Stub`. The modules that matter here are the real files of the package on this host
(`is_real`), with whatever bytes they hold now.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

__all__ = ["Finder", "Stub", "StubModule", "StubObject", "install", "is_real"]

STUBBED = frozenset(["torch", "triton", "sgl_kernel", "numpy", "huggingface_hub", "flashinfer"])
REAL = re.compile(
    r"sglang\.(launch_server|version|_version|bench_serving|benchmark\.serving"
    r"|srt\.speculative\.((multi_layer_)?eagle_worker(_v2)?|frozen_kv_mtp_worker(_v2)?|eaglelab_\w+|adaptive_runtime_state|adaptive_spec_params))"
)
_LOGGING = {"log_info_on_rank0": lambda log, text: log.info(text)}
GIVEN: dict[str, dict[str, Any]] = {"sglang.srt.utils": _LOGGING, "sglang.srt.utils.common": _LOGGING}
"""What a stub module holds besides stubs: functions whose effect is seen from outside."""
OURS = re.compile(r"eaglelab_\w+")


def is_real(module: str) -> bool:
    """Whether a module of the package is its real file and not a stub."""
    return REAL.fullmatch(module) is not None


class Stub:
    """A value that takes part in anything and is false: the stand-in for functions and constants nobody models.

    Called with nothing but one function it hands that function back, so that it also works as a decorator.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Stub):
            return args[0]
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()

    def __getitem__(self, _key: object) -> Stub:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def __bool__(self) -> bool:
        return False

    def __or__(self, _other: object) -> Stub:
        return self

    __ror__ = __add__ = __radd__ = __sub__ = __mul__ = __or__

    def __lt__(self, _other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        return (StubObject,)


class _StubType(type):
    """Class attributes that were never defined are stubs; subscripts and `|` work as in annotations."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()

    def __getitem__(cls, _key: object) -> Any:
        return cls

    def __or__(cls, _other: Any) -> Any:
        return cls

    __ror__ = __or__


class StubObject(metaclass=_StubType):
    """An object that keeps the keywords it was made with; all its other attributes are stubs."""

    def __init__(self, *_args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()


class StubModule(ModuleType):
    """A module that has every name. Submodules that are real files are imported on first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if is_real(full) or OURS.fullmatch(name):
            try:
                return importlib.import_module(full)
            except ModuleNotFoundError as missing:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from missing
        value: Any = Stub()
        if name[:1].isupper():
            base: type = RuntimeError if name.endswith(("Error", "Exception")) else StubObject
            value = type(base)(name, (base,), {"__module__": self.__name__})
        setattr(self, name, value)
        return value


class _StubLoader:
    def __init__(self, path: Sequence[str], attributes: dict[str, Any]) -> None:
        self._path, self._attributes = path, attributes

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = list(self._path)
        for name, value in self._attributes.items():
            setattr(module, name, value)


class _RealLoader(SourceFileLoader):
    """Runs a real file; its `import NAME` gives the replacement where the finder holds one."""

    def __init__(self, name: str, path: str, replacements: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._replacements = replacements

    def exec_module(self, module: ModuleType) -> None:
        def import_(name: str, *args: Any, **kwargs: Any) -> Any:
            return self._replacements.get(name) or builtins.__import__(name, *args, **kwargs)

        code: CodeType | None = self.get_code(module.__name__)
        if code is None:
            raise ImportError(f"no code in {self.path}")
        namespace = module.__dict__
        namespace["__builtins__"] = {**vars(builtins), "__import__": import_}
        exec(code, namespace)  # noqa: S102 - what every loader does


class Finder:
    """The import hook. `replacements` maps a module name to what real files get when they import it."""

    def __init__(self) -> None:
        self.replacements: dict[str, Any] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if top in STUBBED:
            return self._stub(name, [], {"__version__": "0+simulated"})
        if top != "sglang":
            return None
        if name == "sglang":
            return self._package()
        if is_real(name) or OURS.fullmatch(name.rpartition(".")[2]):
            return self._real(name, path)
        return self._stub(name, [str(Path(p) / name.rpartition(".")[2]) for p in path or ()], GIVEN.get(name, {}))

    def _package(self) -> ModuleSpec | None:
        found = PathFinder.find_spec("sglang")
        if found is None or not found.submodule_search_locations:
            return None
        folder = Path(next(iter(found.submodule_search_locations)))
        version = re.search(r"^__version__ = version = '([^']+)'", _text(folder / "_version.py"), re.MULTILINE)
        attributes = {"__version__": version.group(1)} if version else {}
        return self._stub("sglang", [str(folder)], attributes, origin=found.origin)

    def _real(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        for folder in path or ():
            file = Path(folder) / f"{name.rpartition('.')[2]}.py"
            if file.is_file():
                loader = _RealLoader(name, str(file), self.replacements)
                return importlib.util.spec_from_file_location(name, file, loader=loader)
        return None

    @staticmethod
    def _stub(name: str, path: Sequence[str], attributes: dict[str, Any], origin: str | None = None) -> ModuleSpec:
        spec = ModuleSpec(name, _StubLoader(path, attributes), origin=origin, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = list(path)
        spec.has_location = origin is not None
        return spec


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def install() -> Finder:
    """Put one finder in front of all others (or return the one that is there)."""
    for finder in sys.meta_path:
        if isinstance(finder, Finder):
            return finder
    ours = Finder()
    sys.meta_path.insert(0, ours)
    return ours
