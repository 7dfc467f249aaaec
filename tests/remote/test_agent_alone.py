"""A moment in which one agent alone reads and writes a file that all of them share."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from eaglelab.remote.agent.flocks import alone_in


def test_of_many_that_add_to_one_file_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "loads.json"
    file.write_text("[]")

    def add(number: int) -> None:
        with alone_in(str(tmp_path)):
            known = json.loads(file.read_text())
            file.with_suffix(f".{number}").write_text(json.dumps([*known, number]))
            file.with_suffix(f".{number}").replace(file)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads(file.read_text())) == list(range(30))


def test_who_waits_gets_it_once_it_is_free(tmp_path: Path) -> None:
    came = threading.Event()

    def second() -> None:
        with alone_in(str(tmp_path)):
            came.set()

    with alone_in(str(tmp_path)):
        thread = threading.Thread(target=second)
        thread.start()
        assert not came.wait(0.05)
    thread.join()
    assert came.is_set()
