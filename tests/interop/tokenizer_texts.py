"""Texts that tokenizers disagree about, the same on every run."""

import random
import unicodedata

SCRIPTS = {
    "latin": (0x41, 0x17F), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x4FF), "hebrew": (0x590, 0x5F4),
    "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F), "bengali": (0x980, 0x9FE), "tamil": (0xB82, 0xBFA),
    "thai": (0xE01, 0xE5B), "georgian": (0x10A0, 0x10FF), "jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x137C),
    "kana": (0x3041, 0x30FF), "han": (0x4E00, 0x9FFF), "hangul": (0xAC00, 0xD7A3), "math": (0x1D400, 0x1D7FF),
    "han_b": (0x20000, 0x2A6DF), "marks": (0x300, 0x36F), "numbers": (0x2150, 0x2189), "circled": (0x2460, 0x24FF),
}
EMOJI = ["😀", "🙈", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "1️⃣", "☕", "🧑🏿‍🚀"]
BLANKS = [" ", "  ", "\t", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\xa0", "\u1680", "\u180e", "\u2003", "\u2028",
          "\u202f", "\u3000", "\u200b", "\ufeff"]
SNIPPETS = ["it's", "IT'S", "we'll", "WE'LL", "they\u2019re", "don't", "'\u017f", "x'\u017fy", "I'd", "'ve", "'M", "caf\u00e9",
            "cafe\u0301", "\u1100\u1161\u11a8", "\u212b", "\u0344", "\u2126", "3.14159", "1234567", "\u0661\u0662\u0663", "\u00bd\u00b2",
            "a_b", "__init__", "->", "!=", "...", "#version", "<|endoftext|>", "<|begin_of_text|>", "<think>", "</think>",
            "==>", "\u4e2d\u6587", "\u65e5\u672c\u8a9e\u306e", "\u0e20\u0e32\u0e29\u0e32", "\ud55c\uad6d\uc5b4", "\u0939\u093f\u0928\u094d\u0926\u0940",
            "\u05e2\u05d1\u05e8\u05d9\u05ea", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\x00", "\x7f", "\u00ad", "\ufffd", "\U0010ffff"]


def words(rng, count):
    """Words of one script each, mixed with blanks, emoji and snippets."""
    parts = []
    for _ in range(count):
        kind = rng.random()
        if kind < 0.4:
            low, high = SCRIPTS[rng.choice(list(SCRIPTS))]
            parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 9))))
        elif kind < 0.55:
            parts.append(rng.choice(EMOJI) * rng.randint(1, 3))
        elif kind < 0.8:
            parts.append(rng.choice(SNIPPETS))
        else:
            parts.append(rng.choice(BLANKS) * rng.randint(1, 4))
        if rng.random() < 0.6:
            parts.append(" ")
    return "".join(parts)


def any_code_points(rng, count):
    """Code points from everywhere, those left out that this Python does not know (Unicode 14 for 3.11): regular
    expression engines with other versions of Unicode disagree about them."""
    ranges = [(0, 0x7F), (0x80, 0x2FF), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0xD7FF), (0xE000, 0xFFFF),
              (0x10000, 0x10FFFF)]
    drawn = (chr(rng.randint(*rng.choice(ranges))) for _ in range(count))
    return "".join(c for c in drawn if unicodedata.category(c) not in ("Cn", "Cs"))


def single_bytes():
    return [bytes([b]) for b in range(256)]


def invalid_bytes(rng, count):
    """Bytes between whole and broken UTF-8."""
    broken = [b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xff", b"\x80\xbf",
              b"\xe0\x9f\x80", b"\xf8\x88\x80\x80\x80"]
    out = b""
    for _ in range(count):
        out += rng.choice([rng.choice(broken), words(rng, 1).encode(), bytes(rng.randrange(256) for _ in range(3)), b" the "])
    return out


def long_lines(rng, size):
    """One piece or one line of `size` characters each."""
    return ["x" * size, " " * size, "\n" * (size // 4), "ab" * (size // 2), "!" * (size // 2), "7" * (size // 4),
            "\u4e2d" * (size // 6), " \n" * (size // 4), " " * size + "x",
            "".join(rng.choice("abcdefghij") for _ in range(size)), "a b" * (size // 3)]


def nasty(rng, copies):
    """A list of byte strings: everything above, small."""
    texts = single_bytes()
    texts.append(bytes(range(256)))
    for _ in range(copies):
        texts.append(words(rng, 60).encode())
        texts.append(any_code_points(rng, 60).encode())
        texts.append(invalid_bytes(rng, 20))
    texts += [t.encode() for t in long_lines(rng, 300)]
    texts += [s.encode() for s in SNIPPETS + EMOJI + BLANKS] + [b""]
    return texts


def generator(seed):
    return random.Random(seed)
