//! Tests of the examples as programs: their output, and one clear line for each mistake.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use inkstone::{CacheType, Profile, Runner};

use crate::support::{
    gguf_file::{Folder, GgufFile},
    tiny::{MODELS, nmse},
};

/// Returns the program of an example, which `cargo test` and `cargo build --examples` build.
pub fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().and_then(Path::parent).unwrap().join("examples");
    let path = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is missing: build it with `cargo build --examples`", path.display());
    path
}

fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

fn printed(program: &Path, args: &[&str]) -> String {
    let output = run(program, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_example_has_a_usage_text() {
    for name in
        ["generate", "chat", "inspect", "logits", "perplexity", "bench", "tokenize", "tune", "session", "quantize"]
    {
        let program = example(name);
        assert!(printed(&program, &["--help"]).starts_with(&format!("Usage: {name} ")), "{name}");
        let output = run(&program, &["--nonsense", "1"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && message.starts_with("error: ") && message.lines().count() == 1,
            "{message}"
        );
    }
}

#[test]
fn example_errors_are_one_line() {
    let (generate, logits) = (example("generate"), example("logits"));
    let folder = Folder::new();
    let model = MODELS[0].path();
    let sound = fs::read(&model).unwrap();
    let write = |name: &str, bytes: &[u8]| folder.write(name, bytes).to_str().unwrap().to_owned();
    let missing = folder.path().join("missing.gguf").to_str().unwrap().to_owned();
    let unknown = GgufFile::new().string("general.architecture", "qwen9").bytes();
    let files = [
        (missing, "missing.gguf"),
        (folder.path().to_str().unwrap().to_owned(), "directory"),
        (write("empty.gguf", b""), "empty.gguf"),
        (write("text.gguf", b"Once upon a time there was a fox."), "text.gguf"),
        (write("cut.gguf", &sound[..sound.len() / 2]), "cut.gguf"),
        (write("unknown.gguf", &unknown), "qwen9"),
    ];
    let model = model.to_str().unwrap();
    let refused = |program: &Path, args: &[&str], what: &str| {
        let output = run(program, args);
        let message = String::from_utf8(output.stderr).unwrap();
        let last = message.lines().last().unwrap_or_default();
        assert!(!output.status.success() && last.starts_with("error: "), "{args:?}: {message}");
        assert!(last.contains(what) && !message.contains("panicked"), "{args:?}: {message}");
    };
    for (path, what) in &files {
        refused(&generate, &["--model", path, "a fox"], what);
        refused(&logits, &["--model", path, "--ids", "1"], what);
    }
    refused(&logits, &["--model", model, "--ids", "1,320"], "320");
    refused(&logits, &["--model", model, "--ids", ""], "--ids");
    refused(&logits, &["--model", model, "--ids", "1", "--cache", "f64"], "f64");
    refused(&logits, &["--model", model, "--ids", "1", "--threads", "0"], "threads");
    refused(&generate, &["--model", model, ""], "prompt");
    // The longest possible argument.
    refused(&generate, &["--model", model, &"word ".repeat(20_000)], "context");
    refused(&generate, &["--model", model, "--temperature", "-1", "a fox"], "temperature");
}

#[test]
fn examples_chat_with_a_given_template() {
    let (generate, chat) = (example("generate"), example("chat"));
    let folder = Folder::new();
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let template = folder.write("own.jinja", source).to_str().unwrap().to_owned();
    let model = MODELS[0].path();
    let model = ["--model", model.to_str().unwrap(), "--max-tokens", "9", "--temperature", "0"];
    // The template renders the prompt itself.
    let raw = printed(&generate, &[&model[..], &["--raw", "the fox"]].concat());
    assert_eq!(printed(&generate, &[&model[..], &["--template", &template, "the fox"]].concat()), raw);
    assert!(!run(&generate, &[&model[..], &["--raw", "--template", &template, "the fox"]].concat()).status.success());

    assert!(!run(&chat, &model).status.success(), "a base model has no template");
    let mut program = Command::new(chat);
    program.args(model).args(["--template", &template]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"the fox\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), raw);

    let wrong = folder.write("wrong.jinja", "{% if %}").to_str().unwrap().to_owned();
    for path in [wrong.as_str(), "no such file.jinja"] {
        let output = run(&generate, &[&model[..], &["--template", path, "the fox"]].concat());
        assert!(!output.status.success() && output.stderr.starts_with(b"error: "));
    }
}

#[test]
fn logits_example_matches_llama_cpps_format() {
    let program = example("logits");
    let folder = Folder::new();
    let out = folder.path().join("logits.f32");
    let expected = MODELS[0].expected();
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let model = MODELS[0].path();
    let (model, prompt) = (model.to_str().unwrap(), list(&expected.prompt));
    let args = ["--model", model, "--ids", &prompt, "--cache", "f32", "--greedy", "40", "--out", out.to_str().unwrap()];
    assert_eq!(printed(&program, &args), list(&expected.greedy) + "\n");
    let bytes = fs::read(&out).unwrap();
    let logits: Vec<_> = bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert!(nmse(&logits, &expected.prompt_logits) <= MODELS[0].1);
}

#[test]
fn perplexity_example_matches_stepwise_scores() {
    let program = example("perplexity");
    let folder = Folder::new();
    let text = "the quick brown fox jumps over the lazy dog and then the dog runs after the fox";
    let file = folder.write("text.txt", text);
    let model = MODELS[0].path();
    let mut runner = Runner::builder().cache_type(CacheType::F32).from_gguf(&model).unwrap();
    let ids = runner.tokenizer().encode_prompt(text).unwrap();
    let (mut sum, mut count) = (0.0, 0);
    for window in ids.chunks(20) {
        for end in 1..window.len() {
            let logits = runner.predict_logits(&window[..end]).unwrap();
            let total: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
            sum -= (f64::from(logits[window[end] as usize]).exp() / total).ln();
            count += 1;
        }
    }
    let args = ["--model", model.to_str().unwrap(), "--window", "20", "--cache", "f32", file.to_str().unwrap()];
    let line = printed(&program, &args);
    let words: Vec<_> = line.split_whitespace().collect();
    let perplexity: f64 = words[1].parse().unwrap();
    assert!((perplexity / (sum / f64::from(count)).exp() - 1.0).abs() < 1e-5, "{line}");
    assert_eq!(words[3], count.to_string());
}

#[test]
fn bench_example_writes_one_line_of_json() {
    let program = example("bench");
    let model = MODELS[0].path();
    let args = ["--model", model.to_str().unwrap(), "--prefill", "20", "--decode", "4", "--depth", "10", "--reps", "2"];
    let line = printed(&program, &[&args[..], &["--threads", "2", "--json"]].concat());
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    let keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = "threads load_s prefill_tokens decode_tokens prefill_tok_s decode_tok_s peak_rss_mb dispatches_per_token encoding_us gpu_mb";
    assert_eq!(keys.join(" "), wanted);
    assert_eq!(
        (&value["threads"], &value["prefill_tokens"], &value["decode_tokens"]),
        (&2.into(), &20.into(), &4.into())
    );
    assert!(value["prefill_tok_s"].as_f64().unwrap() > 0.0 && value["decode_tok_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn bench_example_writes_a_profile() {
    let program = example("bench");
    let model = MODELS[0].path();
    let args = ["--model", model.to_str().unwrap(), "--prefill", "20", "--decode", "4", "--reps", "1", "--profile"];
    let line = printed(&program, &[&args[..], &["--json"]].concat());
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    for (profile, pieces, rate) in [("prefill_profile", 20.0, "prefill_tok_s"), ("decode_profile", 1.0, "decode_tok_s")]
    {
        let ops = value[profile].as_array().unwrap();
        let sum = |key: &str| ops.iter().map(|op| op[key].as_f64().unwrap()).sum::<f64>();
        let rate = value[rate].as_f64().unwrap();
        assert!((sum("share") - 1.0).abs() < 0.01 && (sum("us") * rate / pieces / 1e6 - 1.0).abs() < 0.01, "{line}");
        for name in ["matmul", "attention", "rms_norm", "wait", "between steps"] {
            let op = ops.iter().find(|op| op["op"] == name).unwrap_or_else(|| panic!("no {name}: {line}"));
            assert!(op["calls"].as_f64().unwrap() >= 1.0, "{line}");
            assert_eq!(op["gb_s"].is_number(), ["matmul", "attention"].contains(&name), "{line}");
        }
    }
    let table = printed(&program, &args);
    assert!(table.contains("\nprefill, a prompt of 20 tokens\n") && table.contains("\ndecode, a token\n"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("  attention  ")).count(), 2, "{table}");
}

/// Measurements this short choose by chance, but each choice has to load and run.
#[test]
fn tune_example_writes_a_profile_that_runners_find() {
    let folder = Folder::new();
    let model = folder.write("tiny.gguf", fs::read(MODELS[0].path()).unwrap());
    let file = Profile::path_for(&model);
    let base = ["--model", model.to_str().unwrap(), "--device", "cpu", "--reps", "1", "--seconds", "0"];
    let text = printed(&example("tune"), &[&base[..], &["--cache-types", "--dry-run"]].concat());
    assert!(!file.exists(), "a dry run writes no file: {text}");
    for _ in 0..3 {
        let text = printed(&example("tune"), &base);
        if text.contains("there is nothing to write") {
            assert!(!file.exists(), "{text}");
            continue;
        }
        assert!(text.contains(file.to_str().unwrap()) && text.contains(" tokens/s (+"), "{text}");
        let runner = Runner::builder().device(inkstone::Device::Cpu).from_gguf(&model).unwrap();
        assert_eq!(runner.profile(), &Profile::open(&file).unwrap());
        assert_eq!(runner.device().profile.as_ref().map(|found| &found.unused), Some(&None));
        return;
    }
}

#[test]
fn inspect_example_shows_every_part() {
    let program = example("inspect");
    let model = MODELS[2].path();
    let model = model.to_str().unwrap();
    let all = printed(&program, &[model]);
    for part in
        ["llama.block_count = 2", "blk.1.ffn_down.weight F16 [96, 128]", "cache per token", "constant_folding: 1"]
    {
        assert!(all.contains(part), "{part} is not in\n{all}");
    }
    assert!(printed(&program, &[model, "--dot"]).starts_with("digraph"));
    assert!(!printed(&program, &[model, "--memory"]).contains("blk.1"));
    // Of seven experts with three matrices of 64 by 32 in each of two layers, a token skips four.
    let experts = MODELS.iter().find(|tiny| tiny.0 == "qwen3moe").unwrap().path();
    let memory = printed(&program, &[experts.to_str().unwrap(), "--memory"]);
    let figure = |name: &str| -> usize {
        let line = memory.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{memory}"));
        line.trim().parse().unwrap()
    };
    assert_eq!((figure("parameters"), figure("used by a token")), (132_352, 132_352 - 2 * 4 * 3 * 64 * 32));
}

#[test]
fn a_session_goes_on_from_run_to_run() {
    let (session, folder) = (example("session"), Folder::new());
    let run = |name: &str, args: &[&str]| {
        let file = folder.path().join(name);
        let always = ["--temperature", "0", "--file", file.to_str().unwrap()];
        printed(&session, &[&always, args].concat()).trim_end_matches('\n').to_owned()
    };
    let whole = run("whole", &["--max-tokens", "30", "Once upon a time"]);
    for options in
        [&["--max-tokens", "15"][..], &["--max-tokens", "15", "--tokens-alone"], &["--max-tokens", "15", "--each"]]
    {
        let name = options.last().unwrap().trim_start_matches('-');
        let parts = [run(name, &[options, &["Once upon a time"]].concat()), run(name, options)];
        assert_eq!(parts.concat(), whole, "{options:?}");
    }
    // A text that ends by itself is saved, too.
    run("ended", &["Once upon a time"]);
    assert!(folder.path().join("ended").exists());
}

/// A program that is killed at any moment leaves the old session or the new one.
#[cfg(unix)]
#[test]
fn a_killed_program_leaves_a_whole_session() {
    let (session, folder) = (example("session"), Folder::new());
    let file = folder.path().join("session");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/storyteller/storyteller.gguf");
    let mut runner = Runner::from_gguf(model).unwrap();
    let mut lengths = vec![];
    for round in 0..12 {
        let path = file.to_str().unwrap();
        let args = ["--each", "--max-tokens", "60", "--device", "cpu", "--threads", "1", "--file", path];
        let mut child = Command::new(&session).args(args).stdout(Stdio::null()).spawn().unwrap();
        while !file.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::thread::sleep(std::time::Duration::from_millis(40 + 17 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        runner.restore(fs::File::open(&file).unwrap()).unwrap();
        lengths.push(runner.tokens().len());
        if runner.tokens().len() > 150 {
            fs::remove_file(&file).unwrap();
        }
    }
    assert!(lengths.iter().any(|len| *len > 5), "{lengths:?}");
}
