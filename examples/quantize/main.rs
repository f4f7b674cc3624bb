//! Quantizes a model: reads a GGUF file, and writes another one with matrices in a smaller format.
//!
//! The bytes are those of llama.cpp's `llama-quantize`. The library only reads formats, so the
//! quantizers are here, beside the rules for which tensor gets which format.

#[path = "../common/mod.rs"]
mod common;

mod blocks;
mod convert;
mod file_type;
mod imatrix;
mod mixture;
mod writer;

use std::{
    cmp::Ordering,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Instant,
};

use inkstone::{
    DType,
    gguf::{Gguf, TensorInfo, Value},
};

use self::{
    common::Failure,
    convert::Conversion,
    file_type::FileType,
    imatrix::ImportanceMatrix,
    mixture::{Mixture, columns},
    writer::{ALIGNMENT, Entry},
};

const USAGE: &str = "
Usage: quantize IN OUT TYPE [OPTIONS]

Writes the model in the GGUF file IN, the first one of a split model, to the file OUT as TYPE.

  --imatrix FILE       importance matrix of llama.cpp's `llama-imatrix`, GGUF or .dat
  --pure               uses one format for all matrices, rather than better ones for some
  --allow-requantize   converts tensors that are quantized already, which loses more than converting the original
  --threads N          CPU threads (one per core)
  --help               prints this help

Types: ";

/// The settings of a run.
struct Settings {
    file_type: FileType,
    importance: Option<(PathBuf, ImportanceMatrix)>,
    pure: bool,
    requantize: bool,
    threads: usize,
}

fn main() -> ExitCode {
    common::run(&format!("{USAGE}{}", FileType::names()), |mut args| {
        let pure = args.flag("--pure");
        let requantize = args.flag("--allow-requantize");
        let importance: Option<PathBuf> = args.value("--imatrix")?;
        let threads = args.value("--threads")?;
        let mut next = |what: &str| -> Result<String, Failure> {
            args.positional()?.ok_or_else(|| format!("{what} is missing (see --help)").into())
        };
        let [input, output, file_type] = [next("IN")?, next("OUT")?, next("TYPE")?];
        args.finish()?;
        let file_type = file_type.parse().map_err(|what| format!("{file_type} {what}"))?;
        let threads = match threads {
            Some(0) => return Err("--threads 0: must be at least 1".into()),
            Some(threads) => threads,
            None => thread::available_parallelism().map_or(1, usize::from),
        };
        let importance = importance.map(|path| Ok::<_, Failure>((path.clone(), ImportanceMatrix::open(&path)?)));
        let settings = Settings { file_type, importance: importance.transpose()?, pure, requantize, threads };
        quantize(Path::new(&input), Path::new(&output), &settings)
    })
}

