#!/usr/bin/env python3
"""Writes tests/golden/tokenizer: small vocabularies, nasty texts, and the ids the tokenizers library gives.

    python3 tests/interop/tokenizer_golden.py        (pip install tokenizers; files written with 0.23.3)

texts.bin holds each text behind a 32-bit length. NAME.json is a tokenizer, NAME.ids its ids: for every text a 16-bit
count and 16-bit ids without special tokens; then, in NAME.specials, with special tokens recognised and added, where that
differs. Texts are encoded as the library gets them, invalid UTF-8 replaced. All integers little-endian.
"""

import json
import pathlib
import struct

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
import tokenizer_texts as texts
from tokenizer_compare import library_tokenizer, library_train, source_code

OUT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizer"


def with_merges_as_strings(path):
    """The spelling that the library wrote before version 0.20."""
    document = json.loads(path.read_text())
    document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    path.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def untrained_merges(rng):
    """Merges in an order that no training gives: the order in which pairs merge shows."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    vocab = {c: i for i, c in enumerate(sorted(alphabet))}
    merges, tokens = [], list("abcd ".replace(" ", "Ġ"))
    while len(merges) < 150:
        pair = (rng.choice(tokens), rng.choice(tokens))
        if pair in merges or len("".join(pair)) > 12:
            continue
        merges.append(pair)
        vocab.setdefault("".join(pair), len(vocab))
        tokens.append("".join(pair))
    rng.shuffle(merges)
    tokenizer = library_tokenizer("gpt2")
    tokenizer.model = models.BPE(vocab=vocab, merges=merges)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def added_tokens(training):
    tokenizer = library_train("qwen", training, 700)
    tokenizer.add_tokens([AddedToken("==>", single_word=True, normalized=False), AddedToken("<think>", normalized=False),
                          AddedToken("<thinking>", normalized=False), AddedToken("it", single_word=True, normalized=True),
                          AddedToken("__init__", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("caf\u00e9", lstrip=True), AddedToken("\u212b", normalized=True),
                          AddedToken("  ", normalized=True), AddedToken("12", rstrip=True, normalized=True)])
    tokenizer.add_special_tokens([AddedToken("</think>", special=True, rstrip=True), AddedToken("text", special=True)])
    return tokenizer


def splits(training):
    """One tokenizer per way to treat what a pattern matches."""
    stages = {
        "removed": [pre_tokenizers.Split(Regex(r"\p{N}+|x"), "removed")],
        "removed_invert": [pre_tokenizers.Split(Regex(r"\p{L}+|\s+|'"), "removed", invert=True)],
        "previous": [pre_tokenizers.Split(Regex(r"[aeiou ]"), "merged_with_previous"), pre_tokenizers.Digits(False)],
        "next": [pre_tokenizers.Split("e", "merged_with_next"), pre_tokenizers.Digits(True)],
        "contiguous": [pre_tokenizers.Split(Regex(r"\d|\p{Han}|\p{Hiragana}"), "contiguous", invert=True)],
    }
    for name, first in stages.items():
        tokenizer = library_tokenizer("gpt2")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            first + [pre_tokenizers.ByteLevel(add_prefix_space=name in ("next", "previous"))])
        trained = library_train("gpt2", training, 400)
        tokenizer.model = trained.model
        tokenizer.add_special_tokens(["<|endoftext|>"])
        yield name, tokenizer


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = texts.generator(1)
    samples = texts.nasty(rng, 14)
    for _ in range(12):
        samples.append("".join(rng.choice("abcd ") for _ in range(rng.randint(1, 200))).encode())
    (OUT / "texts.bin").write_bytes(b"".join(struct.pack("<I", len(t)) + t for t in samples))
    training = [t.decode(errors="replace") for t in source_code()[:60] + samples]

    tokenizers = {style: library_train(style, training, 1000) for style in ("gpt2", "llama3", "qwen")}
    tokenizers["llama3"].post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    tokenizers["qwen"].post_processor = processors.Sequence(
        [processors.ByteLevel(), processors.TemplateProcessing(single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)])])
    tokenizers["untrained"] = untrained_merges(rng)
    tokenizers["added"] = added_tokens(training)
    tokenizers.update(splits(training))
    total = 0
    for name, tokenizer in tokenizers.items():
        path = OUT / f"{name}.json"
        tokenizer.save(str(path), pretty=False)
        if name in ("gpt2", "added"):
            with_merges_as_strings(path)
            tokenizer = Tokenizer.from_file(str(path))
        for suffix in ("ids", "specials") if name in ("gpt2", "llama3", "qwen", "added") else ("ids",):
            tokenizer.encode_special_tokens = suffix == "ids"
            with open(OUT / f"{name}.{suffix}", "wb") as out:
                for text in samples:
                    ids = tokenizer.encode(text.decode(errors="replace"), add_special_tokens=suffix == "specials").ids
                    out.write(struct.pack(f"<H{len(ids)}H", len(ids), *ids))
            total += (OUT / f"{name}.{suffix}").stat().st_size
        total += path.stat().st_size
    print(f"{len(samples)} texts, {(OUT / 'texts.bin').stat().st_size} bytes; {total} bytes of vocabularies and ids")


if __name__ == "__main__":
    main()
