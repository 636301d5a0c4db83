//! Progress on the page: loss against compute, multipliers, what was concluded and what could not be.

use super::curve::{Curve, FARTHEST};
use super::{BudgetReport, ComparisonReport, CurveReport, ProgressReport, SetReport};
use crate::audit::grouped;
use crate::page::{Arrow, Plot, Series, details, escape, number, sentences, table, words};
use std::fmt::Write;

/// Points of the line through the budgets.
const LINE_POINTS: usize = 60;
/// Colours of the groups; the baseline has the first.
const COLOURS: [usize; 9] = [1, 0, 5, 3, 2, 9, 6, 8, 7];

/// The part of the page on progress.
pub(super) fn progress_html(out: &mut String, report: &ProgressReport) {
    let unit = match report.budget_unit {
        "flop" => "FLOP",
        other => other,
    };
    let _ = writeln!(
        out,
        "<section id=\"progress\">\n<h2>Progress beside {}</h2>\n<p>A multiplier m says how many times a run's {unit} the \
         baseline needs for the same loss. Bits per byte on held-out text, of finished runs; less is better.</p>",
        escape(&report.baseline)
    );
    sentences(out, "Concluded", &report.concluded);
    sentences(out, "Not concluded", &report.not_concluded);
    for set in report.sets.iter().filter(|set| set.source.is_none()) {
        set_html(out, report, set, unit);
    }
    let parts: Vec<&SetReport> = report
        .sets
        .iter()
        .filter(|set| set.source.is_some())
        .collect();
    if parts.iter().any(|set| !set.comparisons.is_empty()) {
        out.push_str("<h3>By source of the held-out text</h3>\n");
        let rows = parts.iter().flat_map(|set| {
            set.comparisons.iter().map(move |it| {
                let mut row = vec![
                    words(set.source.as_deref().unwrap_or("")),
                    words(set.role),
                    words(&it.group),
                ];
                row.extend(comparison(it));
                row
            })
        });
        let heads = [&["source", "set", "group"][..], &COMPARISON_HEADS].concat();
        table(out, &heads, rows);
    }
    forecasts(out, report);
    out.push_str("</section>\n");
}

fn colour(report: &ProgressReport, groups: &[&str], group: &str) -> usize {
    let at = match group == report.baseline {
        true => 0,
        false => 1 + groups.iter().position(|other| *other == group).unwrap_or(0),
    };
    COLOURS[at % COLOURS.len()]
}

