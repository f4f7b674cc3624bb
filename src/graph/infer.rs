//! Infers the shapes of an op's results, and checks its operands.

use super::{FusedOp, Op, Rows, Shape, attention::infer_rotated};

/// The divisor of the elements of a head that is multiplied with a matrix of its own, so that
/// blocks of quantized rows do not straddle heads.
pub const HEAD_UNIT: usize = 32;

impl Op {
    /// Returns the shapes of the results for operands of these shapes.
    ///
    /// # Errors
    /// A message with the operands that the op takes, and the shapes that it got.
    pub fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        match self {
            Self::Embed => match inputs {
                [Shape { rows: Rows::Fixed(_), width }, Shape { rows: Rows::Tokens, width: 1 }] => {
                    Ok(vec![Shape::new(Rows::Tokens, *width)])
                }
                _ => Err(mismatch("a table and the tokens", inputs)),
            },
            Self::MatMul => products(inputs, 1),
            Self::MatMulHeads { heads } => products_of_heads(*heads, inputs),
            Self::Add | Self::Mul | Self::Div => match inputs {
                [a, b] if a == b || (b.rows == Rows::Fixed(1) && [1, a.width].contains(&b.width)) => Ok(vec![*a]),
                _ => Err(mismatch("two of one shape, or the second one row or one number", inputs)),
            },
            Self::Activate(_) | Self::SoftCap { .. } => match inputs {
                [x] => Ok(vec![*x]),
                _ => Err(mismatch("one operand", inputs)),
            },
            Self::Clamp => clamp(inputs),
            Self::Concat { groups } => concat(*groups, inputs),
            Self::MixStreams { outputs } => mix_streams(*outputs, inputs),
            Self::Deviation { .. } => match inputs {
                [x] if x.width > 0 => Ok(vec![Shape::new(x.rows, 1)]),
                _ => Err(mismatch("one operand with elements", inputs)),
            },
            Self::Slice { first, len, every } => match inputs {
                [x] if *every > 0 && x.width.is_multiple_of(*every) && *len > 0 && first + len <= *every => {
                    Ok(vec![Shape::new(x.rows, x.width / every * len)])
                }
                _ => Err(mismatch(
                    &format!("rows of whole groups of {every} elements, with {len} of them from {first} on"),
                    inputs,
                )),
            },
            Self::RmsNorm { .. } => match inputs {
                [x, w] if w.rows == Rows::Fixed(1) && w.width > 0 && x.width.is_multiple_of(w.width) => Ok(vec![*x]),
                _ => Err(mismatch("x and a weight whose width divides that of x", inputs)),
            },
            Self::LayerNorm { groups, .. } => layer_norm(*groups, inputs),
            Self::Rope(spec) => spec.infer(inputs),
            Self::Attention(spec) => spec.infer(inputs),
            Self::ShortConv(spec) => spec.infer(inputs),
            Self::GatedDelta(spec) => spec.infer(inputs),
            Self::StateScan(spec) => spec.infer(inputs),
            Self::SelectOutputs => of_tokens(inputs).map(|x| vec![Shape::new(Rows::Outputs, x.width)]),
            Self::JoinRows { count } => {
                of_tokens(inputs).map(|x| vec![Shape::new(Rows::Outputs, count.saturating_mul(x.width))])
            }
            Self::InputRows { width } if inputs.is_empty() => Ok(vec![Shape::new(Rows::Tokens, *width)]),
            Self::InputRows { .. } => Err(mismatch("no operand", inputs)),
            Self::PlaceRows { first: 0, marked: true } => {
                Err(mismatch("a mark before the rows that it places", inputs))
            }
            Self::PlaceRows { .. } | Self::AddRows { .. } => of_tokens(inputs).map(|x| vec![x]),
            Self::Temper { interval: 0, .. } => Err("has an interval of 0 positions, but needs at least 1".into()),
            Self::Temper { .. } => of_tokens(inputs).map(|x| vec![x]),
            Self::Interpolate { .. } => match inputs {
                [Shape { rows: Rows::Fixed(_), width }] => Ok(vec![Shape::new(Rows::Tokens, *width)]),
                _ => Err(mismatch("a table", inputs)),
            },
            Self::Route(spec) => spec.infer(inputs),
            Self::Experts(spec) => spec.infer(inputs),
            Self::Fused(op) => op.infer(inputs),
        }
    }
}

