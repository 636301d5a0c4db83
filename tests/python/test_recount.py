"""Another program reads and tokenizes every input document again, and finds the same tokens.

The documents come from the input files by Python's own JSON reader, the ids from the Python
`tokenizers` library; both are compared with what stands in shards, rejects and ledger.
"""

import json
from collections import Counter

import numpy as np
import pytest
import tokenizers
from world import FIELDS, bad_records


def by_source(documents):
    """Documents, bytes and tokens by source, as the ledger writes them."""
    sums = {}
    for document, ids in documents:
        counts = sums.setdefault(document.source, Counter())
        counts.update(documents=1, bytes=len(document.text.encode()), tokens=len(ids))
    return sums


def told(rows, *keys):
    """Counts of ledger rows by keys, empty ones left out."""
    return {
        row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys): {
            name: row[name] for name in ["documents", "bytes", "tokens"]
        }
        for row in rows
        if row["documents"]
    }


def test_the_ledger_counts_what_another_tokenizer_counts(output):
    world = output.world
    found = by_source((document, world.ids[id]) for id, document in world.documents.items())
    assert found == told(output.audit["read"], "source")
    kept = by_source((world.documents[id], world.ids[id]) for id in output.kept_ids)
    assert kept == told(output.audit["kept"], "source")
    print(f"\nrecounted {sum(len(ids) for ids in world.ids.values()):,} tokens of {len(world.ids):,} documents", end="")


def test_every_document_has_the_ids_of_another_tokenizer(output):
    kept, rejected = output.kept_ids, output.rejected_ids
    assert not kept.keys() & rejected.keys(), "a document is kept or rejected, not both"
    assert kept.keys() | rejected.keys() == output.world.documents.keys()
    for found in [kept, rejected]:
        differ = [id for id, ids in found.items() if not np.array_equal(ids, output.world.ids[id])]
        assert not differ


def test_rejects_are_counted_by_source_stage_and_reason(output):
    world, sums = output.world, {}
    for row in output.rejects.select(["doc_id", "source", "stage", "reason", "tokens"]).to_pylist():
        document = world.documents[row["doc_id"]]
        assert row["source"] == document.source
        assert row["tokens"] == len(world.ids[row["doc_id"]])
        counts = sums.setdefault((row["source"], row["stage"], row["reason"]), Counter())
        counts.update(documents=1, bytes=len(document.text.encode()), tokens=row["tokens"])
    assert sums == told(output.audit["rejected"], "source", "stage", "reason")


def test_the_four_identities_close_from_the_files(output):
    world, audit = output.world, output.audit
    tokens_read = sum(len(ids) for ids in world.ids.values())
    kept, rejected = output.kept_ids, output.rejected_ids
    tokens_kept = sum(map(len, kept.values()))
    # No stage here fails or edits.
    assert audit["failed"] == [] and audit["edited"] == []
    assert tokens_read == tokens_kept + sum(map(len, rejected.values()))
    emitted = {
        "rows": len(output.table),
        "positions": len(output.places[0]),
        "tokens": sum(segment["tokens"] for segment in output.segments),
        "special_tokens": sum(output.table["special_tokens"].to_pylist()),
        "padding": sum(output.table["padding"].to_pylist()) if output.packed else 0,
        "repeated_tokens": sum(segment["tokens"] for segment in output.segments if segment["copy"] > 0),
    }
    assert emitted == audit["emitted"]
    assert emitted["positions"] == emitted["tokens"] + emitted["special_tokens"] + emitted["padding"]
    assert emitted["tokens"] == tokens_kept + emitted["repeated_tokens"]
    records = world.record_counts.total()
    assert records == audit["records_in_files"] == len(world.documents) + len(output.quarantine)
    assert len(world.documents) == len(kept) + len(rejected)
    assert audit["identities"] and all(one["holds"] and one["left"] == one["right"] for one in audit["identities"])


def test_quarantine_holds_the_records_that_are_no_documents(output):
    expected, offset = {}, 0
    for line, reason in bad_records():
        if reason:
            expected[offset] = (line, reason)
        offset += len(line) + 1
    rows = {row["byte_offset"]: row for row in output.quarantine}
    assert rows.keys() == expected.keys() and len(rows) == len(output.quarantine)
    for offset, (line, reason) in expected.items():
        row = rows[offset]
        assert row["reason"] == reason
        assert row["file"].endswith("odd.jsonl")
        assert row["raw"] == line
    counted = Counter(reason for _, reason in expected.values())
    assert counted == {row["reason"]: row["records"] for row in output.audit["quarantined"]}
    assert {row["source"] for row in output.audit["quarantined"]} == {"odd"}


