//! Products of matrices and the exponential function in 32-bit floats, the same bits everywhere.
//!
//! Every element of a product is one chain of fused multiply-adds over the depth, in ascending order.
//! A fused multiply-add is rounded once, by definition, so neither the width of the machine's vectors
//! nor the other rows and columns that are computed at the same time change a bit.

use multiversion::multiversion;

/// How numbers are stored, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 16 bits.
    F16,
    /// The upper half of an `F32`.
    Bf16,
}

impl Number {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Number::F32 => 4,
            Number::F16 | Number::Bf16 => 2,
        }
    }

    /// The number at this place, counted in numbers.
    #[inline(always)]
    pub fn at(self, bytes: &[u8], place: usize) -> f32 {
        match self {
            Number::F32 => {
                let b = &bytes[4 * place..4 * place + 4];
                f32::from_le_bytes([b[0], b[1], b[2], b[3]])
            }
            Number::F16 => {
                let b = &bytes[2 * place..2 * place + 2];
                f32_of_half(u16::from_le_bytes([b[0], b[1]]))
            }
            Number::Bf16 => {
                let b = &bytes[2 * place..2 * place + 2];
                f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16)
            }
        }
    }

    /// The numbers in `bytes` from `place` on, as many as `out` holds.
    pub fn read(self, bytes: &[u8], place: usize, out: &mut [f32]) {
        for (at, out) in out.iter_mut().enumerate() {
            *out = self.at(bytes, place + at);
        }
    }
}

/// Of the 16 bits of an IEEE 754 half: exact.
#[inline(always)]
fn f32_of_half(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let (exponent, mantissa) = (u32::from(half >> 10) & 31, u32::from(half) & 1023);
    let magnitude = match (exponent, mantissa) {
        // Below 2^-14 in steps of 2^-24; exact in 32 bits.
        (0, _) => (mantissa as f32 * f32::from_bits((127 - 24) << 23)).to_bits(),
        (31, _) => 0x7f80_0000 | mantissa << 13,
        _ => (exponent + 127 - 15) << 23 | mantissa << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// The right-hand side of a product: `depth` rows of `columns` numbers, stored in either order.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Where the numbers are.
    pub bytes: &'a [u8],
    /// How they are stored.
    pub number: Number,
    /// Place of the first element, in numbers.
    pub start: usize,
    /// From one element of a column to the next, in numbers.
    pub depth_stride: usize,
    /// From one element of a row to the next, in numbers.
    pub column_stride: usize,
    /// Rows.
    pub depth: usize,
    /// Columns.
    pub columns: usize,
}

impl Matrix<'_> {
    /// The same with `columns` columns from `first` on.
    pub fn columns(self, first: usize, columns: usize) -> Self {
        debug_assert!(first + columns <= self.columns, "columns that it has");
        Matrix {
            start: self.start + first * self.column_stride,
            columns,
            ..self
        }
    }
}

/// Columns that are computed together.
const LANES: usize = 16;
/// Rows that are computed together: with two vectors of 8 lanes each they fill 12 of 16 registers.
const ROWS: usize = 6;
/// Depth that is computed before the next rows: a panel of 32 KiB.
const DEPTH: usize = 512;

/// `out[i][j] = sum over k of left[i][k] * right[k][j]` for `rows` rows. Rows of `left` lie
/// `left_stride` apart, those of `out` `out_stride`. Not finite where an operand is not.
///
/// # Panics
/// When a slice is too short.
pub fn multiply(
    left: &[f32],
    left_stride: usize,
    rows: usize,
    right: Matrix<'_>,
    out: &mut [f32],
    out_stride: usize,
) {
    for row in 0..rows {
        out[row * out_stride..][..right.columns].fill(0.0);
    }
    if rows == 0 {
        return;
    }
    let mut panel = [[0.0f32; LANES]; DEPTH];
    for column in (0..right.columns).step_by(LANES) {
        let width = LANES.min(right.columns - column);
        for depth in (0..right.depth).step_by(DEPTH) {
            let panel = &mut panel[..DEPTH.min(right.depth - depth)];
            pack(right, depth, column, width, panel);
            panel_product(
                &left[depth..],
                left_stride,
                rows,
                panel,
                width,
                &mut out[column..],
                out_stride,
            );
        }
    }
}

/// Copies a block of a matrix, zeros right of it.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma", "aarch64+neon"))]
fn pack(from: Matrix<'_>, depth: usize, column: usize, width: usize, panel: &mut [[f32; LANES]]) {
    let first = from.start + depth * from.depth_stride + column * from.column_stride;
    if from.column_stride == 1 && width == LANES {
        for (at, row) in panel.iter_mut().enumerate() {
            from.number
                .read(from.bytes, first + at * from.depth_stride, row);
        }
        return;
    }
    for lane in 0..LANES {
        if lane >= width {
            panel.iter_mut().for_each(|row| row[lane] = 0.0);
            continue;
        }
        let place = first + lane * from.column_stride;
        for (at, row) in panel.iter_mut().enumerate() {
            row[lane] = from.number.at(from.bytes, place + at * from.depth_stride);
        }
    }
}

