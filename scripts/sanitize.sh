#!/usr/bin/env bash
# The native kernel under address and undefined-behaviour sanitizers: random jobs without Python,
# then the kernel's own tests with Python. Usage: scripts/sanitize.sh PYTHON [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 rounds=${2:-3000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernel=(preprocess/native/{pipeline,filter,png,plain,avx2,avx512,neon}.c)
flags=(-std=c11 -O1 -g -ffp-contract=off -fno-omit-frame-pointer -Wall -Wextra -Wconversion -Werror
  -fsanitize=address,undefined -fno-sanitize-recover=all)
cc=${CC:-cc}

"$cc" "${flags[@]}" tests/fuzz/kernel_fuzz.c "${kernel[@]}" -o "$work/fuzz" -lm
seed=$(date +%s)
echo "kernel_fuzz $seed $rounds"
"$work/fuzz" "$seed" "$rounds"

include=$("$python" -c "import sysconfig; print(sysconfig.get_path('include'))")
"$cc" "${flags[@]}" -shared -fPIC -DPy_LIMITED_API=0x030B0000 "-I$include" \
  preprocess/native/module.c "${kernel[@]}" -o "$work/_kernel.abi3.so" -lm
# Loaded in place of the installed one: `from . import _kernel` finds it.
cat > "$work/sanitized_kernel.py" <<'PLUGIN'
import importlib.util, pathlib, sys

name = "kimi_serve.preprocess.native._kernel"
path = pathlib.Path(__file__).with_name("_kernel.abi3.so")
spec = importlib.util.spec_from_file_location(name, path)
sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[name])

import kimi_serve.preprocess.native

kimi_serve.preprocess.native._kernel = sys.modules[name]
PLUGIN
# Python itself leaks at its end, by design; kernel_fuzz looks for leaks.
LD_PRELOAD="$("$cc" -print-file-name=libasan.so) $("$cc" -print-file-name=libubsan.so)" \
ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
KIMI_SERVE_REQUIRE_KERNEL=1 KERNEL_ROUNDS=${KERNEL_ROUNDS:-300} PYTHONPATH=$work \
  "$python" -m pytest -q -p sanitized_kernel -p no:cacheprovider \
  tests/unit/test_native_kernel.py tests/unit/test_native_border.py tests/unit/test_native_choice.py \
  tests/unit/test_plain_png.py
