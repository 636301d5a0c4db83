"""The inputs of these tests, what is known of them, and the runs that are examined.

With the shared sample beside the repository it is real text; without it, text generated here.
"""

import base64
import json
import os
import random
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers
import zstandard

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
PROGRAM = Path(os.environ.get("GOODPUT", ROOT / "target" / "release" / "goodput"))
USE_SHARED = SHARED.is_dir() and not os.environ.get("GOODPUT_GENERATED_TEXT")
END = "<|endoftext|>"
FIELDS = {"url": "string", "metadata.licence": "string", "size": "int", "ratio": "float", "seen": "bool"}
TYPES = {"string": str | None, "int": int | None, "float": float | int | None, "bool": bool | None}


@dataclass
class Document:
    """A record that must be read, and what its fields say."""

    id: str
    source: str
    text: str
    record: dict

    def declared(self, name):
        """The value of a declared field, by its dotted path."""
        value = self.record
        for step in name.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        return value


@dataclass
class World:
    """Files by source, in the order of the pipeline file."""

    folder: Path
    files: dict = field(default_factory=dict)
    reference: list = field(default_factory=list)
    tokenizer: Path = None

    def records(self):
        """Source and bytes of every record of every file; only LF ends one."""
        for source, files in self.files.items():
            for path in files:
                data = path.read_bytes()
                if path.suffix == ".zst":
                    data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
                lines = data.split(b"\n")
                yield from ((source, path, line) for line in lines[:-1] + [line for line in lines[-1:] if line])

    @cached_property
    def record_counts(self):
        """Records by file."""
        return Counter(path for _, path, _ in self.records())

    @cached_property
    def documents(self):
        """Documents that must be read, by id. The first of an id wins."""
        documents = {}
        for source, _, line in self.records():
            try:
                record = json.loads(line.decode("utf-8"))
                document = Document(record["id"], source, record["text"], record)
            except (ValueError, KeyError):
                continue
            typed = all(isinstance(document.declared(name), TYPES[kind]) for name, kind in FIELDS.items())
            if isinstance(document.text, str) and document.text.strip() and typed:
                documents.setdefault(document.id, document)
        return documents

    @cached_property
    def ids(self):
        """Token ids of every document, by the Python library alone."""
        library = tokenizers.Tokenizer.from_file(str(self.tokenizer))
        # Markers that stand in a text are text.
        library.encode_special_tokens = True
        found, batch, characters = {}, [], 0

        def flush():
            encoded = library.encode_batch_fast([document.text for document in batch], add_special_tokens=False)
            for document, encoding in zip(batch, encoded):
                found[document.id] = np.array(encoding.ids, dtype=np.uint32)
            batch.clear()

        for document in self.documents.values():
            batch.append(document)
            characters += len(document.text)
            if characters > 4_000_000:
                flush()
                characters = 0
        flush()
        return found

    @property
    def end_id(self):
        return tokenizers.Tokenizer.from_file(str(self.tokenizer)).token_to_id(END)


def bad_records():
    """Lines of which some are no documents, with the reason for those that are none."""
    good = "Ordinary words stand in this sentence, and the record that holds them is a good one. "
    line = lambda **record: json.dumps(record, ensure_ascii=False).encode()
    return [
        (line(id="odd/1", text=good * 8, url="https://a.example", size=7, ratio=0.5, seen=True), None),
        (b"", "blank"),
        (b'{"id": "odd/3", "text": "cut', "invalid_json"),
        (b'{"id": "odd/4", "text": "byte \xff"}', "invalid_utf8"),
        (line(id="odd/5"), "missing_text"),
        (line(id="odd/6", text=None), "null_text"),
        (line(id="odd/7", text=12), "text_not_string"),
        (line(id="odd/1", text="The id is known already."), "duplicate_id"),
        (line(id="odd/9", text=f"A marker {END} in a text is text. " + good * 9), None),
        (line(id="odd/10", text="中文 текст \U0001f642 e\u0301 \u2028 and \u0085 end no record. " + good * 9, ratio=3), None),
        (line(id="odd/12", text=""), "empty_text"),
        (line(id="odd/13", text=" \u3000\t"), "whitespace_text"),
        (line(id="odd/14", text="A size is a number.", size="seven"), "field_type"),
        (line(id="odd/11", text=good * 8, metadata={"licence": "MIT"}), None),
    ]


def make_world(folder):
    """Gathers or generates the inputs."""
    world = World(folder)
    odd = folder / "odd.jsonl"
    odd.write_bytes(b"\n".join(line for line, _ in bad_records()) + b"\n")
    if USE_SHARED:
        mix = sorted((SHARED / "mix").glob("*.jsonl.zst"))
        books = [path for path in mix if path.name.startswith("books-")]
        world.files = {"books": books, "web": [path for path in mix if path not in books], "odd": [odd]}
        world.reference = sorted((SHARED / "reference").glob("textbook-*.jsonl.zst"))
        world.tokenizer = SHARED / "tokenizers" / "gpt2" / "tokenizer.json"
    else:
        chance = random.Random(17)
        words = ["the", "and", "of", "to", "with", "have", "that", "be"] * 20 + [
            "".join(chance.choice("abcdefghijklmnoprstuvwéß") for _ in range(chance.randint(2, 9))) for _ in range(3000)
        ]
        prose = lambda n: " ".join(chance.choice(words) for _ in range(n)).capitalize() + ".\n"
        text = lambda: "".join(prose(chance.randint(6, 25)) for _ in range(chance.choice([1, 3, 12, 40, 200])))
        for source in ["books", "web"]:
            texts = [text() for _ in range(200)]
            texts += chance.sample(texts, 20)
            texts += [copy.replace(".", "!", 1) for copy in chance.sample(texts, 20)]
            path = folder / f"{source}.jsonl"
            with path.open("w") as file:
                for number, one in enumerate(texts):
                    record = {"id": f"{source}/{number}", "text": one, "size": number, "metadata": {"licence": "MIT"}}
                    file.write(json.dumps(record) + "\n")
            world.files[source] = [path]
        world.files["odd"] = [odd]
        reference = folder / "reference.jsonl"
        reference.write_text("".join(json.dumps({"id": str(n), "text": text()}) + "\n" for n in range(100)))
        world.reference = [reference]
        world.tokenizer = folder / "tokenizer.json"
        library = tokenizers.Tokenizer(tokenizers.models.BPE())
        library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = tokenizers.decoders.ByteLevel()
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=1200, initial_alphabet=alphabet, special_tokens=[END], show_progress=False
        )
        library.train_from_iterator([text() for _ in range(100)], trainer)
        library.save(str(world.tokenizer))
    return world


