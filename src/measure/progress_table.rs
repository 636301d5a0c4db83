//! Progress for people.

use super::table::line;
use super::{ComparisonReport, CurveReport, ProgressReport, SetReport};
use std::fmt::Write;

/// The part of the report on progress, as text.
pub(super) fn progress_table(
    out: &mut String,
    report: &ProgressReport,
    shown: &dyn Fn(&str) -> String,
) {
    let _ = writeln!(
        out,
        "progress beside '{}', by {}; curve: {}",
        shown(&report.baseline),
        report.budget_unit,
        report.curve
    );
    for set in &report.sets {
        set_table(out, set, shown);
    }
    for arm in &report.forecasts {
        let g = |g: Option<f64>| g.map_or("unknown".to_string(), |g| format!("{g:.4}"));
        let of = match (&arm.is_of_source, arm.is_of_usefulness_decile) {
            (Some(source), _) => format!(", all of source {}", shown(source)),
            (None, Some(decile)) => format!(", all of usefulness decile {decile} of 10"),
            _ => String::new(),
        };
        line(
            out,
            &format!("forecast of {}{of}", shown(&arm.group)),
            &format!(
                "g {}, of the baseline {}: m {}",
                g(arm.data_goodput),
                g(arm.baseline_data_goodput),
                g(arm.forecast_multiplier)
            ),
        );
        let by_source = arm
            .by_source
            .iter()
            .flat_map(|of| of.measured.iter().map(move |it| (Some(&of.source), it)));
        for (source, it) in arm.measured.iter().map(|it| (None, it)).chain(by_source) {
            let on = source.map_or(String::new(), |source| {
                format!(", source {}", shown(source))
            });
            let per = it.measured_per_forecast.map_or(String::new(), |ratio| {
                format!(", {ratio:.4} of the forecast")
            });
            let _ = writeln!(
                out,
                "    measured on {}{on} at {:.4e}: m {:.4}{per}",
                it.role, it.budget, it.multiplier
            );
        }
    }
    for (label, sentences) in [
        ("concluded", &report.concluded),
        ("not concluded", &report.not_concluded),
    ] {
        for sentence in sentences {
            let _ = writeln!(out, "  {label}: {}", shown(sentence));
        }
    }
    if report.concluded.is_empty() && report.not_concluded.is_empty() {
        let _ = writeln!(
            out,
            "  not concluded: there is no group beside the baseline"
        );
    }
}

fn set_table(out: &mut String, set: &SetReport, shown: &dyn Fn(&str) -> String) {
    let part = set.source.as_ref().map_or(String::new(), |source| {
        format!(", source {}", shown(source))
    });
    let bytes = set.bytes.map_or(String::new(), |bytes| {
        format!(", {} bytes", crate::audit::grouped(bytes))
    });
    let _ = writeln!(out, "  {} ('{}'{part}{bytes})", set.role, shown(&set.split));
    if let Some(curve) = &set.curve {
        curve_table(out, curve);
    }
    for comparison in &set.comparisons {
        comparison_table(out, comparison, shown);
    }
}

fn curve_table(out: &mut String, curve: &CurveReport) {
    for budget in &curve.budgets {
        let runs = if budget.runs == 1 { "run" } else { "runs" };
        let _ = writeln!(
            out,
            "    baseline at {:.4e}: {:.6} bits per byte ({} {runs})",
            budget.budget, budget.bits_per_byte, budget.runs
        );
    }
    if let (Some(floor), Some(coefficient), Some(exponent), Some(residual)) = (
        curve.floor,
        curve.coefficient,
        curve.exponent,
        curve.largest_residual,
    ) {
        let _ = writeln!(
            out,
            "    its law: {floor:.6} + {coefficient:.6e} x^-{exponent:.6}, at most {:.3} % off",
            100.0 * residual
        );
    }
    for term in &curve.terms {
        let _ = writeln!(
            out,
            "    of {}: {:.6e} x^-{:.6}",
            term.of, term.coefficient, term.exponent
        );
    }
}

fn comparison_table(out: &mut String, it: &ComparisonReport, shown: &dyn Fn(&str) -> String) {
    let multiplier = it
        .multiplier
        .map_or("unknown".to_string(), |m| format!("{m:.4}"));
    let interval = match it.interval {
        Some((lower, upper)) => format!(
            " ({lower:.4} to {upper:.4}, {} pairs, p {:.4} by Holm)",
            it.pairs.len(),
            it.holm_p_value.unwrap_or(1.0)
        ),
        None => " (no interval)".to_string(),
    };
    line(
        out,
        &format!("  {} at {:.4e}", shown(&it.group), it.budget),
        &format!(
            "{:.6} bits per byte, m {multiplier}{interval}",
            it.bits_per_byte
        ),
    );
    let mut parts = Vec::new();
    if let Some(local) = it.local_multiplier {
        parts.push(format!("by the local form {local:.4}"));
    }
    if let Some(least) = it.minimum_detectable_multiplier {
        parts.push(format!("least m that would be found {least:.4}"));
    }
    if it.is_extrapolated {
        parts.push("beyond the baseline's budgets".to_string());
    }
    if let (Some(net), Some(cost)) = (it.net_multiplier, it.selection_flop) {
        let interval = it.net_interval.map_or(String::new(), |(lower, upper)| {
            format!(" ({lower:.4} to {upper:.4})")
        });
        parts.push(format!(
            "net m {net:.4}{interval} with {cost:.4e} FLOP of selection"
        ));
    }
    if let (Some(goodput), Some(delivered)) = (it.overall_goodput, it.delivered_mfu) {
        parts.push(format!(
            "overall goodput G {goodput:.4} = delivered MFU {delivered:.4} x net m"
        ));
    }
    for part in parts {
        let _ = writeln!(out, "      {part}");
    }
}
