//! What is in a model file, and what becomes of it.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use common::Failure;
use inkstone::{
    backend::{Backend, cpu::Cpu},
    gguf::{Gguf, TensorInfo},
    models::{self, Model},
    optimize::{Optimized, Target, optimize},
    weights::Weights,
};

mod common;
#[path = "common/model.rs"]
mod model;

const USAGE: &str = "
Usage: inspect MODEL [--metadata] [--tensors] [--memory] [--graph] [--dot] [OPTIONS]

Shows the metadata and tensors of a GGUF file, or of a directory of safetensors in GGUF's terms, the memory that the model
takes, and the graph of its computation before and after optimisation. Naming some of these shows them alone.

  --dot              prints the optimised graph alone, for Graphviz";

fn main() -> ExitCode {
    let usage = [USAGE, model::MODEL_OPTIONS, "  --help             prints this"].join("\n");
    common::run(&usage, |mut args| {
        let mut sections = ["--metadata", "--tensors", "--memory", "--graph"].map(|name| args.flag(name));
        let dot = args.flag("--dot");
        let builder = model::builder(&mut args)?;
        let path: PathBuf = args.positional()?.ok_or("a model is missing (see --help)")?.into();
        args.finish()?;
        let gguf = models::open(&path)?;
        let mut out = BufWriter::new(io::stdout().lock());
        if dot {
            let [_, optimized] = graphs(&gguf)?;
            write!(out, "{}", optimized.graph.dot())?;
            return Ok(out.flush()?);
        }
        if sections == [false; 4] {
            sections = [true; 4];
        }
        let [metadata, tensors, memory, graph] = sections;
        if metadata {
            writeln!(out, "GGUF version {}", gguf.version())?;
            gguf.metadata().try_for_each(|(key, value)| writeln!(out, "{key} = {value}"))?;
        }
        if tensors {
            let mut line =
                |t: &TensorInfo| writeln!(out, "{} {} {:?} {} bytes", t.name, t.dtype, t.shape, t.byte_len());
            gguf.tensors().iter().try_for_each(&mut line)?;
        }
        // What stands so far is worth showing even where the model cannot be built.
        out.flush()?;
        if memory {
            writeln!(out, "{}", builder.plan(&path)?)?;
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

/// The graph as the family writes it, and as the CPU runs it.
fn graphs(gguf: &Gguf) -> Result<[Optimized; 2], Failure> {
    let weights = Weights::from_gguf(gguf);
    let graph = Model::from_gguf(gguf, &weights)?.graph;
    let cpu = Cpu::new(None)?;
    let target = Target {
        supports: &|op| cpu.supports(op),
        vector: &|name| Some(Arc::from(weights.vector(name, gguf.tensor(name)?.elements()).ok()?)),
    };
    let optimized = optimize(&graph, &target)?;
    Ok([Optimized { graph, report: vec![] }, optimized])
}