fn set_html(out: &mut String, report: &ProgressReport, set: &SetReport, unit: &str) {
    let role = match set.role {
        "target" => "Target",
        _ => "General",
    };
    let bytes = set
        .bytes
        .map_or(String::new(), |bytes| format!(", {} bytes", grouped(bytes)));
    let _ = writeln!(
        out,
        "<h3>{role} text <span class=\"soft\">({}{bytes})</span></h3>",
        escape(&set.split)
    );
    if set.runs.is_empty() {
        out.push_str("<p>No run can be compared.</p>\n");
        return;
    }
    let mut groups: Vec<&str> = Vec::new();
    for point in &set.runs {
        if point.group != report.baseline && !groups.contains(&point.group.as_str()) {
            groups.push(&point.group);
        }
    }
    let baseline = report.baseline.as_str();
    let curve = set.curve.as_ref();
    // From the first budget to the last, and on to where other groups lie.
    let budgets = curve.map_or(&[][..], |curve| &curve.budgets);
    let loss = |of: Option<&BudgetReport>| of.map_or(f64::NAN, |budget| budget.bits_per_byte);
    let (first, last) = (loss(budgets.first()), loss(budgets.last()));
    let others = set.comparisons.iter().map(|it| it.bits_per_byte);
    let (lowest, highest) = others.fold((last, first), |(low, high), loss| {
        (low.min(loss), high.max(loss))
    });
    let series = std::iter::once(baseline)
        .chain(groups.iter().copied())
        .map(|group| {
            let own = set.runs.iter().filter(|point| point.group == group);
            let is_baseline = group == baseline;
            Series {
                name: match is_baseline {
                    true => format!("{group} (baseline)"),
                    false => group.to_string(),
                },
                colour: colour(report, &groups, group),
                points: own
                    .map(|point| {
                        let title = format!(
                            "{}: {:.4} bits per byte at {:.3e} {unit}",
                            point.run, point.bits_per_byte, point.budget
                        );
                        (point.budget, point.bits_per_byte, title)
                    })
                    .collect(),
                line: curve
                    .filter(|_| is_baseline)
                    .map_or(Vec::new(), |curve| line(curve, first, last)),
                beyond: curve.filter(|_| is_baseline).map_or(Vec::new(), |curve| {
                    vec![line(curve, highest, first), line(curve, last, lowest)]
                }),
            }
        });
    let arrows = set.comparisons.iter().filter_map(|it| {
        let multiplier = it.multiplier?;
        let times = |(lower, upper): (f64, f64)| (it.budget * lower, it.budget * upper);
        Some(Arrow {
            from: it.budget,
            to: it.budget * multiplier,
            y: it.bits_per_byte,
            interval: it.interval.map(times),
            label: format!("{}: m {multiplier:.2}", it.group),
            colour: colour(report, &groups, &it.group),
        })
    });
    let plot = Plot {
        description: format!(
            "loss on {} text against {unit}, with the curve of {baseline} and, for each other group, the distance to it; \
             its figures stand in the tables below",
            set.role
        ),
        x: unit,
        y: "bits per byte",
        series: series.collect(),
        arrows: arrows.collect(),
    };
    plot.write(out);
    if !set.comparisons.is_empty() {
        out.push_str(
            "<p class=\"soft\">An arrow goes from the mean of a group to where the baseline has the same loss: to the \
             right it needs more, m above 1. The broad line at its end is the 95 % interval. Beyond the budgets the curve is dotted.</p>\n",
        );
        let rows = set.comparisons.iter().map(|it| {
            let mut row = vec![words(&it.group)];
            row.extend(comparison(it));
            row
        });
        let heads = [&["group"][..], &COMPARISON_HEADS].concat();
        table(out, &heads, rows);
    }
    let mut body = String::new();
    let rows = set.runs.iter().map(|point| {
        let progress = match point.progress {
            Some(progress) if point.is_extrapolated => {
                format!("{progress:.4e}, beyond the budgets")
            }
            Some(progress) => format!("{progress:.4e}"),
            None => "unknown".to_string(),
        };
        vec![
            words(&point.run),
            words(&point.group),
            number(point.seed.map_or(String::new(), |seed| seed.to_string())),
            number(format!("{:.4e}", point.budget)),
            number(format!("{:.6}", point.bits_per_byte)),
            number(progress),
            number(
                point
                    .cost_per_exaflop_of_progress
                    .map_or(String::new(), |cost| format!("{cost:.4}")),
            ),
        ]
    });
    let spent = format!("#{unit}");
    let heads = [
        "run",
        "group",
        "#seed",
        &spent,
        "#bits per byte",
        "#progress P",
        "#cost of 1e18 FLOP of progress",
    ];
    table(&mut body, &heads, rows);
    if let Some(curve) = &set.curve {
        let rows = curve.budgets.iter().map(|budget| {
            vec![
                words(&format!("{:.4e}", budget.budget)),
                number(budget.runs),
                number(format!("{:.6}", budget.bits_per_byte)),
            ]
        });
        body.push_str("<p>The baseline's curve goes through</p>\n");
        table(&mut body, &[unit, "#runs", "#mean bits per byte"], rows);
    }
    details(out, "The points of this chart as a table", &body);
}

/// What [`comparison`] gives.
const COMPARISON_HEADS: [&str; 8] = [
    "#budget",
    "#bits per byte",
    "#multiplier m",
    "#95 % interval",
    "#p by Holm",
    "#least m that would be found",
    "#net m",
    "verdict",
];

