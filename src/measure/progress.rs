//! How far models came for their compute: the baseline's curve, multipliers with intervals by paired seeds.
//!
//! What is compared are the last evaluations of finished runs, in bits per byte of held-out text. The baseline's
//! runs at several budgets are the curve C_base(L); the progress of a run is P = C_base(L), its multiplier
//! m = P / C. Runs of a group and of the baseline that have the same seed and budget are a pair:
//! y = ln(C_base(L_cand) / C_cand) - ln(C_base(L_base) / C_base), m = exp(mean y), with Student's t over the pairs.
//! Nothing is said where it cannot be: what is missing, and what to do, is a sentence in the report.
//!
//! All comparisons of one held-out set are one family for Holm's correction: target and general are two questions.

use super::curve::{Curve, FARTHEST, LEAST_BUDGETS, Outside};
use super::fit::{Point, PowerLaw, fit};
use super::forecast::{ArmReport, arms};
use super::paired::{LEAST_SEEDS, holm, minimum_detectable, paired};
use super::report::{EvaluationReport, RunReport};
use super::{Budget, CurveKind, HeldOut, ProgressRequest};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Budgets that differ by less than this share are the same.
const SAME_BUDGET: f64 = 0.01;
/// An evaluation this share of the steps before the end is not one of the finished model.
const LATEST: f64 = 0.01;
/// Learning rates that differ by less than this share are the same.
const SAME_RATE: f64 = 1e-3;
/// Budgets that a law of three numbers needs, so that one is left to contradict it.
const LEAST_BUDGETS_OF_LAW: usize = 4;
/// Runs that a law of five numbers needs.
const LEAST_RUNS_OF_FRONTIER: usize = 6;
/// An effect counts as seen below this p-value.
const SIGNIFICANT: f64 = 0.05;

/// How far the groups came.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgressReport {
    /// The group that the others are measured against.
    pub baseline: String,
    /// What budgets are counted in: `flop` or `tokens`.
    pub budget_unit: &'static str,
    /// How the curve is made: `interpolated`, `power_law` or `frontier`.
    pub curve: &'static str,
    /// The two held-out sets, target first, each followed by the parts of its sources.
    pub sets: Vec<SetReport>,
    /// The forecast of each group's data beside what was measured.
    pub forecasts: Vec<ArmReport>,
    /// What was concluded, a sentence each.
    pub concluded: Vec<String>,
    /// What could not be, and what to do about it, a sentence each.
    pub not_concluded: Vec<String>,
}

/// What a held-out set tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetReport {
    /// `target` or `general`.
    pub role: &'static str,
    /// What the logs call it.
    pub split: String,
    /// Which source's part of it; `null` for the whole.
    pub source: Option<String>,
    /// UTF-8 bytes of its text, where the logs count them.
    pub bytes: Option<u64>,
    /// The runs that can be compared, in the order of the request.
    pub runs: Vec<PointReport>,
    /// The baseline's curve; `null` where there is none.
    pub curve: Option<CurveReport>,
    /// Groups beside the baseline, in the order of name and budget.
    pub comparisons: Vec<ComparisonReport>,
}

/// A run on a held-out set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointReport {
    /// The run.
    pub run: String,
    /// Its group.
    pub group: String,
    /// Its seed.
    pub seed: Option<u64>,
    /// What was spent, in the unit of the report.
    pub budget: f64,
    /// The loss in bits per byte.
    pub bits_per_byte: f64,
    /// P: what the baseline needs for it; `null` where the curve does not reach it.
    pub progress: Option<f64>,
    /// Whether P lies beyond the baseline's budgets.
    pub is_extrapolated: bool,
    /// Cost of 10^18 FLOP of progress; `null` without a price, or where budgets are tokens.
    pub cost_per_exaflop_of_progress: Option<f64>,
}

/// The baseline's curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveReport {
    /// Its budgets, rising.
    pub budgets: Vec<BudgetReport>,
    /// E, in bits per byte; of a law.
    pub floor: Option<f64>,
    /// K of L = E + K C^-gamma (B of tokens); of a law.
    pub coefficient: Option<f64>,
    /// gamma (beta of tokens); of a law.
    pub exponent: Option<f64>,
    /// The terms of parameters and tokens; of a frontier.
    pub terms: Vec<TermReport>,
    /// Largest ln(fitted / measured); of a law.
    pub largest_residual: Option<f64>,
}

