//! What a plain word of YAML means, sizes with units, and environment variables in texts.

/// What a plain (unquoted) scalar is. YAML 1.2: `no` and `on` are texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Number(Number),
    /// `.nan` and `.inf`.
    NotFinite,
    Text,
}

/// A number as typed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// Without point and exponent. `None` beyond 64 bits.
    Whole {
        negative: bool,
        magnitude: Option<u64>,
    },
    /// With a point or an exponent; may be infinite where it was too large.
    Real(f64),
}

impl Number {
    /// As a float; infinite where it is too large.
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Number::Real(value) => value,
            Number::Whole {
                magnitude: None,
                negative: false,
            } => f64::INFINITY,
            Number::Whole {
                magnitude: None,
                negative: true,
            } => f64::NEG_INFINITY,
            Number::Whole {
                magnitude: Some(value),
                negative: false,
            } => value as f64,
            Number::Whole {
                magnitude: Some(value),
                negative: true,
            } => -(value as f64),
        }
    }

    /// As a whole number of 0 or more, which `1e8` is and `1.0` is not.
    pub(super) fn as_whole(self, text: &str) -> Option<u64> {
        /// Above this, floats skip whole numbers.
        const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;
        match self {
            Number::Whole {
                negative: false,
                magnitude,
            } => magnitude,
            Number::Whole {
                negative: true,
                magnitude,
            } => magnitude.filter(|&value| value == 0),
            Number::Real(value) => {
                let written_whole = text.contains(['e', 'E']);
                let exact = value.fract() == 0.0 && (0.0..=LARGEST_EXACT).contains(&value);
                (written_whole && exact).then_some(value as u64)
            }
        }
    }
}

/// What an unquoted scalar is.
pub(super) fn plain(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Plain::Null,
        "true" | "True" | "TRUE" => Plain::Bool(true),
        "false" | "False" | "FALSE" => Plain::Bool(false),
        _ => {
            let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
            if [".nan", ".inf"]
                .iter()
                .any(|word| unsigned.eq_ignore_ascii_case(word))
            {
                return Plain::NotFinite;
            }
            number(text).map_or(Plain::Text, Plain::Number)
        }
    }
}

/// A decimal number, with `_` between digits where one likes; `None` where it is none.
pub(super) fn number(text: &str) -> Option<Number> {
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let whole_digits = digits(whole)?;
    let fraction_digits = digits(fraction.unwrap_or(""))?;
    if whole_digits.is_empty() && fraction_digits.is_empty() {
        return None;
    }
    // A leading zero means octal to some readers: not a number here.
    if whole_digits.len() > 1 && whole_digits.starts_with('0') {
        return None;
    }
    if fraction.is_none() && exponent.is_none() {
        return Some(Number::Whole {
            negative,
            magnitude: whole_digits.parse().ok(),
        });
    }
    let exponent = match exponent {
        None => "0".to_string(),
        Some(exponent) => {
            let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            let sign = if exponent.starts_with('-') { "-" } else { "" };
            Some(digits(unsigned)?)
                .filter(|digits| !digits.is_empty())
                .map(|digits| format!("{sign}{digits}"))?
        }
    };
    let sign = if negative { "-" } else { "" };
    format!("{sign}0{whole_digits}.{fraction_digits}0e{exponent}")
        .parse()
        .ok()
        .map(Number::Real)
}

/// The digits without `_`; `None` where anything else stands or a `_` is not between digits.
fn digits(text: &str) -> Option<String> {
    let between = !text.starts_with('_') && !text.ends_with('_') && !text.contains("__");
    let allowed = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'_');
    (between && allowed).then(|| text.replace('_', ""))
}

/// A size such as `64MiB`, `2 GB` or `512B`, in bytes; `None` where it is none or beyond 64 bits.
pub(super) fn size_bytes(text: &str) -> Option<u64> {
    const UNITS: &[(&str, u64)] = &[
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
    ];
    let (unit, bytes) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let count = text[..text.len() - unit.len()].trim_end();
    number(count)?.as_whole(count)?.checked_mul(*bytes)
}

/// A text with its variables replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    pub(super) text: String,
    /// Whether a variable was named, not only a `$$`.
    pub(super) from_variable: bool,
}

/// Replaces `${NAME}` and `${NAME:-default}` by the environment's value and `$$` by `$`.
/// As in a shell, `:-` also stands in for an empty value. A `$` before anything else is itself.
///
/// # Errors
/// Says which variable is missing or which reference is malformed, and the way out.
pub(super) fn expand(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Expanded, String> {
    let mut expanded = Expanded {
        text: String::with_capacity(text.len()),
        from_variable: false,
    };
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.text.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (reference, after) = after.split_once('}').ok_or_else(|| {
                "a '${' is not closed by '}'; close it, or write '$$' for a dollar sign".to_string()
            })?;
            let (name, default) = match reference.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (reference, None),
            };
            let valid = !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !valid {
                return Err(format!(
                    "'${{{reference}}}' must be ${{NAME}} or ${{NAME:-default}}, the name made of letters, digits \
                     and '_'; write '$$' for a dollar sign"
                ));
            }
            match (variable(name), default) {
                (Some(value), None) => expanded.text.push_str(&value),
                (Some(value), Some(_)) if !value.is_empty() => expanded.text.push_str(&value),
                (_, Some(default)) => expanded.text.push_str(default),
                (None, None) => {
                    return Err(format!(
                        "the environment variable '{name}' is not set; set it, or give a default: ${{{name}:-default}}"
                    ));
                }
            }
            expanded.from_variable = true;
            rest = after;
        } else {
            expanded.text.push('$');
        }
    }
    expanded.text.push_str(rest);
    Ok(expanded)
}

