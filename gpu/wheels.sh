#!/usr/bin/env bash
# Where a package registry is reached: brings what `prepare.sh --wheels` installs where none is.
#   gpu/wheels.sh OUT [archive]
# RELEASE (0.5.12) in the environment chooses SGLang's release; the versions that it demands stand in its own metadata.
# OUT gets wheels for x86-64 Linux with Python 3.12; torch 2.11 for CUDA 13 is taken to be on the GPU machine. With
# `archive` they end up in OUT/wheels.tar.xz instead (some 45 MB in all, not 75): the wheels are stored, not deflated, and
# packed as one. That takes minutes.
set -euo pipefail
out=${1:?usage: wheels.sh OUT [archive]}
release=${RELEASE:-0.5.12}
mkdir -p "$out/wheels"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

options=(--no-deps --only-binary=:all: --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none)
for glibc in 35 34 31 28 27 26 24 17 12 5; do options+=(--platform "manylinux_2_${glibc}_x86_64"); done
options+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64 --platform linux_x86_64)

fetch() { python3 -m pip download -q "${options[@]}" -d "$@"; }

fetch "$out/wheels" "sglang==$release"
unzip -p "$out/wheels/sglang-$release"-*.whl '*.dist-info/METADATA' > "$tmp/metadata"
torch=$(sed -n 's/^Requires-Dist: torch==\([^; ]*\).*/\1/p' "$tmp/metadata")
case $torch in
  2.11.*) ;;
  *) echo "SGLang $release is made for torch $torch, this is for machines with torch 2.11: choose a RELEASE from 0.5.12 to 0.5.17" >&2
     exit 1 ;;
esac

demanded() { # NAME, or NAME==VERSION where the release demands one (`NAME[extra]==VERSION` counts)
  grep -iE "^Requires-Dist: $1(\[[^]]*\])?==[^ ;]*" "$tmp/metadata" | grep -v 'extra ==' | head -1 |
    sed -E 's/^Requires-Dist: ([A-Za-z0-9_.-]+)(\[[^]]*\])?(==[^ ;]*).*/\1\3/' | grep . || echo "$1"
}

# What the server imports. tokenizers and pydantic are those that transformers and openai of these releases take.
server=(tokenizers==0.22.2 pydantic==2.11.9 pydantic_core==2.33.2 annotated-types asttokens click compressed-tensors decorator
  dill distro executing fastapi gguf httptools importlib-metadata interegular ipython ipython-pygments-lexers jedi jiter
  jsonschema jsonschema-specifications loguru matplotlib-inline msgspec opentelemetry-api opentelemetry-sdk
  opentelemetry-semantic-conventions orjson parso partial_json_parser pexpect prompt_toolkit ptyprocess pure_eval
  pybase64 python-dotenv python-multipart pyzmq referencing rpds-py setproctitle sniffio stack_data starlette
  torch_memory_saver traitlets typing-inspection uvicorn watchfiles wcwidth websockets zstandard)
for name in transformers openai apache-tvm-ffi flashinfer_python; do server+=("$(demanded $name)"); done
# From 0.5.15 on the EAGLE worker imports it before it captures, whatever the model is.
if [ "$(printf '%s\n' 0.5.15 "$release" | sort -V | head -1)" = 0.5.15 ]; then server+=("$(demanded sgl-deep-gemm)"); fi
# What eaglelab's own commands need on that machine, to reach it with `connection: local`, through its sshd, or, where it has
# none, through the lab's SSH server (asyncssh).
commands=(invoke==2.2.1 tenacity fabric==3.2.3 'paramiko>=4,<6' bcrypt pynacl cryptography cffi pycparser 'Deprecated<2' wrapt
  ahocorasick_rs 'asyncssh>=2.18,<3')
for package in "${server[@]}" "${commands[@]}"; do
  fetch "$out/wheels" "$package"
done

# The kernels are a wheel of hundreds of MB; with triton attention the common operations for sm90 are enough.
kernels=$(demanded sglang-kernel)
fetch "$tmp" "$kernels"
(cd "$tmp" && unzip -q sglang_kernel-*.whl 'sgl_kernel/*')
find "$tmp/sgl_kernel" \( -path '*sm100*' -o -name '*flash_ops*' -o -name '*flashmla_ops*' -o -name '*infllm_ops*' -o -name '*_static.a' \) -type f -delete
tar cJf "$out/sgl_kernel.tar.xz" -C "$tmp" sgl_kernel

if [ "${2:-}" = archive ]; then
  mkdir "$tmp/stored"
  python3 - "$out/wheels" "$tmp/stored" <<'STORE'
import sys, zipfile
from pathlib import Path
for wheel in Path(sys.argv[1]).glob("*.whl"):
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(Path(sys.argv[2]) / wheel.name, "w") as new:
        for item in old.infolist():
            new.writestr(item.filename, old.read(item))
STORE
  tar c --sort=name -C "$tmp/stored" . | xz -9e > "$out/wheels.tar.xz"
  rm -r "$out/wheels"
fi
du -sh "$out"
