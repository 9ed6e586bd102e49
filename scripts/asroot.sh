#!/usr/bin/env bash
# Runs one command as root with this environment, after naming it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_root "$*"
if [ ${#SUDO[@]} -eq 0 ]; then
  exec "$@"
fi
printf '  as root: %s\n' "$*"
exec "${SUDO[@]}" --preserve-env env "PATH=$PATH" "$@"