/// A term A x^-a of a law.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TermReport {
    /// x: `parameters` or `tokens`.
    pub of: &'static str,
    /// A.
    pub coefficient: f64,
    /// a.
    pub exponent: f64,
}

/// The baseline's runs at one budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BudgetReport {
    /// Their mean budget.
    pub budget: f64,
    /// How many.
    pub runs: u64,
    /// Their mean loss in bits per byte.
    pub bits_per_byte: f64,
}

/// A group at a budget, beside the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonReport {
    /// The group.
    pub group: String,
    /// Its mean budget.
    pub budget: f64,
    /// Its mean loss in bits per byte.
    pub bits_per_byte: f64,
    /// Runs that are paired by seed; none where the baseline has no such run.
    pub pairs: Vec<PairReport>,
    /// m: exp of the mean over pairs; without pairs the mean of P / C.
    pub multiplier: Option<f64>,
    /// The same by the local form of the curve, as a check for small differences.
    pub local_multiplier: Option<f64>,
    /// The 95 % interval of m: lower, upper; `null` where it is refused.
    pub interval: Option<(f64, f64)>,
    /// Why there is no interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_interval_because: Option<String>,
    /// Probability of such a mean where m is 1.
    pub p_value: Option<f64>,
    /// The same by Holm's correction beside the other comparisons of the set.
    pub holm_p_value: Option<f64>,
    /// The least m above 1 that would be found in four of five experiments like this one.
    pub minimum_detectable_multiplier: Option<f64>,
    /// Whether any P lies beyond the baseline's budgets.
    pub is_extrapolated: bool,
    /// Mean compute of training, in FLOP.
    pub training_flop: Option<f64>,
    /// Mean compute of choosing the data, in FLOP.
    pub selection_flop: Option<f64>,
    /// m_net = m C_train / (C_train + C_select).
    pub net_multiplier: Option<f64>,
    /// Its interval.
    pub net_interval: Option<(f64, f64)>,
    /// eta x MFU, the mean of its runs.
    pub delivered_mfu: Option<f64>,
    /// G = eta x MFU x m_net.
    pub overall_goodput: Option<f64>,
    /// `more`, `less`, `cannot_tell` (the interval or Holm's correction leaves m = 1 possible), or `no_interval`.
    pub verdict: &'static str,
}

/// Two runs of one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairReport {
    /// The seed; `null` where both have none.
    pub seed: Option<u64>,
    /// The run of the group.
    pub candidate: String,
    /// The run of the baseline.
    pub baseline: String,
    /// y.
    pub ln_multiplier: f64,
}

/// Bits per byte of a mean loss in nats a token.
///
/// ```
/// let found = goodput::measure::bits_per_byte(2.0, 4.2);
/// assert!((found - 0.686998).abs() < 1e-6);
/// ```
pub fn bits_per_byte(nats_per_token: f64, bytes_per_token: f64) -> f64 {
    nats_per_token / (std::f64::consts::LN_2 * bytes_per_token)
}

/// m_net: what is left of a multiplier when choosing the data is paid for as well. Both costs in one unit.
///
/// ```
/// # use goodput::measure::net_multiplier;
/// // A selection that reads ten tokens for each that it keeps, at 6e8 FLOP each.
/// assert_eq!(net_multiplier(1.5, 4.2e10, 6e8 / 0.1), 1.3125);
/// assert!((net_multiplier(1.5, 7.2e9, 6e8 / 0.1) - 0.8181818).abs() < 1e-7);
/// ```
pub fn net_multiplier(multiplier: f64, training: f64, selection: f64) -> f64 {
    multiplier * training / (training + selection)
}

/// A run that can be compared on a set.
struct Run<'a> {
    report: &'a RunReport,
    budget: f64,
    loss: f64,
}

