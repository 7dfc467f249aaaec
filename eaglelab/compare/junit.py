"""Verdicts as JUnit XML: a test suite a candidate, a test case for each gate and setting."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from eaglelab.compare.comparison import Comparison
from eaglelab.compare.verdicts import Verdict
from eaglelab.compare.words import sentences

__all__ = ["junit_xml"]

# What XML 1.0 cannot hold, even escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(judged: Sequence[tuple[Comparison, Sequence[Verdict]]]) -> str:
    """The whole document. Attributes are those of the schema that Jenkins' xUnit plugin checks with."""
    root = ET.Element("testsuites", _counts([verdict for _, verdicts in judged for verdict in verdicts]))
    for comparison, verdicts in judged:
        _suite(root, comparison, verdicts)
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, comparison: Comparison, verdicts: Sequence[Verdict]) -> None:
    name = f"{comparison.candidate.names} against {comparison.reference.names}"
    suite = ET.SubElement(root, "testsuite", {"name": _clean(name), **_counts(verdicts)})
    properties = ET.SubElement(suite, "properties")
    for key, value in (("reference", comparison.reference.names), ("candidate", comparison.candidate.names)):
        ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    for verdict in verdicts:
        about = {"classname": f"eaglelab.compare.{verdict.gate.metric.name}", "name": _clean(verdict.name), "time": "0"}
        case = ET.SubElement(suite, "testcase", about)
        if verdict.held:
            ET.SubElement(case, "system-out").text = _clean(verdict.what)
        else:
            failure = ET.SubElement(case, "failure", {"message": _clean(verdict.what), "type": "GateMissed"})
            failure.text = _clean(f"{verdict.name}: {verdict.what}")
    ET.SubElement(suite, "system-out").text = _clean("\n".join(sentences(comparison)))


def _counts(verdicts: Sequence[Verdict]) -> dict[str, str]:
    missed = sum(not verdict.held for verdict in verdicts)
    return {"tests": str(len(verdicts)), "failures": str(missed), "errors": "0", "time": "0"}


def _clean(text: str) -> str:
    return _ILLEGAL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
