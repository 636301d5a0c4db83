//! From two surprisals per token to a usefulness from 0 to 1.
//!
//! Surprisals are whole steps of 1/2048 nat, so that sums over windows are exact.

use super::ngram_table::{MAX_CODE, STEPS_PER_NAT};

/// Windowed means are counted in steps of 1/8192 nat.
const MEAN_STEPS: i64 = 4;
/// The logistic function is tabulated from -16 to 16.
const SIGMOID_RANGE: f64 = 16.0;
/// Points per unit; the error of a straight line between them is below 7.5e-7.
const SIGMOID_POINTS: f64 = 128.0;

/// What held-out reference text says of the scales.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Calibration {
    /// 95th percentile of s_q in steps.
    pub c95: u16,
    /// 99.9th percentile of s_q in steps: surprisals are clipped here.
    pub c999: u16,
    /// Median of the windowed excess, in nats.
    pub tau_nats: f64,
    /// Interquartile range / 1.35 of the windowed excess, in nats, at least 1/1024.
    pub spread_nats: f64,
}

/// Tokens on each side that a windowed mean takes in, and the reciprocals of window sizes.
#[derive(Clone, Debug)]
pub struct Window {
    reach: usize,
    reciprocals: Vec<f64>,
}

impl Window {
    /// Over `reach` tokens on each side; 0 means the token alone.
    pub fn new(reach: usize) -> Self {
        Window {
            reach,
            reciprocals: (0..=2 * reach + 1).map(|n| 1.0 / n.max(1) as f64).collect(),
        }
    }

    /// Calls `visit` with each place, its excess in steps, and the sum and number of the excesses
    /// in its window inside the document. Sums are whole numbers: they don't drift.
    #[inline]
    fn each(&self, p: &[u16], q: &[u16], c999: u16, mut visit: impl FnMut(usize, i32, i64, usize)) {
        let n = p.len().min(q.len());
        let (p, q) = (&p[..n], &q[..n]);
        let excess = |place: usize| i32::from(p[place].min(c999)) - i32::from(q[place].min(c999));
        let mut sum: i64 = (0..self.reach.min(n))
            .map(|place| i64::from(excess(place)))
            .sum();
        for place in 0..n {
            if place + self.reach < n {
                sum += i64::from(excess(place + self.reach));
            }
            let first = place.saturating_sub(self.reach);
            let last = (place + self.reach).min(n - 1);
            visit(place, excess(place), sum, last + 1 - first);
            if place >= self.reach {
                sum -= i64::from(excess(place - self.reach));
            }
        }
    }

    /// Calls `visit` with the windowed mean at each place, in steps of 1/8192 nat rounded down.
    pub fn each_mean(&self, p: &[u16], q: &[u16], c999: u16, mut visit: impl FnMut(i64)) {
        self.each(p, q, c999, |_, _, sum, n| {
            visit((sum * MEAN_STEPS).div_euclid(n as i64))
        });
    }
}

/// Bound of a windowed mean on either side, in steps of 1/8192 nat.
pub const MAX_MEAN: i64 = MAX_CODE as i64 * MEAN_STEPS;

impl Calibration {
    /// From quantiles: c95 and c999 in steps, and those of windowed means in steps of 1/8192 nat.
    pub fn new(c95: u16, c999: u16, mean_quartiles: [i64; 3]) -> Self {
        let nats = |mean: i64| mean as f64 / (STEPS_PER_NAT * MEAN_STEPS as f64);
        let spread = nats(mean_quartiles[2] - mean_quartiles[0]) / 1.35;
        // Where all reference text has the same excess, the step from 0 to 1 is steep, not infinite.
        Calibration {
            c95,
            c999,
            tau_nats: nats(mean_quartiles[1]),
            spread_nats: spread.max(1.0 / 1024.0),
        }
    }
}

/// Sums over the tokens of one document.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DocumentSums {
    /// Of u, added in order.
    pub usefulness: f64,
    /// Of the excess, in nats.
    pub excess_nats: f64,
    /// Of s_p, in nats.
    pub surprisal_nats: f64,
}

/// The three factors of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// 1 - p: what is left to learn.
    pub left: f32,
    /// Falls to 0 for what even the reference model can't predict.
    pub able: f32,
    /// How much more the reference model expects it than the general one, around here.
    pub want: f32,
}

/// u = left * able * want with its tables, small enough for the first cache: exp(-s) as a product
/// of a coarse and a fine factor, the logistic function by straight lines, each within 1e-6.
#[derive(Clone, Debug)]
pub struct Usefulness {
    calibration: Calibration,
    window: Window,
    /// exp(-s) for s in steps of 1/8 nat, and within 1/8 nat in steps of 1/2048.
    coarse: [f32; 256],
    fine: [f32; 256],
    /// able = min(1, (c999 - s_q) * able_slope + able_start), s_q in steps.
    able_slope: f32,
    able_start: f32,
    sigmoid: Vec<f32>,
    /// Turns a mean in steps into a place in the table: mean * slope + start.
    slope: f64,
    start: f64,
}

