"""Texts of the evaluation: reading them, keeping fitting sets apart from them, and making junk."""

import base64
import glob
import hashlib
import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import zstandard

# A word, or one character of a script that is written without spaces between words.
WORD = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\\W_]+")
RUN_WORDS = 13
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Text:
    """A document of an experiment."""

    id: str
    text: str
    group: str
    metadata: dict = field(default_factory=dict)


def key(purpose, id):
    """A number in [0, 1) that depends on the purpose and the id alone."""
    return int.from_bytes(hashlib.blake2b(f"{purpose}\0{id}".encode(), digest_size=8).digest(), "big") / 2**64


def read(patterns):
    """The documents of JSONL files, plain or zstd. The group is the file's name without its number."""
    for pattern in patterns:
        paths = sorted(glob.glob(str(pattern)))
        if not paths:
            raise SystemExit(f"no file matches '{pattern}'")
        for path in map(Path, paths):
            data = path.read_bytes()
            if path.suffix == ".zst":
                data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
            group = re.sub(r"-\d+$", "", path.name.split(".")[0])
            # Texts hold raw U+2028 and the like: only LF ends a record.
            for number, line in enumerate(data.split(b"\n"), 1):
                if line.strip():
                    record = json.loads(line)
                    if not isinstance(record.get("text"), str) or not record.get("text"):
                        raise SystemExit(f"{path}: line {number}: 'text' must be a string that is not empty")
                    id = str(record.get("id", f"{path.name}:{number}"))
                    yield Text(id, record["text"], group, record.get("metadata") or {})


def runs(text):
    """Hashes of all runs of 13 words; of all words together where there are fewer."""
    words = WORD.findall(text.lower())
    hashes = np.fromiter(map(hash, words), dtype=np.int64, count=len(words)).view(np.uint64)
    if not len(hashes):
        return hashes
    length = min(RUN_WORDS, len(hashes))
    n = len(hashes) - length + 1
    run = np.full(n, length, dtype=np.uint64)
    for place in range(length):
        run = (run ^ (run >> np.uint64(29))) * MULTIPLIER + hashes[place : place + n]
    return np.unique(run)


class Overlap:
    """Tells whether a fitting document shares text with the evaluation."""

    def __init__(self, texts):
        """All runs of these texts."""
        self.known = np.unique(np.concatenate([runs(text) for text in texts]))

    def shares(self, text):
        """Whether any run of 13 words stands in the evaluation too."""
        found = runs(text)
        place = np.minimum(np.searchsorted(self.known, found), len(self.known) - 1)
        return bool((self.known[place] == found).any())


def passages(texts, characters):
    """Cuts texts at line ends into passages of about this many characters; drops what is shorter than a quarter."""
    for text in texts:
        part, size, number = [], 0, 0
        for line in text.text.splitlines(keepends=True) + [None]:
            if line is None or size >= characters:
                if size >= characters // 4:
                    yield Text(f"{text.id}#{number}", "".join(part)[: 2 * characters], text.group, text.metadata)
                    number += 1
                part, size = [], 0
            if line is not None:
                part.append(line)
                size += len(line)


