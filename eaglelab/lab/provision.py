"""What the lab host holds: the released package from a cache, models, wrappers. Files only, no processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eaglelab.errors import HostError, InputError
from eaglelab.lab.model import Model

__all__ = ["Host", "build_home", "cache_folder", "cached_versions", "package_of"]

Say = Callable[[str], None]

VERSION = re.compile(r"\d+\.\d+\.\d+(\.post\d+|rc\d+)?")
STANDIN = Path(__file__).resolve().parent / "standin"

SHIM = '''"""The lab's server: same command line, same files, simulated GPU."""

import sys

if __name__ == "__main__":
    from eaglelab_standin.launcher import main
    from sglang.version import __version__

    sys.exit(main(sys.argv[1:], __version__))
'''

SITE = '''"""Run at the start of every Python on the lab host: sglang becomes importable without its requirements."""

from eaglelab_standin import stubs

stubs.install()
'''

CONFIG = {
    "target": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 61,
        "torch_dtype": "bfloat16",
    },
    "draft": {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "torch_dtype": "bfloat16",
    },
}
HIDDEN_SIZE = 7168


@dataclass(frozen=True)
class Host:
    """What goes into a lab host's home. `load_seconds` of wall time; `mark` is the value of EAGLELAB_LAB."""

    mark: str
    version: str
    load_seconds: float
    clock_rate: float
    model: Model
    python: str = sys.executable


def cache_folder(environ: dict[str, str] | None = None) -> Path:
    """Where released packages are kept between labs."""
    env = os.environ if environ is None else environ
    if env.get("EAGLELAB_CACHE"):
        return Path(env["EAGLELAB_CACHE"]).expanduser()
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]).expanduser() / "eaglelab"
    return Path.home() / ".cache" / "eaglelab"


def cached_versions(cache: Path) -> list[str]:
    """The releases in the cache, oldest first."""
    names = (folder.name.partition("-")[2] for folder in cache.glob("sglang-*") if folder.is_dir())
    return sorted((n for n in names if VERSION.fullmatch(n)), key=lambda n: [int(p) for p in re.findall(r"\d+", n)])


def package_of(version: str, cache: Path, say: Say) -> Path:
    """The folder that holds `sglang/` of a release; downloaded with pip on first use.

    Raises:
        InputError: that is no version number.
        HostError: pip could not get it (its last line, and which versions are here).
    """
    if not VERSION.fullmatch(version):
        raise InputError(f"{version!r} is no SGLang version", hint="a release such as --sglang 0.5.9")
    folder = cache / f"sglang-{version}"
    if (folder / "sglang").is_dir():
        return folder
    say(f"downloading sglang {version} (once; kept in {cache})")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as scratch:
        target = Path(scratch) / "package"
        _pip(version, target, cache)
        try:
            target.rename(folder)
        except OSError:
            if not (folder / "sglang").is_dir():  # else another lab-up was faster, with the same files
                raise
    return folder


def _pip(version: str, target: Path, cache: Path) -> None:
    options = ["--no-deps", "--no-compile", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--no-input", "--target", str(target)]
    done = subprocess.run([*command, f"sglang=={version}"], capture_output=True, text=True, check=False)
    if done.returncode == 0 and (target / "sglang").is_dir():
        return
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    here = ", ".join(cached_versions(cache))
    raise HostError(
        f"pip could not get sglang {version}: {lines[-1].strip() if lines else f'exit code {done.returncode}'}",
        hint=f"versions already here: {here}" if here else "no version is here yet; check the network or the proxy",
    )


def build_home(home: Path, package: Path, host: Host) -> None:
    """Lay out a lab host's home: a real copy of the package, in which only the launcher is replaced."""
    standin = home.parent / "standin"
    python_path = home / "sglang" / "python"
    shutil.copytree(package / "sglang", python_path / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
    for info in package.glob("sglang-*.dist-info"):
        shutil.copytree(info, python_path / info.name)
    (python_path / "sglang" / "launch_server.py").write_text(SHIM, encoding="utf-8")

    shutil.copytree(STANDIN, standin / "eaglelab_standin", ignore=shutil.ignore_patterns("__pycache__"))
    (standin / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    settings = {"load_seconds": host.load_seconds, "clock_rate": host.clock_rate, "model": host.model.as_settings()}
    (standin / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")

    _script(
        home / "ml-env" / "bin" / "python3",
        f'export PYTHONPATH="{python_path}:{standin}${{PYTHONPATH:+:$PYTHONPATH}}"',
        # SPT_NOENV keeps setproctitle off the environment block, by which lab-down finds what the lab started
        f"export EAGLELAB_LAB={host.mark} SPT_NOENV=1",
        f'exec "{host.python}" "$@"',
    )
    (home / "ml-env" / "bin" / "python").symlink_to("python3")
    _script(home / "bin" / "nvidia-smi", f'exec "{home}/ml-env/bin/python3" -m eaglelab_standin.nvidia_smi "$@"')
    for name, config in CONFIG.items():
        folder = home / "models" / name
        folder.mkdir(parents=True)
        sizes = {"vocab_size": host.model.vocabulary, "max_position_embeddings": host.model.context_length}
        sizes |= {"hidden_size": HIDDEN_SIZE}
        (folder / "config.json").write_text(json.dumps({**config, **sizes}, indent=1) + "\n", encoding="utf-8")
    (home / "logs").mkdir()


def _script(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    file.chmod(0o755)
