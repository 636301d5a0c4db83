//! What a record holds at a path, whatever the format, and what becomes of it.

use super::{Fault, reason};
use crate::record::{FieldSpec, FieldType, FieldValue};
use std::borrow::Cow;

/// The value at a path of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// The path does not exist.
    Missing,
    /// Null.
    Null,
    /// true or false.
    Bool(bool),
    /// An integer of at most 127 bits.
    Integer(i128),
    /// A longer integer, as written.
    LongInteger(&'a str),
    /// A number with a fraction or an exponent, or from a column of floats.
    Float(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// A text with an escape that is half a character; where it is.
    LoneSurrogate(usize),
    /// Bytes of a text that are not UTF-8; where they begin.
    NotUtf8(usize),
    /// Something else, e.g. `an array`.
    Other(Cow<'static, str>),
}

impl Value<'_> {
    fn kind(&self) -> Cow<'static, str> {
        match self {
            Value::Missing => "missing".into(),
            Value::Null => "null".into(),
            Value::Bool(_) => "a bool".into(),
            Value::Integer(_) | Value::LongInteger(_) => "an integer".into(),
            Value::Float(_) => "a float".into(),
            Value::Text(_) | Value::LoneSurrogate(_) | Value::NotUtf8(_) => "a string".into(),
            Value::Other(kind) => kind.clone(),
        }
    }

    /// The fault of a text that cannot be decoded.
    fn undecodable(&self, path: &str) -> Option<Fault> {
        match self {
            Value::LoneSurrogate(at) => Some(Fault::new(
                reason::LONE_SURROGATE,
                format!("'{path}' has half a surrogate pair at byte {at} of its escaped form"),
            )),
            Value::NotUtf8(at) => Some(Fault::new(
                reason::INVALID_UTF8,
                format!("'{path}' is not UTF-8 from byte {at} on"),
            )),
            _ => None,
        }
    }
}

/// The text of a document.
pub(super) fn text_of(value: Value<'_>, path: &str) -> Result<String, Fault> {
    if let Some(fault) = value.undecodable(path) {
        return Err(fault);
    }
    match value {
        Value::Text(text) => match text_fault(&text, path) {
            Some(fault) => Err(fault),
            None => Ok(text.into_owned()),
        },
        Value::Missing => Err(Fault::new(reason::MISSING_TEXT, format!("no '{path}'"))),
        Value::Null => Err(Fault::new(reason::NULL_TEXT, format!("'{path}' is null"))),
        other => Err(Fault::new(
            reason::TEXT_NOT_STRING,
            format!("'{path}' is {}", other.kind()),
        )),
    }
}

/// What is wrong with a text that is valid UTF-8.
pub(super) fn text_fault(text: &str, path: &str) -> Option<Fault> {
    if text.is_empty() {
        return Some(Fault::new(
            reason::EMPTY_TEXT,
            format!("'{path}' has no characters"),
        ));
    }
    if text.trim_start().is_empty() {
        return Some(Fault::new(
            reason::WHITESPACE_TEXT,
            format!("'{path}' is {} bytes of white space", text.len()),
        ));
    }
    None
}

/// A given id.
pub(super) fn id_of(value: Value<'_>, path: &str) -> Result<String, Fault> {
    if let Some(fault) = value.undecodable(path) {
        return Err(fault);
    }
    match value {
        Value::Text(text) if text.is_empty() => Err(Fault::new(
            reason::INVALID_ID,
            format!("'{path}' has no characters"),
        )),
        Value::Text(text) => Ok(text.into_owned()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::LongInteger(number) => Ok(number.to_string()),
        Value::Missing => Err(Fault::new(reason::MISSING_ID, format!("no '{path}'"))),
        Value::Null => Err(Fault::new(reason::MISSING_ID, format!("'{path}' is null"))),
        other => Err(Fault::new(
            reason::INVALID_ID,
            format!("'{path}' is {}", other.kind()),
        )),
    }
}

/// A declared field. Integers are accepted where a float is declared.
pub(super) fn field_of(value: Value<'_>, field: &FieldSpec) -> Result<FieldValue, Fault> {
    if let Some(fault) = value.undecodable(&field.path) {
        return Err(fault);
    }
    let wrong = |found: &str| {
        Err(Fault::new(
            reason::FIELD_TYPE,
            format!(
                "'{}' is declared {}, found {found}",
                field.name,
                field.kind.name()
            ),
        ))
    };
    match (field.kind, value) {
        (_, Value::Missing | Value::Null) => Ok(FieldValue::Null),
        (FieldType::String, Value::Text(text)) => Ok(FieldValue::String(text.into_owned())),
        (FieldType::Bool, Value::Bool(value)) => Ok(FieldValue::Bool(value)),
        (FieldType::Int, Value::Integer(number)) => match i64::try_from(number) {
            Ok(number) => Ok(FieldValue::Int(number)),
            Err(_) => wrong("an integer beyond 64 bits"),
        },
        (FieldType::Int, Value::LongInteger(_)) => wrong("an integer beyond 64 bits"),
        (FieldType::Float, Value::Integer(number)) => Ok(FieldValue::Float(number as f64)),
        (FieldType::Float, Value::LongInteger(number)) => match number.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(FieldValue::Float(number)),
            _ => wrong("a number beyond the range of a 64-bit float"),
        },
        (FieldType::Float, Value::Float(number)) if number.is_finite() => {
            Ok(FieldValue::Float(number))
        }
        (FieldType::Float, Value::Float(number)) if number.is_nan() => wrong("NaN"),
        (FieldType::Float, Value::Float(_)) => wrong("a number beyond the range of a 64-bit float"),
        (_, other) => wrong(&other.kind()),
    }
}
