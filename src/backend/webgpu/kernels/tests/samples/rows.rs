//! Makes samples of kernels of rows, heads and elements.

use super::{Sample, adapter, all, buffer, function, glu, matrix, none_missing, records, rotation, rows};
use crate::{
    DType,
    backend::webgpu::{
        kernel::Resource,
        kernels::{
            BoundBuffer, DeviationKernel, ElementKernel, ElementOp, F16Output, F32, GatedKernel, Heads, IdRange,
            InputName, LayerNormKernel, MixStreamsKernel, Norm, Operator, RowInput, RowSource, RowsKernel,
            SecondOperand, StepRowSource, StepRows, Strided, tests::choices::Choices,
        },
    },
};

none_missing!(ElementOp: Copy, Binary, Activate, SoftCap, Clamp, Shift, Slice);
none_missing!(SecondOperand: Rows, Row, Number);

impl Sample for ElementKernel {
    fn sample(choices: &mut Choices) -> Self {
        let op = match choices.of("op", &[0, 1, 2, 3, 4, 5, 6]) {
            0 => ElementOp::Copy,
            1 => ElementOp::Binary {
                operator: choices.of("operator", &all!(Operator: Add, Mul, Div)),
                b: match choices.of("second", &[0, 1, 2]) {
                    0 => SecondOperand::Rows { stride: 128, rows: Resource::Temp(1) },
                    1 => SecondOperand::Row { row: Resource::Temp(1) },
                    _ => SecondOperand::Number { number: Resource::Temp(1) },
                },
            },
            2 => ElementOp::Activate { function: function(choices) },
            3 => ElementOp::SoftCap { cap: 30.0.into() },
            4 => ElementOp::Clamp { lower: Resource::Temp(2), upper: Resource::Temp(3) },
            5 => ElementOp::Shift { to: 32, len: 16, every: 48 },
            _ => ElementOp::Slice { first: 16, len: 16, every: 48 },
        };
        let a = choices.option("a", |_| rows(128));
        Self { workgroup: 64, width: 80, op, a, y: rows(128) }
    }
}

fn norm(width: usize) -> Norm {
    Norm::new(width, 1e-6, Resource::Temp(1))
}

impl Sample for Heads {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        let head_dim = choices.of("head_dim", &[80, 128]);
        let norm = choices.option("norm", |_| norm(head_dim));
        // Heads that are neither normed nor rotated have no kernel, but are rendered all the same.
        let rotation = choices.option("rotation", |choices| rotation(choices, head_dim));
        let x = choices.option("x", |_| rows(256));
        let subgroup = traits.subgroup;
        Self { workgroup: 128, subgroup, head_dim, x, y: rows(256), norm, rotation, records: records() }
    }
}

impl Sample for GatedKernel {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        let norm = choices.option("norm", |_| norm(128));
        // Without a norm, the last group may be shorter.
        let width = if norm.is_some() { 256 } else { choices.of("width", &[160, 256]) };
        Self {
            workgroup: choices.of("workgroup", &[64, 128]),
            subgroup: traits.subgroup,
            width,
            len: 128,
            function: function(choices),
            norm,
            x: rows(256),
            gate: Strided { stride: 256, rows: Resource::Temp(2) },
            y: choices.option("y", |_| Strided { stride: 256, rows: Resource::Temp(3) }),
            y_q8: choices.option("y_q8", |_| BoundBuffer(Resource::Q8(0))),
        }
    }
}

none_missing!(StepRowSource: Given, Placed, Added, Joined, Tempered, Interpolated);

