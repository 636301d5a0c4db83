//! What a run was trained on.

use crate::record::{Kind, OptionError, OptionSpec, Options};

/// A kind of accelerator.
#[derive(Debug)]
pub struct Chip {
    /// Its name in a measure file.
    pub name: &'static str,
    /// Dense BF16 peak in TFLOP/s, as its maker states it.
    pub peak_teraflops: f64,
}

const fn chip(name: &'static str, peak_teraflops: f64) -> Chip {
    Chip {
        name,
        peak_teraflops,
    }
}

/// The chips whose peak is known: dense BF16, without sparsity.
pub const CHIPS: &[Chip] = &[
    chip("a100", 312.0),
    chip("h100_sxm", 989.0),
    chip("h100_pcie", 756.0),
    chip("h100_nvl", 835.0),
    chip("h200", 989.0),
    chip("h20", 148.0),
    chip("b200", 2250.0),
    chip("gb200", 2500.0),
    chip("mi300x", 1300.0),
    chip("mi355x", 2500.0),
    chip("l40s", 362.0),
    chip("tpu_v4", 275.0),
    chip("tpu_v5e", 197.0),
    chip("tpu_v5p", 459.0),
    chip("tpu_v6e", 918.0),
];

/// What a run was trained on.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Accelerators.
    pub chips: u64,
    /// Name of the chip, where one is given.
    pub chip: Option<String>,
    /// Peak of one in FLOP/s; unknown where neither chip nor peak is given.
    pub peak_flops: Option<f64>,
    /// Price of one for an hour, in the currency of the user.
    pub price_per_chip_hour: Option<f64>,
    /// Machines that fail as one.
    pub nodes: Option<u64>,
    /// Failures of a node in a day (r_f); `None` to take the disruptions of the log.
    pub failures_per_node_day: Option<f64>,
}

impl Hardware {
    /// `hardware` of a measure file.
    pub const OPTIONS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "chips",
            kind: Kind::Integer {
                min: 1,
                max: 1_000_000_000,
            },
            default: None,
            doc: "Accelerators that the run was paid for",
        },
        OptionSpec {
            name: "chip",
            kind: Kind::Choice(&[
                "a100",
                "h100_sxm",
                "h100_pcie",
                "h100_nvl",
                "h200",
                "h20",
                "b200",
                "gb200",
                "mi300x",
                "mi355x",
                "l40s",
                "tpu_v4",
                "tpu_v5e",
                "tpu_v5p",
                "tpu_v6e",
            ]),
            default: Some("null"),
            doc: "Kind of accelerator, for its dense BF16 peak; either this or 'peak_teraflops'",
        },
        OptionSpec {
            name: "peak_teraflops",
            kind: Kind::Number {
                min: 1e-6,
                max: 1e9,
            },
            default: Some("null"),
            doc: "Peak of one accelerator in TFLOP/s, dense, in the precision of the run; either this or 'chip'",
        },
        OptionSpec {
            name: "price_per_chip_hour",
            kind: Kind::Number { min: 0.0, max: 1e9 },
            default: Some("null"),
            doc: "Price of one accelerator for an hour, in your currency",
        },
        OptionSpec {
            name: "nodes",
            kind: Kind::Integer {
                min: 1,
                max: 1_000_000_000,
            },
            default: Some("null"),
            doc: "Machines, for the mean time to failure and the best checkpoint interval",
        },
        OptionSpec {
            name: "failures_per_node_day",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: Some("null"),
            doc: "Failures of a node in a day; those of the log when absent",
        },
    ];

    /// Hardware from checked options.
    ///
    /// # Errors
    /// When both a chip and a peak are given, or more nodes than chips.
    pub fn build(options: &Options) -> Result<Hardware, OptionError> {
        let chip = options.text_if_given("chip");
        let peak = options.number_if_given("peak_teraflops");
        if let (Some(chip), Some(peak)) = (chip, peak) {
            return Err(OptionError::new(
                "peak_teraflops",
                format!("left out where 'chip' is given ({chip})"),
                peak,
            ));
        }
        let known = chip.and_then(|name| CHIPS.iter().find(|chip| chip.name == name));
        let chips = options.integer("chips");
        let nodes = options.integer_if_given("nodes");
        if let Some(nodes) = nodes.filter(|nodes| *nodes > chips) {
            return Err(OptionError::new(
                "nodes",
                format!("chips ({chips}) or less"),
                nodes,
            ));
        }
        Ok(Hardware {
            chips,
            chip: chip.map(str::to_string),
            peak_flops: peak
                .or(known.map(|chip| chip.peak_teraflops))
                .map(|teraflops| teraflops * 1e12),
            price_per_chip_hour: options.number_if_given("price_per_chip_hour"),
            nodes,
            failures_per_node_day: options.number_if_given("failures_per_node_day"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_options_names_every_chip() {
        let choice = Hardware::OPTIONS
            .iter()
            .find(|option| option.name == "chip")
            .expect("there");
        let Kind::Choice(words) = choice.kind else {
            panic!("a choice")
        };
        assert_eq!(
            words,
            CHIPS.iter().map(|chip| chip.name).collect::<Vec<_>>()
        );
    }
}
