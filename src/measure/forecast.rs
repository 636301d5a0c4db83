//! What was forecast of the data, beside what was measured of the models.
//!
//! Data goodput g forecasts how much of the positions that are paid for is worth as much as reference text. Beside
//! the baseline's g it forecasts a multiplier, g / g_base; the ratio of the measured m to it is what the forecast is
//! worth. What a source or a tenth of usefulness is worth *alone* cannot be read off a training on a mixture: all
//! tokens act together on all losses. So two things are given that the data do carry:
//!
//! - by group: a group that was trained on one source, or on one tenth of usefulness, is such a measurement, and is
//!   named as one. The tenths are those of the baseline's tokens, which stand for the pool.
//! - by source: where the held-out text is evaluated by source, the multiplier on that source's part beside the
//!   forecast g_s / g_s,base of the tokens of that source, both by all positions. Tokens of other sources help too, so
//!   this ratio says how much more, or less, came of it than its own tokens promised.

use super::Forecast;
use super::progress::SetReport;
use super::report::RunReport;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A group of which this share of the tokens is of one source, or one tenth, measures that source or tenth.
const OF_ONE_KIND: f64 = 0.9;

/// The forecast of a group's data beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmReport {
    /// The group.
    pub group: String,
    /// g of its dataset.
    pub data_goodput: Option<f64>,
    /// g of the baseline's dataset.
    pub baseline_data_goodput: Option<f64>,
    /// g / g_base.
    pub forecast_multiplier: Option<f64>,
    /// Tokens of its dataset by source.
    pub tokens_by_source: BTreeMap<String, u64>,
    /// Tokens of its dataset by tenths of the baseline's usefulness, the least useful first; none where one of them
    /// has no scores.
    pub tokens_by_usefulness_decile: Vec<u64>,
    /// The source that nine tenths of its tokens are of.
    pub is_of_source: Option<String>,
    /// The tenth, from 1, that nine tenths of its tokens are of.
    pub is_of_usefulness_decile: Option<u64>,
    /// What was measured of it, on each set and at each budget.
    pub measured: Vec<MeasuredReport>,
    /// The same on the parts of the held-out sets by source.
    pub by_source: Vec<SourceReport>,
}

/// A measured multiplier beside the forecast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredReport {
    /// `target` or `general`.
    pub role: &'static str,
    /// The budget.
    pub budget: f64,
    /// m.
    pub multiplier: f64,
    /// m / (g / g_base); `null` without a forecast.
    pub measured_per_forecast: Option<f64>,
}

/// The same of one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceReport {
    /// The source.
    pub source: String,
    /// g_s / g_s,base: worth of its tokens by all positions.
    pub forecast_multiplier: Option<f64>,
    /// What was measured on its part of the held-out text.
    pub measured: Vec<MeasuredReport>,
}

/// Every group beside the baseline of which a dataset is known.
pub(super) fn arms(
    baseline: &str,
    runs: &[RunReport],
    sets: &[SetReport],
    concluded: &mut Vec<String>,
    not_concluded: &mut Vec<String>,
) -> Vec<ArmReport> {
    let base = dataset(baseline, runs, not_concluded);
    let groups: BTreeSet<&str> = runs.iter().map(|run| run.group.as_str()).collect();
    let mut found = Vec::new();
    for group in groups.into_iter().filter(|group| *group != baseline) {
        let Some((own, positions)) = dataset(group, runs, not_concluded) else {
            continue;
        };
        found.push(arm(group, own, positions, base, sets));
    }
    let known: Vec<(f64, f64)> = found
        .iter()
        .filter_map(|arm| {
            let on_target = arm.measured.iter().filter(|of| of.role == "target");
            let largest = on_target.max_by(|a, b| a.budget.total_cmp(&b.budget))?;
            Some((arm.forecast_multiplier?, largest.multiplier))
        })
        .collect();
    match known.len() {
        0 => {}
        few @ 1..3 => not_concluded.push(format!(
            "whether the forecast g orders data as training does: {few} of the groups have both, and an order needs three"
        )),
        many => {
            let known = &known;
            let pairs = (0..many).flat_map(|one| (0..one).map(move |two| (known[one], known[two])));
            let alike = pairs.filter(|((g, m), (other_g, other_m))| {
                (g > other_g && m > other_m) || (g < other_g && m < other_m)
            });
            concluded.push(format!(
                "the forecast g orders {} of {} pairs of groups as training did on target text, each at its largest budget",
                alike.count(),
                many * (many - 1) / 2
            ));
        }
    }
    found
}

/// The forecast of a group's dataset, where all its runs read the same, with its positions.
fn dataset<'a>(
    group: &str,
    runs: &'a [RunReport],
    not_concluded: &mut Vec<String>,
) -> Option<(&'a Forecast, u64)> {
    let datasets: Vec<_> = runs
        .iter()
        .filter(|run| run.group == group)
        .filter_map(|run| run.dataset.as_ref())
        .collect();
    let first = datasets.first()?;
    if datasets
        .iter()
        .any(|other| other.checksum != first.checksum)
    {
        not_concluded.push(format!(
            "no forecast of '{group}': its runs read several datasets; name a group for each"
        ));
        return None;
    }
    Some((first.forecast.as_ref()?, first.positions))
}