/// Writes the file. It gets its name when it is complete.
fn quantize(input: &Path, output: &Path, settings: &Settings) -> Result<(), Failure> {
    let started = Instant::now();
    let gguf = Gguf::open(input)?;
    let plan = plan(&gguf, settings)?;
    let mut unfinished = output.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let written = write(&gguf, &plan, settings, &unfinished);
    let [before, after] = match written.and_then(|sizes| Ok((fs::rename(&unfinished, output)?, sizes))) {
        Ok(((), sizes)) => sizes,
        Err(error) => {
            // There is nothing to do about a file that cannot be removed.
            let _ = fs::remove_file(&unfinished);
            return Err(format!("{}: {error}", output.display()).into());
        }
    };
    let weights: usize = gguf.tensors().iter().map(TensorInfo::elements).sum();
    let [before_bits, after_bits] = [before, after].map(|bytes| 8.0 * bytes as f64 / weights.max(1) as f64);
    println!(
        "{} to {} ({before_bits:.2} to {after_bits:.2} bits per weight) in {:.1} s",
        megabytes(before),
        megabytes(after),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Returns the tensors in the order of the new file, each with its new format; `None` if it keeps
/// its type.
fn plan<'g>(gguf: &'g Gguf, settings: &Settings) -> Result<Vec<(&'g TensorInfo, Option<DType>)>, Failure> {
    let mut tensors: Vec<_> = gguf.tensors().iter().collect();
    tensors.sort_by(|a, b| by_layer(&a.name, &b.name));
    let mut mixture = Mixture::new(gguf, settings.file_type, settings.pure, settings.importance.is_some())?;
    let mut planned = vec![];
    for tensor in tensors {
        let dtype = mixture.format(tensor)?.filter(|dtype| tensor.dtype.dtype() != Some(*dtype));
        if let Some(dtype) = dtype {
            let known = match &settings.importance {
                Some((_, matrix)) => matrix.get(tensor)?.is_some(),
                None => false,
            };
            if !known && mixture.needs_importance(tensor, dtype) {
                let what = format!(
                    "tensor `{}`: {dtype} needs an importance matrix with this tensor (--imatrix)",
                    tensor.name
                );
                return Err(what.into());
            }
            if !settings.requantize && tensor.dtype.dtype().is_none_or(|dtype| !dtype.is_float()) {
                let what = format!(
                    "tensor `{}` is quantized as {} already: quantize the original model, or pass --allow-requantize",
                    tensor.name, tensor.dtype
                );
                return Err(what.into());
            }
        }
        planned.push((tensor, dtype));
    }
    Ok(planned)
}

/// Orders tensors as llama.cpp does: those of no layer, then layer by layer, each by name.
fn by_layer(a: &str, b: &str) -> Ordering {
    let layer = |name: &str| -> Option<u32> { name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok() };
    (layer(a), a).cmp(&(layer(b), b))
}

/// Writes the new file. Returns the sizes of the old and the new tensors in bytes.
fn write(
    gguf: &Gguf,
    plan: &[(&TensorInfo, Option<DType>)],
    settings: &Settings,
    path: &Path,
) -> Result<[usize; 2], Failure> {
    let byte_len = |tensor: &TensorInfo, dtype: Option<DType>| match dtype {
        Some(dtype) => dtype.row_bytes(columns(tensor)).unwrap_or(0) * (tensor.elements() / columns(tensor)),
        None => tensor.byte_len(),
    };
    let entries: Vec<_> = plan
        .iter()
        .map(|&(tensor, dtype)| Entry {
            name: &tensor.name,
            shape: &tensor.shape,
            number: dtype.map_or(tensor.dtype.ggml(), DType::ggml),
            byte_len: byte_len(tensor, dtype),
        })
        .collect();
    let own = own_keys(settings);
    let is_other_alignment = |key: &str| key == "general.alignment" && gguf.usize(key).ok() != Some(Some(ALIGNMENT));
    let replaced =
        |key: &str| SPLIT.contains(&key) || is_other_alignment(key) || own.iter().any(|(own, _)| *own == key);
    let keys = gguf.metadata().filter(|(key, _)| !replaced(key));
    let keys: Vec<_> = keys.chain(own.iter().map(|(key, value)| (*key, value))).collect();
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&writer::header(&keys, &entries))?;
    for (number, (&(tensor, dtype), entry)) in plan.iter().zip(&entries).enumerate() {
        let bytes = gguf.bytes(tensor);
        match dtype {
            Some(dtype) => {
                let importance = settings.importance.as_ref().map(|(_, matrix)| matrix.get(tensor)).transpose()?;
                let conversion = Conversion::new(tensor, &bytes, dtype, importance.flatten())?;
                conversion.write(settings.threads, &mut out, |range| gguf.done_with(tensor, range))?;
            }
            None => {
                for (number, piece) in bytes.chunks(PIECE).enumerate() {
                    out.write_all(piece)?;
                    gguf.done_with(tensor, number * PIECE..number * PIECE + piece.len());
                }
            }
        }
        writer::pad(entry.byte_len, &mut out)?;
        let to = dtype.map(|dtype| format!(" -> {dtype}, {}", megabytes(entry.byte_len))).unwrap_or_default();
        let size = megabytes(tensor.byte_len());
        eprintln!("[{:>4}/{}] {} {}, {size}{to}", number + 1, plan.len(), tensor.name, tensor.dtype);
    }
    out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    let before = plan.iter().map(|(tensor, _)| tensor.byte_len()).sum();
    Ok([before, entries.iter().map(|entry| entry.byte_len).sum()])
}

/// The bytes of an unchanged tensor that are copied at a time.
const PIECE: usize = 16 << 20;

/// Keys of the old file that the new one does not have: it is a single file.
const SPLIT: [&str; 3] = ["split.no", "split.count", "split.tensors.count"];

/// Returns the keys that describe the new file.
fn own_keys(settings: &Settings) -> Vec<(&'static str, Value)> {
    /// The version of the K formats, in which llama.cpp counts changes.
    const VERSION: u32 = 2;
    let mut keys = vec![
        ("general.quantization_version", Value::U32(VERSION)),
        ("general.file_type", Value::U32(settings.file_type.number())),
    ];
    if let Some((path, matrix)) = &settings.importance {
        keys.push(("quantize.imatrix.file", Value::String(path.display().to_string())));
        keys.extend(matrix.dataset.clone().map(|name| ("quantize.imatrix.dataset", Value::String(name))));
        keys.push(("quantize.imatrix.entries_count", Value::U32(matrix.len() as u32)));
        keys.extend((matrix.chunks > 0).then_some(("quantize.imatrix.chunks_count", Value::U32(matrix.chunks))));
    }
    keys
}

fn megabytes(bytes: usize) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
