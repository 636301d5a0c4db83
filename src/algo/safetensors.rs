//! The safetensors format: a header that says where each tensor lies, then the numbers.
//!
//! ```text
//! bytes 0..8       length n of the header, little-endian
//! bytes 8..8 + n   JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//! then             the numbers, row-major, little-endian; offsets count from here
//! ```

use crate::algo::matrix::Number;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where a tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its data type as the file names it, such as `BF16`.
    pub kind: String,
    /// Sizes, the slowest first.
    pub shape: Vec<usize>,
    /// Its bytes in the file.
    pub bytes: Range<usize>,
}

impl Place {
    /// How its numbers are stored; `None` for a type that is not one of [`Number`]'s.
    pub fn number(&self) -> Option<Number> {
        match self.kind.as_str() {
            "F32" => Some(Number::F32),
            "F16" => Some(Number::F16),
            "BF16" => Some(Number::Bf16),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// The tensors of a file by name.
///
/// # Errors
/// Where the bytes are no safetensors file or a tensor does not lie inside it, with what was found.
pub fn parse(file: &[u8]) -> Result<BTreeMap<String, Place>, String> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(format!(
            "has {} bytes, and a safetensors file has at least 8",
            file.len()
        ));
    };
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length)
        .ok()
        .and_then(|length| rest.get(..length))
        .ok_or_else(|| {
            format!(
                "is no safetensors file, or cut off: its header should have {length} bytes, and {} follow",
                rest.len()
            )
        })?;
    let entries: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(header).map_err(|error| {
            format!("is no safetensors file: its header is not a JSON object ({error})")
        })?;
    let start = 8 + header.len();
    let mut tensors = BTreeMap::new();
    for (name, entry) in entries {
        if name == "__metadata__" {
            continue;
        }
        let Entry {
            dtype,
            shape,
            data_offsets: [begin, end],
        } = serde_json::from_value(entry)
            .map_err(|error| format!("tensor '{name}': its header entry is wrong: {error}"))?;
        let place = begin
            .checked_add(start)
            .zip(end.checked_add(start))
            .map(|(begin, end)| begin..end)
            .filter(|place| place.start <= place.end && place.end <= file.len())
            .ok_or_else(|| {
                format!(
                    "tensor '{name}' lies at bytes {begin} to {end} of the numbers, and the file has {} of them; it is cut off \
                     or damaged",
                    file.len() - start
                )
            })?;
        let tensor = Place {
            kind: dtype,
            shape,
            bytes: place,
        };
        if let Some(number) = tensor.number() {
            let expected = tensor
                .shape
                .iter()
                .try_fold(number.bytes(), |bytes, &size| bytes.checked_mul(size));
            if expected != Some(tensor.bytes.len()) {
                return Err(format!(
                    "tensor '{name}' of shape {:?} and type {} has {} bytes, expected {}",
                    tensor.shape,
                    tensor.kind,
                    tensor.bytes.len(),
                    expected.map_or("fewer".to_string(), |bytes| bytes.to_string())
                ));
            }
        }
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, bytes: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.resize(file.len() + bytes, 0);
        file
    }

    #[test]
    fn tensors_are_found_where_they_lie() {
        let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},
            "b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"c":{"dtype":"I64","shape":[],"data_offsets":[28,36]}}"#;
        let found = parse(&file(header, 36)).expect("a file");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        let start = 8 + header.len();
        assert_eq!(found["a"].bytes, start + 4..start + 28);
        assert_eq!(found["a"].shape, [2, 3]);
        assert_eq!(found["b"].number(), Some(Number::Bf16));
        assert_eq!(found["c"].number(), None);
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_refused_with_the_tensor() {
        let header = r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
        assert!(parse(&file(header, 24)).is_ok());
        for (file, words) in [
            (file(header, 23), "tensor 'a'"),
            (file(header, 24)[..20].to_vec(), "cut off"),
            (vec![1, 2, 3], "3 bytes"),
            (vec![0xff; 64], "18446744073709551615"),
            (file("{]", 0), "JSON"),
            (file(r#"{"a":{"dtype":"F32"}}"#, 0), "'a'"),
            (
                file(
                    r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,24]}}"#,
                    24,
                ),
                "24 bytes, expected 8",
            ),
            (
                file(
                    r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[9,1]}}"#,
                    24,
                ),
                "9 to 1",
            ),
            (
                file(
                    r#"{"a":{"dtype":"F16","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#,
                    0,
                ),
                "'a'",
            ),
        ] {
            let error = parse(&file).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
