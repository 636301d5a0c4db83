//! Power laws of the loss, fitted with L-BFGS.
//!
//! L = E + sum over k of A_k x_k^-a_k is fitted in log space: the residual of a point is
//! ln(L of the formula) - ln(L measured), the first as log-sum-exp of ln E and ln A_k - a_k ln x_k. What is
//! minimised is the *sum* of Huber(10^-3) of the residuals (Hoffmann et al. 2022, arXiv 2203.15556, approach 3).
//! A mean instead of the sum, with a tolerance that was set for a sum, stops early and gave the published
//! constants of that paper (Besiroglu et al. 2024, arXiv 2404.10102); so here every start goes on until L-BFGS
//! finds nothing better.

use argmin::core::{ArgminError, CostFunction, Error, Executor, Gradient};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;
use std::cell::{Cell, RefCell};

/// Residuals beyond it count by their size, those within by their square.
const HUBER: f64 = 1e-3;
/// Pairs of steps and gradients that L-BFGS remembers.
const MEMORY: usize = 10;
/// Iterations of one start.
const ITERATIONS: u64 = 400;
/// Evaluations of one start. The line search itself has no end where the sum is flat.
const EVALUATIONS: u32 = 4_000;
/// How often the best start is taken up again from where it ended.
const RESTARTS: usize = 40;
/// Shares of the lowest loss that E starts from.
const FLOORS: [f64; 4] = [0.3, 0.6, 0.8, 0.95];
/// Exponents that terms start from.
const EXPONENTS: [f64; 5] = [0.1, 0.25, 0.45, 0.8, 1.5];

/// One measured loss with what it depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What the loss falls with, one number for each term: compute, or tokens, or parameters and tokens.
    /// All above 0.
    pub inputs: Vec<f64>,
    /// The loss, above 0.
    pub loss: f64,
}

/// A term A x^-a.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// A.
    pub coefficient: f64,
    /// a.
    pub exponent: f64,
}

/// A fitted power law.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerLaw {
    /// E: the loss that no amount of anything goes below.
    pub floor: f64,
    /// A term for each input.
    pub terms: Vec<Term>,
    /// Largest of the residuals, each the size of ln(fitted / measured).
    pub largest_residual: f64,
}

impl PowerLaw {
    /// The loss at these inputs.
    pub fn loss(&self, inputs: &[f64]) -> f64 {
        let terms = self.terms.iter().zip(inputs);
        let falls = terms
            .map(|(term, input)| term.coefficient * libm::exp(-term.exponent * libm::log(*input)));
        self.floor + falls.sum::<f64>()
    }

    /// The law of one input on the compute-optimal frontier of two, parameters N and tokens D, where compute
    /// is 6 N D: L = E + K C^-gamma, gamma = alpha beta / (alpha + beta) (arXiv 2203.15556, section 3.3).
    ///
    /// `None` for another number of inputs.
    pub fn frontier(&self) -> Option<PowerLaw> {
        let [size, tokens] = self.terms[..] else {
            return None;
        };
        let sum = size.exponent + tokens.exponent;
        let exponent = size.exponent * tokens.exponent / sum;
        // The best N is G (C / 6)^(beta / sum), the best D is (C / 6)^(alpha / sum) / G.
        let ratio = (size.exponent * size.coefficient) / (tokens.exponent * tokens.coefficient);
        let ln_g = libm::log(ratio) / sum;
        let coefficient = (size.coefficient * libm::exp(-size.exponent * ln_g)
            + tokens.coefficient * libm::exp(tokens.exponent * ln_g))
            * libm::exp(exponent * libm::log(6.0));
        Some(PowerLaw {
            floor: self.floor,
            terms: vec![Term {
                coefficient,
                exponent,
            }],
            largest_residual: self.largest_residual,
        })
    }
}

/// Fits a power law. All points have as many inputs as the first.
///
/// `None` where there are not more points than a term has parameters, where a number is not above 0, or where
/// the best law does not fall: an exponent of 0 or below.
pub fn fit(points: &[Point]) -> Option<PowerLaw> {
    let terms = points.first()?.inputs.len();
    let usable = |point: &Point| {
        let mut numbers = point.inputs.iter().chain([&point.loss]);
        point.inputs.len() == terms && numbers.all(|number| number.is_finite() && *number > 0.0)
    };
    if points.len() < 2 * terms + 1 || !points.iter().all(usable) {
        return None;
    }
    let objective = Objective::new(points, terms);
    let best = RefCell::new((f64::INFINITY, Vec::new()));
    let lowest = points.iter().map(|p| p.loss).fold(f64::INFINITY, f64::min);
    for share in FLOORS {
        let floor = share * lowest;
        let rest = libm::log((objective.mean_loss - floor) / terms as f64);
        for start in 0..EXPONENTS.len().pow(terms as u32) {
            let mut parameters = vec![libm::log(floor)];
            let mut digits = start;
            for _ in 0..terms {
                parameters.extend([rest, EXPONENTS[digits % EXPONENTS.len()]]);
                digits /= EXPONENTS.len();
            }
            descend(&objective, parameters, &best);
        }
    }
    for _ in 0..RESTARTS {
        let (before, from) = best.borrow().clone();
        descend(&objective, from, &best);
        if best.borrow().0 >= before {
            break;
        }
    }
    let (_, parameters) = best.into_inner();
    objective.law(&parameters)
}

