//! Checked options as JSON and back, for keys, the manifest and `verify`.

use crate::record::{Kind, Options, Spec, Value, Variant};
use serde_json::json;

/// Options as JSON; a nested choice is `{ name: options }`.
pub fn to_json(options: &Options) -> serde_json::Value {
    let value = |value: &Value| match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(v) => json!(v),
        Value::Number(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::Text(v) => json!(v),
        Value::List(v) => json!(v),
        Value::Variant(v) => json!({ &v.name: to_json(&v.options) }),
    };
    options
        .iter()
        .map(|(name, v)| (name.to_string(), value(v)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The choice `name` of `specs` with options that [`to_json`] wrote; `None` where they do not fit.
pub fn from_json(name: &str, json: &serde_json::Value, specs: &[&'static Spec]) -> Option<Variant> {
    let spec = specs.iter().find(|spec| spec.name == name)?;
    let mut options = Options::default();
    for option in spec.options {
        let found = json.get(option.name)?;
        let value = if found.is_null() {
            Value::Null
        } else {
            match &option.kind {
                Kind::Integer { .. } => Value::Integer(found.as_u64()?),
                Kind::Number { .. } => Value::Number(found.as_f64()?),
                Kind::Bool => Value::Bool(found.as_bool()?),
                Kind::Text | Kind::Choice(_) | Kind::Path | Kind::SortKey => {
                    Value::Text(found.as_str()?.to_string())
                }
                Kind::TextList | Kind::Globs | Kind::Folders => {
                    let texts = found
                        .as_array()?
                        .iter()
                        .map(|text| Some(text.as_str()?.to_string()));
                    Value::List(texts.collect::<Option<_>>()?)
                }
                Kind::Variant { specs, .. } => {
                    let (name, options) = found.as_object()?.iter().next()?;
                    Value::Variant(Box::new(from_json(name, options, &specs())?))
                }
            }
        };
        options.set(option.name, value);
    }
    Some(Variant {
        name: name.to_string(),
        options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_options_come_back() {
        let specs = crate::order::specs();
        let inner = json!({ "sorted": { "by": "difficulty", "direction": "descending" } });
        let json = json!({ "share": 0.25, "inner": inner });
        let variant = from_json("warmup", &json, &specs).expect("as the table says");
        assert_eq!(to_json(&variant.options), json);
        assert_eq!(from_json("warmup", &json!({ "share": 0.25 }), &specs), None);
        assert_eq!(from_json("no such", &json, &specs), None);
    }
}
