"""The files open as they are in the libraries that people train from, and say the same in each."""

import datasets
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from world import FIELDS

SEGMENT = {
    "doc_id": "string",
    "source": "string",
    "row_start": "uint32",
    "doc_token_start": "uint32",
    "tokens": "uint32",
    "copy": "uint32",
    "score": "float32",
}
ARROW_NAMES = {"float32": "float", "float64": "double"}
DUCKDB_NAMES = {
    "string": "VARCHAR",
    "uint8": "UTINYINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
}
POLARS_TYPES = {
    "string": polars.String,
    "uint8": polars.UInt8,
    "uint32": polars.UInt32,
    "uint64": polars.UInt64,
    "int64": polars.Int64,
    "float32": polars.Float32,
    "float64": polars.Float64,
    "bool": polars.Boolean,
}
DECLARED = {"string": "string", "int": "int64", "float": "float64", "bool": "bool"}


def shard_columns(output):
    """Columns of the shards in order: a type, a list of one, or a list of structs."""
    columns = {"position": "uint64", "input_ids": ["uint32"]}
    if output.scored:
        columns["usefulness"] = ["uint8"]
    if output.packed:
        return columns | {"segments": [SEGMENT], "special_tokens": "uint32", "padding": "uint32"}
    columns |= {name: SEGMENT[name] for name in ["doc_id", "source", "doc_token_start", "copy", "score"]}
    return columns | {"special_tokens": "uint32"} | {name: DECLARED[kind] for name, kind in FIELDS.items()}


def in_arrow(kind):
    if isinstance(kind, list):
        return pa.list_(pa.field("element", in_arrow(kind[0]), nullable=False))
    if isinstance(kind, dict):
        fields = [pa.field(name, in_arrow(one), nullable=name == "score") for name, one in kind.items()]
        return pa.struct(fields)
    return pa.type_for_alias(ARROW_NAMES.get(kind, kind))


def in_datasets(kind):
    if isinstance(kind, list):
        return datasets.List(in_datasets(kind[0]))
    if isinstance(kind, dict):
        return {name: in_datasets(one) for name, one in kind.items()}
    return datasets.Value(kind)


def in_duckdb(kind):
    if isinstance(kind, list):
        return in_duckdb(kind[0]) + "[]"
    if isinstance(kind, dict):
        return "STRUCT(" + ", ".join(f"{name} {in_duckdb(one)}" for name, one in kind.items()) + ")"
    return DUCKDB_NAMES[kind]


def shown_by_duckdb(relation):
    """Types by column, without the quotes around names that are words of SQL."""
    return {name: str(kind).replace('"', "") for name, kind in zip(relation.columns, relation.types)}


def in_polars(kind):
    if isinstance(kind, list):
        return polars.List(in_polars(kind[0]))
    if isinstance(kind, dict):
        return polars.Struct({name: in_polars(one) for name, one in kind.items()})
    return POLARS_TYPES[kind]


def test_the_runs_are_worth_reading(best_fit, concat, unpacked):
    assert best_fit.packed and concat.packed and not unpacked.packed
    assert best_fit.scored and unpacked.scored and not concat.scored
    assert all(len(output.table) > 10 and len(output.rejects) > 10 for output in [best_fit, concat, unpacked])
    assert len({row["stage"] for row in best_fit.audit["rejected"]}) >= 4


def test_pyarrow_shows_the_columns(output):
    for path in output.shards:
        schema = pq.read_schema(path)
        assert {field.name: field.type for field in schema} == {
            name: in_arrow(kind) for name, kind in shard_columns(output).items()
        }
        assert schema.names == list(shard_columns(output))
        nullable = {field.name for field in schema if field.nullable}
        assert nullable == (set() if output.packed else {"score", *FIELDS})


def test_pyarrow_shows_who_made_a_shard(output):
    tokenizer, estimator = output.manifest["tokenizer"], output.manifest.get("estimator")
    for path in output.shards:
        # Of the schema as of the file: people look in both places.
        shown = pq.read_schema(path).metadata
        assert shown.items() <= pq.read_metadata(path).metadata.items()
        shown = {key.decode(): value.decode() for key, value in shown.items()}
        assert shown["goodput.tool"] == output.manifest["tool"]
        assert shown["goodput.pipeline_hash"] == output.manifest["pipeline_hash"]
        assert shown["goodput.tokenizer_fingerprint"] == tokenizer["fingerprint"]
        assert shown["goodput.tokenizer_engine"] == tokenizer["engine"]
        assert int(shown["goodput.vocabulary_size"]) == tokenizer["vocabulary_size"]
        assert int(shown["goodput.highest_id"]) == tokenizer["highest_id"]
        assert shown.get("goodput.estimator") == (estimator and estimator["name"])
        assert ("goodput.estimator_parameter_hash" in shown) == output.scored
        assert ("goodput.calibration" in shown) == output.scored


