#!/usr/bin/env bash
# From a checkout to edited documents: set-up, build, root file system (once), demo.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
scripts/setup.sh demo
need_root "make demo"
owner=$(id -u):$(id -g)
export XDG_DATA_HOME=${XDG_DATA_HOME:-$HOME/.local/share}
if [ -x bin/airlock ]; then
  make -s build
else
  # The first time: compiling airlock and making the root file system take minutes each, so they go side by side.
  export AIRLOCK_ROOTFS=${AIRLOCK_ROOTFS:-$XDG_DATA_HOME/airlock/rootfs}
  echo "building bin/airlock and the root file system of the sandboxes, which takes some minutes, once"
  go build -o bin/tools/rootfs ./scripts/rootfs
  privileged --preserve-env bin/tools/rootfs &
  made=$!
  trap 'kill $made 2>/dev/null' EXIT
  # The root file system is what there is to wait for in the end, so the compiler takes what it leaves. Collecting its
  # garbage costs the compiler a good part of its time, and it has memory for a minute.
  GOGC=400 nice make -s build
  wait $made
  trap - EXIT
fi
privileged --preserve-env bin/airlock demo --out ./airlock-demo
[ ${#SUDO[@]} -eq 0 ] || privileged chown -R "$owner" ./airlock-demo
