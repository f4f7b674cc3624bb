//! What is no sound GGUF file: each kind has a message of its own, which names the file and the key or tensor.

use std::fs;

use inkstone::{Error, gguf::Gguf};

use crate::support::gguf_file::{Folder, GgufFile, array, string};

/// What is said of a file with these bytes, after its path.
fn complaint(bytes: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    let path = folder.write("model.gguf", bytes);
    let error = Gguf::open(&path).unwrap_err();
    assert!(matches!(error, Error::InvalidFile { .. }), "{error:?}");
    let message = error.to_string();
    message.strip_prefix(&format!("{}: ", path.display())).expect("the file's name first").to_string()
}

fn version(version: u32) -> GgufFile {
    GgufFile { version, ..GgufFile::new() }
}

/// A tensor of `number` and these dimensions, with nothing behind it.
fn tensor(dimensions: &[u64], number: u32) -> String {
    complaint(GgufFile::new().tensor("t", dimensions, number, []).bytes())
}

#[test]
fn what_is_no_gguf_file_is_told_apart() {
    let folder = Folder::new();
    let missing = folder.path().join("missing.gguf");
    let error = Gguf::open(&missing).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    assert!(error.to_string().starts_with(&missing.display().to_string()), "{error}");
    let error = Gguf::open(folder.path()).unwrap_err().to_string();
    let directory = "is a directory: name the .gguf file in it, or use `from_path`";
    assert_eq!(error, format!("{}: {directory}", folder.path().display()));
    assert_eq!(complaint(""), "is empty");
    let text = "is not a GGUF file: it starts with \"Once\" and not with \"GGUF\"";
    assert_eq!(complaint("Once upon a time"), text);
    assert_eq!(complaint([0, 1]), "is not a GGUF file: it starts with \"\\x00\\x01\" and not with \"GGUF\"");
    let pointer = "is a Git LFS pointer to the model, not the model: fetch it with `git lfs pull`";
    assert_eq!(complaint("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), pointer);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_without_waiting_for_its_writer() {
    let folder = Folder::new();
    let pipe = folder.path().join("pipe.gguf");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no mkfifo here");
        return;
    }
    let error = Gguf::open(&pipe).unwrap_err().to_string();
    assert!(error.contains("is not a regular file"), "{error}");
}

#[test]
fn other_versions_and_byte_orders_are_named() {
    let old = "is of GGUF version 1, which is no longer in use: convert the original model again";
    assert_eq!(complaint(version(1).bytes()), old);
    let big = "is a big-endian GGUF file: convert it with gguf-py's gguf_convert_endian";
    assert_eq!(complaint(version(3_u32.swap_bytes()).bytes()), big);
    assert_eq!(complaint(version(4).bytes()), "is of GGUF version 4: versions 2 and 3 are supported");
    assert_eq!(complaint(version(0).bytes()), "is of GGUF version 0: versions 2 and 3 are supported");
}

#[test]
fn truncation_says_where() {
    let file = GgufFile::new().string("general.name", "fox").tensor("t", &[8], 0, [0; 32]).bytes();
    let ends = |len: usize| format!("but the file ends at byte {len}: it is truncated or damaged");
    let cut = |len: usize| complaint(&file[..len]);
    assert_eq!(cut(6), format!("the header needs 4 bytes at byte 4, {}", ends(6)));
    assert_eq!(cut(25), format!("a key count of 1 needs 14 bytes at byte 24, {}", ends(25)));
    assert_eq!(cut(40), format!("metadata key 1 of 1 needs 12 bytes at byte 32, {}", ends(40)));
    assert_eq!(cut(58), format!("metadata key `general.name` needs 3 bytes at byte 56, {}", ends(58)));
    assert_eq!(cut(60), format!("a tensor count of 1 needs 32 bytes at byte 59, {}", ends(60)));
    let data = "tensor `t` has 32 bytes at offset 0 of the data at byte 96, past the file's end at byte 127";
    assert_eq!(cut(127), format!("{data}: the file is truncated or damaged"));
    assert_eq!(file.len(), 128);
}

#[test]
fn counts_that_no_file_could_hold_are_refused() {
    let with = |at: usize, count: u64| {
        let mut file = GgufFile::new().array("a", 8, &[string("x")]).tensor("t", &[1], 0, [0; 4]).bytes();
        file[at..at + 8].copy_from_slice(&count.to_le_bytes());
        complaint(file)
    };
    let (most, ends) = (u64::MAX, "but the file ends at byte 100: it is truncated or damaged");
    assert_eq!(
        with(8, most),
        format!("a tensor count of {most} needs {} bytes at byte 58, {ends}", u128::from(most) * 32)
    );
    assert_eq!(
        with(16, most),
        format!("a key count of {most} needs {} bytes at byte 24, {ends}", u128::from(most) * 14)
    );
    assert_eq!(with(24, 1 << 63), format!("metadata key 1 of 1 needs 9223372036854775808 bytes at byte 32, {ends}"));
    assert_eq!(with(41, most), format!("metadata key `a` needs {} bytes at byte 49, {ends}", u128::from(most) * 8));
    assert_eq!(with(49, most), format!("metadata key `a` (element 0) needs {most} bytes at byte 57, {ends}"));
}

#[test]
fn keys_and_values_that_mean_nothing_are_refused() {
    let key = |file: GgufFile| complaint(file.bytes());
    assert_eq!(
        key(GgufFile::new().key("k", 13, [])),
        "a key count of 1 needs 14 bytes at byte 24, but the file ends at byte 37: it is truncated or damaged"
    );
    assert_eq!(key(GgufFile::new().key("k", 13, [0; 8])), "metadata key `k` has the unknown type 13");
    assert_eq!(key(GgufFile::new().array("k", 77, &[])), "metadata key `k` has elements of the unknown type 77");
    assert_eq!(key(GgufFile::new().key("k", 7, [2])), "metadata key `k` is a bool of value 2, neither 0 nor 1");
    let bools = GgufFile::new().array("k", 7, &[vec![1], vec![9]]);
    assert_eq!(key(bools), "metadata key `k` (element 1) is a bool of value 9, neither 0 nor 1");
    let text = [1_u64.to_le_bytes().as_slice(), &[0xff]].concat();
    let not_utf8 = "is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0";
    assert_eq!(key(GgufFile::new().key("k", 8, text)), format!("metadata key `k` {not_utf8}"));
    let mut file = GgufFile::new().u32("k", 1);
    file.keys[0].0 = vec![0xff];
    assert_eq!(key(file), format!("metadata key 1 of 1 {not_utf8}"));
    assert_eq!(key(GgufFile::new().u32("", 1)), "metadata key 1 of 1 is empty");
    assert_eq!(key(GgufFile::new().u32("k", 1).string("k", "2")), "metadata key `k` is there twice");
    let hostile = format!("metadata key `\\u{{1b}}[2J{}…` has the unknown type 99", "x".repeat(92));
    assert_eq!(key(GgufFile::new().key(&format!("\x1b[2J{}", "x".repeat(5000)), 99, [0])), hostile);
}

#[test]
fn nesting_is_bounded() {
    let deep = |depth: usize| {
        let mut value = Vec::new();
        for _ in 1..depth {
            value.extend(9_u32.to_le_bytes());
            value.extend(1_u64.to_le_bytes());
        }
        value.extend(array(0, &[]));
        GgufFile::new().key("k", 9, value).bytes()
    };
    let where_to = "(element 0) ".repeat(8);
    let message = format!("metadata key `k` {where_to}is nested more than 8 arrays deep");
    assert_eq!(complaint(deep(9)), message);
    assert_eq!(complaint(deep(100_000)), message);
}

#[test]
fn alignment_must_be_a_power_of_two_and_sane() {
    let range = "it must be a power of two from 8 to 1048576";
    for alignment in [0, 1, 4, 24, 33, 1 << 21, 1 << 31, u32::MAX] {
        let file = GgufFile::new().u32("general.alignment", alignment);
        assert_eq!(complaint(file.bytes()), format!("metadata key `general.alignment` is {alignment}: {range}"));
    }
    let file = GgufFile::new().string("general.alignment", "32");
    assert_eq!(complaint(file.bytes()), "metadata key `general.alignment` is `32`, not a whole number");
}

#[test]
fn shapes_are_checked() {
    assert_eq!(tensor(&[], 0), "tensor `t` has 0 dimensions: 1 to 4 are possible");
    assert_eq!(tensor(&[1; 5], 0), "tensor `t` has 5 dimensions: 1 to 4 are possible");
    assert_eq!(tensor(&[8, 0], 0), "tensor `t` has a dimension of length 0: [8, 0]");
    assert_eq!(tensor(&[33, 2], 8), "tensor `t` has rows of 33 weights, no whole number of Q8_0 blocks of 32");
    assert_eq!(tensor(&[128, 2], 12), "tensor `t` has rows of 128 weights, no whole number of Q4_K blocks of 256");
    let large = |lengths: &[u64]| format!("tensor `t` has dimensions {lengths:?}, whose product is too large");
    for lengths in [&[1 << 32, 1 << 32][..], &[u64::MAX, 2], &[1 << 62], &[1 << 16; 4]] {
        assert_eq!(tensor(lengths, 0), large(lengths));
    }
}

#[test]
fn unknown_and_withdrawn_tensor_types_are_named() {
    assert_eq!(tensor(&[32], 99), "tensor `t` has the unknown type 99");
    for (number, name) in [(4, "Q4_2"), (5, "Q4_3"), (31, "Q4_0_4_4"), (38, "IQ4_NL_8_8")] {
        let withdrawn = "which was withdrawn from GGUF: quantise the model anew as Q4_0 or IQ4_NL";
        assert_eq!(tensor(&[32], number), format!("tensor `t` is stored as {name}, {withdrawn}"));
    }
}

#[test]
fn tensors_must_lie_in_the_file_aligned_and_apart() {
    let two = |offset: u64| {
        let file = GgufFile::new().tensor("a", &[16], 0, [0; 64]).tensor("b", &[16], 0, [0; 64]).at(offset);
        complaint(file.bytes())
    };
    let outside = |offset: u64| {
        let place = format!("at offset {offset} of the data at byte 96, past the file's end at byte 224");
        format!("tensor `b` has 64 bytes {place}: the file is truncated or damaged")
    };
    assert_eq!(two(32), "tensor `b` overlaps tensor `a`");
    assert_eq!(two(0), "tensor `b` overlaps tensor `a`");
    assert_eq!(two(65), "tensor `b` starts at offset 65, which is no multiple of the alignment 32");
    for offset in [96, 1 << 40, u64::MAX - 31] {
        assert_eq!(two(offset), outside(offset));
    }
    let twice = GgufFile::new().tensor("t", &[8], 0, [0; 32]).tensor("t", &[8], 0, [0; 32]);
    assert_eq!(complaint(twice.bytes()), "tensor `t` is there twice");
    assert_eq!(complaint(GgufFile::new().tensor("", &[8], 0, [0; 32]).bytes()), "tensor 1 of 1 has no name");
}

/// A part of a split model, with one tensor.
fn part(index: u16, count: u16, name: &str) -> GgufFile {
    let file = GgufFile::new().key("split.no", 2, index.to_le_bytes()).key("split.count", 2, count.to_le_bytes());
    file.key("split.tensors.count", 5, 2_i32.to_le_bytes()).tensor(name, &[8], 0, [0; 32])
}

/// What is said of a model in two parts, without its folder.
fn split_complaint(first: &GgufFile, second: &GgufFile) -> String {
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
fn a_split_model_is_opened_by_its_first_part_with_all_others_beside_it() {
    let folder = Folder::new();
    let first = folder.write("m-00001-of-00002.gguf", part(0, 2, "a").bytes());
    let missing = "m-00002-of-00002.gguf: is missing: it is part 2 of 2 of the model";
    assert_eq!(message_in(&folder, &first), missing);
    let second = folder.write("m-00002-of-00002.gguf", part(1, 2, "b").bytes());
    assert_eq!(Gguf::open(&first).unwrap().tensors().len(), 2);
    let not_first = "is part 2 of 2 of a model: open the first";
    assert_eq!(message_in(&folder, &second), format!("m-00002-of-00002.gguf: {not_first}, `m-00001-of-00002.gguf`"));
    let renamed = folder.path().join("renamed.gguf");
    fs::rename(&second, &renamed).unwrap();
    assert_eq!(message_in(&folder, &renamed), format!("renamed.gguf: {not_first}"));
    fs::rename(&first, &renamed).unwrap();
    let unnamed =
        "is part 1 of 2 of a model, so for the others to be found its name must end in `-00001-of-00002.gguf`";
    assert_eq!(message_in(&folder, &renamed), format!("renamed.gguf: {unnamed}"));
}

#[test]
fn the_parts_of_a_split_model_must_agree() {
    let (first, second) = (part(0, 2, "a"), part(1, 2, "b"));
    let (one, two) = ("m-00001-of-00002.gguf:", "m-00002-of-00002.gguf:");
    let by_name = "is part 2 of 2 by its name, but not by its metadata";
    assert_eq!(split_complaint(&first, &GgufFile::new()), format!("{two} {by_name}"));
    let by_metadata = |place: &str| format!("{two} is part {place} by its metadata, not by its name");
    assert_eq!(split_complaint(&first, &part(0, 2, "b")), by_metadata("1 of 2"));
    assert_eq!(split_complaint(&first, &part(1, 3, "b")), by_metadata("2 of 3"));
    assert_eq!(split_complaint(&first, &part(1, 2, "a")), format!("{one} tensor `a` is in two parts of the model"));
    let third = second.clone().tensor("c", &[8], 0, [0; 32]);
    let count = "`split.tensors.count` is 2, but the model's 2 parts have 3 tensors";
    assert_eq!(split_complaint(&first, &third), format!("{one} {count}"));
    let (fox, owl) = (first.clone().string("name", "fox"), second.clone().string("name", "owl"));
    let key = "metadata key `name` is `owl` here and `fox` in the first part";
    assert_eq!(split_complaint(&fox, &owl), format!("{two} {key}"));
    assert_eq!(split_complaint(&part(2, 2, "a"), &second), format!("{one} `split.no` is 2, but `split.count` is 2"));
    let uncounted = GgufFile::new().u32("split.count", 2);
    assert_eq!(split_complaint(&uncounted, &second), format!("{one} `split.count` is 2, but there is no `split.no`"));
    let wrong = GgufFile::new().u32("split.no", 0).string("split.count", "2");
    assert_eq!(
        split_complaint(&wrong, &second),
        format!("{one} metadata key `split.count` is `2`, not a whole number")
    );
}

#[test]
fn later_parts_may_add_or_repeat_keys() {
    let folder = Folder::new();
    let first = part(0, 2, "a").u32("general.alignment", 32).string("name", "fox");
    let mut second = part(1, 2, "b").u32("general.alignment", 64).string("name", "fox").u32("more", 7);
    second.alignment = 64;
    let path = folder.write("m-00001-of-00002.gguf", first.bytes());
    folder.write("m-00002-of-00002.gguf", second.bytes());
    let gguf = Gguf::open(path).unwrap();
    assert_eq!((gguf.str("name").unwrap(), gguf.u32("more").unwrap()), (Some("fox"), Some(7)));
    assert_eq!(gguf.u32("general.alignment").unwrap(), Some(32));
}
