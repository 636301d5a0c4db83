//! Declared metadata fields.

use serde::{Deserialize, Serialize};

/// The declared type of a metadata field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// UTF-8 text.
    String,
    /// 64-bit signed integer.
    Int,
    /// 64-bit float; integers in the input are accepted.
    Float,
    /// true or false.
    Bool,
}

impl FieldType {
    /// Every type by the name that a pipeline file uses.
    pub const NAMES: &'static [(&'static str, FieldType)] = &[
        ("string", FieldType::String),
        ("int", FieldType::Int),
        ("float", FieldType::Float),
        ("bool", FieldType::Bool),
    ];

    /// The name that a pipeline file uses.
    pub fn name(self) -> &'static str {
        match self {
            FieldType::String => "string",
            FieldType::Int => "int",
            FieldType::Float => "float",
            FieldType::Bool => "bool",
        }
    }
}

/// One declared field: a column of unpacked shards and of rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldSpec {
    /// Column name.
    pub name: String,
    /// Dotted path in the record; the same as `name` unless the pipeline says otherwise.
    pub path: String,
    /// Declared type.
    pub kind: FieldType,
}

/// A value of a declared field. A record that lacks the field has `Null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FieldValue {
    /// Missing or null.
    Null,
    /// See [`FieldType::String`].
    String(String),
    /// See [`FieldType::Int`].
    Int(i64),
    /// See [`FieldType::Float`].
    Float(f64),
    /// See [`FieldType::Bool`].
    Bool(bool),
}