/// Measures progress.
pub(super) fn progress(asked: &ProgressRequest, runs: &[RunReport]) -> ProgressReport {
    let mut said = Said::default();
    let mut sets = Vec::new();
    let roles = [("target", &asked.target), ("general", &asked.general)];
    for (role, held_out) in roles {
        sets.push(set(asked, role, held_out, None, runs, &mut said));
        let of_split = runs
            .iter()
            .flat_map(|run| &run.held_out)
            .filter(|found| found.split == held_out.split);
        let sources: BTreeSet<&String> =
            of_split.filter_map(|found| found.source.as_ref()).collect();
        for source in sources {
            // What is missing of the whole is told once, not again for each part.
            let mut quiet = Said::default();
            let part = set(asked, role, held_out, Some(source), runs, &mut quiet);
            said.concluded.extend(quiet.concluded);
            sets.push(part);
        }
    }
    let forecasts = arms(
        &asked.baseline,
        runs,
        &sets,
        &mut said.concluded,
        &mut said.not_concluded,
    );
    ProgressReport {
        baseline: asked.baseline.clone(),
        budget_unit: asked.budget.name(),
        curve: match asked.curve {
            CurveKind::Interpolated => "interpolated",
            CurveKind::PowerLaw => "power_law",
            CurveKind::Frontier => "frontier",
        },
        sets,
        forecasts,
        concluded: said.concluded,
        not_concluded: said.not_concluded,
    }
}

#[derive(Default)]
struct Said {
    concluded: Vec<String>,
    not_concluded: Vec<String>,
}

impl Said {
    fn cannot(&mut self, sentence: String) {
        if !self.not_concluded.contains(&sentence) {
            self.not_concluded.push(sentence);
        }
    }
}

fn set(
    asked: &ProgressRequest,
    role: &'static str,
    held_out: &HeldOut,
    source: Option<&String>,
    runs: &[RunReport],
    said: &mut Said,
) -> SetReport {
    let mut usable: Vec<Run> = Vec::new();
    // The text that all must have been evaluated on: what the first run says of it, the baseline's before others.
    let mut text: Option<(&RunReport, Text)> = None;
    let is_baseline = |run: &&RunReport| run.group == asked.baseline;
    let ordered = runs
        .iter()
        .filter(is_baseline)
        .chain(runs.iter().filter(|run| !is_baseline(run)));
    let evaluated = runs.iter().any(|run| {
        run.held_out
            .iter()
            .any(|found| found.split == held_out.split)
    });
    if !evaluated {
        let names: BTreeSet<&str> = runs
            .iter()
            .flat_map(|run| run.held_out.iter().map(|found| found.split.as_str()))
            .collect();
        let there = match names.is_empty() {
            true => "the logs have no evaluation".to_string(),
            false => format!(
                "the logs have {}",
                names.into_iter().collect::<Vec<_>>().join(", ")
            ),
        };
        said.cannot(format!(
            "nothing is known on the {role} set: no run evaluates on '{}' ({there}); evaluate on it, or name it with \
             '{role}_split'",
            held_out.split
        ));
    }
    for run in ordered.filter(|_| evaluated) {
        let on = |why: String| format!("run '{}' is not compared on {role}: {why}", run.name);
        let (loss, its_text) = match loss(run, role, held_out, source) {
            Ok(found) => found,
            Err(why) => {
                said.cannot(on(why));
                continue;
            }
        };
        if let Some((first, known)) = &text
            && let Some(difference) = known.differs_from(&its_text)
        {
            said.cannot(on(format!(
                "it was evaluated on other text than run '{}': {difference}; evaluate both on the same text",
                first.name
            )));
            continue;
        }
        if run.training.schedule == "unfinished" {
            let ends = match run.training.total_steps {
                Some(total) => format!("step {} of {total}", run.training.last_step),
                None => "a learning rate far from its end".to_string(),
            };
            said.cannot(on(format!(
                "it ends at {ends}, and an unfinished schedule of the learning rate hides what was learned; train it to \
                 its end"
            )));
            continue;
        }
        let Some(budget) = budget(asked, run) else {
            let missing = match (asked.budget, asked.curve) {
                (Budget::Tokens, _) => "its tokens are unknown; give 'tokens_per_step'",
                (_, CurveKind::Frontier) => {
                    "its parameters or tokens are unknown; give 'model' and 'tokens_per_step'"
                }
                _ => {
                    "its FLOP are unknown; give 'model' and 'tokens_per_step', write 'flops' into the log, or compare \
                      by tokens with 'budget: tokens'"
                }
            };
            said.cannot(on(missing.to_string()));
            continue;
        };
        text.get_or_insert((run, its_text));
        usable.push(Run {
            report: run,
            budget,
            loss,
        });
    }
    let baseline: Vec<&Run> = usable
        .iter()
        .filter(|run| is_baseline(&run.report))
        .collect();
    let clusters = clusters(&baseline);
    let (curve, curve_report) = match evaluated {
        true => curve(asked, role, &baseline, &clusters, said),
        false => (None, None),
    };
    let points = usable
        .iter()
        .map(|run| point(asked, run, curve.as_ref()))
        .collect();
    let mut comparisons = Vec::new();
    if let Some(curve) = &curve {
        let groups: BTreeSet<&str> = usable
            .iter()
            .filter(|run| !is_baseline(&run.report))
            .map(|run| run.report.group.as_str())
            .collect();
        for group in groups {
            let members: Vec<&Run> = usable
                .iter()
                .filter(|run| run.report.group == group)
                .collect();
            for members in self::clusters(&members) {
                comparisons.extend(compare(role, curve, &members, &clusters, said));
            }
        }
    }
    judge(&mut comparisons);
    let of = match source {
        Some(source) => format!("{role} text of source '{source}'"),
        None => format!("{role} text"),
    };
    for comparison in &comparisons {
        conclude(&of, asked, comparison, said);
    }
    SetReport {
        role,
        split: held_out.split.clone(),
        source: source.cloned(),
        bytes: text.and_then(|(_, text)| text.bytes),
        runs: points,
        curve: curve_report,
        comparisons,
    }
}

