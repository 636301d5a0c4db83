//! JSON as trainers write it: Python adds `NaN` and `Infinity`.

use serde_json::Value;

/// A JSON text in which `NaN`, `Infinity` and `-Infinity` stand for themselves, as texts.
///
/// # Errors
/// What is wrong, with line and column.
pub(super) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if text.contains("NaN") || text.contains("Infinity") => {
            serde_json::from_str(&quoted(text)).map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}

/// The text with the words of Python in quotes, where they stand outside of texts.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut inside = false;
    while let Some(letter) = rest.chars().next() {
        if !inside
            && let Some(word) = ["NaN", "-Infinity", "Infinity"]
                .iter()
                .find(|word| rest.starts_with(**word))
        {
            out.push('"');
            out.push_str(word);
            out.push('"');
            rest = &rest[word.len()..];
            continue;
        }
        let mut end = letter.len_utf8();
        if inside && letter == '\\' {
            end += rest[end..].chars().next().map_or(0, char::len_utf8);
        } else if letter == '"' {
            inside = !inside;
        }
        out.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    out
}

/// A number, or what Python and loggers write for one that is none.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(word) => match word.as_str() {
            "NaN" | "nan" => Some(f64::NAN),
            "Infinity" | "inf" => Some(f64::INFINITY),
            "-Infinity" | "-inf" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number of 0 or more, also where a logger made a float of it.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|value| value.fract() == 0.0 && (0.0..9e15).contains(value))
            .map(|value| value as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_that_are_none_are_read_as_python_writes_them() {
        let value =
            parse(r#"{"loss": NaN, "low": -Infinity, "text": "NaN \" Infinity"}"#).expect("read");
        assert!(number(&value["loss"]).is_some_and(f64::is_nan));
        assert_eq!(number(&value["low"]), Some(f64::NEG_INFINITY));
        assert_eq!(value["text"], json!("NaN \" Infinity"));
        assert!(parse("{\"loss\": NaN").is_err() && parse("{NaN}").is_err());
    }

    #[test]
    fn whole_numbers_may_be_floats() {
        assert_eq!(whole(&json!(10.0)), Some(10));
        assert_eq!(whole(&json!(10.5)), None);
        assert_eq!(whole(&json!(-1)), None);
        assert_eq!(whole(&json!("10")), None);
    }
}
