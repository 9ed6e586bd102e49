#!/usr/bin/env bash
# Runs each fuzz target of the module for the given time; the first finding ends it with its input in testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-20s}
ran=0
while IFS=: read -r file name; do
  echo "== ./$(dirname "$file") $name $time"
  go test "./$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$time"
  ran=$((ran + 1))
done < <(git grep -oE "^func Fuzz[A-Za-z0-9_]+" -- "*_test.go" | sed "s/:func /:/")
echo "$ran fuzz targets ran for $time each"
