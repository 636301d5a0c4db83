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
/// Points of the whole table, and one more on either side of the last.
const SIGMOID_TABLE: usize = (2.0 * SIGMOID_RANGE * SIGMOID_POINTS) as usize + 2;

/// The scales, from held-out reference text and a sample of the corpus.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Calibration {
    /// 95th percentile of s_q in steps, on reference text.
    pub c95: u16,
    /// 99.9th percentile of s_q in steps, on reference text: surprisals are clipped here.
    pub c999: u16,
    /// 95th percentile of the windowed mean of s_q in nats, on reference text.
    pub window_c95_nats: f64,
    /// 99.9th percentile of the windowed mean of s_q in nats, on reference text.
    pub window_c999_nats: f64,
    /// Where want is a half: midway between the medians of the windowed excess on reference text
    /// and on the corpus, in nats.
    pub tau_nats: f64,
    /// A quarter of the distance of those medians, but no less than the interquartile range / 1.35 on
    /// reference text, nor than 1/1024; in nats.
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

    /// Calls `visit` with each place, its surprisals, and the sums over its window inside the document.
    /// Sums are whole numbers: they don't drift.
    #[inline]
    fn each(
        &self,
        p: &[u16],
        q: &[u16],
        c999: u16,
        mut visit: impl FnMut(usize, Clipped, WindowSums),
    ) {
        let n = p.len().min(q.len());
        let (p, q, reach) = (&p[..n], &q[..n], self.reach);
        let clipped = |place: usize| Clipped {
            s_p: p[place].min(c999),
            s_q: q[place].min(c999),
        };
        let mut sums = WindowSums::default();
        (0..reach.min(n)).for_each(|place| sums.enter(clipped(place)));
        for place in 0..n {
            if place + reach < n {
                sums.enter(clipped(place + reach));
            }
            sums.tokens = (place + reach).min(n - 1) + 1 - place.saturating_sub(reach);
            visit(place, clipped(place), sums);
            if place >= reach {
                sums.leave(clipped(place - reach));
            }
        }
    }

    /// Calls `visit` with the windowed means of the excess and of s_q at each place, in steps of
    /// 1/8192 nat rounded down.
    pub fn each_mean(&self, p: &[u16], q: &[u16], c999: u16, mut visit: impl FnMut(i64, i64)) {
        self.each(p, q, c999, |_, _, sums| {
            let mean = |sum: i64| (sum * MEAN_STEPS).div_euclid(sums.tokens as i64);
            visit(mean(sums.excess), mean(sums.s_q));
        });
    }
}

/// Surprisals of a token in steps, at most c999.
#[derive(Clone, Copy, Debug)]
struct Clipped {
    s_p: u16,
    s_q: u16,
}

impl Clipped {
    #[inline]
    fn excess(self) -> i32 {
        i32::from(self.s_p) - i32::from(self.s_q)
    }
}

/// Sums over a window, in steps, and its number of tokens.
#[derive(Clone, Copy, Debug, Default)]
struct WindowSums {
    excess: i64,
    s_q: i64,
    tokens: usize,
}

impl WindowSums {
    #[inline]
    fn enter(&mut self, token: Clipped) {
        self.excess += i64::from(token.excess());
        self.s_q += i64::from(token.s_q);
    }

    #[inline]
    fn leave(&mut self, token: Clipped) {
        self.excess -= i64::from(token.excess());
        self.s_q -= i64::from(token.s_q);
    }
}

/// Quantiles of windowed means, in steps of 1/8192 nat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowQuantiles {
    /// 95th and 99.9th percentile of s_q on reference text.
    pub s_q: [i64; 2],
    /// Quartiles of the excess on reference text.
    pub excess: [i64; 3],
    /// Median of the excess on the corpus.
    pub corpus_excess: i64,
}

/// Bound of a windowed mean on either side, in steps of 1/8192 nat.
pub const MAX_MEAN: i64 = MAX_CODE as i64 * MEAN_STEPS;

/// A windowed mean in nats.
pub fn mean_nats(mean: i64) -> f64 {
    mean as f64 / (STEPS_PER_NAT * MEAN_STEPS as f64)
}

impl Calibration {
    /// From quantiles: c95 and c999 in steps, and those of windowed means.
    pub fn new(c95: u16, c999: u16, window: WindowQuantiles) -> Self {
        let nats = mean_nats;
        let [lower, median, upper] = window.excess;
        let of_reference = nats(upper - lower) / 1.35;
        let to_corpus = nats(median - window.corpus_excess) / 4.0;
        // Where all text has the same excess, the step from 0 to 1 is steep, not infinite.
        Calibration {
            c95,
            c999,
            window_c95_nats: nats(window.s_q[0]),
            window_c999_nats: nats(window.s_q[1]),
            tau_nats: nats(median + window.corpus_excess) / 2.0,
            spread_nats: of_reference.max(to_corpus).max(1.0 / 1024.0),
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
    /// Falls to 0 for what even the reference model can't predict: this token, or the text around it.
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
    /// able is the least of 1 and two lines: of c999 - s_q in steps, and of the windowed mean of s_q in steps.
    able_slope: f32,
    able_start: f32,
    window_able_slope: f64,
    window_able_start: f64,
    sigmoid: Box<[f32; SIGMOID_TABLE]>,
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
            window_c95_nats,
            window_c999_nats,
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
        let width = window_c999_nats - window_c95_nats;
        let (window_able_slope, window_able_start) = if width > 0.0 {
            (-1.0 / (STEPS_PER_NAT * width), window_c999_nats / width)
        } else {
            (0.0, 1.0)
        };
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
            window_able_slope,
            window_able_start,
            sigmoid: Box::new(std::array::from_fn(sigmoid)),
            slope: SIGMOID_POINTS / (STEPS_PER_NAT * spread_nats),
            start: (SIGMOID_RANGE - tau_nats / spread_nats) * SIGMOID_POINTS,
        }
    }

