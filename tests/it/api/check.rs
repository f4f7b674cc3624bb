//! Tests verdicts on files: that they are those of loading, and name everything that is missing.

use std::{fs::File, path::Path};

use inkstone::{Device, Error, FileContent, ObstacleKind, Runner, RunnerBuilder, Verdict, gguf::Gguf};

use crate::support::{
    allocation::peak_during,
    gguf_file::{Folder, GgufFile},
    mmproj::mmproj,
    tiny::{MODELS, RECURRENT},
};

fn builder() -> RunnerBuilder {
    Runner::builder().device(Device::Cpu).threads(1)
}

/// Returns the verdict on a file, which must be that of loading, with the same text.
fn agreed(path: &Path) -> Verdict {
    let (verdict, loaded) = (builder().check(path), builder().from_path(path));
    let first = verdict.obstacles.first().map(|obstacle| obstacle.error.to_string());
    assert_eq!(first, loaded.err().map(|error| error.to_string()), "{}", path.display());
    verdict
}

fn kinds(verdict: &Verdict) -> Vec<ObstacleKind> {
    verdict.obstacles.iter().map(|obstacle| obstacle.kind).collect()
}

/// Returns the file of a tiny model, to be changed.
fn tiny(name: &str) -> GgufFile {
    let tiny = MODELS.into_iter().find(|tiny| tiny.0 == name).unwrap();
    GgufFile::of(&Gguf::open(tiny.path()).unwrap())
}

#[test]
fn every_tiny_model_runs() {
    for tiny in MODELS {
        let verdict = agreed(&tiny.path());
        assert!(verdict.is_usable() && matches!(verdict.content, Some(FileContent::Model { .. })), "{verdict}");
    }
}

/// Each model is changed in ways that its name chooses.
#[test]
fn verdicts_on_changed_models_are_those_of_loading() {
    let folder = Folder::new();
    let mut refused = 0;
    for (number, model) in MODELS.into_iter().filter(|model| model.0 != "gpt_oss_mxfp4").enumerate() {
        let whole = GgufFile::of(&Gguf::open(model.path()).unwrap());
        let (keys, tensors) = (whole.keys.len(), whole.tensors.len());
        let mut changed = vec![whole.clone(); 6];
        changed[0].keys.remove(number * 7 % keys);
        changed[1].keys[number * 11 % keys].2.fill(0);
        changed[2].tensors.remove(number * 5 % tensors);
        changed[3].tensors[number * 13 % tensors].number = [26, 99, 36, 24][number % 4];
        changed[4].tensors[number * 3 % tensors].name.push('x');
        changed[5].tensors[number * 17 % tensors].dimensions.reverse();
        for file in changed {
            refused += usize::from(!agreed(&folder.write("model.gguf", file.bytes())).is_usable());
        }
    }
    assert!(refused > 200, "{refused} files were refused");
}

#[test]
fn a_header_alone_says_the_same_as_the_whole_file() {
    let folder = Folder::new();
    let whole = tiny("qwen3");
    let verdict = agreed(&folder.write("header.gguf", whole.header()));
    assert_eq!(kinds(&verdict), [ObstacleKind::MissingData]);
    assert_eq!(verdict.obstacles[0].tensors.len(), whole.tensors.len());
    assert!(verdict.to_string().contains("nothing else is missing"), "{verdict}");

    let mut other = whole.clone();
    other.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("attn_q.weight")).for_each(|tensor| {
        tensor.dimensions[0] *= 2;
    });
    other.keys.retain(|(key, ..)| key != b"tokenizer.ggml.tokens");
    let verdict = agreed(&folder.write("other.gguf", other.header()));
    assert_eq!(kinds(&verdict), [ObstacleKind::MissingData, ObstacleKind::Tensor, ObstacleKind::Tokenizer]);
    assert!(verdict.to_string().contains("blk.0.attn_q.weight"), "{verdict}");
}