/// L-BFGS from a start. A line search that fails ends it: the best place so far is kept.
fn descend(objective: &Objective, from: Vec<f64>, best: &RefCell<(f64, Vec<f64>)>) {
    let watched = Watched {
        objective,
        best,
        evaluations: Cell::new(0),
    };
    let solver = LBFGS::new(MoreThuenteLineSearch::new(), MEMORY)
        .with_tolerance_grad(1e-12)
        .and_then(|solver| solver.with_tolerance_cost(0.0));
    let Ok(solver) = solver else { return };
    // The result is what `Watched` saw: an error of the line search would keep it to itself.
    let _ = Executor::new(watched, solver)
        .configure(|state| state.param(from).max_iters(ITERATIONS))
        .timer(false)
        .run();
}

/// The sum of Huber losses, in units of HUBER^2. Parameters: ln E, then ln A and a of each term, with the
/// logarithms of the inputs counted from their means: without that A and a could hardly be told apart.
struct Objective {
    /// Of each point the inputs' logarithms less their means.
    inputs: Vec<Vec<f64>>,
    means: Vec<f64>,
    ln_losses: Vec<f64>,
    mean_loss: f64,
}

impl Objective {
    fn new(points: &[Point], terms: usize) -> Objective {
        let count = points.len() as f64;
        let logs: Vec<Vec<f64>> = points
            .iter()
            .map(|point| point.inputs.iter().map(|x| libm::log(*x)).collect())
            .collect();
        let mean = |at: usize| logs.iter().map(|logs| logs[at]).sum::<f64>() / count;
        let means: Vec<f64> = (0..terms).map(mean).collect();
        let centred = |logs: &Vec<f64>| logs.iter().zip(&means).map(|(x, mean)| x - mean).collect();
        Objective {
            inputs: logs.iter().map(centred).collect(),
            ln_losses: points.iter().map(|p| libm::log(p.loss)).collect(),
            mean_loss: points.iter().map(|p| p.loss).sum::<f64>() / count,
            means,
        }
    }

    /// Residual of a point, and the share of each part of the sum: of E, then of each term.
    fn residual(&self, at: usize, parameters: &[f64], shares: &mut Vec<f64>) -> f64 {
        shares.clear();
        shares.push(parameters[0]);
        for (term, input) in parameters[1..].chunks_exact(2).zip(&self.inputs[at]) {
            shares.push(term[0] - term[1] * input);
        }
        let largest = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut sum = 0.0;
        for share in shares.iter_mut() {
            *share = libm::exp(*share - largest);
            sum += *share;
        }
        for share in shares.iter_mut() {
            *share /= sum;
        }
        largest + libm::log(sum) - self.ln_losses[at]
    }

    fn law(&self, parameters: &[f64]) -> Option<PowerLaw> {
        let mut shares = Vec::new();
        let residuals =
            (0..self.inputs.len()).map(|at| self.residual(at, parameters, &mut shares).abs());
        let largest_residual = residuals.fold(0.0, f64::max);
        let terms: Vec<Term> = parameters[1..]
            .chunks_exact(2)
            .zip(&self.means)
            .map(|(term, mean)| Term {
                coefficient: libm::exp(term[0] + term[1] * mean),
                exponent: term[1],
            })
            .collect();
        let falls = terms
            .iter()
            .all(|term| term.exponent > 0.0 && term.coefficient.is_finite());
        falls.then(|| PowerLaw {
            floor: libm::exp(parameters[0]),
            terms,
            largest_residual,
        })
    }
}

/// The objective, with the best place that was seen.
struct Watched<'a> {
    objective: &'a Objective,
    best: &'a RefCell<(f64, Vec<f64>)>,
    evaluations: Cell<u32>,
}

impl Watched<'_> {
    /// Ends a start that goes nowhere.
    fn goes_on(&self, is_finite: bool) -> Result<(), Error> {
        self.evaluations.set(self.evaluations.get() + 1);
        match is_finite && self.evaluations.get() <= EVALUATIONS {
            true => Ok(()),
            false => Err(ArgminError::ConditionViolated {
                text: "the start goes nowhere".to_string(),
            }
            .into()),
        }
    }
}

impl CostFunction for Watched<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, parameters: &Vec<f64>) -> Result<f64, Error> {
        let mut shares = Vec::new();
        let mut sum = 0.0;
        for at in 0..self.objective.inputs.len() {
            let size = self.objective.residual(at, parameters, &mut shares).abs() / HUBER;
            sum += match size <= 1.0 {
                true => 0.5 * size * size,
                false => size - 0.5,
            };
        }
        self.goes_on(sum.is_finite())?;
        let mut best = self.best.borrow_mut();
        if sum < best.0 {
            *best = (sum, parameters.clone());
        }
        Ok(sum)
    }
}