    /// The scales.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    #[inline]
    fn want(&self, mean: f64) -> f32 {
        let place =
            (mean * self.slope + self.start).clamp(0.0, 2.0 * SIGMOID_RANGE * SIGMOID_POINTS);
        let below = (place as usize).min(SIGMOID_TABLE - 2);
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
        self.window.each(p, q, c999, |place, own, sums| {
            let share = self.window.reciprocals[sums.tokens];
            let Clipped { s_p, s_q } = own;
            let left = 1.0 - self.coarse[usize::from(s_p >> 8)] * self.fine[usize::from(s_p & 255)];
            let to_noise = f32::from(c999 - s_q);
            let able_here = to_noise * self.able_slope + self.able_start;
            let mean_s_q = sums.s_q as f64 * share;
            let able_around = mean_s_q * self.window_able_slope + self.window_able_start;
            let factors = Factors {
                left,
                able: able_here.min(able_around as f32).clamp(0.0, 1.0),
                want: self.want(sums.excess as f64 * share),
            };
            usefulness += f64::from(factors.product());
            let own_excess = own.excess();
            excess += i64::from(own_excess);
            surprisal += u64::from(s_p);
            visit(
                place,
                factors,
                own_excess as f32 * (1.0 / STEPS_PER_NAT as f32),
            );
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
        self.window.each(p, q, c999, |_, _, sums| {
            all.push((sums.excess as f64 / sums.tokens as f64 / STEPS_PER_NAT) as f32);
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
            window_c95_nats: 5.0,
            window_c999_nats: 9.5,
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
                let here = (nats(c.c999) - nats(q[i])) / (nats(c.c999) - nats(c.c95));
                let s_q = &q[i.saturating_sub(reach)..(i + reach + 1).min(q.len())];
                let s_q = s_q.iter().map(|&code| nats(code)).sum::<f64>() / s_q.len() as f64;
                let around = (c.window_c999_nats - s_q) / (c.window_c999_nats - c.window_c95_nats);
                let able = here.min(around).clamp(0.0, 1.0);
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
                (f64::from(table.want(mean as f64)) - exact).abs() <= 1e-6,
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
    fn one_surprise_in_good_text_spares_its_neighbours_and_a_run_of_them_does_not() {
        let scale = Calibration {
            window_c95_nats: 6.0,
            window_c999_nats: 8.0,
            ..calibration()
        };
        let table = Usefulness::new(scale, 8);
        // 12 nats by either model: below the 95th percentile of single tokens, 7.8 nats + 4.2.
        let surprise = 24_000;
        let (mut p, mut q) = (vec![8_000u16; 40], vec![6_000u16; 40]);
        (p[20], q[20]) = (surprise, surprise);
        let factors = table.factors(&p, &q);
        assert!(factors[20].able < 0.3 && factors[19].able == 1.0 && factors[21].able == 1.0);
        // One of these tokens is learnable; a whole text of them is not.
        let usual = 15_000;
        (p[20], q[20]) = (usual, usual);
        assert_eq!(table.factors(&p, &q)[20].able, 1.0);
        let noise = table.factors(&[usual; 40], &[usual; 40]);
        assert!(noise.iter().all(|f| f.able < 0.4 && f.able > 0.3));
        let worse = table.factors(&[15_990; 40], &[15_990; 40]);
        assert!(worse.iter().all(|f| f.able < 0.1));
        let beyond = table.factors(&[17_000; 40], &[17_000; 40]);
        assert!(beyond.iter().all(|f| f.able == 0.0 && f.product() == 0.0));
    }

    #[test]
    fn want_runs_from_the_corpus_to_the_reference() {
        let quantiles = |corpus_excess| WindowQuantiles {
            s_q: [40_000, 60_000],
            excess: [8192 - 2765, 8192, 8192 + 2765],
            corpus_excess,
        };
        // Medians at 1 and -5 nats: a half in the middle, and two spreads on either side at the medians.
        let far = Calibration::new(9, 10, quantiles(-5 * 8192));
        assert_eq!((far.tau_nats, far.spread_nats), (-2.0, 1.5));
        let table = Usefulness::new(far, 0);
        let want = |nats: f64| f64::from(table.want(nats * 2048.0));
        let at_median = 1.0 / (1.0 + (-2.0f64).exp());
        assert!((want(-2.0) - 0.5).abs() < 1e-6);
        assert!(
            (want(1.0) - at_median).abs() < 1e-6 && (want(-5.0) - (1.0 - at_median)).abs() < 1e-6
        );
        // A corpus like the reference, or nearer to q than that: never steeper than the reference spreads.
        for corpus_excess in [8000, 9000] {
            let near = Calibration::new(9, 10, quantiles(corpus_excess));
            assert!((near.spread_nats - 0.5).abs() < 1e-3, "{near:?}");
            assert!((near.tau_nats - 1.0).abs() < 0.06);
        }
    }

    #[test]
    fn scales_without_spread_do_not_divide_by_zero() {
        let quantiles = WindowQuantiles {
            s_q: [20, 20],
            excess: [0; 3],
            corpus_excess: 0,
        };
        let flat = Calibration::new(5, 5, quantiles);
        assert!(flat.spread_nats > 0.0);
        let table = Usefulness::new(flat, 8);
        for factors in table.factors(&[0, 5, 60_000], &[9, 5, 0]) {
            assert!((0.0..=1.0).contains(&factors.product()) && factors.able > 0.99);
        }
        let none = Usefulness::new(Calibration::new(0, 0, quantiles), 8);
        assert_eq!(none.sums(&[7], &[7]), DocumentSums::default());
    }
}