impl Usefulness {
    /// For given scales and a window of `reach` tokens on each side.
    pub fn new(calibration: Calibration, reach: usize) -> Self {
        let Calibration {
            c95,
            c999,
            tau_nats,
            spread_nats,
        } = calibration;
        let nats = |code: u16| f64::from(code) / STEPS_PER_NAT;
        // Where c999 = c95 the reference does not tell noise apart, and every token is able.
        let (able_slope, able_start) = if c999 > c95 {
            (1.0 / f32::from(c999 - c95), 0.0)
        } else {
            (0.0, 1.0)
        };
        let points = (2.0 * SIGMOID_RANGE * SIGMOID_POINTS) as usize;
        let sigmoid = |place: usize| {
            let x = place as f64 / SIGMOID_POINTS - SIGMOID_RANGE;
            (1.0 / (1.0 + libm::exp(-x))) as f32
        };
        Usefulness {
            calibration,
            window: Window::new(reach),
            coarse: std::array::from_fn(|place| libm::exp(-nats(256 * place as u16)) as f32),
            fine: std::array::from_fn(|place| libm::exp(-nats(place as u16)) as f32),
            able_slope,
            able_start,
            sigmoid: (0..=points + 1).map(sigmoid).collect(),
            slope: SIGMOID_POINTS / (STEPS_PER_NAT * spread_nats),
            start: (SIGMOID_RANGE - tau_nats / spread_nats) * SIGMOID_POINTS,
        }
    }

    /// The scales.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    #[inline]
    fn want(&self, sum: i64, n: usize) -> f32 {
        let mean = sum as f64 * self.window.reciprocals[n];
        let place =
            (mean * self.slope + self.start).clamp(0.0, 2.0 * SIGMOID_RANGE * SIGMOID_POINTS);
        let below = place as usize;
        let rest = (place - below as f64) as f32;
        let (low, high) = (self.sigmoid[below], self.sigmoid[below + 1]);
        low + rest * (high - low)
    }

    /// Calls `visit` with each place, the factors and the excess in nats, and adds up.
    #[inline]
    fn each(
        &self,
        p: &[u16],
        q: &[u16],
        mut visit: impl FnMut(usize, Factors, f32),
    ) -> DocumentSums {
        let c999 = self.calibration.c999;
        let (mut usefulness, mut excess, mut surprisal) = (0.0, 0i64, 0u64);
        self.window.each(p, q, c999, |place, own, sum, n| {
            let s_p = p[place].min(c999);
            let left = 1.0 - self.coarse[usize::from(s_p >> 8)] * self.fine[usize::from(s_p & 255)];
            let to_noise = f32::from(c999 - q[place].min(c999));
            let able = (to_noise * self.able_slope + self.able_start).min(1.0);
            let factors = Factors {
                left,
                able,
                want: self.want(sum, n),
            };
            usefulness += f64::from(factors.product());
            excess += i64::from(own);
            surprisal += u64::from(s_p);
            visit(place, factors, own as f32 * (1.0 / STEPS_PER_NAT as f32));
        });
        DocumentSums {
            usefulness,
            excess_nats: excess as f64 / STEPS_PER_NAT,
            surprisal_nats: surprisal as f64 / STEPS_PER_NAT,
        }
    }

    /// Writes u and the excess of each token; the slices are as long as the document.
    pub fn score(
        &self,
        p: &[u16],
        q: &[u16],
        usefulness: &mut [f32],
        excess_nats: &mut [f32],
    ) -> DocumentSums {
        let (usefulness, excess_nats) = (&mut usefulness[..p.len()], &mut excess_nats[..p.len()]);
        self.each(p, q, |place, factors, excess| {
            usefulness[place] = factors.product();
            excess_nats[place] = excess;
        })
    }

    /// The sums alone.
    pub fn sums(&self, p: &[u16], q: &[u16]) -> DocumentSums {
        self.each(p, q, |_, _, _| {})
    }

    /// The windowed mean of the excess of each token, in nats, that `want` sees.
    pub fn mean_excess_nats(&self, p: &[u16], q: &[u16]) -> Vec<f32> {
        let mut all = Vec::with_capacity(p.len());
        let c999 = self.calibration.c999;
        self.window.each(p, q, c999, |_, _, sum, n| {
            all.push((sum as f64 / n as f64 / STEPS_PER_NAT) as f32);
        });
        all
    }

    /// The factors of each token.
    pub fn factors(&self, p: &[u16], q: &[u16]) -> Vec<Factors> {
        let mut all = Vec::with_capacity(p.len());
        self.each(p, q, |_, factors, _| all.push(factors));
        all
    }
}

