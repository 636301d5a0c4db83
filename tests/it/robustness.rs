//! Inputs and events that broke other tools, and what happens here.

use crate::support::Folder;

#[test]
fn of_cat_dog_cat_the_second_cat_goes_with_the_id_of_the_first() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["cat", "dog", "cat"]);
    folder.pipeline("stages:\n  - exact_dedupe: {}\n  - near_dedupe: {}\n");
    let out = folder.run_and_verify();
    assert_eq!(out.kept_texts(), ["cat", "dog"]);
    let [duplicate] = out.duplicates().try_into().expect("one");
    assert_eq!(
        (duplicate.dropped_id.as_str(), duplicate.kept_id.as_str()),
        ("in.jsonl:30", "in.jsonl:0")
    );
    assert_eq!((duplicate.similarity, duplicate.tokens), (1.0, 3));
    let [reject] = out.rejects().try_into().expect("one");
    assert_eq!(
        (reject.stage.as_str(), reject.reason.as_str()),
        ("exact_dedupe", "exact_duplicate")
    );
    assert_eq!(reject.kept_id.as_deref(), Some("in.jsonl:0"));
}
