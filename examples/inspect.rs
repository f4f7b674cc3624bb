//! Shows the content of a model file and the graph of its computation.

mod common;
#[path = "common/model.rs"]
mod model;

use std::{
    collections::HashMap,
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use inkstone::{
    FileContent,
    gguf::{Gguf, Origin, TensorInfo},
    internals::{
        backend::{Backend, cpu::Cpu},
        graph::{Graph, Op, Rows, Source},
        models::{self, Model},
        optimize::{Optimized, Target, optimize},
        weights::Weights,
    },
};

use common::Failure;

const USAGE: &str = "
Usage: inspect MODEL [--verdict] [--metadata] [--tensors] [--memory] [--graph] [--dot] [OPTIONS]

Says whether a GGUF file or a directory of safetensors runs, and what is missing if not; the exit status is 0 if it
runs. Then shows the metadata and tensors, under GGUF names; the memory that the model needs, its number of parameters
and the number used by a token; and the graph of its computation before and after optimization. With one or more of the
first five flags, shows only those.

  --verdict          says whether the file runs, from its header alone
  --dot              prints only the optimized graph, for Graphviz";

fn main() -> ExitCode {
    let usage = [USAGE, model::MODEL_OPTIONS, "  --help             prints this help"].join("\n");
    common::run(&usage, |mut args| {
        let mut sections = ["--verdict", "--metadata", "--tensors", "--memory", "--graph"].map(|name| args.flag(name));
        let dot = args.flag("--dot");
        let builder = model::builder(&mut args)?;
        let path: PathBuf = args.positional()?.ok_or("a model is missing (see --help)")?.into();
        args.finish()?;
        let mut out = BufWriter::new(io::stdout().lock());
        if dot {
            let gguf = models::open(&path)?;
            let [_, optimized] = graphs(&gguf)?;
            write!(out, "{}", optimized.graph.dot())?;
            return Ok(out.flush()?);
        }
        let checked = builder.check(&path);
        if sections == [false; 5] {
            let is_model = matches!(checked.content, Some(FileContent::Model { .. }));
            sections = [true, true, true, is_model, is_model];
        }
        let [verdict, metadata, tensors, memory, graph] = sections;
        if verdict {
            writeln!(out, "{}: {checked}", path.display())?;
            out.flush()?;
        }
        let is_usable = || if checked.is_usable() { Ok(()) } else { Err(format!("{} cannot be used", path.display())) };
        if sections[1..] == [false; 4] {
            return Ok(is_usable()?);
        }
        let gguf = models::open(&path)?;
        list(&gguf, [metadata, tensors], &mut out)?;
        // The sections so far are useful even if the model cannot be built.
        out.flush()?;
        if verdict {
            is_usable()?;
        }
        if memory {
            writeln!(out, "{}", builder.plan(&path)?)?;
            let [total, active] = parameters(&Model::from_gguf(&gguf, &Weights::from_gguf(&gguf))?.graph);
            writeln!(out, "parameters       {total:>12}")?;
            writeln!(out, "used by a token  {active:>12}")?;
        }
        if graph {
            let [plain, optimized] = graphs(&gguf)?;
            writeln!(out, "{}\n", plain.graph)?;
            optimized.report.iter().try_for_each(|(pass, rewrites)| writeln!(out, "{pass}: {rewrites} rewrites"))?;
            writeln!(out, "\n{}", optimized.graph)?;
        }
        Ok(out.flush()?)
    })
}

/// Lists the metadata and the tensors of a file, as far as they are wanted.
fn list(gguf: &Gguf, [metadata, tensors]: [bool; 2], out: &mut impl Write) -> io::Result<()> {
    if metadata {
        match gguf.origin() {
            Origin::File { version } => writeln!(out, "GGUF version {version}")?,
            Origin::Directory => writeln!(out, "safetensors, under GGUF names")?,
        }
        gguf.metadata().try_for_each(|(key, value)| writeln!(out, "{key} = {value}"))?;
    }
    if tensors {
        let mut line = |t: &TensorInfo| writeln!(out, "{} {} {:?} {} bytes", t.name, t.dtype, t.shape, t.byte_len());
        gguf.tensors().iter().try_for_each(&mut line)?;
    }
    Ok(())
}

/// Returns the number of parameters, and the number that is active for a token.
fn parameters(graph: &Graph) -> [usize; 2] {
    let mut counts = HashMap::new();
    for node in graph.nodes() {
        for (operand, id) in node.inputs.iter().enumerate() {
            let value = graph.value(*id);
            let (Source::Weight { slice, .. }, Rows::Fixed(rows)) = (&value.source, value.shape.rows) else { continue };
            let all = rows * value.shape.width;
            let active = match &node.op {
                Op::Experts(spec) if operand > 1 => all / spec.experts * spec.top_k,
                _ => all,
            };
            counts.insert(slice, [all, active]);
        }
    }
    [0, 1].map(|index| counts.values().map(|count| count[index]).sum())
}

/// Returns the graph as the model family builds it, and as the CPU runs it.
fn graphs(gguf: &Gguf) -> Result<[Optimized; 2], Failure> {
    let weights = Weights::from_gguf(gguf);
    let graph = Model::from_gguf(gguf, &weights)?.graph;
    let cpu = Cpu::new(None)?;
    let target = Target {
        supports: &|op| cpu.supports(op),
        vector: &|slice, width| weights.vector(slice, width).ok().map(Arc::from),
    };
    let optimized = optimize(&graph, &target)?;
    Ok([Optimized { graph, report: vec![] }, optimized])
}
