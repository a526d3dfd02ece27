#!/usr/bin/env python3
"""Holds smelt's ids and vocabularies against the tokenizers library, on tens of megabytes.

    python3 tests/interop/tokenizer_compare.py --build build --texts DIR [DIR ...]

`make interop` builds its helper, build/tests/tokenize_file. DIRs are searched for files of text (smelt-prepare
--keep-text DIR writes the five domains); the source code of this tree and generated texts (scripts, emoji, invalid UTF-8,
single bytes, long lines) are added. For each style both sides train a vocabulary on the same text; ids must agree with
either vocabulary, and the library's must not compress better than ours by more than 1 %. NFC of characters newer than
the library's Unicode tables (version 9) is counted apart. Invalid UTF-8 is replaced before encoding,
as bytes.decode(errors="replace") does. Exit code 1 on a difference, 77 without the tokenizers library.
"""

import argparse
import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

try:
    import tokenizers
except ImportError:
    print("tokenizer_compare: skipped: tokenizers is not installed")
    sys.exit(77)
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
import tokenizer_texts as texts

STYLES = ("gpt2", "llama3", "qwen")
COMMON = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def library_tokenizer(style):
    tokenizer = Tokenizer(models.BPE(ignore_merges=style == "llama3"))
    if style == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        pattern = COMMON.replace("DIGITS", r"\p{N}{1,3}" if style == "llama3" else r"\p{N}")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if style == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def library_train(style, training, vocab_size, extra=()):
    tokenizer = library_tokenizer(style)
    specials = ["<|begin_of_text|>", "<|end_of_text|>"] if style == "llama3" else ["<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, min_frequency=2, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(training, trainer)
    tokenizer.add_tokens(list(extra))
    return tokenizer


def read_folders(folders, most):
    """The first `most` bytes of every file, by path."""
    return [p.read_bytes()[:most] for folder in folders for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file()]


def source_code():
    root = pathlib.Path(__file__).resolve().parents[2]
    wanted = {".h", ".cpp", ".py", ".md", ".txt", ".ini", ".json", ".inc", ".tsv"}
    return [p.read_bytes() for folder in ("tensor", "autograd", "nn", "moe", "dist", "apps", "tests", "docs")
            for p in sorted((root / folder).rglob("*")) if p.suffix in wanted]


def generated(megabytes):
    rng = texts.generator(7)
    out = texts.nasty(rng, 40)
    for line in texts.long_lines(rng, 1 << 20):
        out.append(line.encode())
    size = 0
    while size < megabytes * 1e6:
        for make in (lambda: texts.words(rng, 4000).encode(), lambda: texts.any_code_points(rng, 8000).encode(),
                     lambda: texts.invalid_bytes(rng, 1500)):
            out.append(make())
            size += len(out[-1])
    return out


def write_lists(path, items):
    with open(path, "wb") as out:
        for item in items:
            out.write(struct.pack("<I", len(item)) + item)


def read_ids(path):
    data = path.read_bytes()
    at, lists = 0, []
    while at < len(data):
        (count,) = struct.unpack_from("<I", data, at)
        lists.append(array.array("i", data[at + 4:at + 4 + 4 * count]))
        at += 4 + 4 * count
    return lists


def newer_unicode(tokenizer, item, specials):
    """Ids with Python's normalization, whose Unicode tables are newer: None where it makes no difference."""
    text = item.decode(errors="replace")
    if tokenizer.normalizer is None or tokenizer.normalizer.normalize_str(text) == unicodedata.normalize("NFC", text):
        return None
    document = json.loads(tokenizer.to_str())
    document["normalizer"] = None
    for token in document["added_tokens"]:
        if token["normalized"]:
            token["content"] = unicodedata.normalize("NFC", token["content"])
    plain = Tokenizer.from_str(json.dumps(document))
    plain.encode_special_tokens = tokenizer.encode_special_tokens
    return plain.encode(unicodedata.normalize("NFC", text), add_special_tokens=specials).ids


def compare(name, tokenizer_json, groups, helper, scratch, specials):
    """Ids of both sides for all texts; returns the number of texts that differ."""
    theirs = Tokenizer.from_file(str(tokenizer_json))
    theirs.encode_special_tokens = not specials
    wrong = 0
    for group, items in groups.items():
        write_lists(scratch / "texts", items)
        subprocess.run([helper, "encode", tokenizer_json, scratch / "texts", scratch / "ids"] + ["specials"] * specials,
                       check=True)
        ours = read_ids(scratch / "ids")
        assert len(ours) == len(items)
        tokens = size = differ = newer = 0
        for item, mine in zip(items, ours):
            encoded = theirs.encode(item.decode(errors="replace"), add_special_tokens=specials)
            tokens += len(mine)
            size += len(item)
            if list(mine) != encoded.ids and newer_unicode(theirs, item, specials) == list(mine):
                newer += 1
            elif list(mine) != encoded.ids:
                differ += 1
                if wrong + differ <= 3:
                    at = next((i for i, (a, b) in enumerate(zip(mine, encoded.ids)) if a != b), min(len(mine), len(encoded.ids)))
                    print(f"  {name}: {group}: id {at} of a text: ours {list(mine)[at:at + 5]}, theirs {encoded.ids[at:at + 5]}"
                          f" {encoded.tokens[at:at + 5]}", file=sys.stderr)
        print(f"  {name:28} {group:10} {len(items):6} texts {size / 1e6:7.2f} MB {tokens:9} ids {differ} texts differ, {newer} by Unicode version"
              f"  {size / max(tokens, 1):.4f} bytes/id", flush=True)
        wrong += differ
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--texts", nargs="*", default=[])
    parser.add_argument("--vocab-size", type=int, default=32768)
    parser.add_argument("--generated-mb", type=float, default=5)
    parser.add_argument("--file-mb", type=float, default=1e3, help="take the beginning of longer files")
    parser.add_argument("--training-mb", type=float, default=16)
    parser.add_argument("--styles", nargs="*", default=STYLES)
    arguments = parser.parse_args()
    helper = pathlib.Path(arguments.build) / "tests" / "tokenize_file"

    files = read_folders(arguments.texts, int(arguments.file_mb * 1e6))
    code = source_code()
    groups = {"files": files, "source": code, "generated": generated(arguments.generated_mb)}
    training, size = [], 0
    for item in code + groups["files"]:
        if size < arguments.training_mb * 1e6:
            training.append(item.decode(errors="replace"))
            size += len(item)
    total = sum(len(item) for items in groups.values() for item in items)
    print(f"tokenizers {tokenizers.__version__}; {total / 1e6:.1f} MB of text, training on {size / 1e6:.1f} MB")
    wrong = 0
    for style in arguments.styles:
        with tempfile.TemporaryDirectory() as folder:
            scratch = pathlib.Path(folder)
            write_lists(scratch / "training", [t.encode() for t in training])
            started = time.time()
            subprocess.run([helper, "train", style, str(arguments.vocab_size), scratch / "training", scratch],
                           check=True)
            middle = time.time()
            extra = [AddedToken("<think>", normalized=False), AddedToken("==>", single_word=True),
                     AddedToken("x\u0344", normalized=True), AddedToken("__init__", lstrip=True, rstrip=True)]
            plain = library_train(style, training, arguments.vocab_size)
            ended = time.time()
            plain.save(str(scratch / "theirs.json"))
            with_added = library_train(style, training[:40], 3000, extra)
            with_added.save(str(scratch / "added.json"))
            ours_size = len(json.loads((scratch / "tokenizer.json").read_text())["model"]["merges"])
            theirs_size = len(json.loads((scratch / "theirs.json").read_text())["model"]["merges"])
            print(f"{style}: training took {middle - started:.1f} s here, {ended - middle:.1f} s there;"
                  f" {ours_size} and {theirs_size} merges")
            wrong += compare(style + ", our vocabulary", scratch / "tokenizer.json", groups, helper, scratch, False)
            wrong += compare(style + ", library's", scratch / "theirs.json", groups, helper, scratch, False)
            small = {"generated": groups["generated"], "source": code}
            wrong += compare(style + ", added tokens", scratch / "added.json", small, helper, scratch, False)
            wrong += compare(style + ", specials found", scratch / "added.json", small, helper, scratch, True)
    print(f"{wrong} texts differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
