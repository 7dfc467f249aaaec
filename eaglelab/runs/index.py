"""The runs under logs/ in SQLite, so that a listing reads only those that are new or changed.

The index is a cache and nothing else: what is in it follows from the bundles, and where it is missing, damaged, of another
version, locked or not to be written, the bundles are read instead. Tables `runs` and `settings` have the columns of
`rows`; `bundles` has what each folder looked like when it was read, and a checksum of its rows.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from eaglelab.runs.digest import Stamp, digest, stamp
from eaglelab.runs.rows import RunRow, SettingRow

__all__ = ["INDEX", "Listing", "list_rows"]

INDEX = "index.sqlite"
_VERSION = 1
"""To be raised with every change of the tables, or of what `digest` makes of a bundle."""

_PATIENCE_S = 2.0

_NOT_OURS = ("locked", "unable to open", "readonly")
"""In what SQLite says of an index that is whole and somebody else's at the moment, or for good."""

_RUN = tuple(field.name for field in fields(RunRow) if field.name not in ("settings", "bundle"))
_SETTING = tuple(field.name for field in fields(SettingRow))
_TABLES = (
    "CREATE TABLE bundles (folder TEXT PRIMARY KEY, stamp TEXT NOT NULL, checksum INTEGER NOT NULL)",
    f"CREATE TABLE runs (folder TEXT NOT NULL, place TEXT NOT NULL, {', '.join(_RUN)}, PRIMARY KEY (folder, host))",
    f"CREATE TABLE settings (folder TEXT NOT NULL, host TEXT NOT NULL, {', '.join(_SETTING)})",
    "CREATE INDEX of_run ON settings (folder, host)",
)
_Rows = tuple[RunRow, ...]


@dataclass(frozen=True)
class Listing:
    """`rows` newest first; `damaged` are folders whose request.json cannot be read; `read` is how many were read anew."""

    rows: _Rows
    damaged: tuple[str, ...]
    read: int


def list_rows(logs: Path) -> Listing:
    """Every run under logs/. Brings the index up to date where that is possible, and works without it where it is not."""
    seen = dict(_folders(logs))
    known = _known(logs / INDEX, logs)
    kept = {name: known[name][1] for name, mark in seen.items() if name in known and known[name][0] == mark}
    read: dict[str, _Rows | None] = {name: digest(logs / name) for name in seen if name not in kept}
    fresh = {name: rows for name, rows in read.items() if rows is not None}
    gone = [name for name in known if name not in kept]
    if fresh or gone:
        _store(logs / INDEX, {name: (seen[name], rows) for name, rows in fresh.items()}, gone)
    every = {**kept, **fresh}
    rows = [row for name in sorted(every, reverse=True) for row in every[name]]
    return Listing(tuple(rows), tuple(sorted(set(read) - set(fresh))), len(read))


def _folders(logs: Path) -> Iterator[tuple[str, Stamp]]:
    try:
        with os.scandir(logs) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return
    for name in names:
        mark = stamp(logs / name)
        if mark is not None:
            yield name, mark


def _known(path: Path, logs: Path) -> dict[str, tuple[Stamp, _Rows]]:
    """What the index holds and its checksums confirm; nothing where it cannot be read, and a damaged one is removed."""
    if not path.exists():
        return {}
    try:
        with contextlib.closing(_connect(path)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version in (0, _VERSION):  # 0: another process is about to make its tables
                return dict(_read(connection, logs)) if version else {}
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        if any(words in str(error) for words in _NOT_OURS):
            return {}
    _remove(path)
    return {}


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)