BOILERPLATE = """\
Skip to main content|Home|About us|Contact|Sign in|Register|My account|Cart (0)|Search|Menu|Close
We use cookies to give you the best experience on our site. By continuing you agree to our use of cookies.
Accept all cookies|Reject all|Manage preferences|Learn more about cookies
Subscribe to our newsletter and get 10% off your first order. Enter your e-mail address. You can unsubscribe at any time.
Share on Facebook|Share on Twitter|Pin it|Send by e-mail|Print this page|Copy link
All rights reserved. No part of this site may be reproduced without written permission of the owner.
Terms of use|Privacy policy|Cookie policy|Accessibility statement|Sitemap|Careers|Press|Help centre
You must be logged in to post a comment. Already a member? Log in here. Forgot your password?
Related posts: You may also like|Most read|Trending now|Recommended for you|Sponsored content
Previous|1|2|3|4|5|...|48|Next|Back to top
Free delivery on orders over 50. Returns within 30 days. See our delivery information for details.
JavaScript is disabled in your browser. Please enable JavaScript to use all features of this page.
This site is protected by a captcha. The privacy policy and terms of service apply.
Posted in Uncategorized|Tagged news, updates, featured|Leave a reply|Edit this entry
Download our app on the App Store. Get it on Google Play. Follow us on social media.
Monday - Friday: 9:00 - 17:00|Saturday: 10:00 - 14:00|Sunday: closed|Call us today for a free quote
Loading... Please wait.|Show more|Show less|Read more|Click here|View all|Add to basket|Add to wish list
The information on this page is provided as is, without warranty of any kind, express or implied.
Copyright 2024 Example Media Group. Powered by Example CMS. Theme by Example Design.
Are you sure you want to leave this page? Unsaved changes will be lost. OK|Cancel
Filter by: Price|Colour|Size|Brand|Rating|Sort by: Newest first|Lowest price|Highest price
Sorry, the page you are looking for could not be found. It may have been moved or deleted.
4.5 out of 5 stars|Write a review|Report abuse|Was this helpful? Yes|No
Your privacy choices|Do not sell or share my personal information|Consent settings|Imprint|Disclaimer""".split("\n")

SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def boilerplate(chance, size):
    """What stands around a page's text: menus, notices, buttons."""
    lines = []
    while sum(map(len, lines)) < size:
        line = chance.choice(BOILERPLATE)
        parts = line.split("|")
        if len(parts) > 1:
            parts = chance.sample(parts, chance.randint(2, len(parts)))
        lines.append(chance.choice([" | ", "\n", " "]).join(parts))
    return "\n".join(lines)


def near_copy(chance, text, words):
    """The text with one word in 100 replaced by another word of the corpus."""
    return re.sub(r"[^\W\d_]+", lambda found: chance.choice(words) if chance.random() < 0.01 else found[0], text)


def junk(clean, foreign, library, count, seed):
    """Junk of every kind, as long as clean passages; the ids of passages that near copies were made of; and those of
    passages that shuffled ones take the place of, so that no corpus holds both."""
    chance = random.Random(seed)
    order = sorted(clean, key=lambda text: key("junk", text.id))
    words = sorted({word for text in order[:500] for word in re.findall(r"[^\W\d_]+", text.text)})
    size = library.get_vocab_size()

    def tokens(length):
        drawn = ""
        while len(drawn) < length:
            piece = library.decode([chance.randrange(size)])
            # Pieces of characters have no text of their own.
            drawn += "" if "\ufffd" in piece else piece
        return drawn

    def sentences(text):
        parts = SENTENCE_END.split(text)
        chance.shuffle(parts)
        return " ".join(parts)

    def shuffled(text):
        parts = text.split()
        chance.shuffle(parts)
        return " ".join(parts)

    def encoded(length):
        return base64.encodebytes(chance.randbytes(length * 3 // 4)).decode()

    drawn, for_words, for_sentences = (order[place * count : (place + 1) * count] for place in range(3))
    kinds = {
        "random tokens": [tokens(len(text.text)) for text in drawn],
        "base64": [encoded(len(text.text)) for text in drawn],
        "boilerplate": [boilerplate(chance, len(text.text)) for text in drawn],
        "shuffled words": [shuffled(text.text) for text in for_words],
        "shuffled sentences": [sentences(text.text) for text in for_sentences],
        "near-duplicate": [near_copy(chance, text.text, words) for text in drawn],
        "another language": [
            text.text[: len(shape.text)]
            for text, shape in zip(sorted(foreign, key=lambda text: key("foreign", text.id)), drawn)
        ],
    }
    made = [
        Text(f"junk/{kind}/{number}", text, kind)
        for kind, texts in kinds.items()
        for number, text in enumerate(texts)
        if text.strip()
    ]
    return made, {text.id for text in drawn}, {text.id for text in for_words + for_sentences}


def tokenizer(path):
    """The Python library's reader of the same tokenizer file."""
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(path))


def write(path, documents):
    """A JSONL file of the texts."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps({"id": document.id, "text": document.text}, ensure_ascii=False) + "\n")
