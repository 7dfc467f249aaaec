#!/usr/bin/env bash
# Makes this GPU machine ready for `python -m gpu.validate`: SGLang, what eaglelab needs, and the crafted models.
#   gpu/prepare.sh FOLDER                  from the package registry, into a virtual environment in FOLDER/venv
#   gpu/prepare.sh FOLDER --wheels DIR     from what wheels.sh brought; python3 must have torch. Into FOLDER/site
# Then it says the command that validates. What is there already is left as it is.
# In the environment: RELEASE (0.5.12) of SGLang, where it comes from the registry; ACCEPTANCE ("0.6 0.8") and LAYERS (16) of the
# models; MODELS, a folder with models that another call crafted.
set -euo pipefail
folder=${1:?usage: prepare.sh FOLDER [--wheels DIR]}
wheels=""
if [ "${2:-}" = --wheels ]; then wheels=${3:?--wheels needs a folder}; fi
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
release=${RELEASE:-0.5.12}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

from_registry() {
  [ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -q "sglang==$release" "$project[lab]"
}

# Two packages of 45 MB that SGLang imports at its start and never uses here: any name that is asked of them is a class.
stub() {  # FILE VERSION BASES
  cat > "$folder/site/$1" <<PYTHON
__version__ = "$2"

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, $3, {})
PYTHON
}

from_wheels() {
  [ ! -d "$folder/site/sglang" ] || return 0
  local from=$wheels/wheels
  if [ -f "$wheels/wheels.tar.xz" ]; then
    from=$folder/wheels
    mkdir -p "$from"
    tar xJf "$wheels/wheels.tar.xz" -C "$from"
  fi
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$folder/site" "$from"/*.whl
  tar xJf "$wheels/sgl_kernel.tar.xz" -C "$folder/site"
  # The kernels' wheel was left behind: its version is looked up where its metadata would be.
  local kernels
  kernels=$(demanded sglang-kernel)
  mkdir -p "$folder/site/sglang_kernel-$kernels.dist-info" "$folder/site/xgrammar"
  printf 'Metadata-Version: 2.1\nName: sglang-kernel\nVersion: %s\n' "$kernels" \
    > "$folder/site/sglang_kernel-$kernels.dist-info/METADATA"
  local file
  for file in __init__ structural_tag; do  # 0.5.17 imports the second, too
    stub xgrammar/$file.py "$(demanded xgrammar)" '(__import__("pydantic").BaseModel,)'
  done
  stub soundfile.py "$(demanded soundfile)" '()'
}

demanded() { # the version of a package that this SGLang demands
  sed -n "s/^Requires-Dist: $1==\([^ ;]*\).*/\1/p" "$folder"/site/sglang-*.dist-info/METADATA | head -1
}

if [ -n "$wheels" ]; then
  from_wheels
  python=python3
  export PYTHONPATH="$folder/site:$project"
  more=" --site $folder/site"
else
  from_registry
  python=$folder/venv/bin/python
  export PYTHONPATH="$project"
  more=""
fi
models=${MODELS:-$folder/models}
if [ ! -f "$models/ready" ]; then
  # shellcheck disable=SC2086 -- several words on purpose
  (cd "$project" && "$python" -m gpu.craft "$models" --acceptance ${ACCEPTANCE:-0.6 0.8} --layers "${LAYERS:-16}")
  touch "$models/ready"
fi
echo "ready; now:"
echo "  PYTHONPATH=$PYTHONPATH $python -m gpu.validate --models $models$more --out $folder/validation"
