#!/bin/sh
# Prints the extra of `mlx` that this machine needs: nothing on macOS, else cpu, cuda12 or cuda13.
[ "$(uname -s)" = Darwin ] && exit 0
if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  version=$(nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1)
  if [ "${version:-0}" -ge 13 ]; then echo cuda13; else echo cuda12; fi
else
  echo cpu
fi
