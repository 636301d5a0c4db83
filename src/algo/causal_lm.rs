//! Causal language models of the GPT-2 and Llama families: how likely each token is after those before it.
//!
//! GPT-2 (Radford et al. 2019): learned positions, layer normalisation before each block, GELU, biases, weights
//! stored as inputs by outputs. Llama (Touvron et al. 2023): rotary positions (Su et al. 2021), normalisation by root
//! mean square, grouped queries, a feed-forward block gated by SiLU, no biases, weights stored as outputs by inputs.
//! Tensors have the names of the `transformers` library. All is computed in 32-bit floats, from weights that are
//! converted when they are used; sums over a row of the residual stream in 64 bits.
//!
//! A token's loss depends on the tokens before it in its window and on nothing else: not on the windows that are
//! computed with it, nor on the machine (see [`super::matrix`]).

use super::matrix::{LogSum, Matrix, Number, gate_with_silu, gelu_tanh, multiply, softmax};
use super::ngram_table::Storage;
use super::safetensors::{self, Place};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// Columns of the vocabulary whose logits are computed at once.
const LOGIT_COLUMNS: usize = 1024;
/// Queries whose attention is computed at once.
const QUERIES: usize = 96;
/// No size in a configuration may exceed it, so that no product of two overflows.
const MAX_SIZE: usize = 1 << 28;

#[derive(Deserialize)]
struct Gpt2 {
    vocab_size: usize,
    n_positions: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    n_inner: Option<usize>,
    #[serde(default = "gelu_new")]
    activation_function: String,
    #[serde(default = "gpt2_epsilon")]
    layer_norm_epsilon: f64,
    #[serde(default = "yes")]
    scale_attn_weights: bool,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

#[derive(Deserialize)]
struct Llama {
    vocab_size: usize,
    max_position_embeddings: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(default = "silu")]
    hidden_act: String,
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
}

/// `rope_scaling` of older configurations, `rope_parameters` of newer ones.
#[derive(Deserialize)]
struct Rope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
}

fn gelu_new() -> String {
    "gelu_new".to_string()
}
fn silu() -> String {
    "silu".to_string()
}
fn gpt2_epsilon() -> f64 {
    1e-5
}
fn yes() -> bool {
    true
}

/// What a model's `config.json` says of its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    family: Family,
    /// Ids that it knows: all below.
    pub vocabulary_size: usize,
    /// Tokens that it was made to see at once.
    pub context_tokens: usize,
    hidden: usize,
    feed: usize,
    layers: usize,
    heads: usize,
    key_heads: usize,
    head: usize,
    epsilon: f64,
    /// Base of the wavelengths of rotary positions.
    theta: f64,
    /// Whether the logits are made with the embedding of the tokens.
    tied: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Gpt2,
    Llama,
}

impl Shape {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// When it is of another family, lacks a size, or asks for what is not computed here, by name.
    pub fn parse(config: &[u8]) -> Result<Self, String> {
        let config: serde_json::Value = serde_json::from_slice(config)
            .map_err(|error| format!("is not a model's configuration in JSON: {error}"))?;
        let shape = match config["model_type"].as_str() {
            Some("gpt2") => Self::gpt2(read(config)?)?,
            Some("llama") => Self::llama(read(config)?)?,
            Some(other) => return Err(must("model_type", "gpt2 or llama", other)),
            None => return Err("'model_type' must be gpt2 or llama, got none".to_string()),
        };
        let sizes = [
            ("vocabulary", shape.vocabulary_size),
            ("context", shape.context_tokens),
            ("embedding", shape.hidden),
            ("feed-forward block", shape.feed),
            ("number of layers", shape.layers),
            ("number of attention heads", shape.heads),
            ("number of key-value heads", shape.key_heads),
            ("head", shape.head),
        ];
        for (name, size) in sizes {
            if !(1..=MAX_SIZE).contains(&size) {
                return Err(format!(
                    "the size of its {name} must be from 1 to {MAX_SIZE}, got {size}"
                ));
            }
        }
        if !shape.heads.is_multiple_of(shape.key_heads) {
            return Err(format!(
                "'num_key_value_heads' must divide num_attention_heads, {}, got {}",
                shape.heads, shape.key_heads
            ));
        }
        if !(shape.epsilon > 0.0 && shape.epsilon < 1.0) {
            return Err(must(
                "the epsilon of its normalisation",
                "above 0 and below 1",
                shape.epsilon,
            ));
        }
        Ok(shape)
    }

    fn gpt2(config: Gpt2) -> Result<Self, String> {
        if !["gelu_new", "gelu_pytorch_tanh"].contains(&config.activation_function.as_str()) {
            return Err(must(
                "activation_function",
                "gelu_new",
                config.activation_function,
            ));
        }
        if !config.scale_attn_weights || config.scale_attn_by_inverse_layer_idx {
            return Err(
                "'scale_attn_weights' must be true and 'scale_attn_by_inverse_layer_idx' false"
                    .to_string(),
            );
        }
        let head = divided("n_embd", config.n_embd, "n_head", config.n_head)?;
        Ok(Shape {
            family: Family::Gpt2,
            vocabulary_size: config.vocab_size,
            context_tokens: config.n_positions,
            hidden: config.n_embd,
            feed: config.n_inner.unwrap_or(config.n_embd.saturating_mul(4)),
            layers: config.n_layer,
            heads: config.n_head,
            key_heads: config.n_head,
            head,
            epsilon: config.layer_norm_epsilon,
            theta: 0.0,
            tied: config.tie_word_embeddings,
        })
    }

