#!/usr/bin/env bash
# Where a package registry is reached: brings what `prepare.sh --wheels` installs where none is.
#   gpu/wheels.sh OUT [archive]
# OUT gets wheels for x86-64 Linux with Python 3.12; torch 2.11 for CUDA 13 is taken to be on the GPU machine. With
# `archive` they end up in OUT/wheels.tar.xz instead (43 MB in all, not 74): the wheels are stored, not deflated, and
# packed as one. That takes minutes.
set -euo pipefail
out=${1:?usage: wheels.sh OUT [archive]}
release=0.5.12
mkdir -p "$out/wheels"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

options=(--no-deps --only-binary=:all: --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none)
for glibc in 35 34 31 28 27 26 24 17 12 5; do options+=(--platform "manylinux_2_${glibc}_x86_64"); done
options+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64 --platform linux_x86_64)

# What the server imports. transformers, tokenizers, pydantic, openai and tvm-ffi are those that the release names.
server=(sglang==$release transformers==5.6.0 tokenizers==0.22.2 pydantic==2.11.9 pydantic_core==2.33.2 openai==2.6.1
  apache-tvm-ffi==0.1.9 flashinfer_python==0.6.11.post1 annotated-types asttokens click compressed-tensors decorator dill
  distro executing fastapi gguf httptools importlib-metadata interegular ipython ipython-pygments-lexers jedi jiter
  jsonschema jsonschema-specifications loguru matplotlib-inline msgspec opentelemetry-api opentelemetry-sdk
  opentelemetry-semantic-conventions orjson parso partial_json_parser pexpect prompt_toolkit ptyprocess pure_eval
  pybase64 python-dotenv python-multipart pyzmq referencing rpds-py setproctitle sniffio stack_data starlette
  torch_memory_saver traitlets typing-inspection uvicorn watchfiles wcwidth websockets zstandard)
# What eaglelab's own commands need on that machine, to reach it with `connection: local` or through its sshd.
commands=(invoke==2.2.1 tenacity fabric==3.2.3 'paramiko>=4,<6' bcrypt pynacl cryptography cffi pycparser 'Deprecated<2' wrapt
  ahocorasick_rs)
for package in "${server[@]}" "${commands[@]}"; do
  python3 -m pip download -q "${options[@]}" -d "$out/wheels" "$package"
done

# The kernels are a wheel of more than 500 MB; with triton attention the common operations for sm90 are enough.
python3 -m pip download -q "${options[@]}" -d "$tmp" sglang-kernel==0.4.2.post2
(cd "$tmp" && unzip -q sglang_kernel-*.whl -x '*flash_ops*' '*flashmla_ops*' '*sm100*' '*_static.a')
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