/// What is known of the text of an evaluation.
#[derive(Clone, Debug, Default)]
struct Text {
    bytes: Option<u64>,
    /// Checksums by source, "" for the whole.
    datasets: BTreeMap<String, String>,
}

impl Text {
    fn differs_from(&self, other: &Text) -> Option<String> {
        if let (Some(one), Some(two)) = (self.bytes, other.bytes)
            && one != two
        {
            return Some(format!("{two} bytes where that has {one}"));
        }
        self.datasets.iter().find_map(|(source, one)| {
            let two = other.datasets.get(source)?;
            (one != two).then(|| format!("dataset {two} where that has {one}"))
        })
    }
}

/// The loss of a run on a set in bits per byte: sum of nats / (ln 2 x sum of bytes) over its parts.
fn loss(
    run: &RunReport,
    role: &str,
    held_out: &HeldOut,
    source: Option<&String>,
) -> Result<(f64, Text), String> {
    let split = &held_out.split;
    let of_split = || run.held_out.iter().filter(|found| found.split == *split);
    let unweighted = || of_split().filter(|found| !found.is_weighted);
    let parts: Vec<&EvaluationReport> = match source {
        Some(_) => unweighted()
            .filter(|found| found.source.as_ref() == source)
            .collect(),
        None => match unweighted().any(|found| found.source.is_none()) {
            true => unweighted()
                .filter(|found| found.source.is_none())
                .collect(),
            false => unweighted().collect(),
        },
    };
    if parts.is_empty() {
        return Err(match of_split().next() {
            Some(found) if found.is_weighted => format!(
                "its loss on '{split}' is weighted ({}), and only unweighted loss counts; evaluate without weights",
                found.line
            ),
            _ => format!("it has no evaluation on '{split}'; evaluate at its end"),
        });
    }
    let last = run.training.last_step;
    let (mut nats, mut bytes, mut counted) = (0.0, 0.0, Some(0));
    let mut text = Text::default();
    for part in &parts {
        let step = i64::try_from(part.step).unwrap_or(i64::MAX);
        // Logs that count from 0 end a step earlier.
        if (step + 1) as f64 <= last as f64 * (1.0 - LATEST) {
            return Err(format!(
                "its last evaluation on '{split}' ({}) is at step {step} of {last}; evaluate at its end",
                part.line
            ));
        }
        let Some(loss) = part.loss_nats else {
            return Err(format!(
                "its loss on '{split}' is no number ({})",
                part.line
            ));
        };
        if loss <= 0.0 {
            return Err(format!(
                "its loss on '{split}' is not above 0 ({})",
                part.line
            ));
        }
        match (part.tokens, part.bytes, held_out.bytes_per_token) {
            (Some(tokens), Some(of_part), _) if tokens > 0 && of_part > 0 => {
                nats += loss * tokens as f64;
                bytes += of_part as f64;
                counted = counted.map(|sum: u64| sum.saturating_add(of_part));
            }
            (_, of_part, Some(per_token)) if parts.len() == 1 => {
                (nats, bytes) = (loss, per_token);
                counted = of_part;
            }
            _ => {
                return Err(format!(
                    "its evaluation on '{split}' ({}) does not count both 'tokens' and 'bytes', so nats a token cannot \
                     become bits per byte; write both, or give '{role}_bytes_per_token'",
                    part.line
                ));
            }
        }
        if let Some(dataset) = &part.dataset {
            let source = part.source.clone().unwrap_or_default();
            text.datasets.insert(source, dataset.clone());
        }
    }
    text.bytes = counted;
    Ok((bits_per_byte(nats, bytes), text))
}

