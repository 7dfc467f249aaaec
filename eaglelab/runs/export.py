"""The runs' rows as files that other tools read: CSV and JSON lines, and Parquet with pyarrow."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from eaglelab.errors import InputError
from eaglelab.runs.rows import EXPORTED, RunRow, flat

__all__ = ["check_format", "export"]


def check_format(file: str) -> None:
    """Raises InputError where the ending of `file` names no format."""
    ending = Path(file).suffix
    if ending.lower() not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise InputError(f"'{ending or file}' is no format", where="--export", hint=f"a file that ends in {known}")


def export(rows: Sequence[RunRow], file: str) -> int:
    """Writes a row for each setting of each run, all columns of `EXPORTED`; the ending of `file` says which format.

    Returns how many rows. Raises InputError for another ending, a file that cannot be written, or a library that is not
    installed.
    """
    check_format(file)
    path, found = Path(file), list(flat(rows))
    try:
        _WRITERS[path.suffix.lower()](found, path)
    except OSError as error:
        raise InputError(f"cannot write it: {error.strerror or error}", where=file, hint="--export FILE") from error
    return len(found)


_Rows = Sequence[Mapping[str, object]]


def _csv(rows: _Rows, path: Path) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.DictWriter(file, EXPORTED, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _jsonl(rows: _Rows, path: Path) -> None:
    path.write_text("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows), encoding="utf-8")


def _parquet(rows: _Rows, path: Path) -> None:
    try:
        pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        what = "Parquet needs pyarrow, which is not installed"
        raise InputError(what, where="--export", hint="pip install 'eaglelab[export]', or export to .csv") from error
    kinds = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "float": pa.float64()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in EXPORTED.items()])
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), path)


_WRITERS: Mapping[str, Callable[[_Rows, Path], None]] = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
