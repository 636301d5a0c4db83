//! The model that was trained, and what a token of it costs by named convention.

use crate::record::{Kind, OptionError, OptionSpec, Options};

/// A way to count the floating-point operations of training on a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// 6 N + 12 L H Q T (PaLM, arXiv 2204.02311, appendix B).
    Palm,
    /// The same with N without position embeddings, as nanoGPT counts.
    NanoGpt,
    /// The same with N without token and position embeddings, as torchtitan counts.
    Torchtitan,
    /// As [`Convention::Torchtitan`]: OLMo-core leaves out its embeddings as well.
    OlmoCore,
    /// 12 L h^2 (1 + g/H + T/h + s f/h + V/(2 L h)), as Megatron-LM counts: matrix products alone, g query
    /// groups, f the feed-forward dimension, s 1, or 3/2 where it is gated, V vocabulary.
    Megatron,
    /// 6 N.
    SixN,
}

/// The conventions with their names.
pub const CONVENTIONS: &[(&str, Convention)] = &[
    ("palm", Convention::Palm),
    ("nanogpt", Convention::NanoGpt),
    ("torchtitan", Convention::Torchtitan),
    ("olmo_core", Convention::OlmoCore),
    ("megatron", Convention::Megatron),
    ("six_n", Convention::SixN),
];

impl Convention {
    /// Its name.
    pub fn name(self) -> &'static str {
        let named = CONVENTIONS.iter().find(|(_, known)| *known == self);
        named.map_or("palm", |(name, _)| name)
    }
}

/// The model that was trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// N: all parameters, of a mixture of experts those that are active for a token.
    pub active_parameters: u64,
    /// Of these in token and position embeddings.
    pub embedding_parameters: u64,
    /// Of these in position embeddings.
    pub position_embedding_parameters: u64,
    /// L.
    pub layers: u64,
    /// H.
    pub heads: u64,
    /// Q: dimension of a head.
    pub head_dimension: u64,
    /// T: tokens of a sequence.
    pub sequence_tokens: u64,
    /// How operations are counted.
    pub convention: Convention,
    /// Share of the forward pass of the feed-forward part that is computed again, from 0 to 1.
    pub recomputed_mlp_share: f64,
    /// Share of the forward pass of attention that is computed again, from 0 to 1.
    pub recomputed_attention_share: f64,
    /// h: dimension of the residual stream; of [`Convention::Megatron`].
    pub hidden_dimension: u64,
    /// Dimension inside the feed-forward part; of [`Convention::Megatron`].
    pub feed_forward_dimension: u64,
    /// Whether the feed-forward part is gated (SwiGLU); of [`Convention::Megatron`].
    pub gated_feed_forward: bool,
    /// Groups of queries that share keys; of [`Convention::Megatron`].
    pub query_groups: u64,
    /// Entries of the vocabulary, padding included; of [`Convention::Megatron`].
    pub vocabulary_tokens: u64,
}

const fn count(name: &'static str, default: Option<&'static str>, doc: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        kind: Kind::Integer {
            min: 1,
            max: 1_000_000_000_000_000,
        },
        default,
        doc,
    }
}

const fn share(name: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Some("0"),
        doc,
    }
}

const fn whole(name: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        kind: Kind::Integer {
            min: 0,
            max: 1_000_000_000_000_000,
        },
        default: Some("0"),
        doc,
    }
}

