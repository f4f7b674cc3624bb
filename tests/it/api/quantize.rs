//! Tests the example `quantize`: its files are llama.cpp's, byte for byte, and load.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use inkstone::{Runner, gguf::Gguf};

use super::examples::example;
use crate::support::{
    data,
    gguf_file::{Folder, GgufFile},
    tiny::MODELS,
};

/// Runs the example in the folder of its fixtures, whose names are in the files that it writes.
fn quantize(args: &[&str]) -> Output {
    Command::new(example("quantize")).args(args).current_dir(data("quantize")).output().unwrap()
}

fn refused(args: &[&str], words: &str) {
    let output = quantize(args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && message.starts_with("error: ") && message.lines().count() == 1, "{message}");
    assert!(message.contains(words), "{message}");
    assert!(!Path::new(args[1]).exists(), "{args:?} wrote a file");
}

#[test]
fn files_are_those_of_llama_cpp() {
    let folder = Folder::new();
    let out = folder.path().join("out.gguf");
    let out = out.to_str().unwrap();
    let expected = fs::read_to_string(data("quantize/expected.txt")).unwrap();
    let (mut written, mut different) = (0, vec![]);
    for line in expected.lines() {
        let [model, option, file_type, crc, ..] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let options = match option {
            "-" => vec![],
            "pure" => vec!["--pure"],
            matrix => vec!["--imatrix", matrix],
        };
        let output = quantize(&[&[model, out, file_type, "--threads", "2"], &options[..]].concat());
        if crc == "refused" {
            assert!(!output.status.success(), "{line}");
            continue;
        }
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        written += 1;
        if format!("{:08x}", crc32fast::hash(&fs::read(out).unwrap())) != crc {
            let types = Gguf::open(out).unwrap();
            let count = |name: &str| types.tensors().iter().filter(|tensor| tensor.dtype.name() == name).count();
            let counts: Vec<_> = ["F16", "Q4_K", "Q6_K"].map(|name| format!("{name}:{}", count(name))).into();
            different.push(format!("{line} ({})", counts.join(" ")));
        }
    }
    assert!(written > 160 && different.is_empty(), "{written} files, of which differ:\n{}", different.join("\n"));
}

#[test]
fn quantized_models_run() {
    let folder = Folder::new();
    let out = folder.path().join("out.gguf");
    let model = MODELS.iter().find(|tiny| tiny.0 == "llama").unwrap().path();
    for file_type in ["q4_k_m", "Q4_0", "MXFP4", "BF16"] {
        let output = quantize(&[model.to_str().unwrap(), out.to_str().unwrap(), file_type]);
        let [printed, progress] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(printed.contains("bits per weight") && printed.lines().count() == 1, "{printed}{progress}");
        assert_eq!(progress.lines().count(), Gguf::open(&out).unwrap().tensors().len(), "{progress}");
        let mut runner = Runner::from_gguf(&out).unwrap();
        assert!(runner.predict_logits(&[1, 2, 3]).unwrap().iter().all(|logit| logit.is_finite()));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "an unfinished file is left");
}

#[test]
fn mistakes_are_one_line() {
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, q8_0) = (path("out.gguf"), path("q8_0.gguf"));
    assert!(quantize(&["odd.gguf", &q8_0, "Q8_0"]).status.success());
    refused(&[&q8_0, &out, "Q4_0"], "--allow-requantize");
    assert!(quantize(&[&q8_0, &path("again.gguf"), "Q4_0", "--allow-requantize"]).status.success());
    refused(&["model.gguf", &out, "Q9_K"], "MXFP4_MOE");
    refused(&["model.gguf", &out], "TYPE is missing");
    refused(&["no such file.gguf", &out, "Q4_0"], "no such file.gguf");
    refused(&["model.gguf", &out, "Q4_0", "--threads", "0"], "threads");
    refused(&["model.gguf", &out, "Q2_K_S"], "--imatrix");
    refused(&["model.gguf", &out, "Q4_0", "--imatrix", "model.gguf"], "not an importance matrix");

    let file = |weight: f32| {
        let data = weight.to_le_bytes().repeat(64);
        GgufFile::new().string("general.architecture", "llama").tensor("a.weight", &[32, 2], 0, data)
    };
    let infinite = folder.write("infinite.gguf", file(f32::INFINITY).bytes());
    refused(&[infinite.to_str().unwrap(), &out, "Q4_0"], "`a.weight`: row 0 has a weight that is not finite");
    let large = folder.write("large.gguf", file(1e30).bytes());
    refused(&[large.to_str().unwrap(), &out, "Q4_0"], "too large for Q4_0");
}

#[test]
fn damaged_importance_matrices_are_refused() {
    let folder = Folder::new();
    let out = folder.path().join("out.gguf");
    let out = out.to_str().unwrap();
    let whole = fs::read(data("quantize/imatrix.dat")).unwrap();
    for len in [0, 3, 9, 40, 1000, whole.len() - 1] {
        let cut = folder.write("cut.dat", &whole[..len]);
        refused(&["model.gguf", out, "Q4_K_M", "--imatrix", cut.to_str().unwrap()], "cut.dat");
    }
    let mut negative = whole;
    negative[4..8].fill(0xff);
    let negative = folder.write("negative.dat", negative);
    refused(&["model.gguf", out, "Q4_K_M", "--imatrix", negative.to_str().unwrap()], "damaged");
    // Of a model with more columns.
    refused(&["odd.gguf", out, "Q4_K_M", "--imatrix", "imatrix.gguf"], "use the importance matrix of this model");
}