/// Adds a panel's products to what is there.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma", "aarch64+neon"))]
fn panel_product(
    left: &[f32],
    left_stride: usize,
    rows: usize,
    panel: &[[f32; LANES]],
    width: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    let mut row = 0;
    while row + ROWS <= rows {
        let (left, out) = (&left[row * left_stride..], &mut out[row * out_stride..]);
        tile::<ROWS>(left, left_stride, panel, width, out, out_stride);
        row += ROWS;
    }
    while row < rows {
        let (left, out) = (&left[row * left_stride..], &mut out[row * out_stride..]);
        tile::<1>(left, left_stride, panel, width, out, out_stride);
        row += 1;
    }
}

#[inline(always)]
fn tile<const N: usize>(
    left: &[f32],
    left_stride: usize,
    panel: &[[f32; LANES]],
    width: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    let left: [&[f32]; N] = std::array::from_fn(|row| &left[row * left_stride..][..panel.len()]);
    let mut sums = [[0.0f32; LANES]; N];
    for (row, sums) in sums.iter_mut().enumerate() {
        sums[..width].copy_from_slice(&out[row * out_stride..][..width]);
    }
    for (at, right) in panel.iter().enumerate() {
        for row in 0..N {
            let x = left[row][at];
            for lane in 0..LANES {
                sums[row][lane] = x.mul_add(right[lane], sums[row][lane]);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        out[row * out_stride..][..width].copy_from_slice(&sums[..width]);
    }
}

/// e^x to a relative error below 3e-7, for x from -87 to 88; beyond that what it is at the bound.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // ln 2 in two parts; a multiple of the first, 355/512, is exact.
    const HIGH: f32 = 355.0 / 512.0;
    const LOW: f32 = -2.121_944_4e-4;
    // Adding it rounds to a whole number, ties to even.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let whole = x.mul_add(std::f32::consts::LOG2_E, ROUND) - ROUND;
    let rest = whole.mul_add(-LOW, whole.mul_add(-HIGH, x));
    // The series of e^rest; |rest| < .35, so the term of rest^8 is below 1e-8.
    let mut sum = 1.0 / 5040.0;
    for factorial in [720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        sum = rest.mul_add(sum, 1.0 / factorial);
    }
    sum * f32::from_bits(((whole as i32 + 127) << 23) as u32)
}

/// The largest number; NaN where one is NaN is not promised.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes
        .iter()
        .chain(chunks.remainder())
        .fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

/// Replaces each x by e^(x - shift) and returns their sum: by lane in order, then over the lanes.
#[inline(always)]
fn exponentials(values: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut chunks = values.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *value = exp(*value - shift);
            *lane += *value;
        }
    }
    let mut sum = 0.0;
    for lane in lanes {
        sum += lane;
    }
    for value in chunks.into_remainder() {
        *value = exp(*value - shift);
        sum += *value;
    }
    sum
}