    fn llama(config: Llama) -> Result<Self, String> {
        if config.hidden_act != "silu" {
            return Err(must("hidden_act", "silu", config.hidden_act));
        }
        if config.attention_bias || config.mlp_bias {
            return Err("'attention_bias' and 'mlp_bias' must be false".to_string());
        }
        let ropes = [&config.rope_parameters, &config.rope_scaling];
        let mut theta = config.rope_theta;
        for rope in ropes.into_iter().flatten() {
            let kind = rope.rope_type.as_deref().unwrap_or("default");
            if kind != "default" {
                return Err(must("rope_type", "default", kind));
            }
            theta = theta.or(rope.rope_theta);
        }
        let theta = theta.unwrap_or(10_000.0);
        if !(theta > 1.0 && theta.is_finite()) {
            return Err(must("rope_theta", "above 1", theta));
        }
        let head = match config.head_dim {
            Some(head) => head,
            None => divided(
                "hidden_size",
                config.hidden_size,
                "num_attention_heads",
                config.num_attention_heads,
            )?,
        };
        if head % 2 != 0 {
            return Err(must("head_dim", "even", head));
        }
        Ok(Shape {
            family: Family::Llama,
            vocabulary_size: config.vocab_size,
            context_tokens: config.max_position_embeddings,
            hidden: config.hidden_size,
            feed: config.intermediate_size,
            layers: config.num_hidden_layers,
            heads: config.num_attention_heads,
            key_heads: config
                .num_key_value_heads
                .unwrap_or(config.num_attention_heads),
            head,
            epsilon: config.rms_norm_eps,
            theta,
            tied: config.tie_word_embeddings,
        })
    }

    /// Floating-point operations to predict one token: two for each weight that it is multiplied with. Attention adds
    /// to it where a window is long.
    pub fn flops_per_token(&self) -> f64 {
        let [hidden, feed, heads, key_heads, head, layers, vocabulary] = [
            self.hidden,
            self.feed,
            self.heads,
            self.key_heads,
            self.head,
            self.layers,
            self.vocabulary_size,
        ]
        .map(|size| size as f64);
        let blocks = match self.family {
            Family::Gpt2 => 2.0,
            Family::Llama => 3.0,
        };
        let layer = 2.0 * hidden * head * (heads + key_heads) + blocks * hidden * feed;
        2.0 * (layers * layer + hidden * vocabulary)
    }

    /// Bytes that computing `tokens` tokens in windows of at most `context_tokens` takes, beside the weights.
    pub fn batch_bytes(&self, tokens: usize, context_tokens: usize) -> u64 {
        let row = 3 * self.hidden
            + self.head * (2 * self.heads + 2 * self.key_heads)
            + 2 * self.feed
            + LOGIT_COLUMNS;
        let numbers = tokens as u128 * row as u128
            + (QUERIES * context_tokens) as u128
            + context_tokens as u128 * self.head as u128;
        u64::try_from(4 * numbers).unwrap_or(u64::MAX)
    }
}

fn read<T: for<'d> Deserialize<'d>>(config: serde_json::Value) -> Result<T, String> {
    serde_json::from_value(config).map_err(|error| error.to_string())
}

fn must(name: &str, what: &str, found: impl std::fmt::Display) -> String {
    format!("'{name}' must be {what}, got {found}")
}

fn divided(whole: &str, n: usize, part: &str, by: usize) -> Result<usize, String> {
    if by == 0 || !n.is_multiple_of(by) {
        return Err(format!("'{part}' must divide {whole}, {n}, got {by}"));
    }
    Ok(n / by)
}

/// The numbers of a tensor in a file.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    file: usize,
    number: Number,
    bytes: Range<usize>,
}

/// Weights that are multiplied from the right, and what is added to the product.
struct Linear {
    tensor: Tensor,
    /// Place of its first element, from one input to the next, from one output to the next.
    layout: (usize, usize, usize),
    inputs: usize,
    outputs: usize,
    bias: Option<Vec<f32>>,
}

/// Layer normalisation, or by root mean square where there is no shift.
struct Norm {
    scale: Vec<f32>,
    shift: Option<Vec<f32>>,
}

struct Layer {
    before_attention: Norm,
    query: Linear,
    key: Linear,
    value: Linear,
    mix: Linear,
    before_feed: Norm,
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
}

/// A file of tensors.
pub struct WeightFile {
    /// Its name, for messages.
    pub name: String,
    /// All of its bytes.
    pub bytes: Box<dyn Storage>,
}

/// A model: its shape, and where its weights are.
pub struct Model {
    shape: Shape,
    files: Vec<WeightFile>,
    embedding: Tensor,
    positions: Option<Tensor>,
    layers: Vec<Layer>,
    last: Norm,
    logits: Linear,
    /// Wave numbers of rotary positions, one for each pair of a head's numbers.
    waves: Vec<f64>,
    tensors_used: Vec<Tensor>,
}

/// Consecutive tokens that the model sees at once.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The tokens, as many as the context at most.
    pub tokens: &'a [u32],
    /// The first whose loss is wanted; 1 or more.
    pub from: usize,
}

/// Finds tensors by name and shape.
struct Finder<'f> {
    files: &'f [WeightFile],
    tensors: BTreeMap<String, (usize, Place)>,
    used: Vec<Tensor>,
}

