"""The cases of rules, as facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from eaglelab.diagnosis.facts import Facts, Sheet
from eaglelab.diagnosis.names import NAMES

FOLDER = Path(__file__).parents[1] / "cases" / "diagnosis"


def all_cases() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for code, case in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            assert code not in found, f"{code} has cases in two files"
            found[code] = case
    return found


def as_facts(values: Mapping[str, Any]) -> Facts:
    whole, setting = Sheet(), Sheet()
    for name, value in values.items():
        (setting if NAMES[name].each else whole).put(name, value, "a test")
    if not setting.facts:
        return Facts(whole.facts)
    label = f"{values.get('steps', 2)} steps, batch {values.get('batch', 1)}"
    setting.put("setting", label, "a test")
    return Facts(whole.facts, {label: setting.facts})