/// Makes scores into probabilities that sum to 1.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma", "aarch64+neon"))]
pub fn softmax(scores: &mut [f32]) {
    let highest = largest(scores);
    let sum = exponentials(scores, highest);
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// A sum of exponentials that grows: e^highest * sum.
#[derive(Clone, Copy, Debug)]
pub struct LogSum {
    highest: f32,
    sum: f64,
}

impl Default for LogSum {
    fn default() -> Self {
        LogSum {
            highest: f32::NEG_INFINITY,
            sum: 0.0,
        }
    }
}

impl LogSum {
    /// Adds e^x of each of these; they are overwritten.
    pub fn add(&mut self, values: &mut [f32]) {
        log_sum_add(self, values);
    }
    /// The natural logarithm of the sum.
    pub fn ln(&self) -> f64 {
        f64::from(self.highest) + libm::log(self.sum)
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma", "aarch64+neon"))]
fn log_sum_add(all: &mut LogSum, values: &mut [f32]) {
    let highest = largest(values);
    if highest > all.highest {
        if all.sum > 0.0 {
            all.sum *= libm::exp(f64::from(all.highest) - f64::from(highest));
        }
        all.highest = highest;
    }
    all.sum += f64::from(exponentials(values, all.highest));
}

/// `x * sigmoid(x)` of each gate times what stands at the same place in `values`, into `values`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma", "aarch64+neon"))]
pub fn gate_with_silu(gates: &[f32], values: &mut [f32]) {
    for (value, &gate) in values.iter_mut().zip(gates) {
        *value *= gate / (1.0 + exp(-gate));
    }
}

/// The Gaussian error linear unit in the form with tanh that GPT-2 uses:
/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma", "aarch64+neon"))]
pub fn gelu_tanh(values: &mut [f32]) {
    const ROOT: f32 = 0.797_884_6;
    for value in values {
        let x = *value;
        let inner = ROOT * (x + 0.044_715 * x * x * x);
        // (1 + tanh y) / 2 = 1 / (1 + e^-2y)
        *value = x / (1.0 + exp(-2.0 * inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::hash;

    fn numbers(purpose: &str, n: usize) -> Vec<f32> {
        (0..n as u64)
            .map(|at| (hash::keyed(3, purpose, at) >> 40) as f32 / (1 << 23) as f32 - 1.0)
            .collect()
    }

    fn product(left: &[f32], rows: usize, right: Matrix<'_>) -> Vec<f32> {
        let mut out = vec![f32::NAN; rows * right.columns];
        multiply(left, right.depth, rows, right, &mut out, right.columns);
        out
    }

    /// The definition, one element at a time.
    fn by_definition(left: &[f32], rows: usize, right: Matrix<'_>) -> Vec<f32> {
        let element = |k: usize, j: usize| {
            let place = right.start + k * right.depth_stride + j * right.column_stride;
            right.number.at(right.bytes, place)
        };
        let mut out = Vec::new();
        for row in 0..rows {
            for j in 0..right.columns {
                out.push((0..right.depth).fold(0.0f32, |sum, k| {
                    left[row * right.depth + k].mul_add(element(k, j), sum)
                }));
            }
        }
        out
    }

    #[test]
    fn a_product_is_the_definition_bit_by_bit_in_every_order_and_size() {
        for (rows, depth, columns) in [
            (1, 1, 1),
            (5, 3, 17),
            (6, 512, 16),
            (7, 513, 33),
            (13, 1100, 15),
            (0, 4, 40),
            (2, 0, 3),
        ] {
            let left = numbers("left", rows * depth);
            let values = numbers("right", depth * columns);
            for by_rows in [true, false] {
                let right = Matrix {
                    bytes: bytemuck::cast_slice(&values),
                    number: Number::F32,
                    start: 0,
                    depth_stride: if by_rows { columns } else { 1 },
                    column_stride: if by_rows { 1 } else { depth },
                    depth,
                    columns,
                };
                assert_eq!(
                    product(&left, rows, right),
                    by_definition(&left, rows, right),
                    "{rows} {depth} {columns}"
                );
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_the_rows_beside_it() {
        let (depth, columns) = (700, 40);
        let left = numbers("left", 20 * depth);
        let values = numbers("right", depth * columns);
        let right = Matrix {
            bytes: bytemuck::cast_slice(&values),
            number: Number::F32,
            start: 0,
            depth_stride: columns,
            column_stride: 1,
            depth,
            columns,
        };
        let all = product(&left, 20, right);
        for row in 0..20 {
            let alone = product(&left[row * depth..][..depth], 1, right);
            assert_eq!(alone, all[row * columns..][..columns]);
        }
        let some = product(&left, 20, right.columns(7, 20));
        assert_eq!(some[20..40], all[columns + 7..columns + 27]);
    }

    #[test]
    fn halves_are_read_as_defined() {
        let half = |bits: u16| Number::F16.at(&bits.to_le_bytes(), 0);
        assert_eq!(half(0x3c00), 1.0);
        assert_eq!(half(0xc000), -2.0);
        assert_eq!(half(0x7bff), 65504.0);
        assert_eq!(half(0x0001), 2f32.powi(-24));
        assert_eq!(half(0x03ff), 1023.0 * 2f32.powi(-24));
        assert_eq!(half(0x0400), 2f32.powi(-14));
        assert_eq!(half(0x8000).to_bits(), (-0.0f32).to_bits());
        assert_eq!(half(0x7c00), f32::INFINITY);
        assert!(half(0x7e00).is_nan());
        assert_eq!(Number::Bf16.at(&[0, 0, 0xc0, 0xbf], 1), -1.5);
    }

    #[test]
    fn exp_is_near_the_exponential_function_everywhere() {
        let mut worst = 0.0f64;
        for at in -87_000..=88_000 {
            let x = at as f32 / 1000.0;
            let exact = libm::exp(f64::from(x));
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 3e-7, "{worst}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e30), exp(-87.0));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn activations_and_sums_have_their_values() {
        let mut values = [-3.0f32, -0.5, 0.0, 1.0, 4.0];
        gelu_tanh(&mut values);
        for (value, x) in values.into_iter().zip([-3.0f64, -0.5, 0.0, 1.0, 4.0]) {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            let exact = x / 2.0 * (1.0 + libm::tanh(inner));
            assert!((f64::from(value) - exact).abs() < 1e-6, "{x}: {value}");
        }
        let mut values = [2.0f32, 3.0];
        gate_with_silu(&[1.0, -1.0], &mut values);
        assert!((values[0] - 2.0 * 0.731_058_6).abs() < 1e-6);
        assert!((values[1] + 3.0 * 0.268_941_4).abs() < 1e-6);
        let mut scores = [1.0f32, 1.0, 1.0 + std::f32::consts::LN_2];
        softmax(&mut scores);
        assert!((scores[2] - 0.5).abs() < 1e-6 && (scores[0] - 0.25).abs() < 1e-6);
        let mut sum = LogSum::default();
        sum.add(&mut [0.0, -200.0]);
        sum.add(&mut [100.0; 20]);
        sum.add(&mut [3.0]);
        assert!((sum.ln() - (100.0 + libm::log(20.0))).abs() < 1e-6);
    }
}