impl Finder<'_> {
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, String> {
        let Some((file, place)) = self.tensors.get(name) else {
            let names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
            return Err(format!(
                "{}: has no tensor '{name}', expected of shape {shape:?}",
                names.join(", ")
            ));
        };
        let at = &self.files[*file].name;
        if place.shape != shape {
            return Err(format!(
                "{at}: tensor '{name}' must have the shape {shape:?} by config.json, got {:?}",
                place.shape
            ));
        }
        let Some(number) = place.number() else {
            return Err(format!(
                "{at}: tensor '{name}' must be of type F32, F16 or BF16, got {}",
                place.kind
            ));
        };
        let tensor = Tensor {
            name: name.to_string(),
            file: *file,
            number,
            bytes: place.bytes.clone(),
        };
        self.used.push(tensor.clone());
        Ok(tensor)
    }

    fn vector(&mut self, name: &str, size: usize) -> Result<Vec<f32>, String> {
        let tensor = self.tensor(name, &[size])?;
        let mut values = vec![0.0; size];
        let bytes = &self.files[tensor.file].bytes.bytes()[tensor.bytes.clone()];
        tensor.number.read(bytes, 0, &mut values);
        Ok(values)
    }

    /// Layer normalisation with a shift, as GPT-2 has it.
    fn centred(&mut self, name: &str, size: usize) -> Result<Norm, String> {
        Ok(Norm {
            scale: self.vector(&format!("{name}.weight"), size)?,
            shift: Some(self.vector(&format!("{name}.bias"), size)?),
        })
    }

    fn root_mean_square(&mut self, name: &str, size: usize) -> Result<Norm, String> {
        Ok(Norm {
            scale: self.vector(&format!("{name}.weight"), size)?,
            shift: None,
        })
    }

    /// Stored as outputs by inputs.
    fn linear(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Linear, String> {
        Ok(Linear {
            tensor: self.tensor(&format!("{name}.weight"), &[outputs, inputs])?,
            layout: (0, 1, inputs),
            inputs,
            outputs,
            bias: None,
        })
    }

    /// Stored as inputs by outputs, for `parts` products of as many outputs each.
    fn convolution(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
        parts: usize,
    ) -> Result<Vec<Linear>, String> {
        let stride = outputs * parts;
        let tensor = self.tensor(&format!("{name}.weight"), &[inputs, stride])?;
        let bias = self.vector(&format!("{name}.bias"), stride)?;
        Ok((0..parts)
            .map(|part| Linear {
                tensor: tensor.clone(),
                layout: (part * outputs, stride, 1),
                inputs,
                outputs,
                bias: Some(bias[part * outputs..][..outputs].to_vec()),
            })
            .collect())
    }
}

impl Model {
    /// Finds the weights of a model of this shape in its files. `owner` says in which file an index expects a tensor;
    /// empty where there is no index.
    ///
    /// # Errors
    /// When a file is no safetensors file, or a tensor is missing, of another shape or type; with file and tensor.
    pub fn new(
        shape: Shape,
        files: Vec<WeightFile>,
        owner: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let mut tensors = BTreeMap::new();
        for (at, file) in files.iter().enumerate() {
            let found = safetensors::parse(file.bytes.bytes())
                .map_err(|error| format!("{}: {error}", file.name))?;
            for (name, place) in found {
                let (Some(wanted), true) = (owner.get(&name), !owner.is_empty()) else {
                    tensors.entry(name).or_insert((at, place));
                    continue;
                };
                if *wanted == file.name {
                    tensors.insert(name, (at, place));
                }
            }
        }
        let mut find = Finder {
            files: &files,
            tensors,
            used: Vec::new(),
        };
        let parts = match shape.family {
            Family::Gpt2 => Self::gpt2(&shape, &mut find)?,
            Family::Llama => Self::llama(&shape, &mut find)?,
        };
        let Parts {
            embedding,
            positions,
            layers,
            last,
            head,
        } = parts;
        let logits = match head {
            Some(linear) => linear,
            None => Linear {
                tensor: embedding.clone(),
                layout: (0, 1, shape.hidden),
                inputs: shape.hidden,
                outputs: shape.vocabulary_size,
                bias: None,
            },
        };
        let waves = match shape.family {
            Family::Gpt2 => Vec::new(),
            Family::Llama => (0..shape.head / 2)
                .map(|pair| libm::pow(shape.theta, -2.0 * pair as f64 / shape.head as f64))
                .collect(),
        };
        let tensors_used = find.used;
        Ok(Model {
            shape,
            files,
            embedding,
            positions,
            layers,
            last,
            logits,
            waves,
            tensors_used,
        })
    }

    fn gpt2(shape: &Shape, find: &mut Finder<'_>) -> Result<Parts, String> {
        let hidden = shape.hidden;
        // Saved with the head, the names have a prefix; saved without it, they have none.
        let prefix = match find.tensors.contains_key("wte.weight") {
            true => "",
            false => "transformer.",
        };
        let name = |name: &str| format!("{prefix}{name}");
        let mut layers = Vec::with_capacity(shape.layers.min(1024));
        for layer in 0..shape.layers {
            let name = |part: &str| format!("{prefix}h.{layer}.{part}");
            let before_attention = find.centred(&name("ln_1"), hidden)?;
            let mut three = find.convolution(&name("attn.c_attn"), hidden, hidden, 3)?;
            let (value, key, query) = (three.pop(), three.pop(), three.pop());
            let mut one = |name: &str, inputs, outputs| -> Result<Linear, String> {
                let mut one = find.convolution(name, inputs, outputs, 1)?;
                Ok(one.pop().expect("one part was asked for"))
            };
            let mix = one(&name("attn.c_proj"), hidden, hidden)?;
            let up = one(&name("mlp.c_fc"), hidden, shape.feed)?;
            let down = one(&name("mlp.c_proj"), shape.feed, hidden)?;
            layers.push(Layer {
                before_attention,
                query: query.expect("three parts were asked for"),
                key: key.expect("three parts were asked for"),
                value: value.expect("three parts were asked for"),
                mix,
                before_feed: find.centred(&name("ln_2"), hidden)?,
                gate: None,
                up,
                down,
            });
        }
        Ok(Parts {
            embedding: find.tensor(&name("wte.weight"), &[shape.vocabulary_size, hidden])?,
            positions: Some(find.tensor(&name("wpe.weight"), &[shape.context_tokens, hidden])?),
            layers,
            last: find.centred(&name("ln_f"), hidden)?,
            head: match shape.tied {
                true => None,
                false => Some(find.linear("lm_head", hidden, shape.vocabulary_size)?),
            },
        })
    }

