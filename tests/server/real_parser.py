"""Parses a command line with the real parser of an unpacked release's bench_serving; prints what it made of it as JSON.

    python real_parser.py FOLDER ARGUMENT...

Whatever it imports beside the standard library and its own files is a stub. Nothing is sent: parsing ends the process.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import warnings
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

OWN = ("sglang.bench_serving", "sglang.benchmark")


class Anything(type):
    """Classes of a stub: whatever is done with them gives one of them."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __or__(cls, _: object) -> Any:
        return cls

    __ror__ = __or__


class Something(metaclass=Anything):
    def __init_subclass__(cls, **_: object) -> None:
        """`msgspec.Struct` takes keywords here."""

    def __new__(cls, *args: Any, **_: object) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else cls  # as a decorator, too


class Stubs:
    """Answers for every module that is neither of the standard library nor bench_serving's own."""

    def find_spec(self, name: str, path: Any = None, _: object = None) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or name.startswith(OWN):
            return PathFinder.find_spec(name, path) if name.startswith(OWN) else None
        spec = ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = [f"{sys.path[0]}/sglang"] if name == "sglang" else []
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        module.__getattr__ = lambda name: _named(module, name)


def _named(module: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Something


def parse_and_end(parser: argparse.ArgumentParser, *_: object) -> None:
    parser.allow_abbrev = False  # a flag that is merely the beginning of another is not known
    found, unknown = parser.parse_known_args()
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    print(json.dumps(vars(found), default=str))
    sys.exit(0)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv.pop(1))
    sys.meta_path.insert(0, Stubs())
    warnings.simplefilter("ignore")
    argparse.ArgumentParser.parse_args = parse_and_end  # type: ignore[method-assign,assignment]
    runpy.run_module("sglang.bench_serving", run_name="__main__", alter_sys=True)