fn budget(asked: &ProgressRequest, run: &RunReport) -> Option<f64> {
    let training = &run.training;
    let budget = match (asked.budget, asked.curve) {
        (Budget::Tokens, _) => training.tokens,
        // The frontier's law is in this count of compute.
        (_, CurveKind::Frontier) => training
            .tokens
            .zip(training.active_parameters)
            .map(|(tokens, parameters)| 6.0 * parameters as f64 * tokens),
        _ => training.flop,
    };
    budget.filter(|budget| *budget > 0.0)
}

/// Runs of the same budget together, in order of budget.
fn clusters<'a, 'b>(runs: &[&'b Run<'a>]) -> Vec<Vec<&'b Run<'a>>> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|a, b| a.budget.total_cmp(&b.budget));
    let mut found: Vec<Vec<&Run>> = Vec::new();
    for run in sorted {
        match found
            .last_mut()
            .filter(|known| same(known[0].budget, run.budget))
        {
            Some(known) => known.push(run),
            None => found.push(vec![run]),
        }
    }
    found
}

fn same(one: f64, two: f64) -> bool {
    (one - two).abs() <= SAME_BUDGET * one.max(two)
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// A mean of what all of them know.
fn mean_if_all(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<f64> = values.collect::<Option<_>>()?;
    (!all.is_empty()).then(|| mean(all.into_iter()))
}

/// The curve of the baseline.
fn curve(
    asked: &ProgressRequest,
    role: &str,
    baseline: &[&Run],
    clusters: &[Vec<&Run>],
    said: &mut Said,
) -> (Option<Curve>, Option<CurveReport>) {
    let budgets: Vec<BudgetReport> = clusters
        .iter()
        .map(|runs| BudgetReport {
            budget: mean(runs.iter().map(|run| run.budget)),
            runs: runs.len() as u64,
            bits_per_byte: mean(runs.iter().map(|run| run.loss)),
        })
        .collect();
    let mut report = CurveReport {
        budgets,
        floor: None,
        coefficient: None,
        exponent: None,
        terms: Vec::new(),
        largest_residual: None,
    };
    let named = &asked.baseline;
    let least = match asked.curve {
        CurveKind::Interpolated => LEAST_BUDGETS,
        _ => LEAST_BUDGETS_OF_LAW,
    };
    let too_few = match asked.curve {
        CurveKind::Frontier => {
            let distinct = |of: &dyn Fn(&RunReport) -> f64| {
                let mut found: Vec<f64> = baseline.iter().map(|run| of(run.report)).collect();
                found.sort_by(f64::total_cmp);
                found.dedup_by(|a, b| same(*a, *b));
                found.len()
            };
            let sizes = distinct(&|run| run.training.active_parameters.unwrap_or(0) as f64);
            let tokens = distinct(&|run| run.training.tokens.unwrap_or(0.0));
            (baseline.len() < LEAST_RUNS_OF_FRONTIER || sizes < 3 || tokens < 3).then(|| {
                format!(
                    "a frontier needs {LEAST_RUNS_OF_FRONTIER} runs with three sizes and three counts of tokens, but \
                     '{named}' has {} with {sizes} and {tokens}",
                    baseline.len()
                )
            })
        }
        _ => (clusters.len() < least).then(|| {
            format!(
                "the curve of '{named}' needs {least} budgets, but {} can be used; train it at more",
                clusters.len()
            )
        }),
    };
    if let Some(why) = too_few {
        said.cannot(format!("no multiplier on {role}: {why}"));
        return (
            None,
            Some(report).filter(|report| !report.budgets.is_empty()),
        );
    }
    let range = || {
        let ln = |at: usize| libm::log(report.budgets[at].budget);
        (ln(0), ln(report.budgets.len() - 1))
    };
    let curve = match asked.curve {
        CurveKind::Interpolated => {
            let points: Vec<(f64, f64)> = report
                .budgets
                .iter()
                .map(|budget| (budget.budget, budget.bits_per_byte))
                .collect();
            match Curve::through(&points) {
                Ok(curve) => curve,
                Err(at) => {
                    said.cannot(format!(
                        "no multiplier on {role}: the loss of '{named}' does not fall from {:.4e} to {:.4e} {} ({:.4} and \
                         {:.4} bits per byte); train more seeds there, or take 'curve: power_law'",
                        points[at].0,
                        points[at + 1].0,
                        unit(asked),
                        points[at].1,
                        points[at + 1].1
                    ));
                    None
                }
            }
        }
        kind => {
            let inputs = |run: &Run| match kind {
                CurveKind::Frontier => vec![
                    run.report.training.active_parameters.unwrap_or(0) as f64,
                    run.report.training.tokens.unwrap_or(0.0),
                ],
                _ => vec![run.budget],
            };
            let points: Vec<Point> = baseline
                .iter()
                .map(|run| Point {
                    inputs: inputs(run),
                    loss: run.loss,
                })
                .collect();
            let law = fit(&points);
            let one: Option<PowerLaw> = match kind {
                CurveKind::Frontier => law.as_ref().and_then(PowerLaw::frontier),
                _ => law.clone(),
            };
            if one.is_none() {
                said.cannot(format!(
                    "no multiplier on {role}: no law that falls with {} fits the runs of '{named}'; train it at budgets \
                     farther apart, or with more seeds",
                    unit(asked)
                ));
            }
            if let (CurveKind::Frontier, Some(law)) = (kind, &law) {
                let of = ["parameters", "tokens"];
                report.terms = of
                    .into_iter()
                    .zip(&law.terms)
                    .map(|(of, term)| TermReport {
                        of,
                        coefficient: term.coefficient,
                        exponent: term.exponent,
                    })
                    .collect();
            }
            let ln_range = range();
            one.map(|law| {
                report.floor = Some(law.floor);
                report.coefficient = Some(law.terms[0].coefficient);
                report.exponent = Some(law.terms[0].exponent);
                report.largest_residual = Some(law.largest_residual);
                Curve::Law { law, ln_range }
            })
        }
    };
    (curve, Some(report))
}

fn unit(asked: &ProgressRequest) -> &'static str {
    match asked.budget {
        Budget::Flop => "FLOP",
        Budget::Tokens => "tokens",
    }
}

