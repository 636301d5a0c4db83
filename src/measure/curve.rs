//! The baseline's curve: which compute reaches a loss.
//!
//! Through the mean losses of the budgets goes a monotone cubic of ln C over ln L (Fritsch and Butland 1984:
//! the slope at a point is the weighted harmonic mean of those beside it). It cannot turn back between two
//! budgets, and on a power law with a floor it lies closer than straight lines do. Beyond the budgets it goes
//! on straight with the slope at its end, up to a factor of two in compute; further it says nothing.

use super::fit::PowerLaw;

/// Budgets below which there is no curve.
pub const LEAST_BUDGETS: usize = 3;
/// Factor in compute beyond the budgets up to which a loss is still placed.
pub const FARTHEST: f64 = 2.0;

/// Which compute the baseline needs for a loss.
#[derive(Clone, Debug, PartialEq)]
pub enum Curve {
    /// Through the means of its budgets.
    Interpolated {
        /// ln L of each budget, falling.
        ln_losses: Vec<f64>,
        /// ln C, rising.
        ln_computes: Vec<f64>,
        /// d ln C / d ln L at each, all below 0.
        slopes: Vec<f64>,
    },
    /// A law L = E + K C^-gamma.
    Law {
        /// The law, of one input.
        law: PowerLaw,
        /// ln C of the smallest and the largest budget.
        ln_range: (f64, f64),
    },
}

/// Why a loss has no place on the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outside {
    /// The baseline would need more than twice its largest budget, this one.
    Above(f64),
    /// The baseline would need less than half of its smallest budget, this one.
    Below(f64),
    /// No budget reaches it: it lies at or below the law's floor, this one.
    Floor(f64),
}

/// A place on the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// ln C.
    pub ln_compute: f64,
    /// Whether it lies beyond the budgets.
    pub is_extrapolated: bool,
}

impl Curve {
    /// Through these points: compute and mean loss, in order of compute.
    ///
    /// # Errors
    /// The first neighbours, by number, of which the one with more compute has not the lower loss. `None` with
    /// fewer than [`LEAST_BUDGETS`].
    pub fn through(points: &[(f64, f64)]) -> Result<Option<Curve>, usize> {
        if points.len() < LEAST_BUDGETS {
            return Ok(None);
        }
        let falls = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1;
        if let Some(at) = points.windows(2).position(|pair| !falls(pair)) {
            return Err(at);
        }
        let ln_computes: Vec<f64> = points.iter().map(|point| libm::log(point.0)).collect();
        let ln_losses: Vec<f64> = points.iter().map(|point| libm::log(point.1)).collect();
        let slopes = slopes(&ln_losses, &ln_computes);
        Ok(Some(Curve::Interpolated {
            ln_losses,
            ln_computes,
            slopes,
        }))
    }

    /// Where this loss lies.
    ///
    /// # Errors
    /// When that is more than twice beyond the budgets.
    pub fn place(&self, loss: f64) -> Result<Place, Outside> {
        let ln_compute = self.ln_compute(loss)?;
        let (first, last) = match self {
            Curve::Interpolated { ln_computes, .. } => {
                (ln_computes[0], ln_computes[ln_computes.len() - 1])
            }
            Curve::Law { ln_range, .. } => *ln_range,
        };
        let reach = libm::log(FARTHEST);
        if ln_compute > last + reach {
            return Err(Outside::Above(libm::exp(last)));
        }
        if ln_compute < first - reach {
            return Err(Outside::Below(libm::exp(first)));
        }
        Ok(Place {
            ln_compute,
            // A loss that is a budget's own may come out a rounding beyond it.
            is_extrapolated: ln_compute > last + 1e-9 || ln_compute < first - 1e-9,
        })
    }

