"""A small language model and its tokenizer, for the experiments in this folder. Needs PyTorch (Debian: python3-torch,
libopenblas0-pthread), tokenizers and zstandard."""

import glob
import json
import math
from pathlib import Path

import torch
import zstandard
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
END = "<|end|>"
ROW = 256


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.mix = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.inner = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x, mask):
        batch, length, width = x.shape
        split = lambda t: t.view(batch, length, self.heads, -1).transpose(1, 2)
        query, key, value = map(split, self.mix(self.norms[0](x)).chunk(3, dim=-1))
        weights = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads) + mask[:length, :length]
        attended = (weights.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(attended)
        return x + self.inner(self.norms[1](x))


class SmallModel(torch.nn.Module):
    """A decoder of learned positions, with the matrix of the vocabulary used at both ends."""

    def __init__(self, vocabulary, width=128, layers=3, heads=4, length=ROW):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.places = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = torch.nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((length, length), -math.inf).triu(1))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.norm(x) @ self.tokens.weight.T


def losses(model, ids):
    """Nats of each token of `ids` but the first, rows by rows."""
    logits = model(ids[:, :-1])
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def records(pattern):
    """The records of JSONL files, plain or zstd; only LF ends one."""
    paths = sorted(glob.glob(str(pattern)))
    if not paths:
        raise SystemExit(f"no file matches '{pattern}'")
    for path in map(Path, paths):
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        yield from (json.loads(line) for line in data.split(b"\n") if line.strip())


def make_tokenizer(path, vocabulary, patterns):
    """A tokenizer of byte pairs, from the first 5,000 characters of every eighth document."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sample = (record["text"][:5000] for pattern in patterns for record in list(records(pattern))[::8])
    tokenizer.train_from_iterator(sample, trainer)
    tokenizer.save(str(path))
    return tokenizer
