//! Tests the error message of each kind of invalid GGUF file: it names the file and the key or
//! tensor.

use std::fs;

use inkstone::{Error, gguf::Gguf};

use crate::support::gguf_file::{Folder, GgufFile, array, string};

/// Returns the error message for a file with these bytes, without the path that it starts with.
fn message(bytes: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    let path = folder.write("model.gguf", bytes);
    let error = Gguf::open(&path).unwrap_err();
    assert!(matches!(error, Error::InvalidFile { .. }), "{error:?}");
    let message = error.to_string();
    message.strip_prefix(&format!("{}: ", path.display())).expect("starts with the path").to_string()
}

/// The end of every message about an unknown number.
const DAMAGED: &str = "the file is damaged, or needs a newer version of inkstone";

fn version(version: u32) -> GgufFile {
    GgufFile { version, ..GgufFile::new() }
}

/// Returns the message for a tensor of this type and these dimensions, without data.
fn tensor_message(dimensions: &[u64], type_number: u32) -> String {
    message(GgufFile::new().tensor("t", dimensions, type_number, []).bytes())
}

#[test]
fn files_of_other_kinds_are_recognized() {
    let folder = Folder::new();
    let missing = folder.path().join("missing.gguf");
    let error = Gguf::open(&missing).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    assert!(error.to_string().starts_with(&missing.display().to_string()), "{error}");
    let error = Gguf::open(folder.path()).unwrap_err().to_string();
    let directory = "is a directory: pass a .gguf file, or load a directory of safetensors with `from_path`";
    assert_eq!(error, format!("{}: {directory}", folder.path().display()));
    assert_eq!(message(""), "is empty");
    let text = "is not a GGUF file: it starts with \"Once\" instead of \"GGUF\"";
    assert_eq!(message("Once upon a time"), text);
    assert!(message(*b"lmgg\0\0\0\0").starts_with("is a file of whisper.cpp, "));
    assert!(message(*b"PK\x03\x04\0\0").starts_with("is a zip archive, "));
    assert_eq!(message([0, 1]), "is not a GGUF file: it starts with \"\\x00\\x01\" instead of \"GGUF\"");
    let pointer = "is a Git LFS pointer, not the model: download the model with `git lfs pull`";
    assert_eq!(message("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), pointer);
}

#[cfg(unix)]
#[test]
fn pipes_are_refused_without_waiting_for_a_writer() {
    let folder = Folder::new();
    let pipe = folder.path().join("pipe.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = Gguf::open(&pipe).unwrap_err().to_string();
    assert!(error.contains("is not a regular file"), "{error}");
}

#[test]
fn unsupported_versions_and_byte_orders_are_refused() {
    let old = "has GGUF version 1, which is obsolete: convert the original model again";
    assert_eq!(message(version(1).bytes()), old);
    let big = "is a big-endian GGUF file: convert it with gguf-py's `gguf_convert_endian`";
    assert_eq!(message(version(3_u32.swap_bytes()).bytes()), big);
    assert_eq!(message(version(4).bytes()), "has GGUF version 4: versions 2 and 3 are supported");
    assert_eq!(message(version(0).bytes()), "has GGUF version 0: versions 2 and 3 are supported");
}

#[test]
fn truncated_files_report_the_missing_bytes() {
    let file = GgufFile::new().string("general.name", "fox").tensor("t", &[8], 0, [0; 32]).bytes();
    let ends = |len: usize| format!("but the file ends at byte {len}: it is truncated or damaged");
    let cut = |len: usize| message(&file[..len]);
    assert_eq!(cut(6), format!("the header needs 4 bytes at byte 4, {}", ends(6)));
    assert_eq!(cut(25), format!("a key count of 1 needs 14 bytes at byte 24, {}", ends(25)));
    assert_eq!(cut(40), format!("metadata key 1 of 1 needs 12 bytes at byte 32, {}", ends(40)));
    assert_eq!(cut(58), format!("metadata key `general.name` needs 3 bytes at byte 56, {}", ends(58)));
    assert_eq!(cut(60), format!("a tensor count of 1 needs 32 bytes at byte 59, {}", ends(60)));
    let data = "tensor `t` has 32 bytes at offset 0 of the data at byte 96,";
    assert_eq!(cut(127), format!("{data} {}", ends(127)));
    assert_eq!(file.len(), 128);
}

#[test]
fn counts_beyond_the_file_size_are_refused() {
    let with = |at: usize, count: u64| {
        let mut file = GgufFile::new().array("a", 8, &[string("x")]).tensor("t", &[1], 0, [0; 4]).bytes();
        file[at..at + 8].copy_from_slice(&count.to_le_bytes());
        message(file)
    };
    let (huge, ends) = (u64::MAX, "but the file ends at byte 100: it is truncated or damaged");
    assert_eq!(
        with(8, huge),
        format!("a tensor count of {huge} needs {} bytes at byte 58, {ends}", u128::from(huge) * 32)
    );
    assert_eq!(
        with(16, huge),
        format!("a key count of {huge} needs {} bytes at byte 24, {ends}", u128::from(huge) * 14)
    );
    assert_eq!(with(24, 1 << 63), format!("metadata key 1 of 1 needs 9223372036854775808 bytes at byte 32, {ends}"));
    assert_eq!(with(41, huge), format!("metadata key `a` needs {} bytes at byte 49, {ends}", u128::from(huge) * 8));
    assert_eq!(with(49, huge), format!("metadata key `a` (element 0) needs {huge} bytes at byte 57, {ends}"));
}

#[test]
fn invalid_keys_and_values_are_refused() {
    let key = |file: GgufFile| message(file.bytes());
    assert_eq!(
        key(GgufFile::new().key("k", 13, [])),
        "a key count of 1 needs 14 bytes at byte 24, but the file ends at byte 37: it is truncated or damaged"
    );
    assert_eq!(
        key(GgufFile::new().key("k", 13, [0; 8])),
        format!("metadata key `k` has the unknown value type 13: {DAMAGED}")
    );
    assert_eq!(
        key(GgufFile::new().array("k", 77, &[])),
        format!("metadata key `k` has elements of the unknown value type 77: {DAMAGED}")
    );
    assert_eq!(key(GgufFile::new().key("k", 7, [2])), "metadata key `k` is a bool stored as 2: expected 0 or 1");
    let bools = GgufFile::new().array("k", 7, &[vec![1], vec![9]]);
    assert_eq!(key(bools), "metadata key `k` (element 1) is a bool stored as 9: expected 0 or 1");
    let text = [1_u64.to_le_bytes().as_slice(), &[0xff]].concat();
    let not_utf8 = "is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0";
    assert_eq!(key(GgufFile::new().key("k", 8, text)), format!("metadata key `k` {not_utf8}"));
    let mut file = GgufFile::new().u32("k", 1);
    file.keys[0].0 = vec![0xff];
    assert_eq!(key(file), format!("metadata key 1 of 1 {not_utf8}"));
    assert_eq!(key(GgufFile::new().u32("", 1)), "metadata key 1 of 1 is empty");
    assert_eq!(key(GgufFile::new().u32("k", 1).string("k", "2")), "metadata key `k` occurs twice");
    let hostile = format!("metadata key `\\u{{1b}}[2J{}…` has the unknown value type 99: {DAMAGED}", "x".repeat(92));
    assert_eq!(key(GgufFile::new().key(&format!("\x1b[2J{}", "x".repeat(5000)), 99, [0])), hostile);
}

#[test]
fn deeply_nested_arrays_are_refused() {
    let deep = |depth: usize| {
        let mut value = Vec::new();
        for _ in 1..depth {
            value.extend(9_u32.to_le_bytes());
            value.extend(1_u64.to_le_bytes());
        }
        value.extend(array(0, &[]));
        GgufFile::new().key("k", 9, value).bytes()
    };
    let elements = "(element 0) ".repeat(8);
    let expected = format!("metadata key `k` {elements}has arrays nested deeper than 8 levels");
    assert_eq!(message(deep(9)), expected);
    assert_eq!(message(deep(100_000)), expected);
}

#[test]
fn alignments_must_be_powers_of_two_in_range() {
    let range = "it must be a power of two from 8 to 1048576";
    for alignment in [0, 1, 4, 24, 33, 1 << 21, 1 << 31, u32::MAX] {
        let file = GgufFile::new().u32("general.alignment", alignment);
        assert_eq!(message(file.bytes()), format!("metadata key `general.alignment` is {alignment}: {range}"));
    }
    let file = GgufFile::new().string("general.alignment", "32");
    assert_eq!(message(file.bytes()), "metadata key `general.alignment` is `32`: expected an integer of 0 or more");
}

#[test]
fn invalid_shapes_are_refused() {
    assert_eq!(tensor_message(&[], 0), "tensor `t` has 0 dimensions: expected 1 to 4");
    assert_eq!(tensor_message(&[1; 5], 0), "tensor `t` has 5 dimensions: expected 1 to 4");
    assert_eq!(tensor_message(&[8, 0], 0), "tensor `t` has a dimension of length 0: [8, 0]");
    assert_eq!(
        tensor_message(&[33, 2], 8),
        "tensor `t` has rows of 33 weights, not a multiple of the Q8_0 block size 32"
    );
    assert_eq!(
        tensor_message(&[128, 2], 12),
        "tensor `t` has rows of 128 weights, not a multiple of the Q4_K block size 256"
    );
    let large = |lengths: &[u64]| format!("tensor `t` has dimensions {lengths:?}, whose product is too large");
    for lengths in [&[1 << 32, 1 << 32][..], &[u64::MAX, 2], &[1 << 62], &[1 << 16; 4]] {
        assert_eq!(tensor_message(lengths, 0), large(lengths));
    }
}

#[test]
fn unknown_and_removed_tensor_types_are_refused() {
    assert_eq!(tensor_message(&[32], 99), format!("tensor `t` has the unknown tensor type 99: {DAMAGED}"));
    for (number, name) in [(4, "Q4_2"), (5, "Q4_3"), (31, "Q4_0_4_4"), (38, "IQ4_NL_8_8")] {
        let removed = "which was removed from GGUF: quantize the model again as Q4_0 or IQ4_NL";
        assert_eq!(tensor_message(&[32], number), format!("tensor `t` is stored as {name}, {removed}"));
    }
    for (number, name, program) in
        [(36, "IQ4_NL_4_4", "I2_S, which only bitnet.cpp reads"), (139, "IQ4_K", "only ik_llama.cpp reads")]
    {
        let message = tensor_message(&[32], number);
        assert!(message.contains(&format!("is stored as {name}, ")) && message.contains(program), "{message}");
    }
}

#[test]
fn misaligned_overlapping_and_truncated_tensors_are_refused() {
    let two = |offset: u64| {
        let file = GgufFile::new().tensor("a", &[16], 0, [0; 64]).tensor("b", &[16], 0, [0; 64]).at(offset);
        message(file.bytes())
    };
    let outside = |offset: u64| {
        let place = format!("at offset {offset} of the data at byte 96, but the file ends at byte 224");
        format!("tensor `b` has 64 bytes {place}: it is truncated or damaged")
    };
    assert_eq!(two(32), "tensor `b` overlaps tensor `a`");
    assert_eq!(two(0), "tensor `b` overlaps tensor `a`");
    assert_eq!(two(65), "tensor `b` has offset 65, which is not a multiple of the alignment 32");
    for offset in [96, 1 << 40, u64::MAX - 31] {
        assert_eq!(two(offset), outside(offset));
    }
    let twice = GgufFile::new().tensor("t", &[8], 0, [0; 32]).tensor("t", &[8], 0, [0; 32]);
    assert_eq!(message(twice.bytes()), "tensor `t` occurs twice");
    assert_eq!(message(GgufFile::new().tensor("", &[8], 0, [0; 32]).bytes()), "tensor 1 of 1 has no name");
}

/// Returns a shard of a split model, with one tensor.
fn shard(index: u16, count: u16, name: &str) -> GgufFile {
    let file = GgufFile::new().key("split.no", 2, index.to_le_bytes()).key("split.count", 2, count.to_le_bytes());
    file.key("split.tensors.count", 5, 2_i32.to_le_bytes()).tensor(name, &[8], 0, [0; 32])
}

/// Returns the error message for a model in two shards, without its folder.
fn split_message(first: &GgufFile, second: &GgufFile) -> String {
    let folder = Folder::new();
    let path = folder.write("m-00001-of-00002.gguf", first.bytes());
    folder.write("m-00002-of-00002.gguf", second.bytes());
    message_in(&folder, &path)
}

fn message_in(folder: &Folder, path: &std::path::Path) -> String {
    let prefix = format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR);
    Gguf::open(path).unwrap_err().to_string().replace(&prefix, "")
}

#[test]
fn split_models_open_by_the_first_shard_if_no_shard_is_missing() {
    let folder = Folder::new();
    let first = folder.write("m-00001-of-00002.gguf", shard(0, 2, "a").bytes());
    let missing = "m-00002-of-00002.gguf: is missing: it is shard 2 of 2 of the model";
    assert_eq!(message_in(&folder, &first), missing);
    let second = folder.write("m-00002-of-00002.gguf", shard(1, 2, "b").bytes());
    assert_eq!(Gguf::open(&first).unwrap().tensors().len(), 2);
    let not_first = "is shard 2 of 2 of a model: open the first shard";
    assert_eq!(message_in(&folder, &second), format!("m-00002-of-00002.gguf: {not_first}, `m-00001-of-00002.gguf`"));
    let renamed = folder.path().join("renamed.gguf");
    fs::rename(&second, &renamed).unwrap();
    assert_eq!(message_in(&folder, &renamed), format!("renamed.gguf: {not_first}"));
    fs::rename(&first, &renamed).unwrap();
    let unnamed =
        "is shard 1 of 2 of a model: rename it to end in `-00001-of-00002.gguf`, so that the other shards are found";
    assert_eq!(message_in(&folder, &renamed), format!("renamed.gguf: {unnamed}"));
}

#[test]
fn contradicting_shards_are_refused() {
    let (first, second) = (shard(0, 2, "a"), shard(1, 2, "b"));
    let (first_name, second_name) = ("m-00001-of-00002.gguf:", "m-00002-of-00002.gguf:");
    let by_name = "is shard 2 of 2 by its name, but";
    assert_eq!(
        split_message(&first, &GgufFile::new()),
        format!("{second_name} {by_name} its metadata has no `split.count`")
    );
    let by_metadata = |shard: &str| format!("{second_name} {by_name} shard {shard} by its metadata");
    assert_eq!(split_message(&first, &shard(0, 2, "b")), by_metadata("1 of 2"));
    assert_eq!(split_message(&first, &shard(1, 3, "b")), by_metadata("2 of 3"));
    assert_eq!(
        split_message(&first, &shard(1, 2, "a")),
        format!("{first_name} tensor `a` occurs in two shards of the model")
    );
    let third = second.clone().tensor("c", &[8], 0, [0; 32]);
    let count = "`split.tensors.count` is 2, but the 2 shards have 3 tensors";
    assert_eq!(split_message(&first, &third), format!("{first_name} {count}"));
    let (fox, owl) = (first.clone().string("name", "fox"), second.clone().string("name", "owl"));
    let key = "metadata key `name` is `owl`, but `fox` in the first shard";
    assert_eq!(split_message(&fox, &owl), format!("{second_name} {key}"));
    let index = "`split.no` is 2: it must be less than `split.count`, which is 2";
    assert_eq!(split_message(&shard(2, 2, "a"), &second), format!("{first_name} {index}"));
    let unnumbered = GgufFile::new().u32("split.count", 2);
    let missing = "`split.count` is 2, but `split.no` is missing";
    assert_eq!(split_message(&unnumbered, &second), format!("{first_name} {missing}"));
    let wrong = GgufFile::new().u32("split.no", 0).string("split.count", "2");
    assert_eq!(
        split_message(&wrong, &second),
        format!("{first_name} metadata key `split.count` is `2`: expected an integer of 0 or more")
    );
}

#[test]
fn later_shards_may_add_or_repeat_keys() {
    let folder = Folder::new();
    let first = shard(0, 2, "a").u32("general.alignment", 32).string("name", "fox");
    let mut second = shard(1, 2, "b").u32("general.alignment", 64).string("name", "fox").u32("more", 7);
    second.alignment = 64;
    let path = folder.write("m-00001-of-00002.gguf", first.bytes());
    folder.write("m-00002-of-00002.gguf", second.bytes());
    let gguf = Gguf::open(path).unwrap();
    assert_eq!((gguf.str("name").unwrap(), gguf.u32("more").unwrap()), (Some("fox"), Some(7)));
    assert_eq!(gguf.u32("general.alignment").unwrap(), Some(32));
}