/// A whole number with `_` between groups of three digits from 10_000 on, as messages show it.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_mean_what_yaml_1_2_says() {
        assert_eq!(plain("no"), Plain::Text);
        assert_eq!(plain("on"), Plain::Text);
        assert_eq!(plain("nan"), Plain::Text);
        assert_eq!(plain("~"), Plain::Null);
        assert_eq!(plain(""), Plain::Null);
        assert_eq!(plain("TRUE"), Plain::Bool(true));
        assert_eq!(plain(".NaN"), Plain::NotFinite);
        assert_eq!(plain("-.inf"), Plain::NotFinite);
        assert_eq!(
            plain("5"),
            Plain::Number(Number::Whole {
                negative: false,
                magnitude: Some(5)
            })
        );
    }

    #[test]
    fn numbers_are_decimal_with_underscores_between_digits() {
        let whole = |text: &str| number(text).and_then(|value| value.as_whole(text));
        assert_eq!(whole("100_000_000"), Some(100_000_000));
        assert_eq!(whole("1e8"), Some(100_000_000));
        assert_eq!(whole("2.5e3"), Some(2_500));
        assert_eq!(whole("-0"), Some(0));
        assert_eq!(whole("18446744073709551615"), Some(u64::MAX));
        for text in ["18446744073709551616", "-1", "1.0", "1.5", "1e-1", "1e17"] {
            assert!(number(text).is_some(), "{text}");
            assert_eq!(whole(text), None, "{text}");
        }
        for text in [
            "_1", "1_", "1__0", "", "-", ".", "e5", "1e", "1e+", "010", "0x10", "1 0", "1,0", "１",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
        assert_eq!(number("0.65").map(Number::as_f64), Some(0.65));
        assert_eq!(number("-1.5e-3").map(Number::as_f64), Some(-0.0015));
        assert_eq!(number(".5").map(Number::as_f64), Some(0.5));
        assert_eq!(number("5.").map(Number::as_f64), Some(5.0));
        assert_eq!(number("1e999").map(Number::as_f64), Some(f64::INFINITY));
    }

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!(size_bytes("64MiB"), Some(64 << 20));
        assert_eq!(size_bytes("2GB"), Some(2_000_000_000));
        assert_eq!(size_bytes("1_000 kB"), Some(1_000_000));
        assert_eq!(size_bytes("7B"), Some(7));
        for text in [
            "MiB",
            "1.5MiB",
            "-1MiB",
            "64Mib",
            "64 M",
            "99999999999999TiB",
            "64",
        ] {
            assert_eq!(size_bytes(text), None, "{text}");
        }
    }

    fn environment(name: &str) -> Option<String> {
        match name {
            "DATA" => Some("/data".to_string()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced_and_a_double_dollar_is_a_dollar() {
        let text = |text: &str| expand(text, &environment).map(|expanded| expanded.text);
        assert_eq!(text("${DATA}/web").as_deref(), Ok("/data/web"));
        assert_eq!(text("${NONE:-out}/${DATA:-x}").as_deref(), Ok("out//data"));
        assert_eq!(text("${EMPTY}|${EMPTY:-x}|${NONE:-}").as_deref(), Ok("|x|"));
        assert_eq!(text("$$5 $${DATA} $x $").as_deref(), Ok("$5 ${DATA} $x $"));
        assert!(!expand("$$", &environment).expect("valid").from_variable);
        assert!(
            expand("${DATA}", &environment)
                .expect("valid")
                .from_variable
        );
    }

    #[test]
    fn missing_and_malformed_variables_are_refused_with_the_way_out() {
        let error = |text: &str| expand(text, &environment).expect_err("refused");
        assert_eq!(
            error("a/${NONE}"),
            "the environment variable 'NONE' is not set; set it, or give a default: ${NONE:-default}"
        );
        assert_eq!(
            error("${DATA"),
            "a '${' is not closed by '}'; close it, or write '$$' for a dollar sign"
        );
        assert_eq!(
            error("${A B}"),
            "'${A B}' must be ${NAME} or ${NAME:-default}, the name made of letters, digits and '_'; write '$$' for a \
             dollar sign"
        );
        assert!(expand("${}", &environment).is_err() && expand("${1}", &environment).is_err());
    }

    #[test]
    fn large_numbers_are_shown_in_groups() {
        assert_eq!(grouped(9_999), "9999");
        assert_eq!(grouped(10_000), "10_000");
        assert_eq!(grouped(1_234_567), "1_234_567");
    }
}