impl Model {
    /// `model` of a measure file.
    pub const OPTIONS: &'static [OptionSpec] = &[
        count("parameters", None, "All parameters (N)"),
        count(
            "active_parameters",
            Some("null"),
            "Parameters that are active for a token, of a mixture of experts; N in every convention",
        ),
        OptionSpec {
            name: "flop_convention",
            kind: Kind::Choice(&[
                "palm",
                "nanogpt",
                "torchtitan",
                "olmo_core",
                "megatron",
                "six_n",
            ]),
            default: Some("palm"),
            doc: "How operations are counted: palm 6 N + 12 L H Q T; nanogpt the same, N without position embeddings; \
                  torchtitan and olmo_core the same, N without embeddings; megatron the matrix products; six_n 6 N",
        },
        count("layers", Some("null"), "Layers (L)"),
        count("heads", Some("null"), "Attention heads of a layer (H)"),
        count(
            "head_dimension",
            Some("null"),
            "Dimension of a head (Q); heads x head_dimension counts, not the width of the model",
        ),
        count("sequence_tokens", Some("null"), "Tokens of a sequence (T)"),
        whole(
            "embedding_parameters",
            "Parameters in token and position embeddings; of torchtitan and olmo_core",
        ),
        whole(
            "position_embedding_parameters",
            "Parameters in position embeddings; of nanogpt",
        ),
        share(
            "recomputed_mlp_share",
            "Share of the forward pass that is computed again, for HFU; attention apart",
        ),
        share(
            "recomputed_attention_share",
            "Share of the forward pass of attention that is computed again, for HFU",
        ),
        count(
            "hidden_dimension",
            Some("null"),
            "Width of the model (h); of megatron",
        ),
        count(
            "feed_forward_dimension",
            Some("null"),
            "Width inside the feed-forward part; of megatron, 4 h when absent",
        ),
        OptionSpec {
            name: "gated_feed_forward",
            kind: Kind::Bool,
            default: Some("false"),
            doc: "Whether the feed-forward part is gated (SwiGLU); of megatron",
        },
        count(
            "query_groups",
            Some("null"),
            "Groups of queries that share keys and values; of megatron, as many as heads when absent",
        ),
        count(
            "vocabulary_tokens",
            Some("null"),
            "Entries of the vocabulary with padding; of megatron",
        ),
    ];

    /// A model from checked options.
    ///
    /// # Errors
    /// When the convention needs an option that is absent, or parts are larger than the whole.
    pub fn build(options: &Options) -> Result<Model, OptionError> {
        let name = options.text("flop_convention");
        let convention = CONVENTIONS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, convention)| *convention)
            .expect("the table of options has these names only");
        let mut needed: Vec<&'static str> = match convention {
            Convention::SixN => Vec::new(),
            _ => vec!["layers", "heads", "head_dimension", "sequence_tokens"],
        };
        if convention == Convention::Megatron {
            needed.extend(["hidden_dimension", "vocabulary_tokens"]);
        }
        for option in needed {
            if options.integer_if_given(option).is_none() {
                return Err(OptionError::new(
                    option,
                    format!("a whole number where flop_convention is {name}"),
                    "nothing",
                ));
            }
        }
        let of = |name: &str| options.integer_if_given(name).unwrap_or(0);
        let parameters = options.integer("parameters");
        let active = options
            .integer_if_given("active_parameters")
            .unwrap_or(parameters);
        if active > parameters {
            return Err(OptionError::new(
                "active_parameters",
                format!("parameters ({parameters}) or less"),
                active,
            ));
        }
        for option in ["embedding_parameters", "position_embedding_parameters"] {
            if of(option) >= active {
                return Err(OptionError::new(
                    option,
                    format!("less than all that are active ({active})"),
                    of(option),
                ));
            }
        }
        let hidden = of("hidden_dimension");
        Ok(Model {
            active_parameters: active,
            embedding_parameters: of("embedding_parameters"),
            position_embedding_parameters: of("position_embedding_parameters"),
            layers: of("layers"),
            heads: of("heads"),
            head_dimension: of("head_dimension"),
            sequence_tokens: of("sequence_tokens"),
            convention,
            recomputed_mlp_share: options.number("recomputed_mlp_share"),
            recomputed_attention_share: options.number("recomputed_attention_share"),
            hidden_dimension: hidden,
            feed_forward_dimension: options
                .integer_if_given("feed_forward_dimension")
                .unwrap_or(4 * hidden),
            gated_feed_forward: options.flag("gated_feed_forward"),
            query_groups: options
                .integer_if_given("query_groups")
                .unwrap_or(of("heads")),
            vocabulary_tokens: of("vocabulary_tokens"),
        })
    }

    /// Operations of products with weights, forward and backward, of a token; and those of attention.
    fn parts(&self) -> (f64, f64) {
        let n = self.active_parameters as f64;
        let attention = 12.0
            * self.layers as f64
            * self.heads as f64
            * self.head_dimension as f64
            * self.sequence_tokens as f64;
        match self.convention {
            Convention::Palm => (6.0 * n, attention),
            Convention::NanoGpt => (
                6.0 * (n - self.position_embedding_parameters as f64),
                attention,
            ),
            Convention::Torchtitan | Convention::OlmoCore => {
                (6.0 * (n - self.embedding_parameters as f64), attention)
            }
            Convention::SixN => (6.0 * n, 0.0),
            Convention::Megatron => {
                let (l, h) = (self.layers as f64, self.hidden_dimension as f64);
                let heads_dimension = (self.heads * self.head_dimension) as f64;
                let groups = self.query_groups as f64 / self.heads as f64;
                let gate = if self.gated_feed_forward { 1.5 } else { 1.0 };
                let weights = 12.0
                    * l
                    * h
                    * ((1.0 + groups) * heads_dimension
                        + gate * self.feed_forward_dimension as f64
                        + self.vocabulary_tokens as f64 / (2.0 * l));
                (weights, attention)
            }
        }
    }

    /// Floating-point operations of training on a token, without computing anything twice.
    pub fn flops_per_token(&self) -> f64 {
        let (weights, attention) = self.parts();
        weights + attention
    }

    /// Floating-point operations that the hardware does for a token: a forward pass is a third of the whole,
    /// and what is computed again counts again.
    pub fn hardware_flops_per_token(&self) -> f64 {
        let (weights, attention) = self.parts();
        weights * (1.0 + self.recomputed_mlp_share / 3.0)
            + attention * (1.0 + self.recomputed_attention_share / 3.0)
    }

    /// Whether anything is computed again.
    pub fn recomputes(&self) -> bool {
        self.recomputed_mlp_share > 0.0 || self.recomputed_attention_share > 0.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A model by the numbers of the PaLM convention.
    pub fn palm(
        n: f64,
        layers: u64,
        heads: u64,
        head_dimension: u64,
        sequence_tokens: u64,
    ) -> Model {
        Model {
            active_parameters: n as u64,
            embedding_parameters: 0,
            position_embedding_parameters: 0,
            layers,
            heads,
            head_dimension,
            sequence_tokens,
            convention: Convention::Palm,
            recomputed_mlp_share: 0.0,
            recomputed_attention_share: 0.0,
            hidden_dimension: heads * head_dimension,
            feed_forward_dimension: 4 * heads * head_dimension,
            gated_feed_forward: false,
            query_groups: heads,
            vocabulary_tokens: 0,
        }
    }

    #[test]
    fn the_table_of_options_names_every_convention() {
        let choice = Model::OPTIONS
            .iter()
            .find(|option| option.name == "flop_convention")
            .expect("there");
        let Kind::Choice(words) = choice.kind else {
            panic!("a choice")
        };
        let names: Vec<&str> = CONVENTIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(words, names);
        for (name, convention) in CONVENTIONS {
            assert_eq!(convention.name(), *name);
        }
    }

    #[test]
    fn conventions_differ_by_what_they_count() {
        let mut model = palm(1000.0, 2, 4, 8, 16);
        model.position_embedding_parameters = 100;
        model.embedding_parameters = 400;
        let attention = 12.0 * 2.0 * 4.0 * 8.0 * 16.0;
        for (convention, expected) in [
            (Convention::Palm, 6000.0 + attention),
            (Convention::NanoGpt, 5400.0 + attention),
            (Convention::Torchtitan, 3600.0 + attention),
            (Convention::OlmoCore, 3600.0 + attention),
            (Convention::SixN, 6000.0),
        ] {
            model.convention = convention;
            assert_eq!(model.flops_per_token(), expected, "{convention:?}");
        }
    }

    #[test]
    fn megatron_is_the_published_formula() {
        // Narayanan et al. 2021 (arXiv 2104.04473), without recomputation:
        // 72 B s l h^2 (1 + s/(6 h) + V/(12 l h)), here for one token.
        let mut model = palm(1.0, 96, 96, 128, 2048);
        model.convention = Convention::Megatron;
        model.vocabulary_tokens = 51_200;
        let (l, h, s, v) = (96.0, 12_288.0, 2048.0, 51_200.0);
        let published: f64 = 72.0 * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * l * h));
        assert!((model.flops_per_token() / published - 1.0).abs() < 1e-12);
        // With a gate the feed-forward part has three matrices where it had two.
        let plain = model.flops_per_token();
        model.gated_feed_forward = true;
        assert!((model.flops_per_token() - plain - 12.0 * l * h * 2.0 * h).abs() < 1.0);
        // Half as many keys and values: the projections of both are half as large.
        model.gated_feed_forward = false;
        model.query_groups = 48;
        assert!((plain - model.flops_per_token() - 12.0 * l * h * h / 2.0).abs() < 1.0);
    }

    #[test]
    fn what_is_computed_again_counts_for_the_hardware_alone() {
        let mut model = palm(1000.0, 2, 4, 8, 16);
        assert_eq!(model.hardware_flops_per_token(), model.flops_per_token());
        model.recomputed_mlp_share = 1.0;
        model.recomputed_attention_share = 1.0;
        // 6 becomes 8, 12 becomes 16.
        assert_eq!(model.hardware_flops_per_token(), 8000.0 + 16.0 * 1024.0);
    }
}
