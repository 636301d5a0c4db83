//! The JSON Schema of the report, field by field.

use serde_json::{Value, json};

/// An object that has these properties and no others; all but the optional ones are always there.
fn object(properties: Value, optional: &[&str]) -> Value {
    let required: Vec<&String> = properties
        .as_object()
        .expect("written as an object")
        .keys()
        .filter(|key| !optional.contains(&key.as_str()))
        .collect();
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
}

fn rows(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// The same, or `null`. `schema` has a `type` of one word.
fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

/// Two numbers.
fn pair(first: Value) -> Value {
    let number = json!({ "type": "number" });
    json!({ "type": "array", "prefixItems": [first, number], "minItems": 2, "maxItems": 2 })
}

/// The JSON Schema (draft 2020-12) of what `goodput measure --format json` prints.
pub fn report_schema() -> Value {
    let mut schema = object(
        json!({
            "version": { "const": 1 },
            "name": { "type": "string" },
            "runs": rows(run()),
            "progress": progress()
        }),
        &["progress"],
    );
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("goodput measure: the report");
    schema
}

fn run() -> Value {
    let text = json!({ "type": "string" });
    let texts = rows(text.clone());
    let whole = json!({ "type": "integer", "minimum": 0 });
    let steps = json!({ "type": "integer" });
    let number = json!({ "type": "number" });
    let maybe = or_null(number.clone());
    let time = object(
        json!({
            "wall_microseconds": steps, "productive_microseconds": steps,
            "badput_microseconds": { "type": "object", "additionalProperties": steps },
            "unattributed_microseconds": steps, "productive_share": number
        }),
        &[],
    );
    let optional = [
        "time_unknown_because",
        "rate",
        "reliability",
        "cost",
        "dataset",
        "curriculum",
        "last_training_loss_nats",
        "selection",
    ];
    object(
        json!({
            "name": text, "group": text, "seed": or_null(whole.clone()), "format": text, "logs": texts,
            "time": or_null(time.clone()),
            "time_unknown_because": text,
            "disruptions": whole,
            "attempts": rows(object(json!({
                "number": whole, "start_microseconds": or_null(steps.clone()), "first_line": text,
                "first_step": or_null(steps.clone()), "last_step": or_null(steps.clone()), "steps": steps,
                "replayed_steps": steps, "after_inferred_outage": { "type": "boolean" },
                "failed": { "type": "boolean" }, "time": or_null(time)
            }), &[])),
            "steps": object(json!({
                "done": steps, "replayed": steps, "lost": steps, "counting": steps, "unsaved": steps,
                "median_seconds": maybe
            }), &[]),
            "tokens": object(json!({
                "per_step": maybe, "processed": maybe, "good": maybe, "per_second": maybe, "good_per_second": maybe
            }), &[]),
            "rate": object(json!({
                "flop_convention": text, "model_flops_per_token": number, "hardware_flops_per_token": number,
                "chips": whole, "peak_flops": maybe, "tokens_per_productive_second": number, "model_flops": number,
                "mfu": maybe, "hfu": maybe, "delivered_mfu": maybe
            }), &[]),
            "reliability": object(json!({
                "nodes": whole, "failures_per_node_day": number, "failures_are_measured": { "type": "boolean" },
                "mean_hours_to_failure": maybe, "restart_seconds": maybe, "checkpoint_seconds": maybe,
                "checkpoint_interval_seconds": maybe, "best_checkpoint_interval_seconds": maybe,
                "expected_share": maybe, "expected_share_at_best": maybe
            }), &[]),
            "cost": object(json!({
                "per_hour": number, "total": number, "lost": number, "unattributed": number,
                "per_productive_hour": maybe, "per_million_good_tokens": maybe,
                "per_million_reference_equivalent_tokens": maybe
            }), &[]),
            "dataset": object(json!({
                "path": text, "checksum": text, "positions": whole, "epochs_read": maybe,
                "effective_positions": maybe, "data_goodput": maybe, "is_named_in_log": { "type": "boolean" }
            }), &[]),
            "curriculum": curriculum(),
            "last_training_loss_nats": number,
            "evaluations": { "type": "object", "additionalProperties": pair(whole.clone()) },
            "held_out": rows(object(json!({
                "split": text, "source": or_null(text.clone()), "dataset": or_null(text.clone()),
                "is_weighted": { "type": "boolean" }, "step": whole, "loss_nats": maybe,
                "tokens": or_null(whole.clone()), "bytes": or_null(whole.clone()), "line": text
            }), &[])),
            "training": object(json!({
                "tokens": maybe, "flop": maybe, "flop_is_of": { "enum": ["model", "log", null] },
                "active_parameters": or_null(whole.clone()), "last_step": steps,
                "total_steps": or_null(whole.clone()), "peak_learning_rate": maybe, "last_learning_rate": maybe,
                "schedule": { "enum": ["finished", "unfinished", "unknown"] }
            }), &[]),
            "selection": object(json!({
                "core_seconds": number, "core_seconds_are_of": { "enum": ["request", "run.json"] },
                "flop_per_core_second": number, "flop": number
            }), &[]),
            "bad_lines": object(json!({ "count": whole, "first": texts }), &[]),
            "inferred": texts,
            "warnings": texts
        }),
        &optional,
    )
}

fn curriculum() -> Value {
    let text = json!({ "type": "string" });
    let whole = json!({ "type": "integer", "minimum": 0 });
    let steps = json!({ "type": "integer" });
    let number = json!({ "type": "number" });
    object(
        json!({
            "rows_per_step": whole, "positions_read_again": whole,
            "parts": rows(object(json!({
                "first_step": steps, "last_step": steps, "positions": whole, "tokens": whole,
                "special_tokens": whole, "padding": whole, "repeated_tokens": whole,
                "mean_usefulness": or_null(number.clone()),
                "tokens_by_source": { "type": "object", "additionalProperties": whole }
            }), &[])),
            "loss_spikes": rows(object(json!({
                "line": text, "first_step": steps, "last_step": steps, "loss_nats": number,
                "usual_loss_nats": number, "documents": whole,
                "largest_documents": rows(object(json!({ "doc_id": text, "source": text, "tokens": whole }), &[]))
            }), &[]))
        }),
        &[],
    )
}

fn progress() -> Value {
    let text = json!({ "type": "string" });
    let texts = rows(text.clone());
    let role = json!({ "enum": ["target", "general"] });
    let whole = json!({ "type": "integer", "minimum": 0 });
    let number = json!({ "type": "number" });
    let maybe = or_null(number.clone());
    let flag = json!({ "type": "boolean" });
    let interval = or_null(pair(number.clone()));
    let seed = or_null(whole.clone());
    let measured = rows(object(
        json!({ "role": role, "budget": number, "multiplier": number, "measured_per_forecast": maybe }),
        &[],
    ));
    let comparison = object(
        json!({
            "group": text, "budget": number, "bits_per_byte": number,
            "pairs": rows(object(json!({
                "seed": seed, "candidate": text, "baseline": text, "ln_multiplier": number
            }), &[])),
            "multiplier": maybe, "local_multiplier": maybe, "interval": interval, "no_interval_because": text,
            "p_value": maybe, "holm_p_value": maybe, "minimum_detectable_multiplier": maybe,
            "is_extrapolated": flag, "training_flop": maybe, "selection_flop": maybe, "net_multiplier": maybe,
            "net_interval": interval, "delivered_mfu": maybe, "overall_goodput": maybe,
            "verdict": { "enum": ["more", "less", "cannot_tell", "no_interval"] }
        }),
        &["no_interval_because"],
    );
    let curve = object(
        json!({
            "budgets": rows(object(json!({ "budget": number, "runs": whole, "bits_per_byte": number }), &[])),
            "floor": maybe, "coefficient": maybe, "exponent": maybe,
            "terms": rows(object(json!({
                "of": { "enum": ["parameters", "tokens"] }, "coefficient": number, "exponent": number
            }), &[])),
            "largest_residual": maybe
        }),
        &[],
    );
    object(
        json!({
            "baseline": text,
            "budget_unit": { "enum": ["flop", "tokens"] },
            "curve": { "enum": ["interpolated", "power_law", "frontier"] },
            "sets": rows(object(json!({
                "role": role, "split": text, "source": or_null(text.clone()), "bytes": or_null(whole.clone()),
                "runs": rows(object(json!({
                    "run": text, "group": text, "seed": seed, "budget": number, "bits_per_byte": number,
                    "progress": maybe, "is_extrapolated": flag, "cost_per_exaflop_of_progress": maybe
                }), &[])),
                "curve": or_null(curve),
                "comparisons": rows(comparison)
            }), &[])),
            "forecasts": rows(object(json!({
                "group": text, "data_goodput": maybe, "baseline_data_goodput": maybe, "forecast_multiplier": maybe,
                "tokens_by_source": { "type": "object", "additionalProperties": whole },
                "tokens_by_usefulness_decile": rows(whole.clone()),
                "is_of_source": or_null(text.clone()), "is_of_usefulness_decile": or_null(whole.clone()),
                "measured": measured,
                "by_source": rows(object(json!({
                    "source": text, "forecast_multiplier": maybe, "measured": measured
                }), &[]))
            }), &[])),
            "concluded": texts,
            "not_concluded": texts
        }),
        &[],
    )
}
