"""What users complain about in remote automation, and where it is shown that this tool does it right.

| # | complaint | test_complaints_ |
|---|---|---|
| 01 | a command in the background hangs the SSH call | processes |
| 02 | a background process dies with its channel | processes |
| 03 | Ctrl-C leaves work on the host, or hangs | operators |
| 04 | Ctrl-C skips one task only | operators |
| 05 | a timeout kills the local side only | processes |
| 06 | hangs on a dead link | links |
| 07 | no keepalive | links |
| 08 | done, and yet UNREACHABLE | links |
| 09 | a retry runs a task twice | links |
| 10 | a blip fails a poll, a loss is ignored | links |
| 11 | the job's record is half written | processes |
| 12 | waits for what has died | processes |
| 13 | a retry overshoots and hides the cause | processes |
| 14 | a truncated upload, an unclear full disk | links |
| 15 | much output is a deadlock | processes |
| 16 | host keys accepted blindly | links |
| 17 | `ProxyJump none` and `Include` not honoured | links |
| 18 | `IdentitiesOnly` ignored | links |
| 19 | a sudo prompt hangs | links |
| 20 | a line added again on every run | edits |
| 21 | a block added again on every run | edits |
| 22 | the same text elsewhere keeps a line out | edits |
| 23 | an upgrade breaks a patch half way | edits |
| 24 | newlines damaged | edits |
| 25 | bytes that are no UTF-8 mangled | edits |
| 26 | owner, ACL and context lost | edits |
| 27 | the mode changed | edits |
| 28 | a symlink replaced by a file | edits |
| 29 | orphaned servers | processes |
| 30 | ready too early, or falsely | processes |
| 31 | two operators on one host | operators |
| 32 | a run cannot be resumed | operators |
| 33 | overhead of every task | links |
| 34 | the dry run lies | edits |
| 35 | secrets in logs | operators |

The numbers are those of the tests' names: `test_NN_...`. Each runs on a host of its own behind OpenSSH's sshd (machine.py);
only what stands for SGLang's server there is a script (fake_server.py).
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_every_complaint_of_the_table_has_a_test_where_it_says_and_no_other() -> None:
    rows = re.findall(r"^\| (\d\d) \| .* \| (\w+) \|$", __doc__ or "", re.M)
    assert [number for number, _ in rows] == [f"{number:02d}" for number in range(1, 36)]
    found = {
        (number, path.stem.removeprefix("test_complaints_"))
        for path in FOLDER.glob("test_complaints_*.py")
        for number in re.findall(r"^def test_(\d\d)_", path.read_text(), re.M)
    }
    assert found == set(rows)
