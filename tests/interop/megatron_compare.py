#!/usr/bin/env python3
"""Token files of smelt-prepare against Megatron-LM's IndexedDataset, both ways.

  megatron_compare.py --build build          compares; exit code 77 without megatron-core
  megatron_compare.py --golden tests/golden  writes the files that the C++ tests read

Ours read by Megatron: every document of a prepared text. Megatron's read by us: smelt-prepare takes
them in (--format megatron) and what it writes is read again by Megatron.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

GOLDEN_DOCUMENTS = [[5, 6, 7, 0], [], [0], [35, 499, 1, 2, 3, 0], [9] * 40 + [0]]


def megatron():
    try:
        import numpy
        import torch
        from megatron.core.datasets import indexed_dataset
    except ImportError as missing:
        print(f"megatron_compare: skipped: {missing.name} is not installed")
        sys.exit(77)
    return numpy, torch, indexed_dataset


def write_with_megatron(prefix, documents, wide):
    numpy, torch, indexed_dataset = megatron()
    builder = indexed_dataset.IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.int32 if wide else numpy.uint16)
    for document in documents:
        builder.add_document(torch.tensor(document, dtype=torch.int64), [len(document)])
    builder.finalize(prefix + ".idx")


def read_with_megatron(prefix):
    _, _, indexed_dataset = megatron()
    dataset = indexed_dataset.IndexedDataset(prefix)
    return [dataset[i].tolist() for i in range(len(dataset))]


def prepare(build, *options):
    command = [os.path.join(build, "bin", "smelt-prepare"), "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"megatron_compare: {' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def compare(build):
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        texts = ["".join(random.choice("smelt ore é漢\n") for _ in range(random.randrange(0, 400))) for _ in range(3000)]
        lines = os.path.join(folder, "a.jsonl")
        with open(lines, "w", encoding="utf-8") as out:
            for text in texts:
                out.write(json.dumps({"text": text}) + "\n")
        prepare(build, "--input", lines, "--out", folder + "/ours", "--domain", "d", "--split", "train")
        expected = [list(text.encode()) + [256] for text in texts if text]
        found = read_with_megatron(folder + "/ours/d.train")
        assert found == expected, "Megatron reads other documents from our files"
        print(f"ours read by Megatron: {len(found)} documents, {sum(map(len, found))} tokens equal")

        for wide in (False, True):
            size = 200000 if wide else 60000
            documents = [[random.randrange(1, size) for _ in range(random.randrange(1, 300))] + [0] for _ in range(2000)]
            os.makedirs(f"{folder}/theirs{wide}")
            write_with_megatron(f"{folder}/theirs{wide}/m", documents, wide)
            out = f"{folder}/back{wide}"
            prepare(build, "--input", f"{folder}/theirs{wide}", "--format", "megatron", "--vocab-size", str(size),
                    "--eod-id", "0", "--out", out, "--domain", "m", "--split", "train")
            assert read_with_megatron(out + "/m.train") == documents, "documents differ"
            for end in (".bin", ".idx"):
                with open(f"{folder}/theirs{wide}/m{end}", "rb") as a, open(f"{out}/m.train{end}", "rb") as b:
                    assert a.read() == b.read(), f"{end} differs"
            print(f"Megatron's through ours, {'i32' if wide else 'u16'}: {len(documents)} documents, files equal byte for byte")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--golden", help="folder in which megatron/ is written anew")
    arguments = parser.parse_args()
    megatron()
    if arguments.golden:
        folder = os.path.join(arguments.golden, "megatron")
        os.makedirs(folder, exist_ok=True)
        for wide in (False, True):
            write_with_megatron(os.path.join(folder, "i32" if wide else "u16"), GOLDEN_DOCUMENTS, wide)
        return
    compare(arguments.build)


if __name__ == "__main__":
    main()
