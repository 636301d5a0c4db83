//! MFU of published runs, recomputed where the papers say enough.

use super::rate::utilization;

/// A run that a paper reports.
#[derive(Debug)]
pub struct Published {
    /// What it is called.
    pub name: &'static str,
    /// Where the figures are from.
    pub source: &'static str,
    /// MFU as the paper prints it, in percent.
    pub printed_percent: f64,
    /// What it can be recomputed from.
    pub basis: Basis,
}

/// What a published MFU can be recomputed from.
#[derive(Debug)]
pub enum Basis {
    /// Model, throughput and hardware are given.
    Tokens {
        /// N.
        parameters: f64,
        /// L.
        layers: f64,
        /// H.
        heads: f64,
        /// Q.
        head_dimension: f64,
        /// T.
        sequence_tokens: f64,
        /// Tokens a second, of all chips.
        tokens_per_second: f64,
        /// Chips.
        chips: u64,
        /// Peak of one, in TFLOP/s.
        peak_teraflops: f64,
    },
    /// Model operations a second and chip are given.
    Flops {
        /// TFLOP/s of one chip.
        teraflops: f64,
        /// Peak of one, in TFLOP/s.
        peak_teraflops: f64,
    },
    /// The throughput behind the figure is not published.
    NotRecomputable,
}

impl Published {
    /// MFU as a share, by the PaLM convention; `None` where the paper says too little.
    pub fn recomputed(&self) -> Option<f64> {
        match self.basis {
            Basis::Tokens {
                parameters,
                layers,
                heads,
                head_dimension,
                sequence_tokens,
                tokens_per_second,
                chips,
                peak_teraflops,
            } => Some(utilization(
                tokens_per_second,
                6.0 * parameters + 12.0 * layers * heads * head_dimension * sequence_tokens,
                chips,
                peak_teraflops * 1e12,
            )),
            Basis::Flops {
                teraflops,
                peak_teraflops,
            } => Some(teraflops / peak_teraflops),
            Basis::NotRecomputable => None,
        }
    }
}

const PALM_PAPER: &str = "arXiv 2204.02311, table 3";
const LLAMA_3: &str = "arXiv 2407.21783, table 4";

/// The table.
pub const PUBLISHED: &[Published] = &[
    Published {
        name: "GPT-3 175B, V100",
        source: PALM_PAPER,
        printed_percent: 21.3,
        basis: Basis::NotRecomputable,
    },
    Published {
        name: "Gopher 280B, TPU v3",
        source: PALM_PAPER,
        printed_percent: 32.5,
        basis: Basis::NotRecomputable,
    },
    Published {
        name: "MT-NLG 530B, 2,240 A100",
        source: PALM_PAPER,
        printed_percent: 30.2,
        basis: Basis::Tokens {
            parameters: 530e9,
            layers: 105.0,
            heads: 128.0,
            head_dimension: 160.0,
            sequence_tokens: 2048.0,
            tokens_per_second: 65_427.0,
            chips: 2240,
            peak_teraflops: 312.0,
        },
    },
    Published {
        name: "PaLM 540B, 6,144 TPU v4",
        source: PALM_PAPER,
        printed_percent: 46.2,
        basis: Basis::Tokens {
            parameters: 540.35e9,
            layers: 118.0,
            heads: 48.0,
            head_dimension: 256.0,
            sequence_tokens: 2048.0,
            tokens_per_second: 238_300.0,
            chips: 6144,
            peak_teraflops: 275.0,
        },
    },
    Published {
        name: "Llama 3 405B, 8,192 H100",
        source: LLAMA_3,
        printed_percent: 43.0,
        basis: Basis::Flops {
            teraflops: 430.0,
            peak_teraflops: 989.0,
        },
    },
    Published {
        name: "Llama 3 405B, 16,384 H100",
        source: LLAMA_3,
        printed_percent: 41.0,
        basis: Basis::Flops {
            teraflops: 400.0,
            peak_teraflops: 989.0,
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_papers_print_comes_out_again() {
        for run in PUBLISHED {
            match run.recomputed() {
                // Papers round to whole or tenths of a percent; Llama 3's 400 TFLOP/s are 40.4 %, printed as 41 %.
                Some(mfu) => assert!(
                    (100.0 * mfu - run.printed_percent).abs() < 0.6,
                    "{}: {mfu}",
                    run.name
                ),
                None => assert!(run.name.starts_with("GPT-3") || run.name.starts_with("Gopher")),
            }
        }
        assert_eq!(
            PUBLISHED
                .iter()
                .filter(|run| run.recomputed().is_none())
                .count(),
            2
        );
        let of = |name: &str| {
            let run = PUBLISHED.iter().find(|run| run.name.starts_with(name));
            run.expect("listed").recomputed().expect("recomputable")
        };
        assert!((of("PaLM") - 0.4623).abs() < 1e-4);
        assert!((of("MT-NLG") - 0.302_65).abs() < 1e-4);
        assert!((of("Llama 3 405B, 8,192") - 0.434_78).abs() < 1e-4);
        assert!((of("Llama 3 405B, 16,384") - 0.404_45).abs() < 1e-4);
    }
}