fn point(asked: &ProgressRequest, run: &Run, curve: Option<&Curve>) -> PointReport {
    let place = curve.and_then(|curve| curve.place(run.loss).ok());
    let progress = place.map(|place| libm::exp(place.ln_compute));
    let cost = run.report.cost.as_ref().map(|cost| cost.total);
    PointReport {
        run: run.report.name.clone(),
        group: run.report.group.clone(),
        seed: run.report.seed,
        budget: run.budget,
        bits_per_byte: run.loss,
        progress,
        is_extrapolated: place.is_some_and(|place| place.is_extrapolated),
        cost_per_exaflop_of_progress: cost
            .zip(progress)
            .filter(|_| asked.budget == Budget::Flop)
            .map(|(cost, progress)| cost / (progress / 1e18)),
    }
}

/// A group at one budget beside the baseline.
fn compare(
    role: &str,
    curve: &Curve,
    members: &[&Run],
    clusters: &[Vec<&Run>],
    said: &mut Said,
) -> Option<ComparisonReport> {
    let group = &members[0].report.group;
    let budget = mean(members.iter().map(|run| run.budget));
    let at = format!("'{group}' at {budget:.4e} on {role}");
    let mut placed: Vec<(&Run, f64)> = Vec::new();
    let mut is_extrapolated = false;
    for run in members {
        match curve.place(run.loss) {
            Ok(place) => {
                is_extrapolated |= place.is_extrapolated;
                placed.push((run, place.ln_compute - libm::log(run.budget)));
            }
            Err(outside) => said.cannot(format!("no multiplier of {at}: {}", far(outside, run))),
        }
    }
    if placed.len() < members.len() {
        // Leaving out what lies too far would flatter the rest.
        return None;
    }
    let beside = clusters.iter().find(|runs| same(runs[0].budget, budget));
    let (mut pairs, mut bases, mut differ) = (Vec::new(), Vec::new(), Vec::new());
    let mut twice = false;
    for (run, ln_ratio) in &placed {
        let seed = run.report.seed;
        let partners: Vec<&&Run> = beside
            .into_iter()
            .flatten()
            .filter(|base| base.report.seed == seed)
            .collect();
        let again = placed
            .iter()
            .filter(|(other, _)| other.report.seed == seed)
            .count()
            > 1;
        twice |= partners.len() > 1 || (again && !partners.is_empty());
        let [base] = partners[..] else { continue };
        if again {
            continue;
        }
        if let Some(how) = other_schedule(run.report, base.report) {
            differ.push(how);
            continue;
        }
        let Ok(place) = curve.place(base.loss) else {
            continue;
        };
        bases.push(*base);
        pairs.push(PairReport {
            seed,
            candidate: run.report.name.clone(),
            baseline: base.report.name.clone(),
            ln_multiplier: ln_ratio - (place.ln_compute - libm::log(base.budget)),
        });
    }
    let differences: Vec<f64> = pairs.iter().map(|pair| pair.ln_multiplier).collect();
    let found = paired(&differences);
    let no_interval_because = found.is_none().then(|| {
        let there = match pairs.len() {
            0 => "no run has a partner".to_string(),
            1 => "one pair says nothing of the spread".to_string(),
            many => format!("{many} pairs say little of the spread"),
        };
        let why = match (twice, differ.first(), beside) {
            (true, ..) => {
                "several runs of one seed and budget; give each run its own 'seed'".to_string()
            }
            (_, Some(how), _) => format!("{how}; compare runs of one schedule"),
            (_, _, None) => {
                "the baseline has no run at this budget; train it there with the same seeds"
                    .to_string()
            }
            _ => format!("train {LEAST_SEEDS} or more seeds of both and name them with 'seed'"),
        };
        format!("{there}: {why}")
    });
    let ln_multiplier = match differences.is_empty() {
        true => mean(placed.iter().map(|(_, ln_ratio)| *ln_ratio)),
        false => mean(differences.iter().copied()),
    };
    let multiplier = libm::exp(ln_multiplier);
    let interval = found.map(|found| (libm::exp(found.lower), libm::exp(found.upper)));
    let reports = || members.iter().map(|run| run.report);
    let training_flop = mean_if_all(reports().map(|run| run.training.flop));
    let selection_flop = mean_if_all(reports().map(|run| run.selection.map(|cost| cost.flop)));
    let net = |m: f64| Some(net_multiplier(m, training_flop?, selection_flop?));
    let delivered_mfu = mean_if_all(reports().map(|run| run.rate.as_ref()?.delivered_mfu));
    let local = (!bases.is_empty()).then(|| {
        let (base, own): (Vec<f64>, Vec<f64>) = bases
            .iter()
            .zip(&pairs)
            .filter_map(|(base, pair)| {
                let run = members
                    .iter()
                    .find(|run| run.report.name == pair.candidate)?;
                Some((base.loss, run.loss))
            })
            .unzip();
        curve.local_multiplier(mean(base.into_iter()), mean(own.into_iter()))
    });
    Some(ComparisonReport {
        group: group.clone(),
        budget,
        bits_per_byte: mean(members.iter().map(|run| run.loss)),
        multiplier: Some(multiplier),
        local_multiplier: local.flatten(),
        interval,
        no_interval_because,
        p_value: found.map(|found| found.p_value),
        holm_p_value: None,
        minimum_detectable_multiplier: found
            .map(|found| libm::exp(minimum_detectable(found.deviation, found.pairs))),
        is_extrapolated,
        training_flop,
        selection_flop,
        net_multiplier: net(multiplier),
        net_interval: interval.and_then(|(lower, upper)| Some((net(lower)?, net(upper)?))),
        delivered_mfu,
        overall_goodput: delivered_mfu
            .zip(net(multiplier))
            .map(|(delivered, net)| delivered * net),
        verdict: "no_interval",
        pairs,
    })
}