fn comparison(it: &ComparisonReport) -> Vec<crate::page::Cell> {
    let shown = |value: Option<f64>, digits: usize| {
        value.map_or(String::new(), |value| format!("{value:.digits$}"))
    };
    let verdict = match it.verdict {
        "more" => "more than the baseline".to_string(),
        "less" => "less than the baseline".to_string(),
        "cannot_tell" => "cannot tell: no difference is possible".to_string(),
        _ => match &it.no_interval_because {
            Some(because) => format!("no interval: {because}"),
            None => "no interval".to_string(),
        },
    };
    let interval = it.interval.map_or("none".to_string(), |(lower, upper)| {
        format!("{lower:.3} to {upper:.3}")
    });
    vec![
        number(format!("{:.3e}", it.budget)),
        number(format!("{:.4}", it.bits_per_byte)),
        number(match it.multiplier {
            Some(m) => format!("{m:.3}"),
            None => "unknown".to_string(),
        }),
        number(interval),
        number(match it.holm_p_value {
            Some(p) if p < 1e-4 => "< 0.0001".to_string(),
            p => shown(p, 4),
        }),
        number(shown(it.minimum_detectable_multiplier, 3)),
        number(shown(it.net_multiplier, 3)),
        words(&verdict),
    ]
}

/// Compute and loss along the curve from one loss to another, where the baseline reaches it.
fn line(report: &CurveReport, from: f64, to: f64) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = report
        .budgets
        .iter()
        .map(|budget| (budget.budget, budget.bits_per_byte))
        .collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let law = report.floor.zip(report.coefficient).zip(report.exponent);
    // Of a frontier no line is known but that its budgets lie near it.
    let through = match law.is_none() && report.terms.is_empty() {
        true => Curve::through(&points).ok().flatten(),
        false => None,
    };
    let compute = |loss: f64| match law {
        Some(((floor, coefficient), exponent)) => {
            let compute = libm::pow(coefficient / (loss - floor), 1.0 / exponent);
            let near = first.0 / FARTHEST..=last.0 * FARTHEST;
            (loss > floor && near.contains(&compute)).then_some(compute)
        }
        None => Some(libm::exp(through.as_ref()?.place(loss).ok()?.ln_compute)),
    };
    if from <= to {
        return Vec::new();
    }
    (0..=LINE_POINTS)
        .filter_map(|at| {
            let loss = from + (to - from) * at as f64 / LINE_POINTS as f64;
            Some((compute(loss)?, loss))
        })
        .collect()
}

fn forecasts(out: &mut String, report: &ProgressReport) {
    let known: Vec<_> = report.forecasts.iter().collect();
    if known.is_empty() {
        return;
    }
    out.push_str(
        "<h3>The forecast beside what was measured</h3>\n<p class=\"soft\">Data goodput g is estimated before training; \
         g over that of the baseline forecasts m.</p>\n",
    );
    let g = |g: Option<f64>| g.map_or("unknown".to_string(), |g| format!("{g:.4}"));
    let rows = known.iter().flat_map(|arm| {
        let own = arm
            .measured
            .iter()
            .map(move |it| ("all text", arm.forecast_multiplier, it));
        let by_source = arm.by_source.iter().flat_map(|of| {
            let name = of.source.as_str();
            of.measured
                .iter()
                .map(move |it| (name, of.forecast_multiplier, it))
        });
        own.chain(by_source).map(move |(of, forecast, it)| {
            vec![
                words(&arm.group),
                words(of),
                words(it.role),
                number(format!("{:.3e}", it.budget)),
                number(g(arm.data_goodput)),
                number(g(forecast)),
                number(format!("{:.4}", it.multiplier)),
                number(g(it.measured_per_forecast)),
            ]
        })
    });
    let heads = [
        "group",
        "source",
        "set",
        "#budget",
        "#g",
        "#forecast of m",
        "#measured m",
        "#measured / forecast",
    ];
    table(out, &heads, rows);
}