def _read(connection: sqlite3.Connection, logs: Path) -> Iterator[tuple[str, tuple[Stamp, _Rows]]]:
    settings: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    runs: dict[str, list[tuple[Any, ...]]] = {}
    connection.execute("BEGIN")
    marks = connection.execute("SELECT folder, stamp, checksum FROM bundles").fetchall()
    for folder, *values in connection.execute(f"SELECT folder, place, {', '.join(_RUN)} FROM runs ORDER BY rowid"):  # noqa: S608
        runs.setdefault(folder, []).append(tuple(values))
    columns = ", ".join(_SETTING)
    for folder, host, *values in connection.execute(f"SELECT folder, host, {columns} FROM settings ORDER BY rowid"):  # noqa: S608
        settings.setdefault((folder, host), []).append(tuple(values))
    connection.execute("COMMIT")
    for folder, mark, checksum in marks:
        found = [(values, settings.get((folder, values[2]), [])) for values in runs.get(folder, [])]
        if checksum == _checksum(found):
            yield folder, (mark, tuple(_row(logs, values, each) for values, each in found))


def _row(logs: Path, values: tuple[Any, ...], settings: Sequence[tuple[Any, ...]]) -> RunRow:
    place, *others = values
    about = dict(zip(_RUN, others, strict=True))
    about["finished"] = bool(about["finished"])
    return RunRow(**about, bundle=str(logs / place), settings=tuple(SettingRow(*each) for each in settings))


def _values(logs: Path, row: RunRow) -> tuple[tuple[Any, ...], list[tuple[Any, ...]]]:
    """What is stored of a row. Its folder stands relative to logs/, which may be moved."""
    about = tuple(int(value) if isinstance(value, bool) else value for value in (getattr(row, name) for name in _RUN))
    return (str(Path(row.bundle).relative_to(logs)), *about), [astuple(each) for each in row.settings]


def _checksum(rows: Sequence[tuple[tuple[Any, ...], list[tuple[Any, ...]]]]) -> int:
    return zlib.crc32(repr(rows).encode("utf-8", "surrogatepass"))


def _store(path: Path, fresh: Mapping[str, tuple[Stamp, _Rows]], gone: Iterable[str]) -> None:
    """One transaction, whole or not at all. What cannot be written is read again the next time."""
    try:
        path.touch(mode=0o600)  # as private as the bundles
        with contextlib.closing(_connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            for table in ("bundles", "runs", "settings"):
                old = [(name,) for name in {*gone, *fresh} if _is_text(name)]
                connection.executemany(f"DELETE FROM {table} WHERE folder = ?", old)  # noqa: S608
            for name, (mark, rows) in fresh.items():
                _insert(connection, path.parent, name, mark, rows)
            connection.execute("COMMIT")
    except (sqlite3.Error, OSError):
        return


def _insert(connection: sqlite3.Connection, logs: Path, name: str, mark: Stamp, rows: _Rows) -> None:
    """One bundle; nothing of it where SQLite cannot hold it, such as a name that is no text."""
    connection.execute("SAVEPOINT bundle")
    try:
        _insert_rows(connection, logs, name, mark, rows)
    except (sqlite3.IntegrityError, sqlite3.InterfaceError, UnicodeError, OverflowError):
        connection.execute("ROLLBACK TO bundle")
    connection.execute("RELEASE bundle")


def _insert_rows(connection: sqlite3.Connection, logs: Path, name: str, mark: Stamp, rows: _Rows) -> None:
    stored = [_values(logs, row) for row in rows]
    connection.execute("INSERT INTO bundles VALUES (?, ?, ?)", (name, mark, _checksum(stored)))
    for about, settings in stored:
        connection.execute(f"INSERT INTO runs VALUES ({_marks(len(about) + 1)})", (name, *about))  # noqa: S608
        host = about[2]
        connection.executemany(
            f"INSERT INTO settings VALUES ({_marks(len(_SETTING) + 2)})",  # noqa: S608
            [(name, host, *each) for each in settings],
        )


def _is_text(name: str) -> bool:
    """A folder's name may hold bytes that are none."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _remove(path: Path) -> None:
    """With its journal, which would be played into the next one."""
    for each in (path.with_name(path.name + "-journal"), path):
        with contextlib.suppress(OSError):
            each.unlink()
