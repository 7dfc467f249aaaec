"""A project with several labs: as many hosts, each with its own SSH server, home and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from scene import Scene, picture

from eaglelab.lab import lab
from eaglelab.lab.lab import LabInfo, LabOptions

__all__ = ["Fleet"]


@dataclass(frozen=True)
class Fleet:
    """`labs` by the name of the host; the group `all` has them all."""

    scene: Scene
    labs: dict[str, LabInfo]

    @classmethod
    def up(cls, folder: Path, names: Sequence[str], load_seconds: float = 0.3, sglang: str = "0.5.9") -> Fleet:
        scene = Scene.make(folder)
        scene.env["EAGLELAB_HOST"] = "all"
        labs = {}
        try:
            for name in names:
                options = LabOptions(folder / f"lab-{name}", sglang=sglang, load_seconds=load_seconds)
                labs[name] = lab.up(options, lambda _: None)
        except BaseException:
            for name in labs:
                lab.down(folder / f"lab-{name}", lambda _: None)
            raise
        made = cls(scene, labs)
        made.write_inventory({"all": list(labs)})
        return made

    def write_inventory(self, groups: Mapping[str, Any], ports: Mapping[str, int] | None = None) -> None:
        """`ports`: other ways to the SSH servers of some hosts."""
        hosts = {name: _entry(info) for name, info in self.labs.items()}
        for name, port in (ports or {}).items():
            hosts[name]["port"] = port
        text = yaml.safe_dump({"hosts": hosts, "groups": dict(groups)})
        (self.scene.folder / "inventory.yaml").write_text(text)

    def down(self) -> None:
        for name in self.labs:
            lab.down(self.scene.folder / f"lab-{name}", lambda _: None)

    def pictures(self) -> dict[str, Any]:
        """Every file of SGLang on every host."""
        return {name: picture(Path(info.home) / "sglang/python/sglang") for name, info in self.labs.items()}


def _entry(info: LabInfo) -> dict[str, Any]:
    return {
        **{key: getattr(info, key) for key in ("address", "port", "user", "key", "known_hosts", "log")},
        **{key: getattr(info, key).replace("~", info.home, 1) for key in ("python", "sglang")},
        "ssh_config": False,
        "expected_load": 1,
        "server": {
            "port": info.server_port,
            "model_path": info.model_path.replace("~", info.home, 1),
            "speculative": {"draft_model_path": info.draft_path.replace("~", info.home, 1)},
        },
    }