/// Why a loss has no place, and what to do.
fn far(outside: Outside, run: &Run) -> String {
    let loss = format!("{:.4} bits per byte of run '{}'", run.loss, run.report.name);
    match outside {
        Outside::Above(largest) => format!(
            "{loss} would take the baseline more than {FARTHEST} times its largest budget, {largest:.4e}; train the \
             baseline further"
        ),
        Outside::Below(smallest) => format!(
            "{loss} would take the baseline less than 1/{FARTHEST} of its smallest budget, {smallest:.4e}; train the \
             baseline at smaller budgets"
        ),
        Outside::Floor(floor) => format!(
            "{loss} lies below {floor:.4}, which the baseline's law never reaches; train the baseline further"
        ),
    }
}

/// How the schedules of two runs differ, where both are known.
fn other_schedule(one: &RunReport, two: &RunReport) -> Option<String> {
    let (a, b) = (&one.training, &two.training);
    let names = format!(
        "runs '{}' and '{}' have different schedules",
        one.name, two.name
    );
    if let (Some(x), Some(y)) = (a.total_steps, b.total_steps)
        && x != y
    {
        return Some(format!("{names} ({x} and {y} steps)"));
    }
    let rates = [
        ("peak", a.peak_learning_rate, b.peak_learning_rate),
        ("last", a.last_learning_rate, b.last_learning_rate),
    ];
    rates.into_iter().find_map(|(which, x, y)| {
        let (x, y) = (x?, y?);
        ((x - y).abs() > SAME_RATE * x.abs().max(y.abs()))
            .then(|| format!("{names} ({which} learning rate {x:.4e} and {y:.4e})"))
    })
}

