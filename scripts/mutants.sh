#!/usr/bin/env bash
# Breaks one rule per case of internal/testdata/mutations.txt and runs the test that must notice. The tree stays as it is: the
# mutants are overlays of the compiler. A rule of the guest is broken in the embedded guest too.
#   scripts/mutants.sh [CASE...]
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_root "make mutants"
export CGO_ENABLED=0 AIRLOCK_REQUIRE=root,native XDG_DATA_HOME=${XDG_DATA_HOME:-$HOME/.local/share}
unset AIRLOCK_TEST_POSTGRES_URL AIRLOCK_TEST_S3_URL
exec_flag=()
[ ${#SUDO[@]} -eq 0 ] || exec_flag=(-exec "sudo -n --preserve-env")
guest=$PWD/internal/sandbox/guest/bin/guest_linux_$(go env GOARCH)
guest_folders=$(go list -deps -f '{{if not .Standard}}{{.Dir}}{{end}}' ./cmd/airlock-guest) || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# run PACKAGE TESTS [FLAG...]: the output goes to $work/out.
run() {
  go test -vet=off -timeout 3m ${exec_flag[@]+"${exec_flag[@]}"} "${@:3}" -run "^($2)\$" "$1" >"$work/out" 2>&1 </dev/null
}

# outcome of the entry in $file, $old, $new, $package and $name.
outcome() {
  local text mutant=$work/${file##*/} replaced
  text=$(cat "$file"; printf x) # the x keeps the last line break
  text=${text%x}
  [[ $text == *"$old"* && ${text#*"$old"} != *"$old"* ]] || { echo "BROKEN (the line is not there once)"; return; }
  printf '%s' "${text/"$old"/"$new"}" >"$mutant"
  replaced="\"$PWD/$file\":\"$mutant\""
  printf '{"Replace":{%s}}' "$replaced" >"$work/overlay.json"
  # The tests of the guest itself are their own guest.
  if [[ $package != ./internal/sandbox/guest/* ]] && grep -qxF "$(dirname "$PWD/$file")" <<<"$guest_folders"; then
    GOOS=linux go build -overlay "$work/overlay.json" -ldflags '-s -w' -o "$work/guest" ./cmd/airlock-guest >"$work/out" 2>&1 ||
      { echo "BROKEN (does not compile)"; return; }
    printf '{"Replace":{%s,"%s":"%s"}}' "$replaced" "$guest" "$work/guest" >"$work/overlay.json"
  fi
  if run "$package" "$name" -count=1 -overlay "$work/overlay.json"; then
    echo SURVIVED
  elif grep -q -e '\[build failed\]' -e '\[setup failed\]' "$work/out"; then
    echo "BROKEN (does not compile)"
  else
    grep -q '^panic: test timed out' "$work/out" && echo 'killed (by the time limit)' || echo killed
  fi
}

entries=()
declare -A tests
while IFS= read -r line; do
  value=${line#*: }
  case $line in
  "case: "*) number=$value ;;
  "file: "*) file=$value ;;
  "old: "*) old=$value ;;
  "new: "*) new=$value; [ "$new" != delete ] || new= ;;
  "test: "*)
    [[ $# -eq 0 || " $* " == *" $number "* ]] || continue
    read -r package name <<<"$value"
    tests[$package]+=${tests[$package]:+|}$name
    entries+=("$(declare -p number file old new package name)") ;;
  esac
done <internal/testdata/mutations.txt

# A test that fails anyway notices nothing.
for package in "${!tests[@]}"; do
  run "$package" "${tests[$package]}" || { echo "$package fails without a mutation:"; cat "$work/out"; exit 1; }
done
for entry in "${entries[@]}"; do
  eval "$entry"
  result=$(outcome)
  printf '%s %s\n' "$number" "$result"
  [ "$result" = killed ] || { failed=1; tail -n 20 "$work/out" | sed 's/^/    /'; }
done
exit $failed
