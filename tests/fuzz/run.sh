#!/usr/bin/env bash
# Runs one fuzz program for some seconds and says in one line how often it ran.
#   run.sh build-fuzz/tests/fuzz_NAME SECONDS
set -euo pipefail
program=$1 seconds=$2
name=${program##*/fuzz_}
folder=$(dirname "$(dirname "$program")")
mkdir -p "$folder/corpus/$name"
log=$folder/$name.log
if ! "$program" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=60 -print_final_stats=1 \
  -artifact_prefix="$folder/$name-" "$folder/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1; then
  tail -n 60 "$log"
  echo "fuzz $name: a finding; the input is $folder/$name-*"
  exit 1
fi
awk -v name="$name" -v seconds="$seconds" \
  '/stat::number_of_executed_units/ { printf "fuzz %s: %d executions in %d s, no finding\n", name, $2, seconds }' "$log"