def test_positions_count_through_all_shards(output):
    assert output.table["position"].to_pylist() == list(range(output.audit["emitted"]["rows"]))


def test_the_manifest_describes_every_file(output):
    entries = {entry["path"]: entry for entry in output.manifest["files"]}
    present = {path.relative_to(output.path).as_posix() for path in output.path.rglob("*") if path.is_file()}
    assert set(entries) == present - {"manifest.json", "run.json", "run.log"}
    for name, entry in entries.items():
        data = (output.path / name).read_bytes()
        assert len(data) == entry["bytes"], name
        assert xxhash.xxh3_128_hexdigest(data) == entry["checksum"], name
        if name.endswith(".parquet"):
            assert pq.read_metadata(output.path / name).num_rows == entry["rows"], name
        if name.startswith("shards/"):
            ids = pq.read_table(output.path / name, columns=["input_ids"])["input_ids"]
            assert pa.compute.sum(pa.compute.list_value_length(ids)).as_py() == entry["tokens"], name
            assert entry["rows"] > 0
    inputs = [(source, path) for source, files in output.world.files.items() for path in files]
    for entry, (source, path) in zip(output.manifest["inputs"], inputs, strict=True):
        data = path.read_bytes()
        assert (entry["source"], entry["bytes"]) == (source, len(data))
        assert entry["name"].endswith(path.name)
        assert entry["checksum"] == xxhash.xxh3_128_hexdigest(data)
        assert entry["records"] == output.world.record_counts[path]


def test_datasets_loads_the_shards(output, tmp_path):
    loaded = datasets.load_dataset(
        "parquet", data_dir=str(output.path / "shards"), split="train", cache_dir=str(tmp_path)
    )
    assert loaded.features == datasets.Features(
        {name: in_datasets(kind) for name, kind in shard_columns(output).items()}
    )
    emitted = output.audit["emitted"]
    assert loaded.num_rows == emitted["rows"]
    assert sum(len(ids) for ids in loaded.with_format("arrow")["input_ids"]) == emitted["positions"]
    assert sum(loaded["special_tokens"]) == emitted["special_tokens"]
    # A row as training code meets it.
    row = loaded.with_format("numpy")[3]
    assert row["input_ids"].tolist() == output.table["input_ids"][3].as_py()
    if output.scored:
        assert row["usefulness"].shape == row["input_ids"].shape
        assert row["usefulness"].tolist() == output.table["usefulness"][3].as_py()
    assert loaded[3] == output.table.slice(3, 1).to_pylist()[0]


def test_datasets_streams_the_shards(output):
    streamed = datasets.load_dataset("parquet", data_dir=str(output.path / "shards"), split="train", streaming=True)
    for number, row in zip(range(5), streamed):
        assert row == output.table.slice(number, 1).to_pylist()[0]


def test_duckdb_reads_the_shards(output):
    with duckdb.connect() as database:
        shards = database.read_parquet(str(output.path / "shards" / "*.parquet"))
        assert shown_by_duckdb(shards) == {name: in_duckdb(kind) for name, kind in shard_columns(output).items()}
        padding = "sum(padding)" if output.packed else "0"
        tokens = (
            "sum(list_sum(list_transform(segments, lambda s: s.tokens)))"
            if output.packed
            else "sum(len(input_ids) - special_tokens)"
        )
        useful = "sum(list_sum(usefulness))" if output.scored else "0"
        sums = f"count(*), sum(len(input_ids)), {tokens}, sum(special_tokens), {padding}, {useful}"
        found = [int(value) for value in database.sql(f"select {sums} from shards").fetchall()[0]]
    emitted = output.audit["emitted"]
    names = ["rows", "positions", "tokens", "special_tokens", "padding"]
    assert found[:5] == [emitted[name] for name in names]
    if output.scored:
        assert found[5] == sum(row["sum_255"] for row in output.audit["usefulness"]["by_source"])


def test_duckdb_recomputes_the_ledger_of_rejects(output):
    with duckdb.connect() as database:
        rejects = database.read_parquet(str(output.path / "rejects" / "*.parquet"))
        found = database.sql("select source, stage, reason, count(*), sum(tokens)::ubigint from rejects group by all")
        assert sorted(found.fetchall()) == sorted(
            (row["source"], row["stage"], row["reason"], row["documents"], row["tokens"])
            for row in output.audit["rejected"]
        )


