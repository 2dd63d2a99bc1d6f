#!/bin/sh
# Prints the first Python on PATH that is 3.11 to 3.13 and can make virtual environments.
for python in python3 python3.12 python3.13 python3.11 python; do
  if "$python" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
    >/dev/null 2>&1; then
    command -v "$python"
    exit 0
  fi
done
echo "Python 3.11, 3.12 or 3.13 with the venv module is needed; none is on PATH" \
  "(Debian and Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.12)" >&2
exit 1