impl Gradient for Watched<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, parameters: &Vec<f64>) -> Result<Vec<f64>, Error> {
        let mut gradient = vec![0.0; parameters.len()];
        let mut shares = Vec::new();
        for (at, inputs) in self.objective.inputs.iter().enumerate() {
            let residual = self.objective.residual(at, parameters, &mut shares) / HUBER;
            let slope = residual.clamp(-1.0, 1.0) / HUBER;
            gradient[0] += slope * shares[0];
            for (term, (share, input)) in shares[1..].iter().zip(inputs).enumerate() {
                gradient[1 + 2 * term] += slope * share;
                gradient[2 + 2 * term] -= slope * share * input;
            }
        }
        self.goes_on(gradient.iter().all(|slope| slope.is_finite()))?;
        Ok(gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constants of the golden values.
    fn golden() -> PowerLaw {
        PowerLaw {
            floor: 1.8172,
            terms: vec![
                Term {
                    coefficient: 482.01,
                    exponent: 0.3478,
                },
                Term {
                    coefficient: 2085.43,
                    exponent: 0.3658,
                },
            ],
            largest_residual: 0.0,
        }
    }

    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found / expected - 1.0).abs() < tolerance,
            "{found} is not {expected}"
        );
    }

    /// `count` numbers from `first` to `last`, each the same multiple of the one before.
    fn geometric(first: f64, last: f64, count: usize) -> Vec<f64> {
        let step = libm::log(last / first) / (count - 1) as f64;
        (0..count)
            .map(|at| first * libm::exp(step * at as f64))
            .collect()
    }

    #[test]
    fn all_five_numbers_are_recovered_from_fifty_points_without_noise() {
        let truth = golden();
        let mut points = Vec::new();
        for size in geometric(5e7, 1.6e10, 10) {
            for ratio in geometric(4.0, 120.0, 5) {
                let inputs = vec![size, ratio * size];
                let loss = truth.loss(&inputs);
                points.push(Point { inputs, loss });
            }
        }
        assert_eq!(points.len(), 50);
        let found = fit(&points).expect("a law");
        near(found.floor, 1.8172, 1e-4);
        for (found, truth) in found.terms.iter().zip(&truth.terms) {
            near(found.coefficient, truth.coefficient, 1e-4);
            near(found.exponent, truth.exponent, 1e-4);
        }
        assert!(found.largest_residual < 1e-6, "{found:?}");
        assert_eq!(fit(&points), Some(found), "twice the same bits");
    }

    #[test]
    fn the_frontier_of_the_golden_constants() {
        let frontier = golden().frontier().expect("two inputs");
        let term = frontier.terms[0];
        near(term.exponent, 0.178286, 1e-4);
        near(term.coefficient, 2708.4975, 1e-4);
        near(frontier.loss(&[1e21]), 2.305529, 1e-4);
        assert_eq!(frontier.frontier(), None);
        // No other division of the compute does better.
        let at = |share: f64| {
            let size: f64 = share * 1e10;
            golden().loss(&[size, 1e21 / 6.0 / size])
        };
        let best = geometric(0.01, 100.0, 2000)
            .into_iter()
            .map(at)
            .fold(f64::INFINITY, f64::min);
        near(best, frontier.loss(&[1e21]), 1e-6);
    }

    #[test]
    fn one_term_is_recovered_and_an_outlier_pulls_little() {
        let truth = PowerLaw {
            floor: 0.8,
            terms: vec![Term {
                coefficient: 40.0,
                exponent: 0.12,
            }],
            largest_residual: 0.0,
        };
        let mut points: Vec<Point> = geometric(1e15, 1e19, 9)
            .into_iter()
            .map(|compute| Point {
                loss: truth.loss(&[compute]),
                inputs: vec![compute],
            })
            .collect();
        let found = fit(&points).expect("a law");
        near(found.floor, 0.8, 1e-4);
        near(found.terms[0].exponent, 0.12, 1e-4);
        near(found.terms[0].coefficient, 40.0, 1e-4);
        points[4].loss *= 1.1;
        let pulled = fit(&points).expect("a law");
        // A square would move it by a hundred times more.
        near(pulled.loss(&[1e17]), truth.loss(&[1e17]), 2e-3);
        assert!(pulled.largest_residual > 0.09);
    }

    #[test]
    fn too_few_points_and_losses_that_rise_give_no_law() {
        let point = |compute: f64, loss: f64| Point {
            inputs: vec![compute],
            loss,
        };
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[point(1.0, 2.0), point(2.0, 1.5)]), None);
        let zero = [point(1.0, 2.0), point(2.0, 0.0), point(3.0, 1.0)];
        assert_eq!(fit(&zero), None);
        let nan = [point(1.0, 2.0), point(2.0, f64::NAN), point(3.0, 1.0)];
        assert_eq!(fit(&nan), None);
        let rising: Vec<Point> = (1..9)
            .map(|at| point(at as f64, 1.0 + 0.1 * at as f64))
            .collect();
        assert_eq!(fit(&rising), None);
    }
}
