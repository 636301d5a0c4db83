//! Rates: utilization of the hardware, and what failures are expected to cost.

use super::Model;

/// Share of the peak that is used: tokens a second x operations a token / (chips x peak FLOP/s). With the
/// model's own operations this is MFU, with those of the hardware HFU (PaLM, arXiv 2204.02311, appendix B).
pub fn utilization(
    tokens_per_second: f64,
    flops_per_token: f64,
    chips: u64,
    peak_flops: f64,
) -> f64 {
    tokens_per_second * flops_per_token / (chips as f64 * peak_flops)
}

/// What failures cost, in days (arXiv 2410.21680).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reliability {
    /// N: nodes.
    pub nodes: f64,
    /// r_f: failures of a node in a day.
    pub failures_per_node_day: f64,
    /// u0: from a failure to the first new step, in days.
    pub restart_days: f64,
    /// w: how long training waits for a checkpoint, in days.
    pub write_days: f64,
}

/// Mean time between failures of the whole, in days: 1 / (N r_f). Infinite where nothing fails.
pub fn mttf_days(it: &Reliability) -> f64 {
    1.0 / (it.nodes * it.failures_per_node_day)
}

/// Expected share of the time that trains, with a checkpoint every `interval_days`:
/// (1 - N r_f (u0 + dt/2)) / (1 + w/dt). Below 0 where it fails faster than it restarts.
pub fn expected_ettr(it: &Reliability, interval_days: f64) -> f64 {
    let failures = it.nodes * it.failures_per_node_day;
    (1.0 - failures * (it.restart_days + interval_days / 2.0))
        / (1.0 + it.write_days / interval_days)
}

/// The interval between checkpoints that loses least, in days: sqrt(2 w / (N r_f)).
pub fn best_interval_days(it: &Reliability) -> f64 {
    (2.0 * it.write_days / (it.nodes * it.failures_per_node_day)).sqrt()
}

/// A warning where a utilization cannot be.
pub(super) fn impossible(mfu: f64, model: &Model) -> Option<String> {
    (mfu > 1.0).then(|| {
        format!(
            "the implied MFU is {:.1} %, more than the hardware can do: check tokens per step, chips, peak, and \
             parameters ({} by '{}')",
            100.0 * mfu,
            crate::audit::grouped(model.active_parameters),
            model.convention.name()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::palm;
    use super::*;

    const PALM_TOKENS: f64 = 238_300.0;

    #[test]
    fn palm_has_the_mfu_that_it_published() {
        let mut model = palm(540.35e9, 118, 48, 256, 2048);
        let mfu = |flops| utilization(PALM_TOKENS, flops, 6144, 275e12);
        assert!((mfu(model.flops_per_token()) - 0.4623).abs() < 1e-4);
        let without_attention = 6.0 * 540.35e9;
        assert!((mfu(without_attention) - 0.4573).abs() < 1e-4);
        model.recomputed_mlp_share = 0.75;
        model.recomputed_attention_share = 1.0;
        let hardware = model.hardware_flops_per_token();
        assert!((hardware / 4.1001e12 - 1.0).abs() < 1e-3);
        assert!((mfu(hardware) - 0.5783).abs() < 1e-3);
        // The conventional name gives the same as leaving attention out.
        model.convention = super::super::Convention::SixN;
        assert_eq!(model.flops_per_token(), without_attention);
    }

    #[test]
    fn the_example_of_four_thousand_chips_is_warned_of() {
        // 4,000 H100, 1e12 tokens a day, 100 billion dense parameters.
        let mut model = palm(100e9, 1, 1, 1, 1);
        model.convention = super::super::Convention::SixN;
        let mfu = utilization(1e12 / 86_400.0, model.flops_per_token(), 4000, 989e12);
        assert!((mfu - 1.755).abs() < 1e-3, "{mfu}");
        assert!(impossible(mfu, &model).is_some_and(|text| text.contains("175.5 %")));
        assert!(
            impossible(1.0, &model).is_none(),
            "exactly the peak is no warning"
        );
    }

    #[test]
    fn failures_cost_what_the_formula_says() {
        // By hand: 1,000 nodes, 6.5e-3 failures a node and day: 6.5 a day.
        let it = Reliability {
            nodes: 1000.0,
            failures_per_node_day: 6.5e-3,
            restart_days: 5.0 / 1440.0,
            write_days: 1.0 / 1440.0,
        };
        assert!((mttf_days(&it) - 1.0 / 6.5).abs() < 1e-12);
        let best = best_interval_days(&it);
        assert!((best * 1440.0 - (2.0 * 1.0 * 1440.0 / 6.5_f64).sqrt()).abs() < 1e-9);
        let at = |minutes: f64| expected_ettr(&it, minutes / 1440.0);
        // (1 - 6.5 (5 + 10) / 1440) / (1 + 1/20)
        assert!((at(20.0) - (1.0 - 6.5 * 15.0 / 1440.0) / 1.05).abs() < 1e-12);
        // The best interval is near the top of the curve.
        let top = at(best * 1440.0);
        assert!(top > at(best * 1440.0 * 2.0) && top > at(best * 1440.0 / 2.0));
    }

    #[test]
    fn nothing_that_fails_never_stops() {
        let it = Reliability {
            nodes: 8.0,
            failures_per_node_day: 0.0,
            restart_days: 0.1,
            write_days: 0.0,
        };
        assert_eq!(mttf_days(&it), f64::INFINITY);
        assert_eq!(expected_ettr(&it, 1.0), 1.0);
    }
}