impl Factors {
    /// u.
    #[inline]
    pub fn product(&self) -> f32 {
        self.left * self.able * self.want
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration() -> Calibration {
        Calibration {
            c95: 16_000,
            c999: 26_000,
            tau_nats: 0.3,
            spread_nats: 0.7,
        }
    }

    /// The formulas as they are written.
    fn plain(p: &[u16], q: &[u16], reach: usize, c: &Calibration) -> Vec<[f64; 4]> {
        let nats = |code: u16| f64::from(code.min(c.c999)) / 2048.0;
        let excess: Vec<f64> = p.iter().zip(q).map(|(&p, &q)| nats(p) - nats(q)).collect();
        (0..p.len())
            .map(|i| {
                let window = &excess[i.saturating_sub(reach)..(i + reach + 1).min(p.len())];
                let mean = window.iter().sum::<f64>() / window.len() as f64;
                let left = 1.0 - (-nats(p[i])).exp();
                let able =
                    ((nats(c.c999) - nats(q[i])) / (nats(c.c999) - nats(c.c95))).clamp(0.0, 1.0);
                let want = 1.0 / (1.0 + (-(mean - c.tau_nats) / c.spread_nats).exp());
                [left * able * want, excess[i], nats(p[i]), want]
            })
            .collect()
    }

    fn numbers(n: usize, seed: u64) -> Vec<u16> {
        (0..n as u64)
            .map(|i| (crate::algo::hash::keyed_by(seed, i) % 40_000) as u16)
            .collect()
    }

    #[test]
    fn agrees_with_the_formulas_for_every_window_and_length() {
        for reach in [0, 1, 8] {
            let table = Usefulness::new(calibration(), reach);
            for n in [1, 2, 8, 9, 17, 18, 300] {
                let (p, q) = (numbers(n, 1), numbers(n, 2));
                let (mut u, mut excess) = (vec![0.0; n], vec![0.0; n]);
                let sums = table.score(&p, &q, &mut u, &mut excess);
                let expected = plain(&p, &q, reach, &calibration());
                for (i, [want_u, want_excess, _, _]) in expected.iter().enumerate() {
                    assert!(
                        (f64::from(u[i]) - want_u).abs() < 2e-6,
                        "u {} {want_u}",
                        u[i]
                    );
                    assert!((0.0..=1.0).contains(&u[i]));
                    assert!((f64::from(excess[i]) - want_excess).abs() < 1e-5);
                }
                let total = |column: usize| expected.iter().map(|row| row[column]).sum::<f64>();
                assert!((sums.usefulness - total(0)).abs() < 2e-6 * n as f64);
                assert!(
                    (sums.excess_nats - total(1)).abs() < 1e-9
                        && (sums.surprisal_nats - total(2)).abs() < 1e-9
                );
                assert_eq!(sums, table.sums(&p, &q));
                assert!(
                    table
                        .factors(&p, &q)
                        .iter()
                        .zip(&u)
                        .all(|(f, u)| f.product().to_bits() == u.to_bits())
                );
            }
        }
    }

    #[test]
    fn the_logistic_table_is_within_one_millionth() {
        let scale = Calibration {
            tau_nats: 0.0,
            spread_nats: 1.0,
            ..calibration()
        };
        let table = Usefulness::new(scale, 0);
        for mean in -60_000i64..60_000 {
            let exact = 1.0 / (1.0 + (-(mean as f64) / 2048.0).exp());
            assert!(
                (f64::from(table.want(mean, 1)) - exact).abs() <= 1e-6,
                "{mean}"
            );
        }
    }

    #[test]
    fn known_noise_and_off_target_tokens_are_worth_little() {
        let table = Usefulness::new(calibration(), 0);
        let u = |p: u16, q: u16| table.factors(&[p], &[q])[0].product();
        let learnable = u(12_000, 6_000);
        assert!(learnable > 0.9, "{learnable}");
        assert!(u(0, 0) < 1e-9, "already known");
        assert!(u(26_000, 26_000) < 1e-9, "noise");
        assert!(u(6_000, 14_000) < 0.05, "off target");
        assert!(u(65_534, 0) > 0.99);
    }

    #[test]
    fn scales_without_spread_do_not_divide_by_zero() {
        let flat = Calibration::new(5, 5, [0, 0, 0]);
        assert!(flat.spread_nats > 0.0);
        let table = Usefulness::new(flat, 8);
        for factors in table.factors(&[0, 5, 60_000], &[9, 5, 0]) {
            assert!((0.0..=1.0).contains(&factors.product()) && factors.able > 0.99);
        }
        let none = Usefulness::new(Calibration::new(0, 0, [0, 0, 0]), 8);
        assert_eq!(none.sums(&[7], &[7]), DocumentSums::default());
    }
}
