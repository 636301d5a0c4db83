//! Logs that trainers wrote, as they wrote them: `tests/evidence/real_logs.py` made them, `tests/logs/versions.json`
//! names the versions.

use crate::support::Folder;
use serde_json::{Value, json};

fn measured(log: &str) -> Value {
    let path = format!("{}/tests/logs/{log}", env!("CARGO_MANIFEST_DIR"));
    let ran = Folder::new().goodput(&["measure", "--log", &path, "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).expect("one JSON document");
    report["runs"][0].clone()
}

/// Thirty steps of 256 tokens, then forty from the twenty-first on in a second process.
fn is_of_two_processes(run: &Value) {
    assert_eq!(run["attempts"].as_array().expect("attempts").len(), 2);
    let steps = &run["steps"];
    assert_eq!(
        [&steps["done"], &steps["replayed"], &steps["counting"]],
        [&json!(70), &json!(10), &json!(60)]
    );
    let time = &run["time"];
    let of = |name: &str| time[name].as_i64().expect("whole microseconds");
    // Each step sleeps for 20 ms, and a second passes between the processes.
    assert!(of("productive_microseconds") > 60 * 20_000);
    assert!(of("wall_microseconds") > 2_400_000 && of("wall_microseconds") < 60_000_000);
    assert!(time["badput_microseconds"]["wasted_progress"].as_i64() > Some(10 * 20_000));
    assert_eq!(run["bad_lines"]["count"], 0);
}

#[test]
fn the_event_format_of_a_plain_loop() {
    let run = measured("events.jsonl");
    assert_eq!(run["format"], "events");
    is_of_two_processes(&run);
    assert_eq!(run["tokens"]["processed"], 70.0 * 256.0);
    let saved = &run["time"]["badput_microseconds"]["checkpoint_save"];
    assert!(saved.as_i64() > Some(3 * 50_000), "{saved}");
}

#[test]
fn tensorboard_as_its_writer_writes_it() {
    let run = measured("tensorboard/*");
    assert_eq!(run["format"], "tensorboard");
    is_of_two_processes(&run);
}

#[test]
fn the_state_of_hugging_face_s_trainer_has_steps_and_no_time() {
    let run = measured("trainer_state.json");
    assert_eq!(run["format"], "hf_trainer");
    assert_eq!(run["steps"]["done"], 60);
    assert_eq!(run["tokens"]["processed"], 60.0 * 256.0);
    assert_eq!(run["time"], Value::Null);
    assert_eq!(run["evaluations"]["eval"][0], 60);
}