fn arm(
    group: &str,
    own: &Forecast,
    positions: u64,
    base: Option<(&Forecast, u64)>,
    sets: &[SetReport],
) -> ArmReport {
    let ratio = |own: Option<f64>, base: Option<f64>| {
        own.zip(base.filter(|base| *base > 0.0))
            .map(|(own, base)| own / base)
    };
    let baseline_data_goodput = base.and_then(|(base, _)| base.data_goodput);
    let forecast_multiplier = ratio(own.data_goodput, baseline_data_goodput);
    let measured = |source: Option<&str>, forecast: Option<f64>| -> Vec<MeasuredReport> {
        let of = sets.iter().filter(|set| set.source.as_deref() == source);
        of.flat_map(|set| {
            let own = set.comparisons.iter().filter(|of| of.group == group);
            own.filter_map(|comparison| {
                let multiplier = comparison.multiplier?;
                Some(MeasuredReport {
                    role: set.role,
                    budget: comparison.budget,
                    multiplier,
                    measured_per_forecast: ratio(Some(multiplier), forecast),
                })
            })
        })
        .collect()
    };
    let worth = |of: &Forecast, positions: u64, source: &str| {
        let found = of.by_source.iter().find(|(name, ..)| name == source);
        let worth = found.and_then(|(_, _, worth)| *worth)?;
        (positions > 0).then(|| worth / positions as f64)
    };
    let sources: BTreeSet<&str> = sets
        .iter()
        .filter_map(|set| set.source.as_deref())
        .collect();
    let by_source = sources
        .into_iter()
        .map(|source| {
            let forecast = ratio(
                worth(own, positions, source),
                base.and_then(|(base, positions)| worth(base, positions, source)),
            );
            SourceReport {
                source: source.to_string(),
                forecast_multiplier: forecast,
                measured: measured(Some(source), forecast),
            }
        })
        .collect();
    let tokens_by_source: BTreeMap<String, u64> = own
        .by_source
        .iter()
        .filter(|(_, tokens, _)| *tokens > 0)
        .map(|(source, tokens, _)| (source.clone(), *tokens))
        .collect();
    let total: u64 = tokens_by_source.values().sum();
    let most = |tokens: u64, total: u64| total > 0 && tokens as f64 >= OF_ONE_KIND * total as f64;
    let is_of_source = tokens_by_source
        .iter()
        .find(|(_, tokens)| most(**tokens, total))
        .map(|(source, _)| source.clone());
    let deciles = base.map_or(Vec::new(), |(base, _)| {
        by_decile(&own.histogram, &base.histogram)
    });
    let all: u64 = deciles.iter().sum();
    ArmReport {
        group: group.to_string(),
        data_goodput: own.data_goodput,
        baseline_data_goodput,
        forecast_multiplier,
        is_of_source,
        is_of_usefulness_decile: deciles
            .iter()
            .position(|tokens| most(*tokens, all))
            .map(|at| at as u64 + 1),
        tokens_by_source,
        tokens_by_usefulness_decile: deciles,
        measured: measured(None, forecast_multiplier),
        by_source,
    }
}

/// Tokens by the tenths of another histogram: all tokens of a byte are in the tenth of its middle.
fn by_decile(own: &[u64], of: &[u64]) -> Vec<u64> {
    let total: u64 = of.iter().sum();
    if total == 0 || own.len() != of.len() {
        return Vec::new();
    }
    let mut deciles = vec![0; 10];
    let mut below: u128 = 0;
    for (own, of) in own.iter().zip(of) {
        let middle = (2 * below + u128::from(*of)) * 5 / u128::from(total);
        deciles[(middle as usize).min(9)] += own;
        below += u128::from(*of);
    }
    deciles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_are_those_of_the_other_tokens() {
        // Ten bytes with ten tokens each: a tenth each.
        let pool = [10; 10];
        let own = [0, 0, 0, 7, 0, 0, 0, 0, 0, 5];
        let mut expected = vec![0; 10];
        (expected[3], expected[9]) = (7, 5);
        assert_eq!(by_decile(&own, &pool), expected);
        // Half of the pool in one byte: its middle is in the third tenth.
        assert_eq!(by_decile(&[4, 0, 0], &[50, 25, 25])[2], 4);
        // Beyond all of the pool's tokens.
        assert_eq!(by_decile(&[0, 3], &[8, 0])[9], 3);
        assert!(by_decile(&[1], &[0]).is_empty() && by_decile(&[1], &[1, 2]).is_empty());
    }

    fn forecast(g: f64, by_source: &[(&str, u64, f64)], histogram: Vec<u64>) -> Forecast {
        let of = |(source, tokens, worth): &(&str, u64, f64)| {
            (source.to_string(), *tokens, Some(*worth))
        };
        Forecast {
            data_goodput: Some(g),
            by_source: by_source.iter().map(of).collect(),
            histogram,
        }
    }

    #[test]
    fn a_group_of_one_source_and_one_tenth_is_named_and_its_forecast_stands_beside_the_measurement()
    {
        let base = forecast(0.25, &[("web", 80, 20.0), ("code", 20, 5.0)], vec![10; 10]);
        let mut histogram = vec![0; 10];
        (histogram[9], histogram[2]) = (95, 5);
        let own = forecast(0.5, &[("web", 4, 1.0), ("code", 96, 49.0)], histogram);
        let arm = arm("best", &own, 100, Some((&base, 100)), &[]);
        assert_eq!(arm.forecast_multiplier, Some(2.0));
        assert_eq!(arm.is_of_source.as_deref(), Some("code"));
        assert_eq!(arm.is_of_usefulness_decile, Some(10));
        assert_eq!(arm.tokens_by_usefulness_decile[9], 95);
        // Nothing was measured, by source or as a whole.
        assert!(arm.measured.is_empty() && arm.by_source.is_empty());
        let alone = super::arm("best", &own, 100, None, &[]);
        assert_eq!(
            (alone.forecast_multiplier, alone.is_of_usefulness_decile),
            (None, None)
        );
    }
}
