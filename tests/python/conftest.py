"""Three runs of the built program, which all tests read."""

import os

# Set before the libraries are imported: nothing here may look for a network.
for switch in ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "HF_DATASETS_DISABLE_PROGRESS_BARS"]:
    os.environ[switch] = "1"

import pytest
import world as worlds


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return worlds.make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def best_fit(world):
    """Every stage, a curriculum, packed rows, usefulness, texts of the rejects."""
    score = {"estimator": "ngram_excess", "reference": [str(path) for path in world.reference], "fit_tokens": 5_000_000}
    return worlds.run(
        world,
        "best_fit",
        {
            "stages": [
                {"length": {"min_tokens": 16}},
                {"exact_dedupe": {}},
                {"near_dedupe": {"min_similarity": 0.8}},
                {"gopher_quality": {}},
                {"gopher_repetition": {}},
                {"score": score},
                {"select": {"keep_share_of_tokens": 0.8, "by": "score"}},
            ],
            "order": {"strategy": "warmup", "share": 0.3, "inner": {"strategy": "sorted", "by": "difficulty"}},
            "pack": {"method": "best_fit", "sequence_tokens": 2048},
            "output": {"rejects": "text", "shard_tokens": 4_000_000},
        },
    )


@pytest.fixture(scope="session")
def concat(world):
    """Begin and end tokens, rows cut where they are full, no usefulness, ids of the rejects."""
    return worlds.run(
        world,
        "concat",
        {
            "tokenizer": {"begin_token": worlds.END},
            "stages": [{"length": {"max_tokens": 20_000}}, {"exact_dedupe": {}}],
            "order": {"strategy": "shuffle"},
            "pack": {"method": "concat", "sequence_tokens": 1024},
            "output": {"rejects": "tokens", "shard_tokens": 16_000_000},
        },
    )


@pytest.fixture(scope="session")
def unpacked(world):
    """One document a row, declared fields, sorted by score, ids of the rejects."""
    return worlds.run(
        world,
        "unpacked",
        {
            "stages": [{"near_dedupe": {}}, {"score": {"estimator": "prior"}}],
            "order": {"strategy": "sorted", "by": "score", "direction": "descending"},
            "pack": {"method": "none"},
            "output": {"rejects": "tokens", "shard_tokens": 16_000_000},
        },
    )


@pytest.fixture(params=["best_fit", "concat", "unpacked"])
def output(request):
    return request.getfixturevalue(request.param)