    fn llama(shape: &Shape, find: &mut Finder<'_>) -> Result<Parts, String> {
        let (hidden, feed) = (shape.hidden, shape.feed);
        let (queries, keys) = (shape.heads * shape.head, shape.key_heads * shape.head);
        let mut layers = Vec::with_capacity(shape.layers.min(1024));
        for layer in 0..shape.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            layers.push(Layer {
                before_attention: find.root_mean_square(&name("input_layernorm"), hidden)?,
                query: find.linear(&name("self_attn.q_proj"), hidden, queries)?,
                key: find.linear(&name("self_attn.k_proj"), hidden, keys)?,
                value: find.linear(&name("self_attn.v_proj"), hidden, keys)?,
                mix: find.linear(&name("self_attn.o_proj"), queries, hidden)?,
                before_feed: find.root_mean_square(&name("post_attention_layernorm"), hidden)?,
                gate: Some(find.linear(&name("mlp.gate_proj"), hidden, feed)?),
                up: find.linear(&name("mlp.up_proj"), hidden, feed)?,
                down: find.linear(&name("mlp.down_proj"), feed, hidden)?,
            });
        }
        Ok(Parts {
            embedding: find.tensor(
                "model.embed_tokens.weight",
                &[shape.vocabulary_size, hidden],
            )?,
            positions: None,
            layers,
            last: find.root_mean_square("model.norm", hidden)?,
            head: match shape.tied {
                true => None,
                false => Some(find.linear("lm_head", hidden, shape.vocabulary_size)?),
            },
        })
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of its tensors, for [`Model::check_tensor`].
    pub fn tensors(&self) -> usize {
        self.tensors_used.len()
    }

    /// Reads a tensor whole.
    ///
    /// # Errors
    /// On a weight that is not finite, with file, tensor and place.
    pub fn check_tensor(&self, tensor: usize) -> Result<(), String> {
        let tensor = &self.tensors_used[tensor];
        let bytes = self.bytes(tensor);
        let n = bytes.len() / tensor.number.bytes();
        match (0..n).find(|&place| !tensor.number.at(bytes, place).is_finite()) {
            Some(place) => Err(format!(
                "{}: tensor '{}' has {} at place {place}, not a finite number",
                self.files[tensor.file].name,
                tensor.name,
                tensor.number.at(bytes, place)
            )),
            None => Ok(()),
        }
    }

    fn bytes(&self, tensor: &Tensor) -> &[u8] {
        &self.files[tensor.file].bytes.bytes()[tensor.bytes.clone()]
    }

