//! What is in a model file, and what becomes of it.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use common::Failure;
use inkstone::{
    backend::{Backend, cpu::Cpu},
    gguf::Gguf,
    models::Model,
    optimize::{Optimized, Target, optimize},
    weights::Weights,
};

mod common;
#[path = "common/model.rs"]
mod model;

const USAGE: &str = "
Usage: inspect FILE [--metadata] [--tensors] [--memory] [--graph] [--dot] [OPTIONS]

Shows a GGUF file's metadata and tensors, the memory that the model takes, and the graph of its computation before and
after optimisation. Naming some of these shows them alone.

  --dot              prints the optimised graph alone, for Graphviz";

fn main() -> ExitCode {
    let usage = [USAGE, model::MODEL_OPTIONS, "  --help             prints this"].join("\n");
    common::run(&usage, |mut args| {
        let mut sections = ["--metadata", "--tensors", "--memory", "--graph"].map(|name| args.flag(name));
        let dot = args.flag("--dot");
        let builder = model::builder(&mut args)?;
        let path: PathBuf = args.positional()?.ok_or("a file is missing (see --help)")?.into();
        args.finish()?;
        let gguf = Gguf::open(&path)?;
        if dot {
            let [_, optimized] = graphs(&gguf)?;
            print!("{}", optimized.graph.dot());
            return Ok(());
        }
        if sections == [false; 4] {
            sections = [true; 4];
        }
        let [metadata, tensors, memory, graph] = sections;
        if metadata {
            println!("GGUF version {}", gguf.version());
            gguf.metadata().for_each(|(key, value)| println!("{key} = {value}"));
        }
        if tensors {
            gguf.tensors().iter().for_each(|t| println!("{} {} {:?} {} bytes", t.name, t.dtype, t.shape, t.byte_len()));
        }
        if memory {
            println!("{}", builder.plan(&path)?);
        }
        if graph {
            let [plain, optimized] = graphs(&gguf)?;
            println!("{}\n", plain.graph);
            optimized.report.iter().for_each(|(pass, rewrites)| println!("{pass}: {rewrites} rewrites"));
            println!("\n{}", optimized.graph);
        }
        Ok(())
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