def test_polars_reads_the_shards(output):
    shards = polars.scan_parquet(output.path / "shards" / "*.parquet")
    assert dict(shards.collect_schema()) == {name: in_polars(kind) for name, kind in shard_columns(output).items()}
    lengths = polars.col("input_ids").list.len().sum().alias("positions")
    useful = [polars.col("usefulness").list.len().sum().alias("useful")] if output.scored else []
    found = shards.select(polars.len().alias("rows"), lengths, polars.col("special_tokens").sum(), *useful).collect()
    emitted = output.audit["emitted"]
    assert found["rows"][0] == emitted["rows"]
    assert found["positions"][0] == emitted["positions"]
    assert found["special_tokens"][0] == emitted["special_tokens"]
    if output.scored:
        assert found["useful"][0] == emitted["positions"]


def reject_columns(output):
    columns = {
        "doc_id": "string",
        "source": "string",
        "stage": "string",
        "reason": "string",
        "value": "float64",
        "kept_id": "string",
        "kept_release": "string",
        "tokens": "uint32",
        "score": "float32",
        "usefulness": ["uint8"],
        "input_ids": ["uint32"],
    }
    if output.path.name == "best_fit":
        columns["text"] = "string"
    return columns | {name: DECLARED[kind] for name, kind in FIELDS.items()}


DUPLICATES = {"dropped_id": "string", "kept_id": "string", "similarity": "float32", "rule": "string", "tokens": "uint32", "kept_release": "string"}


@pytest.mark.parametrize("folder", ["rejects", "duplicates"])
def test_all_libraries_read_what_was_turned_away(output, folder, tmp_path):
    columns = reject_columns(output) if folder == "rejects" else DUPLICATES
    files = str(output.path / folder / "*.parquet")
    table = output.rejects if folder == "rejects" else output.duplicates
    assert {field.name: field.type for field in table.schema} == {name: in_arrow(kind) for name, kind in columns.items()}
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))
    assert loaded.features == datasets.Features({name: in_datasets(kind) for name, kind in columns.items()})
    assert loaded.num_rows == len(table)
    frame = polars.scan_parquet(files)
    assert dict(frame.collect_schema()) == {name: in_polars(kind) for name, kind in columns.items()}
    tokens = pa.compute.sum(table["tokens"]).as_py()
    assert frame.select(polars.col("tokens").cast(polars.UInt64).sum()).collect().item() == tokens
    with duckdb.connect() as database:
        turned_away = database.read_parquet(files)
        assert shown_by_duckdb(turned_away) == {name: in_duckdb(kind) for name, kind in columns.items()}
        sums = database.sql("select count(*), sum(tokens)::ubigint from turned_away").fetchall()[0]
        assert sums == (len(table), tokens)


def test_usefulness_stands_beside_every_token(output):
    if not output.scored:
        assert "usefulness" not in output.table.column_names
        assert "usefulness" not in output.audit
        assert {segment["score"] for segment in output.segments} == {None}
        return
    lengths = pa.compute.list_value_length(output.table["usefulness"]).to_numpy()
    assert (lengths == output.row_lengths).all()
    of_text = np.zeros(len(output.places[0]), dtype=bool)
    for segment in output.segments:
        of_text[segment["at"] : segment["at"] + segment["tokens"]] = True
    usefulness = output.places[1]
    assert not usefulness[~of_text].any(), "special tokens and padding are worth nothing"
    told = output.audit["usefulness"]
    assert np.bincount(usefulness[of_text], minlength=256).tolist() == told["histogram"]
    assert told["sum"] == pytest.approx(usefulness.sum(dtype=np.int64) / 255)
    by_source = {}
    for segment in output.segments:
        sums = by_source.setdefault(segment["source"], [0, 0])
        sums[0] += segment["tokens"]
        sums[1] += int(usefulness[segment["at"] :][: segment["tokens"]].sum(dtype=np.int64))
    assert by_source == {row["source"]: [row["tokens"], row["sum_255"]] for row in told["by_source"] if row["tokens"]}
    below = output.audit["low_value"]["kept_below"]
    assert below["tokens"] == (usefulness[of_text] / 255 < below["threshold"]).sum()
    if "data_goodput" in told:
        expected = told["sum"] / told["u_ref"] / output.audit["emitted"]["positions"]
        assert told["data_goodput"] == pytest.approx(expected)


def test_rejects_have_usefulness_only_where_score_ran_before(output):
    for row in output.rejects.select(["stage", "score", "usefulness", "tokens"]).to_pylist():
        if row["stage"] == "select":
            assert row["score"] is not None and len(row["usefulness"]) == row["tokens"]
        else:
            assert row["score"] is None and row["usefulness"] is None
