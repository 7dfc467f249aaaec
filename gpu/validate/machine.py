"""Where the servers run: on this machine's GPUs, or on the embedded lab."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from eaglelab.lab.model import read_model
from eaglelab.sweep.one_load import adaptive_config, release
from gpu.lab_truth import LabTruth
from gpu.truth import CraftedTruth, Truth
from gpu.validate.clocks import Unwatched, Watch, gpu_count
from gpu.validate.setting import CANDIDATES, Flags, Setting, merged, server_entry
from gpu.validate.workspace import CommandError, Workspace

__all__ = ["Gpu", "Lab", "Machine", "installed_release"]

_NO_LIMIT = 10**9
_PORTS = 1500
"""Between servers that are up at once: SGLang takes other ports near its own."""

_ONE_WORKER = (0, 5, 13)
"""From this release on there is no worker of the kind that v1 was."""
_GRAPHS_BY_PHASE = (0, 5, 16)
"""From this release on graphs are captured for prefill too, and the flags name the phase (read in 0.5.12, 0.5.16 and 0.5.17 only)."""


@dataclass
class Machine(ABC):
    """A way to run servers whose truth is known.

    `state`: the folder in which the agent there keeps what it remembers. `mid_load`: seconds after its start at which a
    server is still loading. `too_much`: flags with which one cannot come up. `gpu`: index of the GPU of one-GPU servers. Loads take `load_s`, `step_s` more for each
    step count to choose from, and `first_s` more the first time.
    `release`: the SGLang of its servers. `patience`: a part may take so many times what it is expected to.
    """

    workspace: Workspace
    release: str

    label: str = field(default="", init=False)
    gpu: int = field(default=0, init=False)
    mid_load: float = field(default=0.0, init=False)
    too_much: Flags = field(default=(), init=False)
    load_s: float = field(default=0.0, init=False)
    step_s: float = field(default=0.0, init=False)
    first_s: float = field(default=0.0, init=False)
    patience: float = field(default=2.0, init=False)

    @property
    @abstractmethod
    def state(self) -> Path: ...

    @property
    @abstractmethod
    def port(self) -> int:
        """Where the server listens on loopback."""

    def why_not(self, setting: Setting) -> str | None:
        """Why there can be no such server; None where there can."""
        number = release(self.release)
        if setting.worker == "v1" and number is not None and number >= _ONE_WORKER:
            return f"SGLang {self.release} has no worker v1"
        return self._missing(setting)

    @abstractmethod
    def _missing(self, setting: Setting) -> str | None:
        """What `setting` needs and this machine has not; None where it has all."""

    @abstractmethod
    def entry(self, setting: Setting) -> dict[str, Any]:
        """Makes ready for a server of `setting`, and returns the inventory's entry of its host."""

    def entry_by(self, way: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
        """The same for a host that is reached by another `way` (`LoopbackServer.entry`)."""
        return {**self.entry(setting), **way}

    @abstractmethod
    def truth(self, acceptance: float) -> Truth:
        """What the models must do."""

    @abstractmethod
    def close(self) -> None:
        """Ends what `entry` began."""

    @abstractmethod
    def beside(self, name: str, number: int) -> Machine:
        """The same for one more server at the same time; `number`, from 1 on, is its own. Raises CommandError."""

    def watch(self) -> Unwatched:
        """Samples the GPU's clocks for as long as it is held open."""
        return Unwatched()

    def load_seconds(self, setting: Setting) -> float:
        """What a load is expected to take."""
        first = not any((self.workspace.folder / "logs").glob("*-play-*"))
        return self.load_s + self.step_s * len(setting.candidates) + (self.first_s if first else 0.0)

    def _candidates(self, setting: Setting) -> str:
        """`--speculative-adaptive-config` as this release reads it, written where server and validation both see it."""
        counts = list(setting.candidates or CANDIDATES)
        file = self.workspace.folder / f"steps-{'.'.join(map(str, counts))}.json"
        file.write_text(json.dumps(adaptive_config(self.release, counts)), encoding="utf-8")
        return str(file)


def installed_release(python: str, site: Path | None) -> str:
    """The SGLang that `python` has, or that lies in `site`. Raises CommandError where there is none."""
    if site is not None:
        versions = [
            folder.name.removeprefix("sglang-").removesuffix(".dist-info") for folder in site.glob("sglang-*.dist-info")
        ]
        if len(versions) != 1:
            raise CommandError(
                f"there must be one sglang in {site}, not {len(versions)}: make it anew with gpu/prepare.sh"
            )
        return versions[0]
    asked = [python, "-c", "from importlib.metadata import version; print(version('sglang'))"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{python} does not say which SGLang it has: {error}") from error
    if done.returncode != 0:
        raise CommandError(f"{python} has no sglang: gpu/prepare.sh installs it, or give --site")
    return done.stdout.strip()


@dataclass
class Gpu(Machine):
    """This machine. `site`: folder with sglang/ if it is not installed in `python`; `index`: the GPU for one-GPU servers.

    `spare`: an untouched copy of `site`, from which servers that are up at the same time get trees of their own.
    The times are those of an H200: the first load compiles kernels, and each captured step count takes its own.
    """

    models: Path
    python: str
    site: Path | None
    index: int
    server_port: int
    log: Path
    spare: Path | None = None

    def __post_init__(self) -> None:
        self.label, self.mid_load, self.gpu = "real GPU", 20.0, self.index
        self.load_s, self.step_s, self.first_s = 60.0, 8.0, 65.0
        # Nearly all memory for the KV cache, and graphs for batches whose activations then find no room.
        self.too_much = (("mem-fraction-static", 0.985), ("max-total-tokens", _NO_LIMIT))
        self.too_much += ((self._graphs, 2048), ("max-running-requests", 2048))

    @property
    def _by_phase(self) -> bool:
        number = release(self.release)
        return number is not None and number >= _GRAPHS_BY_PHASE

    @property
    def _graphs(self) -> str:
        """The flag of the largest batch whose decode is captured."""
        return "cuda-graph-max-bs-decode" if self._by_phase else "cuda-graph-max-bs"

    @property
    def state(self) -> Path:
        base = os.environ.get("XDG_STATE_HOME")
        return (Path(base) if base else Path.home() / ".local/state") / "eaglelab"

    @property
    def port(self) -> int:
        return self.server_port

    def _missing(self, setting: Setting) -> str | None:
        draft = self.models / f"draft-{setting.acceptance}"
        if not draft.exists():
            return f"there is no {draft}"
        there = gpu_count() if setting.tp_size > 1 else 1
        return None if there >= setting.tp_size else f"it needs {setting.tp_size} GPUs, there are {there}"

    def entry(self, setting: Setting) -> dict[str, Any]:
        env = {"SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK": "1"}
        env |= {"PYTHONPATH": str(self.site)} if self.site else {}
        # While servers load at the same time, the memory that is free on one GPU and another differs for a moment.
        env |= (
            {"CUDA_VISIBLE_DEVICES": str(self.index)}
            if setting.tp_size == 1
            else {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}
        )
        flags = {
            "skip-tokenizer-init": True,
            "attention-backend": "triton",
            "sampling-backend": "pytorch",
            "grammar-backend": "none",
            "mem-fraction-static": 0.9,
            "max-total-tokens": 16384,  # several servers share the GPU
            self._graphs: 8,
            "disable-radix-cache": True,
            "sleep-on-idle": True,  # those that are not asked leave the host alone
        }
        if self._by_phase:
            flags["disable-prefill-cuda-graph"] = True  # as before that release, and loads are shorter
        base = {
            "connection": "local",
            "python": self.python,
            "log": str(self.log),
            "expected_load": self.load_seconds(setting),
            "ready_timeout": 400,
            "server": {
                "port": self.server_port,
                "model_path": str(self.models / "target"),
                "speculative": {"draft_model_path": str(self.models / f"draft-{setting.acceptance}")},
                "flags": flags,
                "env": env,
            },
        }
        return merged(base, {"server": server_entry(setting, self._candidates(setting))})

    def truth(self, acceptance: float) -> Truth:
        return CraftedTruth.read(self.models / f"truth-{acceptance}.json")

    def beside(self, name: str, number: int) -> Machine:
        if self.spare is None:
            raise CommandError("several servers at once need --spare, an untouched copy of --site")
        folder = self.workspace.folder.parent / "beside" / name
        site = folder / "site"
        if not site.exists():
            _copy_site(self.spare, site)
        workspace = Workspace(folder / "work", {"XDG_STATE_HOME": str(folder / "state")})
        port, log = self.server_port + _PORTS * number, folder / "server.log"
        return Gpu(workspace, self.release, self.models, self.python, site, self.index, port, log)

    def watch(self) -> Unwatched:
        return Watch(self.index)

    def close(self) -> None:
        """Nothing: the server is rolled back by whoever started it."""


def _copy_site(spare: Path, site: Path) -> None:
    """SGLang itself is patched, so it is copied; all else is a link. Whole or not at all."""
    new = site.with_name("site.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for entry in spare.iterdir():
        if entry.name != "sglang":
            (new / entry.name).symlink_to(entry)
    shutil.copytree(spare / "sglang", new / "sglang")
    new.rename(site)


def _at_home(settings: Mapping[str, Any], home: str) -> dict[str, Any]:
    """With the `~/` of the lab's paths written out: another server may have another home."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found[name] = _at_home(value, home)
        else:
            found[name] = f"{home}/{value[2:]}" if isinstance(value, str) and value.startswith("~/") else value
    return found


@dataclass
class Lab(Machine):
    """The embedded lab, brought up anew for another acceptance: that is a property of its model there."""

    clock_rate: float = 8.0

    def __post_init__(self) -> None:
        self.label, self.mid_load, self.load_s = "simulated GPU", 1.0, 6.0
        self.patience = 20.0  # it shares its processors with whatever else runs
        # No memory runs out here: any server that ends while it loads must do.
        self.too_much = (("speculative-adaptive", True), ("speculative-adaptive-config", "/there/is/no/such/file"))
        self._up: float | None = None

    @property
    def state(self) -> Path:
        return self.workspace.folder / ".lab/host/home/.local/state/eaglelab"

    @property
    def port(self) -> int:
        return int(json.loads((self.workspace.folder / ".lab/lab.json").read_text())["server_port"])

    def _missing(self, setting: Setting) -> str | None:
        return "the simulated GPU has no device timer of SGLang" if setting.device_timer else None

    def entry(self, setting: Setting) -> dict[str, Any]:
        if self._up != setting.acceptance:
            self.close()
            self._bring_up(setting.acceptance)
        server = server_entry(setting, self._candidates(setting))
        return {"connection": "lab", "expected_load": 3, "server": server}

    def entry_by(self, way: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
        """`connection: lab` fills in what is there; another way must say it."""
        entry = self.entry(setting)
        lab = json.loads((self.workspace.folder / ".lab/lab.json").read_text())
        server = {"port": lab["server_port"], "model_path": lab["model_path"]}
        server |= {"speculative": {"draft_model_path": lab["draft_path"]}}
        there = {name: lab[name] for name in ("python", "sglang", "log")} | {"server": server}
        return {**merged(entry, _at_home(there, str(self.workspace.folder / ".lab/host/home"))), **way}

    def _bring_up(self, acceptance: float) -> None:
        model: dict[str, Any] = read_model().as_settings()
        model["acceptance"] = {"seed": 1, "survival": [acceptance]}
        # The first and last row of the built-in costs of verify: in between they bend, and a prediction takes a line.
        rows = sorted(model["gpu_ms"]["verify"].items())
        model["gpu_ms"]["verify"] = dict([rows[0], rows[-1]])
        file = self.workspace.folder / "lab-model.yaml"
        file.write_text(yaml.safe_dump(model), encoding="utf-8")
        options = ["--sglang", self.release, "--clock-rate", str(self.clock_rate), "--model", str(file)]
        self.workspace.invoke("lab-up", "--load-seconds", "2", *options, timeout=120)
        self._up = acceptance

    def beside(self, name: str, number: int) -> Machine:  # noqa: ARG002 - a lab finds its ports by itself
        return Lab(Workspace(self.workspace.folder.parent / "beside" / name, {}), self.release, self.clock_rate)

    def truth(self, acceptance: float) -> Truth:
        return LabTruth(acceptance, seed=1, vocabulary=read_model().vocabulary)

    def close(self) -> None:
        if self._up is not None:
            self.workspace.invoke("lab-down", timeout=60)
            self._up = None