    /// ln of the compute for a loss, however far from the budgets.
    fn ln_compute(&self, loss: f64) -> Result<f64, Outside> {
        match self {
            Curve::Interpolated {
                ln_losses,
                ln_computes,
                slopes,
            } => Ok(interpolated(
                libm::log(loss),
                ln_losses,
                ln_computes,
                slopes,
            )),
            Curve::Law { law, .. } => {
                let above = loss - law.floor;
                if above <= 0.0 {
                    return Err(Outside::Floor(law.floor));
                }
                let term = law.terms[0];
                Ok(libm::log(term.coefficient / above) / term.exponent)
            }
        }
    }

    /// The multiplier by the local form, as a check: exp((L_base - L_cand) / fall), where the fall is
    /// -dL / d ln C at the baseline's loss, of a law gamma (L - E). For small differences. `None` at a floor.
    pub fn local_multiplier(&self, baseline: f64, candidate: f64) -> Option<f64> {
        // The curve is smooth, so a small difference is as good as the derivative.
        let step = 1e-6 * baseline;
        let (up, down) = (baseline + step, baseline - step);
        let fall = 2.0 * step / (self.ln_compute(down).ok()? - self.ln_compute(up).ok()?);
        Some(libm::exp((baseline - candidate) / fall))
    }
}

/// Slopes of the monotone cubic; `x` falls.
fn slopes(x: &[f64], y: &[f64]) -> Vec<f64> {
    let widths: Vec<f64> = x.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let chords: Vec<f64> = y
        .windows(2)
        .zip(&widths)
        .map(|(pair, width)| (pair[1] - pair[0]) / width)
        .collect();
    let inner = |at: usize| {
        let before = 2.0 * widths[at] + widths[at - 1];
        let after = widths[at] + 2.0 * widths[at - 1];
        (before + after) / (before / chords[at - 1] + after / chords[at])
    };
    // At an end a parabola through three points, held to the sign of the chord and three times its size.
    let end = |near: usize, next: usize| {
        let (h, far) = (widths[near], widths[next]);
        let slope = ((2.0 * h + far) * chords[near] - h * chords[next]) / (h + far);
        if slope * chords[near] <= 0.0 {
            // A chord's share of its slope keeps the curve from standing still at its end.
            return 0.1 * chords[near];
        }
        match slope.abs() > 3.0 * chords[near].abs() {
            true => 3.0 * chords[near],
            false => slope,
        }
    };
    let last = chords.len() - 1;
    let mut found = vec![end(0, 1)];
    found.extend((1..=last).map(inner));
    found.push(end(last, last - 1));
    found
}

fn interpolated(at: f64, x: &[f64], y: &[f64], slopes: &[f64]) -> f64 {
    let end = x.len() - 1;
    if at >= x[0] {
        return y[0] + slopes[0] * (at - x[0]);
    }
    if at <= x[end] {
        return y[end] + slopes[end] * (at - x[end]);
    }
    let right = x.partition_point(|known| *known > at).clamp(1, end);
    let left = right - 1;
    let width = x[right] - x[left];
    let t = (at - x[left]) / width;
    let (squared, cubed) = (t * t, t * t * t);
    y[left] * (2.0 * cubed - 3.0 * squared + 1.0)
        + y[right] * (3.0 * squared - 2.0 * cubed)
        + slopes[left] * width * (cubed - 2.0 * squared + t)
        + slopes[right] * width * (cubed - squared)
}

#[cfg(test)]
mod tests {
    use super::super::fit::Term;
    use super::*;

    fn law() -> PowerLaw {
        PowerLaw {
            floor: 1.8172,
            terms: vec![Term {
                coefficient: 2708.4975,
                exponent: 0.178286,
            }],
            largest_residual: 0.0,
        }
    }

    fn through(computes: &[f64]) -> Curve {
        let points: Vec<(f64, f64)> = computes.iter().map(|c| (*c, law().loss(&[*c]))).collect();
        Curve::through(&points).expect("falls").expect("enough")
    }

    fn compute(curve: &Curve, loss: f64) -> f64 {
        libm::exp(curve.place(loss).expect("within reach").ln_compute)
    }

