//! Defines the parameters that several templates have.

use serde::{Serialize, Serializer};

use crate::{
    backend::webgpu::{
        kernel::{Binding, Resource, reads},
        step::{Layout, RECORDS},
        weight_buffers::{BufferRange, GpuMatrix, MatrixPart},
    },
    graph::{Activation, Glu, RopeStyle, Rows},
};

/// A number that templates write as an `f32` literal of WGSL.
#[derive(Clone, Copy, Debug)]
pub struct F32(pub f32);

impl Serialize for F32 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("F32", &format!("{:?}f", self.0))
    }
}

/// An activation, by the name of its function in `shared/activations.wgsl`.
#[derive(Clone, Copy, Debug)]
pub struct Function(pub Activation);

impl Function {
    fn name(self) -> &'static str {
        match self.0 {
            Activation::Silu => "silu",
            Activation::Gelu => "gelu",
            Activation::GeluErf => "gelu_erf",
            Activation::QuickGelu => "quick_gelu",
            Activation::Sigmoid => "sigmoid",
            Activation::Relu => "relu",
            Activation::SquaredRelu => "squared_relu",
        }
    }
}

impl Serialize for Function {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("Function", self.name())
    }
}

/// A gated linear unit: the name of the activation, or "clamped_glu", a function of both rows.
#[derive(Clone, Copy, Debug)]
pub struct GluFunction(pub Glu);

impl Serialize for GluFunction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = match self.0 {
            Glu::Plain(activation) => Function(activation).name(),
            Glu::Clamped => "clamped_glu",
        };
        serializer.serialize_newtype_struct("GluFunction", name)
    }
}

/// A buffer that a kernel binds. Its value in templates is `true`, so that they can test whether an
/// optional buffer is bound.
#[derive(Clone, Copy, Debug)]
pub struct BoundBuffer(pub Resource);

impl Serialize for BoundBuffer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("BoundBuffer", &true)
    }
}

/// Rows of f32 and the distance between them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Strided {
    /// Elements from the start of a row to the start of the next.
    pub stride: usize,
    /// The buffer of the rows.
    #[serde(skip)]
    pub rows: Resource,
}

/// The number of a step's rows, which a kernel reads from the step's header.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowCount {
    /// One row for each token.
    Tokens,
    /// One row for each token whose logits are computed.
    Outputs,
}

impl From<Rows> for RowCount {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Tokens | Rows::Fixed(_) => Self::Tokens,
            Rows::Outputs => Self::Outputs,
        }
    }
}

/// The soft cap `c tanh(x / c)`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SoftCap {
    /// The cap `c`.
    cap: F32,
    /// `2 c`.
    twice: F32,
    /// `2 / c`.
    two_over: F32,
}

impl From<f32> for SoftCap {
    fn from(cap: f32) -> Self {
        Self { cap: F32(cap), twice: F32(2.0 * cap), two_over: F32(2.0 / cap) }
    }
}

/// The RMS norm of rows: `x / sqrt(mean(x^2) + eps) * weight`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Norm {
    /// Added to the mean square.
    eps: F32,
    /// 1 / the elements of a row.
    reciprocal: F32,
    /// The buffer of the weights, one for each element of a row.
    #[serde(skip)]
    pub weight: Resource,
}

impl Norm {
    /// Returns the norm of rows of `width` elements.
    pub fn new(width: usize, eps: f32, weight: Resource) -> Self {
        Self { eps: F32(eps), reciprocal: F32(1.0 / width as f32), weight }
    }
}

/// The place of the tokens' records in the step's buffer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Records {
    /// The first word of the first record.
    pub at: usize,
    /// Words of a record.
    pub words: usize,
}

impl From<&Layout> for Records {
    fn from(layout: &Layout) -> Self {
        Self { at: RECORDS, words: layout.record_words() }
    }
}

/// A rotary position embedding of heads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rotation {
    /// Which elements are rotated together.
    pub style: RotationStyle,
    /// Pairs of a head that are rotated, in its first `2 pairs` elements.
    pub pairs: usize,
    /// The first word, in a token's record, of the (cosine, sine) of each pair.
    pub angles_at: usize,
}

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RotationStyle {
    /// `2 i` and `2 i + 1`.
    Adjacent,
    /// `i` and `i + pairs`.
    Halves,
    /// `i` and `i + pairs / 2`, in the first `pairs` elements and in the next.
    Quarters,
}

impl From<RopeStyle> for RotationStyle {
    fn from(style: RopeStyle) -> Self {
        match style {
            RopeStyle::Adjacent => Self::Adjacent,
            RopeStyle::Halves => Self::Halves,
            RopeStyle::Quarters => Self::Quarters,
        }
    }
}

/// A matrix, or the part of it that fits one binding, in the planes of its format.
#[derive(Clone, Debug, Serialize)]
pub struct MatrixPlanes {
    /// The suffix of the names of the matrix's buffers and decoder: `wide0`, `small0`, `unit0`.
    pub number: usize,
    /// The name of the format, and of its decoder in `format/`.
    pub format: &'static str,
    /// Whether the decoder returns units of integers with a scale and a minimum, rather than
    /// floats.
    pub coded: bool,
    /// Number of scales in a unit: 0 for floats, 1, or 2 for 16 columns each.
    pub scales: usize,
    /// Units of 32 columns in a row.
    pub units: usize,
    /// The first word of each plane, and of the table that the decoder looks up, if there is one.
    pub planes: Vec<u32>,
    /// The name of the array with the table.
    pub table: String,
    /// The first word of the table in that array.
    pub table_at: u32,
    /// The number of words of the table, or 0.
    #[serde(skip)]
    pub table_words: usize,
    /// The buffer's range of the planes.
    #[serde(skip)]
    pub range: BufferRange,
}

impl MatrixPlanes {
    /// Returns the parameters of a part of a matrix, which has index `number` in its kernel.
    pub fn new(number: usize, matrix: &GpuMatrix, part: &MatrixPart) -> Self {
        let (format, coded, scales) = (matrix.dtype.name(), matrix.planes().coded(), matrix.planes().scales);
        Self {
            number,
            format,
            coded,
            scales,
            units: matrix.units,
            planes: part.plane_offsets.clone(),
            table: format!("small{number}"),
            table_at: part.plane_offsets.last().copied().unwrap_or(0),
            table_words: matrix.planes().table.len(),
            range: part.range,
        }
    }

    /// Returns the bindings of the matrix: its planes as vectors of four words, and as single
    /// words.
    pub fn bindings(&self) -> [Binding; 2] {
        let Self { number, range, .. } = self;
        [reads(format!("wide{number}"), "vec4<u32>", *range), reads(format!("small{number}"), "u32", *range)]
    }
}

/// The rows of each expert in the stacked matrices of a layer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ExpertStack {
    /// The first row of expert 0.
    pub offset: usize,
    /// Rows from the first row of an expert to the first row of the next.
    pub stride: usize,
}