def test_segments_cover_every_document_once_and_every_row(output):
    manifest = output.manifest["tokenizer"]
    special = {name: manifest[name][1] if manifest[name] else None for name in ["begin_token", "end_token"]}
    ids, kinds = output.places[0], np.full(len(output.places[0]), "?")
    parts = {}
    for segment in output.segments:
        start = segment["at"]
        assert (kinds[start : start + segment["tokens"]] == "?").all(), "segments do not overlap"
        kinds[start : start + segment["tokens"]] = "t"
        parts.setdefault((segment["doc_id"], segment["copy"]), []).append(segment)
    padding = output.table["padding"].to_pylist() if output.packed else [0] * len(output.table)
    for row, count in enumerate(padding):
        end = output.row_starts[row + 1]
        assert (kinds[end - count : end] == "?").all()
        assert (ids[end - count : end] == manifest["padding_id"]).all()
        kinds[end - count : end] = "p"
    for (doc_id, _), segments in parts.items():
        # Parts of a document stand in the order of the rows only where rows are filled one after another.
        segments.sort(key=lambda segment: (segment["doc_token_start"], segment["row"]))
        next_token = 0
        for segment in segments:
            assert segment["doc_token_start"] == next_token, doc_id
            next_token += segment["tokens"]
            assert segment["source"] == output.world.documents[doc_id].source
        assert next_token == len(output.world.ids[doc_id])
        if special["begin_token"] is not None:
            place = segments[0]["at"] - 1
            assert kinds[place] == "?" and ids[place] == special["begin_token"], doc_id
            kinds[place] = "b"
        place = segments[-1]["at"] + segments[-1]["tokens"]
        assert kinds[place] == "?" and ids[place] == special["end_token"], doc_id
        kinds[place] = "e"
    assert (kinds != "?").all(), "every place is text, a special token or padding"
    rows = np.add.reduceat(np.isin(kinds, ["b", "e"]).astype(int), output.row_starts[:-1])
    assert rows.tolist() == output.table["special_tokens"].to_pylist()
    if output.packed:
        assert len(set(output.row_lengths)) == 1


def test_texts_come_back_from_shards(output):
    library = tokenizers.Tokenizer.from_file(str(output.world.tokenizer))
    for doc_id in ["odd/9", "odd/10"]:
        ids = output.kept_ids.get(doc_id, output.rejected_ids.get(doc_id))
        assert library.decode(ids.tolist(), skip_special_tokens=False) == output.world.documents[doc_id].text
        assert output.world.end_id not in ids


def test_rejects_keep_texts_and_fields(best_fit, unpacked):
    for row in best_fit.rejects.drop_columns(["input_ids", "usefulness"]).to_pylist():
        document = best_fit.world.documents[row["doc_id"]]
        assert row["text"] == document.text
        for name in FIELDS:
            assert row[name] == document.declared(name), (row["doc_id"], name)
    seen = Counter()
    for row in unpacked.table.drop_columns(["input_ids", "usefulness"]).to_pylist():
        document = unpacked.world.documents[row["doc_id"]]
        assert row["source"] == document.source
        for name in FIELDS:
            assert row[name] == document.declared(name), (row["doc_id"], name)
            seen[name] += row[name] is not None
    assert all(seen[name] for name in FIELDS), "no column is all null"


def test_a_duplicate_names_a_document_that_its_stage_kept(output):
    rank = {label: number for number, label in enumerate(["length", "exact_dedupe", "near_dedupe", "gopher_quality"])}
    gone = {row["doc_id"]: row for row in output.rejects.drop_columns(["input_ids", "usefulness"]).to_pylist()}
    evidence = {row["dropped_id"]: row for row in output.duplicates.to_pylist()}
    duplicates = {id: row for id, row in gone.items() if row["kept_id"] is not None}
    assert duplicates.keys() == evidence.keys() and duplicates
    assert {id for id, row in gone.items() if row["stage"].endswith("dedupe")} == duplicates.keys()
    ids = output.world.ids
    for dropped, row in evidence.items():
        reject, kept = duplicates[dropped], row["kept_id"]
        assert (kept, row["tokens"]) == (reject["kept_id"], reject["tokens"])
        assert row["similarity"] == np.float32(reject["value"])
        assert row["rule"].split()[0] == reject["stage"]
        assert kept not in gone or rank.get(gone[kept]["stage"], 9) > rank[reject["stage"]], (dropped, kept)
        if reject["stage"] == "exact_dedupe":
            assert row["similarity"] == 1
            assert np.array_equal(ids[dropped], ids[kept])
        else:
            assert 0.8 <= row["similarity"] <= 1
    if "exact_dedupe" in {row["stage"] for row in gone.values()}:
        stayed = [id for id in output.world.documents if gone.get(id, {}).get("stage") not in ["length", "exact_dedupe"]]
        assert len({output.world.documents[id].text for id in stayed}) == len(stayed)


def test_select_takes_the_longest_prefix_within_its_share(best_fit):
    below = [row for row in best_fit.rejects.select(["stage", "score", "tokens", "value"]).to_pylist() if row["stage"] == "select"]
    scores = {segment["doc_id"]: segment["score"] for segment in best_fit.segments}
    kept_tokens = sum(map(len, best_fit.kept_ids.values()))
    budget = (kept_tokens + sum(row["tokens"] for row in below)) * 8 // 10
    assert max(row["score"] for row in below) <= min(scores.values())
    first_out = max(below, key=lambda row: row["value"])
    assert kept_tokens <= budget < kept_tokens + first_out["tokens"]


def test_sorted_rows_fall_by_score(unpacked):
    scores = [segment["score"] for segment in unpacked.segments]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 10
    assert unpacked.manifest["order"]["kendall_tau_b"] == [["score", pytest.approx(-1)]]


def test_the_ledger_is_one_json_document(output):
    assert json.loads((output.path / "audit.json").read_text()) == output.audit
    assert output.audit["tokenizer"]["counts"] == "exact"
    assert output.audit["records_left_out"] == 0