def run(world, name, body):
    """Writes a pipeline over the world's files, runs it, and opens its output."""
    inputs = []
    for source, files in world.files.items():
        paths = [str(path) for path in files]
        inputs.append({"path": paths, "source": source, "format": "jsonl", "id": "id", "fields": FIELDS})
    pipeline = {"version": 1, "name": name, "seed": 17, "inputs": inputs}
    pipeline["tokenizer"] = {"file": str(world.tokenizer), "end_token": END} | body.pop("tokenizer", {})
    pipeline |= body
    out = world.folder / name
    pipeline["output"] = {"path": str(out)} | body["output"]
    path = world.folder / f"{name}.yaml"
    # JSON is YAML.
    path.write_text(json.dumps(pipeline, indent=1))
    done = subprocess.run([PROGRAM, "run", path, "--progress", "off"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Output(out, world)


class Output:
    """An output folder, read with pyarrow."""

    def __init__(self, path, world):
        self.path = path
        self.world = world
        self.audit = json.loads((path / "audit.json").read_text())
        self.manifest = json.loads((path / "manifest.json").read_text())

    @property
    def shards(self):
        return sorted(self.path.glob("shards/*.parquet"))

    @cached_property
    def table(self):
        """All rows of all shards."""
        return pa.concat_tables([pq.read_table(path) for path in self.shards])

    @cached_property
    def rejects(self):
        return pa.concat_tables([pq.read_table(path) for path in sorted(self.path.glob("rejects/*.parquet"))])

    @cached_property
    def duplicates(self):
        return pa.concat_tables([pq.read_table(path) for path in sorted(self.path.glob("duplicates/*.parquet"))])

    @cached_property
    def quarantine(self):
        text = (self.path / "quarantine" / "part-00000.jsonl").read_bytes()
        records = [json.loads(line) for line in text.splitlines()]
        for record in records:
            # A repeated id is found when its record is long gone: the offset has to do.
            raw = record["raw_base64"]
            record["raw"] = None if raw is None else base64.b64decode(raw)
        return records

    @property
    def packed(self):
        return "segments" in self.table.column_names

    @property
    def scored(self):
        return "usefulness" in self.table.column_names

    @cached_property
    def places(self):
        """Every token place of all rows in order: ids, and usefulness where there is one."""
        return tuple(
            self.table[name].combine_chunks().flatten().to_numpy() if name in self.table.column_names else None
            for name in ["input_ids", "usefulness"]
        )

    @cached_property
    def row_lengths(self):
        return pa.compute.list_value_length(self.table["input_ids"]).to_numpy().astype(np.int64)

    @cached_property
    def row_starts(self):
        return np.concatenate([[0], np.cumsum(self.row_lengths)])

    @cached_property
    def segments(self):
        """Segments of all rows in order, as dicts; `at` is the place of the first token in `places`."""
        if self.packed:
            return [
                segment | {"row": row, "at": int(self.row_starts[row]) + segment["row_start"]}
                for row, segments in enumerate(self.table["segments"].to_pylist())
                for segment in segments
            ]
        # A row is one part of one document: what is left without the special tokens. The pipelines
        # here name no begin token for unpacked rows, so the text begins at the row's first place.
        names = ["doc_id", "source", "doc_token_start", "copy", "score"]
        return [
            segment
            | {
                "row": row,
                "at": int(self.row_starts[row]),
                "row_start": 0,
                "tokens": int(self.row_lengths[row]) - special,
            }
            for row, (segment, special) in enumerate(
                zip(self.table.select(names).to_pylist(), self.table["special_tokens"].to_pylist())
            )
        ]

    @cached_property
    def kept_ids(self):
        """Token ids of every emitted document, put together from its parts in the shards."""
        parts = {}
        for segment in self.segments:
            parts.setdefault((segment["doc_id"], segment["copy"]), []).append(segment)
        documents = {}
        for (doc_id, copy), segments in parts.items():
            if copy == 0:
                segments.sort(key=lambda segment: segment["doc_token_start"])
                pieces = [self.places[0][segment["at"] :][: segment["tokens"]] for segment in segments]
                documents[doc_id] = np.concatenate(pieces)
        return documents

    @cached_property
    def rejected_ids(self):
        """Token ids of every rejected document."""
        flat = self.rejects["input_ids"].combine_chunks().flatten().to_numpy()
        ends = np.cumsum(pa.compute.list_value_length(self.rejects["input_ids"]).to_numpy().astype(np.int64))
        return dict(zip(self.rejects["doc_id"].to_pylist(), np.split(flat, ends[:-1])))
