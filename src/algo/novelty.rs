//! What a repeated document is still worth: a copy is worth less than the first.

/// Repeats after which little is left to gain (Muennighoff et al. 2023, the fit of R*_D).
pub const REPEATS: f64 = 15.387_756;

/// What `copies` emissions of a document are worth together, in documents:
/// v(k) = 1 + R (1 - exp(-(k - 1) / R)), and 0 for none.
pub fn value_of_copies(copies: u32) -> f64 {
    match copies {
        0 => 0.0,
        _ => effective_tokens(1.0, f64::from(copies)),
    }
}

/// D': what `tokens` of which `unique` are new are worth in new tokens,
/// D' = U + U R (1 - exp(-(D / U - 1) / R)); `tokens` where none repeats.
///
/// ```
/// use goodput::algo::novelty::effective_tokens;
/// assert_eq!(effective_tokens(1e9, 5e8), 5e8);
/// assert!((effective_tokens(1e9, 4e9) / 1e9 - 3.725673).abs() < 1e-6);
/// ```
pub fn effective_tokens(unique: f64, tokens: f64) -> f64 {
    match unique > 0.0 && tokens > unique {
        true => {
            let repeats = tokens / unique - 1.0;
            unique * (1.0 + REPEATS * (1.0 - libm::exp(-repeats / REPEATS)))
        }
        false => tokens,
    }
}

/// nu: what copy number `copy` (0 for the first) adds. An upper bound: the source's models saw the copies
/// in epochs, far apart.
///
/// ```
/// use goodput::algo::novelty::novelty;
/// assert_eq!(novelty(0), 1.0);
/// assert!((novelty(1) - 0.9682).abs() < 5e-5);
/// ```
pub fn novelty(copy: u32) -> f64 {
    value_of_copies(copy + 1) - value_of_copies(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_values() {
        for (copy, expected) in [1.0, 0.9682, 0.9073, 0.8502, 0.7967]
            .into_iter()
            .enumerate()
        {
            assert!((novelty(copy as u32) - expected).abs() < 5e-5, "{copy}");
        }
        for (epochs, expected) in [
            (1, 1.0),
            (2, 1.968_199),
            (4, 3.725_673),
            (8, 6.624_119),
            (16, 10.582_457),
        ] {
            assert!(
                (value_of_copies(epochs) - expected).abs() < 1e-6,
                "{epochs}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_sum_over_copies_telescopes_and_each_is_worth_less(copies in 1u32..200) {
            let sum: f64 = (0..copies).map(novelty).sum();
            prop_assert!((sum - value_of_copies(copies)).abs() < 1e-9);
            prop_assert!(novelty(copies) < novelty(copies - 1) && novelty(copies) > 0.0);
        }
    }
}