    fn matrix(&self, linear: &Linear) -> Matrix<'_> {
        let (start, depth_stride, column_stride) = linear.layout;
        Matrix {
            bytes: self.bytes(&linear.tensor),
            number: linear.tensor.number,
            start,
            depth_stride,
            column_stride,
            depth: linear.inputs,
            columns: linear.outputs,
        }
    }

    fn apply(&self, linear: &Linear, input: &[f32], rows: usize) -> Vec<f32> {
        let (inputs, outputs) = (linear.inputs, linear.outputs);
        let mut out = vec![0.0; rows * outputs];
        multiply(input, inputs, rows, self.matrix(linear), &mut out, outputs);
        if let Some(bias) = &linear.bias {
            for row in out.chunks_exact_mut(outputs) {
                row.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
            }
        }
        out
    }

    fn normalised(&self, norm: &Norm, input: &[f32]) -> Vec<f32> {
        let hidden = self.shape.hidden;
        let mut out = vec![0.0; input.len()];
        for (row, out) in input.chunks_exact(hidden).zip(out.chunks_exact_mut(hidden)) {
            let mean = match norm.shift {
                Some(_) => row.iter().map(|&x| f64::from(x)).sum::<f64>() / hidden as f64,
                None => 0.0,
            };
            let squares = row.iter().map(|&x| (f64::from(x) - mean).powi(2));
            let variance = squares.sum::<f64>() / hidden as f64;
            let factor = 1.0 / (variance + self.shape.epsilon).sqrt();
            for (at, (x, out)) in row.iter().zip(out).enumerate() {
                let shift = norm.shift.as_ref().map_or(0.0, |shift| shift[at]);
                *out = ((f64::from(*x) - mean) * factor) as f32 * norm.scale[at] + shift;
            }
        }
        out
    }

    /// Turns the pairs of each head by its position: pair j of a head of size d is the numbers j and j + d/2.
    fn rotate(&self, values: &mut [f32], heads: usize, windows: &[Window<'_>]) {
        let (head, half) = (self.shape.head, self.shape.head / 2);
        let mut turns = vec![(0.0f32, 0.0f32); half];
        let mut rows = values.chunks_exact_mut(heads * head);
        for window in windows {
            for (position, row) in rows.by_ref().take(window.tokens.len()).enumerate() {
                for (turn, wave) in turns.iter_mut().zip(&self.waves) {
                    let angle = position as f64 * wave;
                    *turn = (libm::cos(angle) as f32, libm::sin(angle) as f32);
                }
                for pairs in row.chunks_exact_mut(head) {
                    let (first, second) = pairs.split_at_mut(half);
                    for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(&turns) {
                        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                    }
                }
            }
        }
    }

    /// What each head of each query makes of the values at its own and earlier positions of its window.
    fn attention(
        &self,
        queries: &[f32],
        keys: &[f32],
        values: &[f32],
        windows: &[Window<'_>],
    ) -> Vec<f32> {
        let Shape {
            heads,
            key_heads,
            head,
            ..
        } = self.shape;
        let (query_row, key_row) = (heads * head, key_heads * head);
        let scale = (1.0 / (head as f64).sqrt()) as f32;
        let mut out = vec![0.0; queries.len()];
        let mut scores = Vec::new();
        let mut first = 0;
        for window in windows {
            let tokens = window.tokens.len();
            for at in 0..heads {
                let of = |source: &'_ [f32]| -> usize {
                    debug_assert!(source.len() >= (first + tokens) * key_row);
                    first * key_row + at / (heads / key_heads) * head
                };
                for start in (0..tokens).step_by(QUERIES) {
                    let end = tokens.min(start + QUERIES);
                    let rows = end - start;
                    let query = (first + start) * query_row + at * head;
                    scores.clear();
                    scores.resize(rows * end, 0.0);
                    let earlier = Matrix {
                        bytes: bytemuck::cast_slice(keys),
                        number: Number::F32,
                        start: of(keys),
                        depth_stride: 1,
                        column_stride: key_row,
                        depth: head,
                        columns: end,
                    };
                    multiply(
                        &queries[query..],
                        query_row,
                        rows,
                        earlier,
                        &mut scores,
                        end,
                    );
                    for (row, scores) in scores.chunks_exact_mut(end).enumerate() {
                        let (seen, hidden) = scores.split_at_mut(start + row + 1);
                        seen.iter_mut().for_each(|score| *score *= scale);
                        softmax(seen);
                        hidden.fill(0.0);
                    }
                    let earlier = Matrix {
                        bytes: bytemuck::cast_slice(values),
                        start: of(values),
                        depth_stride: key_row,
                        column_stride: 1,
                        depth: end,
                        columns: head,
                        ..earlier
                    };
                    multiply(&scores, end, rows, earlier, &mut out[query..], query_row);
                }
            }
            first += tokens;
        }
        out
    }

    /// -ln of the probability of each token from `from` on, in nats: of all windows, one after another.
    /// Not finite where the weights overflow.
    ///
    /// # Panics
    /// On an id that is not below the vocabulary's size, a window longer than the model's context, or `from` of 0.
    pub fn losses(&self, windows: &[Window<'_>], out: &mut Vec<f32>) {
        let hidden = self.shape.hidden;
        let rows: usize = windows.iter().map(|window| window.tokens.len()).sum();
        let mut stream = vec![0.0f32; rows * hidden];
        let embedding = self.bytes(&self.embedding);
        let mut position = vec![0.0f32; hidden];
        let mut each = stream.chunks_exact_mut(hidden);
        for window in windows {
            assert!(window.from > 0 && window.tokens.len() <= self.shape.context_tokens);
            for (at, (&token, row)) in window.tokens.iter().zip(each.by_ref()).enumerate() {
                let number = self.embedding.number;
                number.read(embedding, token as usize * hidden, row);
                if let Some(positions) = &self.positions {
                    let bytes = self.bytes(positions);
                    positions.number.read(bytes, at * hidden, &mut position);
                    row.iter_mut().zip(&position).for_each(|(x, p)| *x += p);
                }
            }
        }
        for layer in &self.layers {
            self.layer(layer, windows, rows, &mut stream);
        }
        // Only rows that predict a token whose loss is wanted.
        let (mut kept, mut targets, mut first) = (Vec::new(), Vec::new(), 0);
        for window in windows {
            for at in window.from..window.tokens.len() {
                kept.extend_from_slice(&stream[(first + at - 1) * hidden..][..hidden]);
                targets.push(window.tokens[at] as usize);
            }
            first += window.tokens.len();
        }
        drop(stream);
        self.predict(&self.normalised(&self.last, &kept), &targets, out);
    }

    fn layer(&self, layer: &Layer, windows: &[Window<'_>], rows: usize, stream: &mut [f32]) {
        let add = |stream: &mut [f32], more: &[f32]| {
            stream.iter_mut().zip(more).for_each(|(x, y)| *x += y);
        };
        let input = self.normalised(&layer.before_attention, stream);
        let mut queries = self.apply(&layer.query, &input, rows);
        let mut keys = self.apply(&layer.key, &input, rows);
        let values = self.apply(&layer.value, &input, rows);
        drop(input);
        if !self.waves.is_empty() {
            self.rotate(&mut queries, self.shape.heads, windows);
            self.rotate(&mut keys, self.shape.key_heads, windows);
        }
        let mixed = self.attention(&queries, &keys, &values, windows);
        drop((queries, keys, values));
        add(stream, &self.apply(&layer.mix, &mixed, rows));
        drop(mixed);
        let input = self.normalised(&layer.before_feed, stream);
        let mut inner = self.apply(&layer.up, &input, rows);
        match &layer.gate {
            Some(gate) => gate_with_silu(&self.apply(gate, &input, rows), &mut inner),
            None => gelu_tanh(&mut inner),
        }
        add(stream, &self.apply(&layer.down, &inner, rows));
    }

    /// The loss of each target by the row at its place.
    fn predict(&self, input: &[f32], targets: &[usize], out: &mut Vec<f32>) {
        let rows = targets.len();
        let matrix = self.matrix(&self.logits);
        let mut sums = vec![LogSum::default(); rows];
        let mut found = vec![0.0f32; rows];
        let mut logits = vec![0.0; rows * LOGIT_COLUMNS.min(matrix.columns)];
        for first in (0..matrix.columns).step_by(LOGIT_COLUMNS) {
            let columns = LOGIT_COLUMNS.min(matrix.columns - first);
            let some = matrix.columns(first, columns);
            multiply(input, matrix.depth, rows, some, &mut logits, columns);
            for (row, logits) in logits.chunks_exact_mut(columns).take(rows).enumerate() {
                if (first..first + columns).contains(&targets[row]) {
                    found[row] = logits[targets[row] - first];
                }
                sums[row].add(logits);
            }
        }
        let losses = sums.iter().zip(&found);
        out.extend(losses.map(|(sum, &logit)| (sum.ln() - f64::from(logit)) as f32));
    }
}

/// What differs between families in where the weights are.
struct Parts {
    embedding: Tensor,
    positions: Option<Tensor>,
    layers: Vec<Layer>,
    last: Norm,
    head: Option<Linear>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) struct Bytes(pub(crate) Vec<u8>);

    impl Storage for Bytes {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    /// GPT-2 with a tied head; tensors of a checkpoint saved with the head.
    pub(crate) const GPT2: &str = r#"{"model_type": "gpt2", "vocab_size": 61, "n_positions": 24, "n_embd": 24,
        "n_layer": 2, "n_head": 3, "n_inner": null, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-05}"#;
    /// GPT-2 with a head and a feed-forward size of its own.
    pub(crate) const GPT2_UNTIED: &str = r#"{"model_type": "gpt2", "vocab_size": 61, "n_positions": 24, "n_embd": 24,
        "n_layer": 2, "n_head": 3, "n_inner": 40, "tie_word_embeddings": false}"#;
    /// Llama with groups of two queries, an untied head, another wavelength.
    pub(crate) const LLAMA: &str = r#"{"model_type": "llama", "vocab_size": 67, "max_position_embeddings": 32,
        "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 5000.0,
        "rope_scaling": null, "tie_word_embeddings": false}"#;
    /// Llama with one key for all queries, heads of a size of their own, a tied head; weights of 16 bits.
    pub(crate) const LLAMA_TIED: &str = r#"{"model_type": "llama", "vocab_size": 67, "max_position_embeddings": 32,
        "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 10, "hidden_act": "silu", "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "tie_word_embeddings": true}"#;

    /// The tensors of such a model, by name.
    pub(crate) fn shapes(config: &str) -> Vec<(String, Vec<usize>)> {
        let shape = Shape::parse(config.as_bytes()).expect("a shape");
        let (h, f) = (shape.hidden, shape.feed);
        let (q, k) = (shape.heads * shape.head, shape.key_heads * shape.head);
        let mut all = Vec::new();
        let mut add = |name: String, shape: &[usize]| all.push((name, shape.to_vec()));
        let gpt2 = shape.family == Family::Gpt2;
        if gpt2 {
            add("transformer.wte.weight".into(), &[shape.vocabulary_size, h]);
            add("transformer.wpe.weight".into(), &[shape.context_tokens, h]);
            add("transformer.ln_f.weight".into(), &[h]);
            add("transformer.ln_f.bias".into(), &[h]);
        } else {
            add(
                "model.embed_tokens.weight".into(),
                &[shape.vocabulary_size, h],
            );
            add("model.norm.weight".into(), &[h]);
        }
        if !shape.tied {
            add("lm_head.weight".into(), &[shape.vocabulary_size, h]);
        }
        for layer in 0..shape.layers {
            let parts: Vec<(&str, Vec<usize>)> = if gpt2 {
                vec![
                    ("ln_1.weight", vec![h]),
                    ("ln_1.bias", vec![h]),
                    ("attn.c_attn.weight", vec![h, 3 * h]),
                    ("attn.c_attn.bias", vec![3 * h]),
                    ("attn.c_proj.weight", vec![h, h]),
                    ("attn.c_proj.bias", vec![h]),
                    ("ln_2.weight", vec![h]),
                    ("ln_2.bias", vec![h]),
                    ("mlp.c_fc.weight", vec![h, f]),
                    ("mlp.c_fc.bias", vec![f]),
                    ("mlp.c_proj.weight", vec![f, h]),
                    ("mlp.c_proj.bias", vec![h]),
                ]
            } else {
                vec![
                    ("input_layernorm.weight", vec![h]),
                    ("self_attn.q_proj.weight", vec![q, h]),
                    ("self_attn.k_proj.weight", vec![k, h]),
                    ("self_attn.v_proj.weight", vec![k, h]),
                    ("self_attn.o_proj.weight", vec![h, q]),
                    ("post_attention_layernorm.weight", vec![h]),
                    ("mlp.gate_proj.weight", vec![f, h]),
                    ("mlp.up_proj.weight", vec![f, h]),
                    ("mlp.down_proj.weight", vec![h, f]),
                ]
            };
            let prefix = if gpt2 {
                "transformer.h"
            } else {
                "model.layers"
            };
            for (part, sizes) in parts {
                add(format!("{prefix}.{layer}.{part}"), &sizes);
            }
        }
        all
    }

    /// Weights by formula, from the tensor's name and the place alone: the same in Python.
    pub(crate) fn weights(name: &str, shape: &[usize]) -> Vec<f32> {
        let seed = name
            .bytes()
            .fold(0u32, |seed, b| seed.wrapping_mul(31).wrapping_add(b.into()));
        (0..shape.iter().product::<usize>() as u32)
            .map(|at| {
                let mut x = seed.wrapping_add(at).wrapping_mul(2_654_435_761);
                x ^= x >> 15;
                x = x.wrapping_mul(2_246_822_519);
                x ^= x >> 13;
                let value = (f64::from(x) / 2_147_483_648.0 - 1.0) as f32;
                match (name.ends_with("bias"), shape.len()) {
                    (true, _) => value * 0.125,
                    (false, 1) => 1.0 + value * 0.25,
                    (false, _) => value * 0.5,
                }
            })
            .collect()
    }

    /// A safetensors file of these tensors.
    pub(crate) fn safetensors_of(
        tensors: &[(String, Vec<usize>)],
        kind: &str,
        values: impl Fn(&str, &[usize]) -> Vec<f32>,
    ) -> Vec<u8> {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, shape) in tensors {
            let begin = data.len();
            for value in values(name, shape) {
                match kind {
                    "BF16" => data.extend(&value.to_le_bytes()[2..]),
                    _ => data.extend(value.to_le_bytes()),
                }
            }
            header.insert(
                name.clone(),
                serde_json::json!({ "dtype": kind, "shape": shape, "data_offsets": [begin, data.len()] }),
            );
        }
        let header = serde_json::Value::from(header).to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.bytes());
        file.extend(data);
        file
    }

    fn file(name: &str, bytes: Vec<u8>) -> WeightFile {
        WeightFile {
            name: name.to_string(),
            bytes: Box::new(Bytes(bytes)),
        }
    }

    fn model_of(config: &str, bytes: Vec<u8>) -> Result<Model, String> {
        let shape = Shape::parse(config.as_bytes())?;
        Model::new(
            shape,
            vec![file("model.safetensors", bytes)],
            &BTreeMap::new(),
        )
    }

    fn model(config: &str, kind: &str) -> Model {
        let bytes = safetensors_of(&shapes(config), kind, weights);
        model_of(config, bytes).expect("a model")
    }

    fn tokens(n: u32, vocabulary: u32) -> Vec<u32> {
        (0..n)
            .map(|i| (i * i * 7 + 3 * i + 1) % vocabulary)
            .collect()
    }

    fn losses(model: &Model, windows: &[Window<'_>]) -> Vec<f32> {
        let mut out = Vec::new();
        model.losses(windows, &mut out);
        out
    }

    /// The losses of transformers 5.24.0 on PyTorch 2.15.0 (`GPT2LMHeadModel`, `LlamaForCausalLM`, attention `eager`,
    /// 32-bit floats, `log_softmax` in 64 bits) with the same weights, which the formula of [`weights`] gave there too.
    #[test]
    fn losses_are_those_of_transformers() {
        for (config, kind, vocabulary, expected) in [
            (
                GPT2,
                "F32",
                61,
                [
                    5.73155, 5.58216, 4.59613, 4.44356, 5.84978, 3.51964, 6.11412, 3.5341, 6.12229,
                    5.41786, 5.14373, 7.23893, 5.08602, 5.15678, 4.98001, 5.69522, 6.27645,
                    5.15449, 7.20497,
                ],
            ),
            (
                GPT2_UNTIED,
                "F32",
                61,
                [
                    4.5554, 4.19114, 4.23423, 5.46468, 6.1114, 4.27377, 4.55987, 5.73152, 3.13276,
                    2.92658, 2.53298, 7.14744, 4.21283, 4.82119, 3.79233, 5.41444, 4.59388,
                    4.62956, 7.25774,
                ],
            ),
            (
                LLAMA,
                "F32",
                67,
                [
                    5.84134, 6.55953, 5.38185, 7.52778, 8.10445, 6.05912, 6.6237, 3.14858, 3.71559,
                    4.64606, 4.53333, 5.60931, 7.81423, 5.67391, 4.71535, 4.72249, 6.94965,
                    7.87654, 5.44132,
                ],
            ),
            (
                LLAMA_TIED,
                "BF16",
                67,
                [
                    6.7117, 4.65701, 3.67552, 5.88067, 1.99002, 1.91155, 6.39899, 4.69386, 4.1829,
                    4.05217, 6.87233, 6.38486, 7.59341, 5.64122, 8.06076, 5.91995, 2.47066,
                    3.17957, 5.2933,
                ],
            ),
        ] {
            let tokens = tokens(20, vocabulary);
            let window = Window {
                tokens: &tokens,
                from: 1,
            };
            let found = losses(&model(config, kind), &[window]);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (f64::from(*found) - expected).abs() < 1e-4,
                    "{found} {expected}"
                );
            }
        }
    }

    #[test]
    fn a_loss_depends_only_on_the_tokens_before_it_in_its_window() {
        for (config, vocabulary) in [(GPT2, 61), (LLAMA, 67)] {
            let model = model(config, "F32");
            let (long, short) = (tokens(24, vocabulary), tokens(7, vocabulary - 9));
            let window = |tokens, from| Window { tokens, from };
            let alone = losses(&model, &[window(&long, 1)]);
            let beside = losses(
                &model,
                &[window(&short, 3), window(&long, 1), window(&long[..9], 1)],
            );
            assert_eq!(beside[4..27], alone, "the same bits");
            assert_eq!(beside[27..], alone[..8]);
            assert_eq!(losses(&model, &[window(&long, 20)]), alone[19..]);
            let mut other = long.clone();
            other[10] = (other[10] + 1) % vocabulary;
            let other = losses(&model, &[window(&other, 1)]);
            assert_eq!(other[..9], alone[..9]);
            assert!(other[9..].iter().zip(&alone[9..]).all(|(a, b)| a != b));
        }
        assert_eq!(losses(&model(GPT2, "F32"), &[]), [] as [f32; 0]);
    }

    #[test]
    fn a_configuration_that_cannot_be_computed_is_refused_by_name() {
        let refused = |config: &str, from: &str, to: &str, words: &[&str]| {
            assert!(from.is_empty() || config.contains(from), "{from}");
            let error = Shape::parse(config.replace(from, to).as_bytes()).expect_err(to);
            words
                .iter()
                .for_each(|word| assert!(error.contains(word), "{error}"));
        };
        refused("{}", "", "", &["model_type", "gpt2 or llama"]);
        refused("[", "", "", &["JSON"]);
        refused(GPT2, "\"gpt2\"", "\"mamba\"", &["model_type", "mamba"]);
        refused(GPT2, "gelu_new", "relu", &["activation_function", "relu"]);
        refused(
            GPT2,
            "\"n_head\": 3",
            "\"n_head\": 5",
            &["n_head", "24", "5"],
        );
        refused(GPT2, "\"n_head\": 3", "\"n_head\": 0", &["n_head"]);
        refused(GPT2, "\"n_layer\": 2,", "", &["n_layer"]);
        refused(GPT2, "1e-05", "-1", &["epsilon", "-1"]);
        refused(LLAMA, "silu", "gelu", &["hidden_act", "gelu"]);
        refused(
            LLAMA,
            "\"rope_scaling\": null",
            "\"rope_scaling\": {\"type\": \"yarn\"}",
            &["yarn"],
        );
        refused(
            LLAMA,
            "\"num_key_value_heads\": 2",
            "\"num_key_value_heads\": 3",
            &["num_key_value_heads", "3"],
        );
        refused(LLAMA, "5000.0", "0.5", &["rope_theta"]);
        refused(
            LLAMA_TIED,
            "\"head_dim\": 10",
            "\"head_dim\": 9",
            &["head_dim", "9"],
        );
        refused(
            LLAMA,
            "\"tie_word",
            "\"attention_bias\": true, \"tie_word",
            &["attention_bias"],
        );
        refused(
            LLAMA,
            "\"hidden_size\": 32",
            "\"hidden_size\": 32000000000000",
            &["embedding"],
        );
    }

    #[test]
    fn wrong_tensors_are_refused_with_file_name_and_shape() {
        let refused = |tensors: &[(String, Vec<usize>)], kind: &str, words: &[&str]| {
            let error = model_of(LLAMA, safetensors_of(tensors, kind, weights))
                .err()
                .expect("refused");
            words
                .iter()
                .for_each(|word| assert!(error.contains(word), "{error}"));
        };
        let key = "model.layers.1.self_attn.k_proj.weight";
        let mut tensors = shapes(LLAMA);
        refused(
            &tensors,
            "I32",
            &["model.safetensors", "F32, F16 or BF16", "I32"],
        );
        let at = tensors
            .iter()
            .position(|(name, _)| name == key)
            .expect("it");
        tensors[at].1 = vec![32, 16];
        refused(
            &tensors,
            "F32",
            &["model.safetensors", key, "[16, 32]", "[32, 16]"],
        );
        tensors.remove(at);
        refused(
            &tensors,
            "F32",
            &["model.safetensors", "no tensor", key, "[16, 32]"],
        );
        let bytes = safetensors_of(&shapes(LLAMA), "F32", weights);
        let cut = model_of(LLAMA, bytes[..bytes.len() - 1].to_vec());
        let error = cut.err().expect("cut off");
        assert!(
            error.contains("model.safetensors") && error.contains("cut off"),
            "{error}"
        );
    }

    #[test]
    fn a_weight_that_is_not_finite_is_found_with_its_place() {
        for (value, word) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            let bytes = safetensors_of(&shapes(LLAMA), "F32", |name, shape| {
                let mut values = weights(name, shape);
                if name == "lm_head.weight" {
                    values[77] = value;
                }
                values
            });
            let model = model_of(LLAMA, bytes).expect("a model");
            let found: Vec<String> = (0..model.tensors())
                .filter_map(|tensor| model.check_tensor(tensor).err())
                .collect();
            assert_eq!(found.len(), 1, "{found:?}");
            for word in ["model.safetensors", "'lm_head.weight'", word, "place 77"] {
                assert!(found[0].contains(word), "{found:?}");
            }
        }
    }

    #[test]
    fn shards_are_put_together_by_their_index() {
        let all = shapes(LLAMA);
        let (first, second) = all.split_at(7);
        let owner = |of: &[(String, Vec<usize>)], file: &str| -> Vec<(String, String)> {
            of.iter()
                .map(|(name, _)| (name.clone(), file.to_string()))
                .collect()
        };
        let index: BTreeMap<String, String> = owner(first, "a")
            .into_iter()
            .chain(owner(second, "b"))
            .collect();
        let shape = || Shape::parse(LLAMA.as_bytes()).expect("a shape");
        let files = |second_holds: &[(String, Vec<usize>)]| {
            vec![
                file("a", safetensors_of(first, "F32", weights)),
                file("b", safetensors_of(second_holds, "F32", weights)),
            ]
        };
        let sharded = Model::new(shape(), files(second), &index).expect("a model");
        let tokens = tokens(20, 67);
        let window = Window {
            tokens: &tokens,
            from: 1,
        };
        assert_eq!(
            losses(&sharded, &[window]),
            losses(&model(LLAMA, "F32"), &[window])
        );
        let error = Model::new(shape(), files(&second[1..]), &index).err();
        assert!(error.expect("missing").contains(&second[0].0));
    }

    #[test]
    fn operations_count_two_for_each_weight_of_a_product() {
        let shape = Shape::parse(LLAMA.as_bytes()).expect("a shape");
        let products: usize = shapes(LLAMA)
            .iter()
            .filter(|(name, shape)| shape.len() == 2 && !name.contains("embed"))
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum();
        assert_eq!(shape.flops_per_token(), 2.0 * products as f64);
        let shape = Shape::parse(GPT2.as_bytes()).expect("a shape");
        let products: usize = shapes(GPT2)
            .iter()
            .filter(|(name, shape)| shape.len() == 2 && !name.contains("wpe"))
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum();
        assert_eq!(shape.flops_per_token(), 2.0 * products as f64);
    }
}
