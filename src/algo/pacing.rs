//! Pacing: how much of a sorted corpus is open to choice as training goes on.

/// The shape by which the open part grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// s
    Linear,
    /// s squared: slow at first.
    Quad,
    /// The square root of s: fast at first.
    Root,
    /// (e^(10 s) - 1) / (e^10 - 1): very slow at first.
    Exp,
    /// 1 + ln(s + e^-10) / 10: very fast at first.
    Log,
    /// The whole part of s: nothing more until all of it at once.
    Step,
}

impl Curve {
    /// Every curve by its name in a pipeline file.
    pub const NAMES: &'static [(&'static str, Curve)] = &[
        ("linear", Curve::Linear),
        ("quad", Curve::Quad),
        ("root", Curve::Root),
        ("exp", Curve::Exp),
        ("log", Curve::Log),
        ("step", Curve::Step),
    ];

    /// Growth from 0 to 1 for s from 0 to 1; 1 for larger s.
    fn grown(self, s: f64) -> f64 {
        // The ends are exact by definition; computed, they would be off by a rounding error.
        if s <= 0.0 {
            return 0.0;
        }
        if s >= 1.0 {
            return 1.0;
        }
        let grown = match self {
            Curve::Linear => s,
            Curve::Quad => s * s,
            Curve::Root => s.sqrt(),
            Curve::Exp => (libm::exp(10.0 * s) - 1.0) / (libm::exp(10.0) - 1.0),
            Curve::Log => 1.0 + libm::log(s + libm::exp(-10.0)) / 10.0,
            Curve::Step => s.floor(),
        };
        grown.clamp(0.0, 1.0)
    }
}

/// How many of `items` sorted items are open at step `step` of `steps` (Wu, Dyer & Neyshabur 2021):
/// the whole part of N b + N (1 - b) f(s), s = step / (a steps), at most N.
///
/// a = `full_at_share`, above 0, is the share of the steps after which all are open; b =
/// `start_share`, from 0 to 1, the share that is open from the start; f is the `curve`. A value less
/// than 1e-14 of itself below a whole number counts as that number, so that 0.29 of 100 is 29. `exp`
/// and `ln` are computed by one Rust implementation: the same on every system.
pub fn open_items(
    curve: Curve,
    items: u64,
    step: u64,
    steps: u64,
    full_at_share: f64,
    start_share: f64,
) -> u64 {
    let s = step as f64 / (full_at_share * steps as f64);
    let items_in_all = items as f64;
    let open = items_in_all * start_share + items_in_all * (1.0 - start_share) * curve.grown(s);
    whole_part(open).min(items)
}

/// The whole part of `share` of `amount`, e.g. of a number of tokens; `share` from 0 to 1. Rounding
/// errors are absorbed as in [`open_items`].
pub fn share_of(amount: u64, share: f64) -> u64 {
    whole_part(amount as f64 * share).min(amount)
}

fn whole_part(value: f64) -> u64 {
    (value * (1.0 + 1e-14)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_takes_its_golden_values() {
        let golden: [(Curve, [u64; 6]); 6] = [
            (Curve::Linear, [2000, 3000, 4000, 6000, 8000, 10000]),
            (Curve::Quad, [2000, 2125, 2500, 4000, 6500, 10000]),
            (Curve::Root, [2000, 4828, 6000, 7656, 8928, 10000]),
            (Curve::Exp, [2000, 2000, 2004, 2053, 2656, 10000]),
            (Curve::Log, [2000, 8336, 8891, 9445, 9769, 10000]),
            (Curve::Step, [2000, 2000, 2000, 2000, 2000, 10000]),
        ];
        assert_eq!(golden.len(), Curve::NAMES.len());
        for (curve, expected) in golden {
            let values =
                [0, 100, 200, 400, 600, 800].map(|t| open_items(curve, 10_000, t, 1_000, 0.8, 0.2));
            assert_eq!(values, expected, "{curve:?}");
            assert_eq!(open_items(curve, 10_000, 999, 1_000, 0.8, 0.2), 10_000);
        }
        assert_eq!(open_items(Curve::Step, 10_000, 799, 1_000, 0.8, 0.2), 2_000);
    }

    #[test]
    fn never_falls_and_never_passes_the_number_of_items() {
        for &(name, curve) in Curve::NAMES {
            for (a, b) in [(1.0, 0.0), (0.3, 0.5), (0.001, 1.0)] {
                let mut before = 0;
                for t in 0..700 {
                    let open = open_items(curve, 777, t, 700, a, b);
                    assert!((before..=777).contains(&open), "{name} {a} {b} {t}");
                    before = open;
                }
            }
        }
    }

    #[test]
    fn no_items_and_one_item() {
        for &(_, curve) in Curve::NAMES {
            assert_eq!(open_items(curve, 0, 0, 0, 0.8, 0.2), 0);
            assert_eq!(open_items(curve, 1, 0, 1, 0.8, 0.2), 0);
            assert_eq!(open_items(curve, 1, 0, 1, 0.8, 1.0), 1);
        }
    }

    #[test]
    fn a_share_of_whole_numbers_is_not_one_too_low() {
        assert_eq!(share_of(100, 0.29), 29);
        assert_eq!(share_of(100, 0.299), 29);
        assert_eq!(share_of(100, 0.0), 0);
        assert_eq!(share_of(100, 1.0), 100);
        assert_eq!(share_of(0, 1.0), 0);
        assert_eq!(share_of(u64::MAX, 1.0), u64::MAX);
    }
}