impl Sample for StepRows {
    fn sample(choices: &mut Choices) -> Self {
        let source = match choices.of("source", &[0, 1, 2, 3, 4, 5]) {
            0 => StepRowSource::Given { given_width: 80 },
            1 => StepRowSource::Placed { first: 80, marked: choices.flag("marked"), given_width: 160 },
            2 => StepRowSource::Added { first: 80, given_width: 160 },
            3 => StepRowSource::Joined { part: 20 },
            4 => StepRowSource::Tempered { scale: F32(0.1), interval: 8192, offset: 1 },
            _ => StepRowSource::Interpolated { taps_at: 40, table: Resource::Temp(3) },
        };
        let x = match source {
            StepRowSource::Given { .. } | StepRowSource::Interpolated { .. } => None,
            StepRowSource::Placed { .. } | StepRowSource::Added { .. } | StepRowSource::Tempered { .. } => {
                choices.option("x", |_| rows(128))
            }
            // The operand has other rows than the result.
            StepRowSource::Joined { .. } => Some(rows(64)),
        };
        Self { workgroup: 64, width: 80, source, x, y: rows(128), records: records() }
    }
}

impl Sample for MixStreamsKernel {
    fn sample(_: &mut Choices) -> Self {
        Self { workgroup: 64, width: 80, part: 20, streams: 3, x: rows(64), weights: rows(64), y: rows(128) }
    }
}

impl Sample for DeviationKernel {
    fn sample(choices: &mut Choices) -> Self {
        let (subgroup, centered) = (adapter(choices).subgroup, choices.flag("centered"));
        Self { workgroup: 128, subgroup, width: 80, reciprocal: F32(1.0 / 80.0), centered, x: rows(128), y: rows(64) }
    }
}

impl Sample for LayerNormKernel {
    fn sample(choices: &mut Choices) -> Self {
        let subgroup = adapter(choices).subgroup;
        let x = choices.option("x", |_| rows(128));
        let (weight, bias) = (Resource::Temp(1), Resource::Temp(2));
        let (eps, reciprocal) = (F32(1e-6), F32(1.0 / 80.0));
        Self { workgroup: 128, subgroup, width: 80, eps, reciprocal, x, y: rows(128), weight, bias }
    }
}

/// Makes an operand. Its buffer has the name of the output that overwrites it, if there is one.
fn input(choices: &mut Choices, question: &'static str, name: InputName, outputs: [Option<Strided>; 2]) -> RowInput {
    let mut names = vec![name];
    names.extend(outputs[0].map(|_| InputName::Sum));
    names.extend(outputs[1].map(|_| InputName::Y));
    RowInput { name: choices.of(question, &names), stride: 256, rows: Resource::Temp(2) }
}

none_missing!(InputName: A, B, Sum, Y);
none_missing!(RowSource: Copy, Select, Sum, Glu, Embed);

fn source(choices: &mut Choices, width: usize, outputs: [Option<Strided>; 2]) -> RowSource {
    let a = |choices: &mut Choices| input(choices, "a", InputName::A, outputs);
    let b = |choices: &mut Choices| input(choices, "b", InputName::B, outputs);
    match choices.of("source", &[0, 1, 2, 3, 4]) {
        0 => RowSource::Copy { a: a(choices) },
        1 => RowSource::Select { a: a(choices), records: records() },
        2 => RowSource::Sum { a: a(choices), b: b(choices) },
        3 => RowSource::Glu { function: glu(choices), a: a(choices), b: b(choices) },
        _ => RowSource::Embed {
            table: matrix(0, choices.of("format", DType::ALL), width),
            ids: choices.option("ids", |_| IdRange { first: 64, end: 128 }),
        },
    }
}

impl Sample for RowsKernel {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        // The last columns of a row may be less than four, and less than a block.
        let width = choices.of("width", &[82, 256]);
        let sum = choices.option("sum", |_| rows(256));
        let y = choices.option("y", |_| rows(256));
        Self {
            workgroup: 128,
            subgroup: traits.subgroup,
            width,
            source: source(choices, width, [sum, y]),
            norm: choices.option("norm", |_| norm(width)),
            sum,
            y,
            y_q8: choices.option("y_q8", |_| buffer()),
            y_f16: choices.option("y_f16", |_| F16Output {
                stride: 256,
                rows: Resource::F16(0),
                scales: Resource::F16Scale(0),
            }),
        }
    }
}
