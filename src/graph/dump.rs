//! Formats graphs for readers: as text, one line per node, and in Graphviz's language.

use std::fmt::{self, Write as _};

use super::{
    AttentionSpec, ConvSpec, ExpertScore, ExpertsSpec, FusedOp, Graph, Op, RopeAxes, RopeSpec, RopeStyle, RouteSpec,
    Rows, ScanSpec, Sees, Shape, Source, ValueId, Window,
};

/// The number of elements of a constant that are shown.
const SHOWN: usize = 4;

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(rows) => write!(f, "{rows}"),
            Self::Tokens => f.write_str("Tokens"),
            Self::Outputs => f.write_str("Outputs"),
        }
    }
}

/// `[rows, width]`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.rows, self.width)
    }
}

/// The op's name and its attributes.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::RmsNorm { eps } => write!(f, "{name} eps={eps:?}"),
            Self::SoftCap { cap } => write!(f, "{name} cap={cap:?}"),
            Self::Slice { first, len, every } => write!(f, "{name} first={first} len={len} every={every}"),
            Self::LayerNorm { eps, groups } => write!(f, "{name} eps={eps:?} groups={groups}"),
            Self::Rope(spec) => write!(f, "{name} {spec} head_dim={}", spec.head_dim),
            Self::MatMulHeads { heads } => write!(f, "{name} heads={heads}"),
            Self::Concat { groups: 1 } => f.write_str(name),
            Self::Concat { groups } => write!(f, "{name} groups={groups}"),
            Self::JoinRows { count } => write!(f, "{name} count={count}"),
            Self::InputRows { width } => write!(f, "{name} width={width}"),
            Self::PlaceRows { first, marked: true } => write!(f, "{name} first={first} marked"),
            Self::PlaceRows { first, marked: false } | Self::AddRows { first } => write!(f, "{name} first={first}"),
            Self::Temper { scale, interval, offset } => {
                write!(f, "{name} scale={scale:?} interval={interval} offset={offset}")
            }
            Self::MixStreams { outputs } => write!(f, "{name} outputs={outputs}"),
            Self::Deviation { centered } => write!(f, "{name} centered={centered}"),
            Self::Interpolate { taps } => write!(f, "{name} taps={taps}"),
            Self::Attention(spec) => {
                f.write_str(name)?;
                write_attention(f, spec)
            }
            Self::Route(spec) => write!(f, "{name} {spec}"),
            Self::Experts(ExpertsSpec { experts, top_k, glu, biased }) => {
                let biased = if *biased { " biased" } else { "" };
                write!(f, "{name} experts={experts} top_k={top_k} {}{biased}", glu.name())
            }
            Self::ShortConv(ConvSpec { state, kernel, silu, .. }) => {
                write!(f, "{name} state={state} kernel={kernel}{}", if *silu { "" } else { " linear" })
            }
            Self::GatedDelta(spec) => write!(
                f,
                "{name} state={} key_heads={} value_heads={} order={} head_dim={} eps={:?}",
                spec.state,
                spec.key_heads,
                spec.value_heads,
                spec.order.name(),
                spec.head_dim,
                spec.eps
            ),
            Self::StateScan(ScanSpec { state, heads, groups, head_dim, size }) => {
                write!(f, "{name} state={state} heads={heads} groups={groups} head_dim={head_dim} size={size}")
            }
            Self::Fused(op) => op.fmt(f),
            Self::Embed
            | Self::MatMul
            | Self::Add
            | Self::Mul
            | Self::Div
            | Self::Activate(_)
            | Self::Clamp
            | Self::SelectOutputs => f.write_str(name),
        }
    }
}

/// The op's name and its attributes.
impl fmt::Display for FusedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::AddRmsNorm { eps } | Self::MatMulAddRmsNorm { eps } => write!(f, "{name} eps={eps:?}"),
            Self::RotatedAttention { attention, rope, norm } => {
                f.write_str(name)?;
                write_attention(f, attention)?;
                write!(f, " {rope}")?;
                norm.map_or(Ok(()), |eps| write!(f, " eps={eps:?}"))
            }
            Self::Gated { activation, norm } => {
                write!(f, "{name} {}", activation.name())?;
                norm.map_or(Ok(()), |eps| write!(f, " eps={eps:?}"))
            }
            Self::MatMulJoined | Self::MatMulGlu(_) | Self::MatMulAdd => f.write_str(name),
        }
    }
}

