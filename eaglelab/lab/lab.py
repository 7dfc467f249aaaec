"""`lab-up` and `lab-down`: a loopback host with a simulated GPU that needs no set-up and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eaglelab.errors import HostError, InputError
from eaglelab.lab import processes, provision
from eaglelab.lab.model import read_model
from eaglelab.lab.ports import lasting_port

__all__ = ["LabInfo", "LabOptions", "down", "info", "up"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class LabOptions:
    """What a lab is made from.

    `load_seconds` is the wall time of a server's load, its warm-up pause included; `clock_rate` how much faster than wall time the simulated
    GPU's clock runs; `model` a file like `default-model.yaml`; `port` 0 takes a free one.
    """

    root: Path
    sglang: str = "0.5.9"
    load_seconds: float = 3.0
    clock_rate: float = 8.0
    model: Path | None = None
    port: int = 0

    def __post_init__(self) -> None:
        if not self.load_seconds >= 0:
            raise InputError(f"--load-seconds {self.load_seconds}: not a time", hint="0 or more seconds")
        if not 0.1 <= self.clock_rate <= 100:
            raise InputError(f"--clock-rate {self.clock_rate}: not a usable rate", hint="from 0.1 to 100")
        if not 0 <= self.port <= 65535:
            raise InputError(f"--port {self.port}: not a port", hint="1 to 65535, or 0 for a free one")

    def asked(self) -> dict[str, object]:
        """What decides whether a running lab is the one asked for; the model counts by its content."""
        model = read_model(self.model).as_settings()
        return {
            "sglang": self.sglang,
            "load_seconds": self.load_seconds,
            "clock_rate": self.clock_rate,
            "model": json.loads(json.dumps(model)),
            "port": self.port,
        }


@dataclass(frozen=True)
class LabInfo:
    """A lab that is up (`lab.json`). Paths that begin with `~` are on the lab host; `pid` is the SSH server's."""

    address: str
    port: int
    user: str
    key: str
    known_hosts: str
    pid: int
    pid_start: str
    home: str
    python: str
    sglang: str
    log: str
    model_path: str
    draft_path: str
    sglang_version: str
    load_seconds: float
    clock_rate: float
    server_port: int
    mark: str
    options: dict[str, object]


def info(root: Path) -> LabInfo | None:
    """The lab of a folder, if its SSH server lives."""
    data = _read(root)
    if data is None or processes.start_time(data.pid) != data.pid_start:
        return None
    return data


def _read(root: Path) -> LabInfo | None:
    try:
        return LabInfo(**json.loads((root / "lab.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def up(options: LabOptions, say: Say) -> LabInfo:
    """Bring the lab up and return once its SSH server has let the lab's key in.

    The same call again changes nothing and says so.

    Raises:
        InputError: an option is wrong, or a lab with other options is up.
        HostError: the package cannot be had, or the SSH server does not start.
    """
    _check_machine()
    with _one_at_a_time(options.root.resolve()) as root:
        return _up(options, root, say)


def _up(options: LabOptions, root: Path, say: Say) -> LabInfo:
    model = read_model(options.model)
    asked = options.asked()
    running = info(root)
    if running is not None:
        if running.options != asked:
            changed = ", ".join(name for name, value in asked.items() if running.options.get(name) != value)
            raise InputError(f"a lab with other options is up ({changed})", hint="invoke lab-down")
        say(f"the lab is up already: {running.user}@{running.address}:{running.port}, sglang {running.sglang_version}")
        return running
    package = provision.package_of(options.sglang, provision.cache_folder(), say)
    if root.exists():
        say("clearing what an earlier lab left")
        _down(root, say)
    mark = uuid.uuid4().hex
    root.mkdir(parents=True)
    (root / "mark").write_text(mark, encoding="utf-8")
    say(f"laying out the host with sglang {options.sglang}")
    home = root / "host" / "home"
    home.mkdir(parents=True)
    provision.build_home(
        home, package, provision.Host(mark, options.sglang, options.load_seconds, options.clock_rate, model)
    )
    try:
        lab = _start(options, root, home, mark, asked)
    except BaseException:
        processes.end_marked(mark)
        raise
    say(f"the lab is up: {lab.user}@{lab.address}:{lab.port}, sglang {lab.sglang_version}, simulated GPU")
    return lab


def down(root: Path, say: Say) -> None:
    """End everything the lab started, on its host too, see that it is gone, and remove the folder. Twice is fine.

    Raises:
        AttentionError: a process of the lab does not end (nothing is removed then).
    """
    with _one_at_a_time(root.resolve()) as folder:
        if folder.exists():
            _down(folder, say)
        else:
            say("no lab here")


def _down(root: Path, say: Say) -> None:
    try:
        mark = (root / "mark").read_text(encoding="utf-8")
    except OSError:
        raise InputError("this folder is no lab, so it is left alone", where=str(root)) from None
    ended = processes.end_marked(mark)
    shutil.rmtree(root)
    say(f"the lab is gone ({ended} processes ended)")


@contextmanager
def _one_at_a_time(root: Path) -> Iterator[Path]:
    """Let only one `up` or `down` work on a root: a lock on the folder above it, which leaves no file behind."""
    import fcntl  # absent where the lab cannot run

    root.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(root.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield root
    finally:
        os.close(folder)


def _check_machine() -> None:
    if not sys.platform.startswith("linux"):
        raise HostError("the embedded lab needs Linux", hint="use a host of the inventory instead: --host NAME")
    try:
        import asyncssh  # noqa: F401
    except ImportError:
        raise HostError("the embedded lab needs asyncssh", hint="pip install 'eaglelab[lab]'") from None


def _start(options: LabOptions, root: Path, home: Path, mark: str, asked: dict[str, object]) -> LabInfo:
    """Start the SSH server, log in once, and write down what there is."""
    from eaglelab.lab import daemon  # needs asyncssh, which only the lab does

    server = daemon.start(root, home, mark, options.port)
    daemon.log_in(server, mark)
    lab = LabInfo(
        address=daemon.ADDRESS,
        port=server.port,
        user=daemon.USER,
        key=str(server.keys.client),
        known_hosts=str(server.known_hosts),
        pid=server.pid,
        pid_start=processes.start_time(server.pid),
        home=str(home),
        python="~/ml-env/bin/python3",
        sglang="~/sglang",
        log="~/logs/sglang.log",
        model_path="~/models/target",
        draft_path="~/models/draft",
        sglang_version=options.sglang,
        load_seconds=options.load_seconds,
        clock_rate=options.clock_rate,
        server_port=lasting_port(),
        mark=mark,
        options=asked,
    )
    written = root / "lab.json.new"
    written.write_text(json.dumps(dataclasses.asdict(lab), indent=1) + "\n", encoding="utf-8")
    written.rename(root / "lab.json")
    return lab