/// Types in the order of GGUF's numbers, and of other programs.
#[test]
fn each_type_without_kernels_is_named_with_its_tensors() {
    let folder = Folder::new();
    let runs = [0, 1, 2, 3, 6, 7, 8, 20, 30, 39];
    let listed = [(9, "Q8_1"), (24, "I8"), (25, "I16"), (26, "I32"), (27, "I64"), (28, "F64")];
    let unknown = [(4, "Q4_2"), (33, "Q4_0_8_8"), (36, "I2_S"), (37, "IQ4_NL_4_8"), (139, "IQ4_K"), (250, "250")];
    let all = runs.map(|number| (number, "")).into_iter().chain(listed).chain(unknown);
    for (number, name) in all {
        let mut file = tiny("llama");
        let of_type = ["blk.0.ffn_up.weight", "blk.1.ffn_up.weight"];
        let changed = file.tensors.iter_mut().filter(|tensor| of_type.contains(&tensor.name.as_str()));
        changed.for_each(|tensor| tensor.number = number);
        // Blocks of the types differ in size, so tensors would overlap.
        let verdict = agreed(&folder.write("types.gguf", file.header()));
        let named: Vec<_> =
            verdict.obstacles.iter().filter(|obstacle| obstacle.kind == ObstacleKind::TensorType).collect();
        if runs.contains(&number) {
            assert_eq!(kinds(&verdict), [ObstacleKind::MissingData], "{number}: {verdict}");
        } else {
            assert_eq!(named.len(), 1, "{number}: {verdict}");
            assert_eq!(named[0].tensors, of_type, "{number}: {verdict}");
            assert!(named[0].error.to_string().contains(name), "{verdict}");
        }
    }
}

/// A matrix of another shape in a format without kernels, and a key that is missing besides.
#[test]
fn each_obstacle_is_named_once() {
    let folder = Folder::new();
    let changed = |change: &dyn Fn(&mut GgufFile)| {
        let mut file = tiny("llama");
        change(&mut file);
        kinds(&agreed(&folder.write("changed.gguf", file.bytes())))
    };
    let index = tiny("llama").tensors.iter().position(|tensor| tensor.name == "blk.0.ffn_up.weight").unwrap();
    assert_eq!(changed(&|file| drop(file.tensors.remove(index))), [ObstacleKind::Tensor]);
    let integers = |file: &mut GgufFile, rows: u64| {
        let tensor = &mut file.tensors[index];
        (tensor.number, tensor.dimensions[1]) = (26, rows);
        tensor.data = vec![0; (4 * rows * tensor.dimensions[0]) as usize];
    };
    let rows = tiny("llama").tensors[index].dimensions[1];
    assert_eq!(changed(&|file| integers(file, rows)), [ObstacleKind::TensorType]);
    let both = changed(&|file| integers(file, rows + 1));
    assert_eq!(both, [ObstacleKind::Tensor, ObstacleKind::TensorType]);
    let key = changed(&|file| file.keys.retain(|(key, ..)| key != b"llama.block_count"));
    assert_eq!(key, [ObstacleKind::Metadata]);
}

#[test]
fn unused_tensors_are_all_named() {
    let folder = Folder::new();
    let file = ["blk.0.strange.weight", "blk.1.strange.weight"]
        .into_iter()
        .fold(tiny("llama"), |file, name| file.tensor(name, &[8], 0, [0; 32]));
    let verdict = agreed(&folder.write("unused.gguf", file.bytes()));
    assert_eq!(kinds(&verdict), [ObstacleKind::UnusedTensors]);
    assert_eq!(verdict.obstacles[0].tensors, ["blk.0.strange.weight", "blk.1.strange.weight"]);
}

#[test]
fn files_that_are_not_models_are_told_apart() {
    let folder = Folder::new();
    let words = GgufFile::new().string("general.architecture", "llama").string("tokenizer.ggml.model", "llama");
    let files = [
        (GgufFile::new().string("general.type", "imatrix"), FileContent::ImportanceMatrix, "importance matrix"),
        (tiny("llama").string("general.type", "adapter"), FileContent::Adapter, "LoRA"),
        (GgufFile::new().string("general.architecture", "controlvector"), FileContent::ControlVector, "control vector"),
        (words, FileContent::Vocabulary, "vocabulary"),
    ];
    for (file, content, words) in files {
        let verdict = agreed(&folder.write("other.gguf", file.bytes()));
        assert_eq!((verdict.content.as_ref(), kinds(&verdict)), (Some(&content), vec![ObstacleKind::Content]));
        let text = verdict.to_string();
        assert!(text.starts_with("cannot be used") && text.contains(words), "{text}");
    }
    let unknown = GgufFile::new().string("general.architecture", "bert");
    let verdict = agreed(&folder.write("bert.gguf", unknown.bytes()));
    assert_eq!(kinds(&verdict)[0], ObstacleKind::Architecture);
    assert!(verdict.to_string().contains("qwen3moe"), "supported ones are listed: {verdict}");
    for missing in ["no such file.gguf", "."] {
        assert_eq!(kinds(&agreed(&folder.path().join(missing))), [ObstacleKind::File]);
    }
}