/// Corrects the p-values of a family and says what each comparison shows.
fn judge(comparisons: &mut [ComparisonReport]) {
    let p_values: Vec<f64> = comparisons.iter().filter_map(|of| of.p_value).collect();
    let mut corrected = holm(&p_values).into_iter();
    for comparison in comparisons {
        if comparison.p_value.is_none() {
            continue;
        }
        comparison.holm_p_value = corrected.next();
        let seen = comparison.holm_p_value.is_some_and(|p| p < SIGNIFICANT);
        comparison.verdict = match (seen, comparison.multiplier.is_some_and(|m| m > 1.0)) {
            (false, _) => "cannot_tell",
            (true, true) => "more",
            (true, false) => "less",
        };
    }
}

fn conclude(of: &str, asked: &ProgressRequest, it: &ComparisonReport, said: &mut Said) {
    let Some(multiplier) = it.multiplier else {
        return;
    };
    let unit = unit(asked);
    let at = format!("'{}' at {:.4e} {unit} on {of}", it.group, it.budget);
    let beyond = match it.is_extrapolated {
        true => "; the curve goes beyond the baseline's budgets there",
        false => "",
    };
    match (it.verdict, it.interval) {
        ("no_interval", _) | (_, None) => {
            let because = it
                .no_interval_because
                .as_deref()
                .unwrap_or("it has no pairs");
            said.cannot(format!(
                "{at}: m is {multiplier:.4} without an interval, which shows nothing: {because}{beyond}"
            ));
        }
        ("cannot_tell", Some((lower, upper))) => {
            let detectable = it.minimum_detectable_multiplier.unwrap_or(f64::NAN);
            said.cannot(format!(
                "{at}: no difference from '{}' is shown: m is {multiplier:.4} ({lower:.4} to {upper:.4}, p {:.3} by \
                 Holm); {} pairs like these find an m of {detectable:.4} or more in four of five experiments{beyond}",
                asked.baseline,
                it.holm_p_value.unwrap_or(1.0),
                it.pairs.len()
            ));
        }
        (_, Some((lower, upper))) => {
            let net = it.net_multiplier.map_or(String::new(), |net| {
                format!("; with the cost of selection {net:.4}")
            });
            said.concluded.push(format!(
                "{at} came as far as '{}' does with {multiplier:.4} times the {unit} ({lower:.4} to {upper:.4}, {} \
                 pairs){net}{beyond}",
                asked.baseline,
                it.pairs.len()
            ));
        }
    }
}
