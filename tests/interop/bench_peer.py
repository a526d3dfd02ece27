#!/usr/bin/env python3
"""smelt-bench against PyTorch (peer_pytorch.py) on the same cases, in turn, several times.

Each measurement is a process of its own. Who comes first changes from round to round, and a ratio is
taken within a round, so that a machine whose speed drifts favours neither. The peer runs in its
fastest mode, searched for once per dtype on the first case, unless --mode-f32 and --mode-bf16 name it.

Writes a list of {name, dtype, peer, mode, tokens_per_second, peer_tokens_per_second, ratio_median,
ratio_min, ratio_max, peak_rss_bytes, peer_peak_rss_bytes, memory_ratio}: medians over the rounds,
ratios as ours / peer's. Exit code 77: torch or transformers is not installed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import peer_pytorch


def run_ours(arguments, case, dtype):
    command = [arguments.bench, "--case", case, "--dtype", dtype, "--steps", str(arguments.steps), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(done.stdout)["cases"][0]


def run_peer(arguments, case, dtype, mode):
    command = [sys.executable, peer_pytorch.__file__, "--bench", arguments.bench, "--case", case, "--dtype", dtype,
               "--steps", str(arguments.steps), "--mode", mode]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


def summary(case, dtype, pairs):
    def median(of):
        return statistics.median(of(ours, peer) for ours, peer in pairs)

    ratios = [ours["tokens_per_second"] / peer["tokens_per_second"] for ours, peer in pairs]
    return {
        "name": case, "dtype": dtype, "peer": pairs[0][1]["peer"], "mode": pairs[0][1]["mode"],
        "tokens_per_second": median(lambda ours, peer: ours["tokens_per_second"]),
        "peer_tokens_per_second": median(lambda ours, peer: peer["tokens_per_second"]),
        "ratio_median": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios),
        "peak_rss_bytes": median(lambda ours, peer: ours["peak_rss_bytes"]),
        "peer_peak_rss_bytes": median(lambda ours, peer: peer["peak_rss_bytes"]),
        "memory_ratio": median(lambda ours, peer: ours["peak_rss_bytes"] / peer["peak_rss_bytes"]),
    }


def print_table(rows):
    print(f"\n{'case':<9}{'dtype':<6}{'tokens/s':>9}{'peer':>8}{'ratio':>8}{'min':>7}{'max':>7}"
          f"{'peak RSS':>11}{'peer':>11}{'ratio':>7}")
    for r in rows:
        print(f"{r['name']:<9}{r['dtype']:<6}{r['tokens_per_second']:>9.0f}{r['peer_tokens_per_second']:>8.0f}"
              f"{r['ratio_median']:>8.2f}{r['ratio_min']:>7.2f}{r['ratio_max']:>7.2f}"
              f"{r['peak_rss_bytes'] / 2**30:>7.2f} GiB{r['peer_peak_rss_bytes'] / 2**30:>7.2f} GiB"
              f"{r['memory_ratio']:>7.2f}")
    print(f"\npeer: {rows[0]['peer']}, {os.environ.get('OMP_NUM_THREADS', os.cpu_count())} threads each")
    for dtype, mode in {r["dtype"]: r["mode"] for r in rows}.items():
        print(f"  {dtype}: {mode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/bin/smelt-bench")
    parser.add_argument("--out", default="build/bench-peer.json", help="where the JSON list goes")
    parser.add_argument("--cases", default="A,A-smelt", help="comma-separated; smelt-bench --list prints all")
    parser.add_argument("--dtypes", default="f32,bf16", help="comma-separated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a measurement; the median counts")
    parser.add_argument("--mode-f32", help="mode of the peer (peer_pytorch.py --list-modes) instead of a search")
    parser.add_argument("--mode-bf16")
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    arguments = parser.parse_args()
    if word := peer_pytorch.missing_word():
        print(f"bench_peer: {word}", file=sys.stderr)
        return 77
    if arguments.check:
        return 0
    cases, dtypes = arguments.cases.split(","), arguments.dtypes.split(",")
    for case in cases:
        peer_pytorch.read_case(arguments.bench, case)

    modes = {"f32": arguments.mode_f32, "bf16": arguments.mode_bf16}
    for dtype in dtypes:
        if not modes[dtype]:
            print(f"modes of the peer in {dtype}, case {cases[0]}:", file=sys.stderr)
            modes[dtype] = peer_pytorch.search(arguments.bench, cases[0], dtype)["mode"]

    pairs = {(case, dtype): [] for case in cases for dtype in dtypes}
    for number in range(arguments.rounds):
        for case, dtype in pairs:
            peer = run_peer(arguments, case, dtype, modes[dtype]) if number % 2 else None
            ours = run_ours(arguments, case, dtype)
            peer = peer or run_peer(arguments, case, dtype, modes[dtype])
            pairs[case, dtype].append((ours, peer))
            print("round {} {:8} {:5} {:6.0f} tokens/s, peer {:6.0f}, ratio {:.2f}".format(
                number + 1, case, dtype, ours["tokens_per_second"], peer["tokens_per_second"],
                ours["tokens_per_second"] / peer["tokens_per_second"]), file=sys.stderr, flush=True)
            rows = [summary(*key, found) for key, found in pairs.items() if found]
            with open(arguments.out, "w", encoding="utf-8") as out:  # as far as it has come
                json.dump(rows, out, indent=1)
                out.write("\n")
    print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
