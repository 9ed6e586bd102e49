#!/usr/bin/env bash
# From a checkout to edited documents: set-up, build, root file system (once), demo.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
scripts/setup.sh demo
need_root "make demo"
echo "building bin/airlock"
make -s build
owner=$(id -u):$(id -g)
export XDG_DATA_HOME=${XDG_DATA_HOME:-$HOME/.local/share}
privileged --preserve-env bin/airlock demo --out ./airlock-demo
[ ${#SUDO[@]} -eq 0 ] || privileged chown -R "$owner" ./airlock-demo