#[test]
fn encoders_are_supported_or_not() {
    let folder = Folder::new();
    let check = |projector: &str| {
        let path = folder.write("encoder.gguf", mmproj(projector).bytes());
        assert!(Runner::from_gguf(&path).unwrap_err().to_string().contains("RunnerBuilder::vision"));
        builder().check(path)
    };
    let supported = check("qwen2.5vl_merger");
    assert!(supported.is_usable() && supported.to_string().contains("`qwen2.5vl_merger`"), "{supported}");
    let unsupported = check("ultravox");
    assert_eq!(kinds(&unsupported), [ObstacleKind::Architecture]);
    assert!(unsupported.to_string().contains("idefics3"), "{unsupported}");
}

#[test]
fn heads_work_beside_their_models() {
    let folder = Folder::new();
    let mut head = GgufFile::of(&Gguf::open(RECURRENT.path()).unwrap());
    head.tensors.retain(|tensor| !tensor.name.starts_with("blk.0."));
    let verdict = builder().check(folder.write("mtp-head.gguf", head.bytes()));
    assert!(matches!(verdict.content, Some(FileContent::MtpHead { .. })), "{verdict}");
    assert!(verdict.is_usable() && verdict.to_string().starts_with("is supported beside its model"), "{verdict}");
}

#[test]
fn every_missing_shard_is_named() {
    let folder = Folder::new();
    let first = tiny("llama").key("split.no", 2, [0, 0]).key("split.count", 2, [3, 0]);
    let verdict = agreed(&folder.write("model-00001-of-00003.gguf", first.bytes()));
    assert_eq!(kinds(&verdict), [ObstacleKind::File; 2]);
    let second = tiny("llama").key("split.no", 2, [1, 0]).key("split.count", 2, [3, 0]);
    let verdict = agreed(&folder.write("model-00002-of-00003.gguf", second.bytes()));
    assert!(verdict.to_string().contains("open the first shard"), "{verdict}");
}

#[test]
fn settings_of_the_builder_count() {
    let path = MODELS[0].path();
    let too_long = builder().context_length(1 << 20).check(&path);
    assert_eq!(kinds(&too_long), [ObstacleKind::Setting]);
    let no_encoder = builder().vision("no such file.gguf").check(&path);
    assert!(matches!(no_encoder.obstacles[..], [ref first] if matches!(first.error, Error::Io { .. })));
    #[cfg(feature = "chat")]
    {
        assert_eq!(kinds(&builder().chat_template("{% if %}").check(&path)), [ObstacleKind::Setting]);
        assert!(builder().check(&path).to_string().contains("limit: chat template: the file has none"));
    }
}

/// A model of 64 GB, whose file has holes instead of weights.
#[test]
fn a_verdict_needs_no_memory_for_weights() {
    const ROWS: u64 = 1 << 24;
    let folder = Folder::new();
    let mut file = tiny("llama");
    file.tensors.retain(|tensor| tensor.name != "output.weight");
    let (columns, tokens) = (file.tensors.iter())
        .find(|tensor| tensor.name == "token_embd.weight")
        .map_or((0, 0), |t| (t.dimensions[0], t.dimensions[1]));
    let file = file.tensor("output.weight", &[columns, tokens], 0, vec![0; (4 * columns * tokens) as usize]);
    let file = file.tensor("large", &[1024, ROWS], 0, []);
    let path = folder.write("large.gguf", file.bytes());
    File::options().write(true).open(&path).unwrap().set_len((1024 * ROWS * 4) + (1 << 20)).unwrap();
    let (verdict, peak) = peak_during(|| builder().check(&path));
    assert_eq!(kinds(&verdict), [ObstacleKind::UnusedTensors], "{verdict}");
    assert!(peak < 4 << 20, "{peak} bytes");
}