fn write_attention(f: &mut fmt::Formatter<'_>, spec: &AttentionSpec) -> fmt::Result {
    write!(
        f,
        " layer={} heads={} kv_heads={} head_dim={} scale={:?}",
        spec.layer, spec.heads, spec.kv_heads, spec.head_dim, spec.scores.scale
    )?;
    f.write_str(if spec.keys_only { " keys_only" } else { "" })?;
    spec.scores.softcap.map_or(Ok(()), |cap| write!(f, " softcap={cap:?}"))?;
    match spec.scores.window {
        None => {}
        Some(Window::Sliding(size)) => write!(f, " window={size}")?,
        Some(Window::Chunk(size)) => write!(f, " chunk={size}")?,
    }
    match spec.scores.sees {
        Sees::Past => Ok(()),
        Sees::PastAndSpan => f.write_str(" sees=past_and_span"),
        Sees::Run => f.write_str(" sees=run"),
        Sees::Span => f.write_str(" sees=span"),
    }
}

/// The style and, if they are not the same for all pairs, the axes.
impl fmt::Display for RopeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "style={}", self.style.name())?;
        match self.axes {
            RopeAxes::First => Ok(()),
            RopeAxes::Sections(pairs) => write!(f, " sections={pairs:?}"),
            RopeAxes::Interleaved(pairs) => write!(f, " interleaved={pairs:?}"),
        }
    }
}

/// The number of experts, then what differs from a softmax over them.
impl fmt::Display for RouteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "top_k={}", self.top_k)?;
        f.write_str(match self.score {
            ExpertScore::Softmax => "",
            ExpertScore::Sigmoid => " sigmoid",
        })?;
        f.write_str(if self.normalized { "" } else { " unnormalized" })?;
        if let Some(groups) = self.groups {
            write!(f, " groups={} top_groups={}", groups.count, groups.top_k)?;
        }
        if self.scale == 1.0 { Ok(()) } else { write!(f, " scale={:?}", self.scale) }
    }
}

impl RopeStyle {
    fn name(self) -> &'static str {
        match self {
            Self::Adjacent => "adjacent",
            Self::Halves => "halves",
            Self::Quarters => "quarters",
        }
    }
}

/// One line for each node, for example
/// `%17 [Tokens, 1024] = matmul (%12, blk.0.attn_q.weight Q4_K [1024, 1024])`, then the results.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let outputs: Vec<_> =
                node.outputs.iter().map(|id| format!("%{} {}", id.index(), self.shape(*id))).collect();
            let inputs: Vec<_> = node.inputs.iter().map(|id| self.describe(*id)).collect();
            writeln!(f, "{} = {} ({})", outputs.join(", "), node.op, inputs.join(", "))?;
        }
        writeln!(f, "logits %{} {}", self.logits.index(), self.shape(self.logits))?;
        self.hidden.map_or(Ok(()), |hidden| writeln!(f, "hidden %{} {}", hidden.index(), self.shape(hidden)))
    }
}

impl Graph {
    /// Returns the graph in Graphviz's language: a box for each node with the weights and constants
    /// that it reads, and an arrow, labeled with its shape, for each value between two nodes.
    pub fn dot(&self) -> String {
        let mut boxes = String::new();
        let mut arrows = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let mut lines = vec![node.op.to_string()];
            for id in &node.inputs {
                match self.value(*id).source {
                    Source::Weight { .. } | Source::Constant(_) => lines.push(self.describe(*id)),
                    Source::Tokens | Source::Node { .. } => self.arrow(&mut arrows, *id, &format!("n{index}")),
                }
            }
            let label: Vec<_> = lines.iter().map(|line| escape(line)).collect();
            line(&mut boxes, format_args!("n{index} [label=\"{}\"];", label.join("\\n")));
        }
        for (result, name) in self.results().zip(["logits", "hidden"]) {
            line(&mut boxes, format_args!("{name};"));
            self.arrow(&mut arrows, result, name);
        }
        format!("digraph {{\n  node [shape=box];\n  tokens;\n{boxes}{arrows}}}\n")
    }

    fn arrow(&self, out: &mut String, value: ValueId, to: &str) {
        let from = match self.value(value).source {
            Source::Node { node, .. } => format!("n{node}"),
            Source::Tokens | Source::Weight { .. } | Source::Constant(_) => self.describe(value),
        };
        line(out, format_args!("{from} -> {to} [label=\"{}\"];", self.shape(value)));
    }

    fn describe(&self, id: ValueId) -> String {
        let value = self.value(id);
        match &value.source {
            Source::Tokens => "tokens".into(),
            Source::Weight { slice, dtype } => format!("{slice} {dtype} {}", value.shape),
            Source::Constant(row) => {
                let mut numbers: Vec<_> = row.iter().take(SHOWN).map(|number| format!("{number:?}")).collect();
                if row.len() > SHOWN {
                    numbers.push("..".into());
                }
                format!("constant {} {{{}}}", value.shape, numbers.join(", "))
            }
            Source::Node { .. } => format!("%{}", id.index()),
        }
    }
}

fn line(out: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "  {line}");
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