impl FusedOp {
    fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        match self {
            Self::MatMulJoined => products(inputs, inputs.len().saturating_sub(1)),
            Self::MatMulGlu(_) => match products(inputs, 2)?.as_slice() {
                [gate, up] if gate == up => Ok(vec![*gate]),
                _ => Err(mismatch("a gate and an up matrix of one shape", inputs)),
            },
            Self::MatMulAdd => match inputs {
                [x, w, residual] if products(&[*x, *w], 1)? == [*residual] => Ok(vec![*residual]),
                _ => Err(mismatch("x, a matrix and a residual of the product's shape", inputs)),
            },
            Self::AddRmsNorm { .. } => match inputs {
                [a, b, w] if a == b && *w == Shape::new(Rows::Fixed(1), a.width) => Ok(vec![*a, *a]),
                _ => Err(mismatch("two of one shape and a weight of their width", inputs)),
            },
            Self::MatMulAddRmsNorm { .. } => match inputs {
                [x, w, residual, norm]
                    if products(&[*x, *w], 1)? == [*residual]
                        && *norm == Shape::new(Rows::Fixed(1), residual.width) =>
                {
                    Ok(vec![*residual, *residual])
                }
                _ => Err(mismatch("x, a matrix, a residual of the product's shape and a weight of its width", inputs)),
            },
            Self::Gated { norm, .. } => match (inputs, norm) {
                ([x, gate], None) if x == gate => Ok(vec![*x]),
                ([x, gate, w], Some(_))
                    if x == gate && w.rows == Rows::Fixed(1) && w.width > 0 && x.width.is_multiple_of(w.width) =>
                {
                    Ok(vec![*x])
                }
                _ => Err(mismatch(
                    "x and a gate of one shape, and with a norm a weight whose width divides theirs",
                    inputs,
                )),
            },
            Self::RotatedAttention { attention, rope, norm } => {
                let head = Shape::new(Rows::Fixed(1), attention.head_dim);
                match (inputs, norm) {
                    ([q, k, v, f], None) => infer_rotated(attention, rope, [*q, *k, *v], *f),
                    ([q, k, v, f, q_norm, k_norm], Some(_)) if *q_norm == head && *k_norm == head => {
                        infer_rotated(attention, rope, [*q, *k, *v], *f)
                    }
                    _ => Err(mismatch("q, k, v and frequencies, and with norms two weights of a head's width", inputs)),
                }
            }
        }
    }
}

/// Returns the shape of the only operand, which has a row for each token.
fn of_tokens(inputs: &[Shape]) -> Result<Shape, String> {
    match inputs {
        [x] if x.rows == Rows::Tokens => Ok(*x),
        _ => Err(mismatch("one operand with a row for each token", inputs)),
    }
}

/// Returns the shape of an operand that is limited by two numbers.
fn clamp(inputs: &[Shape]) -> Result<Vec<Shape>, String> {
    match inputs {
        [x, lower, upper] if [lower, upper].iter().all(|y| **y == Shape::new(Rows::Fixed(1), 1)) => Ok(vec![*x]),
        _ => Err(mismatch("x and two numbers", inputs)),
    }
}

/// Returns the shape of joined rows of `groups` groups.
fn concat(groups: usize, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
    let fits = |x: &Shape, rows| x.rows == rows && groups > 0 && x.width.is_multiple_of(groups);
    match inputs {
        [first, ..] if inputs.iter().all(|x| fits(x, first.rows)) => {
            Ok(vec![Shape::new(first.rows, inputs.iter().map(|x| x.width).sum())])
        }
        _ => Err(mismatch(&format!("operands with the same rows, of {groups} groups each"), inputs)),
    }
}

/// Returns the shape of `outputs` weighted sums of the parts of rows.
fn mix_streams(outputs: usize, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
    if let [x, weights] = inputs
        && x.rows == weights.rows
        && let Some(streams) = weights.width.checked_div(outputs).filter(|streams| *streams > 0)
        && weights.width == outputs * streams
        && x.width.is_multiple_of(streams)
    {
        return Ok(vec![Shape::new(x.rows, outputs.saturating_mul(x.width / streams))]);
    }
    Err(mismatch(&format!("x of whole parts, and a weight of each part for each of {outputs} sums"), inputs))
}

/// Returns the shape of rows with a norm that has a weight and a bias.
fn layer_norm(groups: usize, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
    match inputs {
        [x, w, b]
            if groups > 0
                && x.width.is_multiple_of(groups)
                && [w, b].iter().all(|row| **row == Shape::new(Rows::Fixed(1), x.width)) =>
        {
            Ok(vec![*x])
        }
        _ => Err(mismatch("x of whole groups, and a weight and a bias of its width", inputs)),
    }
}

/// Returns the shapes of the products of `inputs[0]` with each of the `n` matrices that follow.
fn products(inputs: &[Shape], n: usize) -> Result<Vec<Shape>, String> {
    let Some((x, matrices)) = inputs.split_first().filter(|(_, matrices)| n > 0 && matrices.len() == n) else {
        return Err(mismatch("x and its matrices", inputs));
    };
    matrices
        .iter()
        .map(|w| match w.rows {
            Rows::Fixed(rows) if w.width == x.width => Ok(Shape::new(x.rows, rows)),
            _ => Err(mismatch("matrices whose columns match x", inputs)),
        })
        .collect()
}

/// Returns the shape of the products of each head's part of `x` with its own rows of a matrix.
fn products_of_heads(heads: usize, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
    match inputs {
        [x, Shape { rows: Rows::Fixed(rows), width }]
            if heads > 0
                && width.is_multiple_of(HEAD_UNIT)
                && x.width == heads.saturating_mul(*width)
                && rows.is_multiple_of(heads) =>
        {
            Ok(vec![Shape::new(x.rows, *rows)])
        }
        _ => Err(mismatch(&format!("x of {heads} heads of whole {HEAD_UNIT} elements, and a matrix for each"), inputs)),
    }
}

/// Returns the message for operands of wrong shapes.
pub(super) fn mismatch(expected: &str, inputs: &[Shape]) -> String {
    let shapes: Vec<_> = inputs.iter().map(Shape::to_string).collect();
    format!("needs {expected}, but got {}", shapes.join(" "))
}