    #[test]
    fn a_budget_lies_on_the_curve_and_between_two_it_is_close_to_the_law() {
        let curve = through(&[1e20, 4e20, 1.6e21]);
        for budget in [1e20, 4e20, 1.6e21] {
            let place = curve.place(law().loss(&[budget])).expect("on it");
            assert!((libm::exp(place.ln_compute) / budget - 1.0).abs() < 1e-12);
            assert!(!place.is_extrapolated);
        }
        for budget in [1.3e20, 2e20, 3e20, 6e20, 1e21, 1.4e21] {
            let found = compute(&curve, law().loss(&[budget]));
            assert!((found / budget - 1.0).abs() < 1e-2, "{budget}: {found}");
        }
    }

    #[test]
    fn it_goes_on_to_twice_the_compute_and_no_further() {
        let curve = through(&[1e20, 2e20, 4e20]);
        for budget in [5.5e19, 7.9e20] {
            let place = curve.place(law().loss(&[budget])).expect("within reach");
            assert!(place.is_extrapolated);
            let off = libm::exp(place.ln_compute) / budget - 1.0;
            assert!(off.abs() < 0.1, "{budget}: {off}");
        }
        let beyond = curve.place(law().loss(&[9e20]));
        assert!(
            matches!(beyond, Err(Outside::Above(largest)) if (largest / 4e20 - 1.0).abs() < 1e-9)
        );
        let below = curve.place(law().loss(&[4e19]));
        assert!(
            matches!(below, Err(Outside::Below(smallest)) if (smallest / 1e20 - 1.0).abs() < 1e-9)
        );
    }

    #[test]
    fn a_law_has_a_floor_and_the_same_bounds() {
        let curve = Curve::Law {
            law: law(),
            ln_range: (libm::log(1e20), libm::log(1e21)),
        };
        assert!((compute(&curve, law().loss(&[1.9e21])) / 1.9e21 - 1.0).abs() < 1e-9);
        assert!(matches!(
            curve.place(law().loss(&[2.1e21])),
            Err(Outside::Above(_))
        ));
        assert_eq!(curve.place(1.8), Err(Outside::Floor(1.8172)));
    }

    #[test]
    fn a_loss_lower_by_a_fiftieth_is_a_quarter_more_compute() {
        let curve = Curve::Law {
            law: law(),
            ln_range: (libm::log(1e20), libm::log(1e21)),
        };
        let loss = law().loss(&[1e21]);
        assert!((loss - 2.305529).abs() < 1e-4);
        let multiplier = compute(&curve, loss - 0.02) / 1e21;
        assert!((multiplier - 1.26435).abs() < 1e-4, "{multiplier}");
        // The local form is near for small differences: exp(.02 / (gamma .488329)).
        let local = curve
            .local_multiplier(loss, loss - 0.02)
            .expect("above the floor");
        assert!((local - 1.25824).abs() < 1e-4, "{local}");
        let interpolated = through(&[5e20, 1e21, 2e21]);
        let found = interpolated
            .local_multiplier(loss, loss - 0.02)
            .expect("on the curve");
        assert!((found - local).abs() < 0.01, "{found}");
    }

    #[test]
    fn too_few_budgets_and_losses_that_do_not_fall_give_no_curve() {
        assert_eq!(Curve::through(&[(1.0, 3.0), (2.0, 2.0)]), Ok(None));
        let rising = [(1.0, 3.0), (2.0, 2.0), (4.0, 2.0)];
        assert_eq!(Curve::through(&rising), Err(1));
        let unordered = [(2.0, 3.0), (1.0, 2.0), (4.0, 1.0)];
        assert_eq!(Curve::through(&unordered), Err(0));
    }

    #[test]
    fn the_curve_never_turns_back() {
        let points = [(1.0, 9.0), (2.0, 8.9), (4.0, 3.0), (8.0, 2.95), (16.0, 1.0)];
        let curve = Curve::through(&points).expect("falls").expect("enough");
        let mut before = f64::INFINITY;
        for step in 0..=800 {
            let loss = 1.0 + 8.0 * f64::from(step) / 800.0;
            let found = compute(&curve, loss);
            assert!(found < before, "at {loss}");
            before = found;
        }
    }
}
