#!/usr/bin/env bash
# The first run: prepares a small corpus, pretrains a nano Baseline and its SMELT partner on it with
# two ranks, and compares them. `make run` calls it. From the environment:
#   BUILD   folder with bin/smelt-* (default: build)
#   MPIRUN  how to start two ranks, a command that may begin with VARIABLE=value
set -euo pipefail

BUILD=${BUILD:-build}
MPIRUN=${MPIRUN:-OMP_NUM_THREADS=1 mpirun -np 2 --bind-to none}
bin=$BUILD/bin
data=data/small
baseline=runs/nano-baseline
smelt=runs/nano-smelt
figure=runs/first-run
domains="code math_stem finance knowledge web"

say() { printf '\n== %s (%d:%02d)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

# The description is written last; the programs check the token files themselves when they open them.
prepared() {
  local file
  for file in "$data/corpus.json" "$data/tokenizer.json"; do [ -s "$file" ] || return 1; done
  for domain in $domains; do
    for file in "$data/$domain".{train,valid}.{bin,idx}; do [ -s "$file" ] || return 1; done
  done
}

if prepared; then
  say "The corpus is in $data already"
else
  say "Preparing the corpus in $data"
  "$bin/smelt-prepare" --corpus small --out "$data"
fi

for run in "$baseline" "$smelt"; do
  say "Training $run"
  # shellcheck disable=SC2086  # MPIRUN is a command with its words
  env $MPIRUN "$bin/smelt-pretrain" --config "apps/configs/${run#runs/}.ini" --run.dir="$run" --overwrite
done

say "Comparing both on held-out text"
# shellcheck disable=SC2086
env $MPIRUN "$bin/smelt-eval" --checkpoint="$baseline" --checkpoint="$smelt" --expert-parallel=2 \
  --max-tokens=65536 --figure="$figure.svg" --figure="$figure.png"

say "Done"
cat <<END
  runs         $baseline $smelt (config.ini, metrics.jsonl, endpoints.jsonl, checkpoints/)
  loss curves  $figure.svg $figure.png (numbers in $figure.tsv)
  go on        $bin/smelt-eval --checkpoint=$smelt --generate='The '
END
