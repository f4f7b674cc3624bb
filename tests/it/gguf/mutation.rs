//! Mutates valid GGUF files: opening any bytes must return an error or tensors within the file,
//! without a panic and with memory proportional to the file size.

use inkstone::{
    Runner,
    gguf::{Array, Gguf, Value},
    internals::weights::Weights,
};
use proptest::prelude::*;

use crate::support::{
    allocation::peak_during,
    gguf_file::{Folder, GgufFile, array, string},
};

/// Returns the maximum number of bytes that opening may allocate. A key of three characters takes
/// 16 bytes of the file and about 160 bytes of memory while its table and index grow; all other
/// content takes less. The constant covers paths, messages and the first entries of tables.
fn memory_limit(file_len: usize) -> usize {
    12 * file_len + 16384
}

/// Opens a file with these bytes and reads all of its content. Returns whether it is valid.
fn exercise(folder: &Folder, bytes: &[u8]) -> bool {
    exercise_at(&folder.write("model.gguf", bytes), bytes.len())
}

fn exercise_at(path: &std::path::Path, file_len: usize) -> bool {
    let (opened, peak) = peak_during(|| Gguf::open(path));
    assert!(peak <= memory_limit(file_len), "opening {file_len} bytes took {peak}: {opened:?}");
    let gguf = match opened {
        Ok(gguf) => gguf,
        Err(error) => {
            assert!(error.to_string().starts_with(&path.parent().unwrap().display().to_string()), "{error}");
            let verdict = Runner::builder().check(path);
            assert_eq!(verdict.obstacles[0].error.to_string(), error.to_string());
            return false;
        }
    };
    for (key, value) in gguf.metadata() {
        assert_eq!(gguf.get(key).map(Value::type_name), Some(value.type_name()));
        let _ = (gguf.u64(key), gguf.usize(key), gguf.u32(key), gguf.f32(key), gguf.bool(key));
        let _ =
            (gguf.str(key), gguf.array(key).map(|array| array.map(Array::len)), gguf.strings(key), value.to_string());
    }
    let weights = Weights::from_gguf(&gguf);
    let mut ranges: Vec<_> = gguf.tensors().iter().map(|tensor| gguf.bytes(tensor).as_ptr_range()).collect();
    for tensor in gguf.tensors() {
        let bytes = gguf.bytes(tensor);
        assert_eq!(bytes.len(), tensor.elements() / tensor.dtype.block_weights() * tensor.dtype.block_bytes());
        assert!(bytes.len() <= file_len && bytes.as_ptr().addr().is_multiple_of(8));
        std::hint::black_box(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
        gguf.will_need(tensor, 0..bytes.len());
        gguf.done_with(tensor, 0..bytes.len());
        let _ = (weights.get(&tensor.name, &tensor.shape), weights.vector(&tensor.name, tensor.elements()));
    }
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "tensors overlap");
    true
}

/// Returns valid files of several kinds.
fn valid_files() -> Vec<GgufFile> {
    let tensors = GgufFile::new()
        .string("general.architecture", "qwen3")
        .u32("general.alignment", 32)
        .tensor("norm", &[8], 0, [1; 32])
        .tensor("half", &[3], 1, [2; 6])
        .tensor("q8_0", &[32, 2], 8, [3; 68])
        .tensor("q4_k", &[256, 1, 1, 1], 12, [4; 144])
        .tensor("iq1_s", &[256], 19, [5; 50]);
    let mut scalars = GgufFile { version: 2, ..GgufFile::new() };
    for (type_number, bytes) in
        [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (10, 8), (11, 8), (12, 8)]
    {
        scalars = scalars.key(&format!("one.{type_number}"), type_number, vec![1; bytes]);
        scalars = scalars.array(&format!("many.{type_number}"), type_number, &[vec![1; bytes], vec![0; bytes]]);
    }
    let inner = |text: &str| array(8, &[string(text), string("")]);
    let nested = GgufFile::new()
        .array("tokens", 8, &[string("a"), string("Ġfox"), string("世界")])
        .array("nested", 9, &[array(9, &[inner("x"), inner("y")]), array(9, &[])])
        .tensor("t", &[2, 2, 2], 0, [7; 32]);
    vec![tensors, scalars, nested]
}

/// Returns the shards of a valid split model.
fn valid_shards() -> [GgufFile; 2] {
    [0_u16, 1].map(|index| {
        let file = GgufFile::new().key("split.no", 2, index.to_le_bytes()).key("split.count", 2, 2_u16.to_le_bytes());
        let file = file.key("split.tensors.count", 5, 2_i32.to_le_bytes());
        file.tensor(&format!("t{index}"), &[8], 0, [1; 32])
    })
}

/// Writes the shards into `folder` and does the same as [`exercise`] with the model.
fn exercise_shards(folder: &Folder, shards: &[Vec<u8>; 2]) -> bool {
    let path = folder.write("m-00001-of-00002.gguf", &shards[0]);
    folder.write("m-00002-of-00002.gguf", &shards[1]);
    exercise_at(&path, shards[0].len() + shards[1].len())
}

#[test]
fn unmutated_files_are_valid() {
    let folder = Folder::new();
    assert!(valid_files().iter().all(|file| exercise(&folder, &file.bytes())));
    assert!(exercise_shards(&folder, &valid_shards().map(|shard| shard.bytes())));
}

#[test]
fn files_truncated_at_any_byte_are_refused() {
    let folder = Folder::new();
    for file in valid_files() {
        let bytes = file.bytes();
        for len in 0..bytes.len() {
            assert!(!exercise(&folder, &bytes[..len]), "{len} of {} bytes", bytes.len());
        }
    }
    let shards = valid_shards().map(|shard| shard.bytes());
    for index in 0..2 {
        for len in 0..shards[index].len() {
            let mut truncated = shards.clone();
            truncated[index].truncate(len);
            assert!(!exercise_shards(&folder, &truncated), "shard {index}, {len} bytes");
        }
    }
}

#[test]
fn extreme_numbers_at_any_byte_of_the_header_are_handled() {
    let extremes =
        [0, 1, 3, 255, 1 << 31, u64::from(u32::MAX), 1 << 60, i64::MAX as u64, 1 << 63, u64::MAX - 31, u64::MAX];
    let folder = Folder::new();
    for file in valid_files() {
        let (bytes, header) = (file.bytes(), file.header().len());
        for at in 0..header {
            for extreme in extremes {
                let mut mutant = bytes.clone();
                let end = (at + 8).min(mutant.len());
                mutant[at..end].copy_from_slice(&extreme.to_le_bytes()[..end - at]);
                exercise(&folder, &mutant);
            }
        }
    }
}

/// Opens files of 1 MiB that consist of the smallest possible keys, elements or tensors, for which
/// the ratio of memory to file size is largest.
#[test]
fn memory_stays_proportional_for_files_of_tiny_entries() {
    const LEN: usize = 1 << 20;
    let folder = Folder::new();
    let kinds = [
        GgufFile::new().array("strings", 8, &vec![string(""); LEN / 8]),
        GgufFile::new().array("strings", 8, &vec![string("x"); LEN / 9]),
        GgufFile::new().array("bytes", 0, &vec![vec![0]; LEN]),
        GgufFile::new().array("arrays", 9, &vec![array(0, &[]); LEN / 12]),
        GgufFile::new().array("arrays", 9, &vec![array(9, &vec![array(8, &[string("")]); 8]); LEN / 172]),
        (0..LEN / 17).fold(GgufFile::new(), |file, n| file.key(&format!("{n:x}"), 0, [0])),
        (0..LEN / 68).fold(GgufFile::new(), |file, n| file.tensor(&format!("{n:x}"), &[1], 24, [0])),
    ];
    for file in kinds {
        assert!(exercise(&folder, &file.bytes()));
    }
}

/// Opens nested arrays whose counts each equal the number of elements that the rest of the file
/// could hold.
#[test]
fn counts_of_nested_arrays_reserve_no_memory() {
    let folder = Folder::new();
    let mut value = Vec::new();
    for level in 0..8 {
        value.extend(if level < 7 { 9_u32 } else { 8 }.to_le_bytes());
        value.extend(87_000_u64.to_le_bytes());
    }
    value.resize(1 << 20, 0xff);
    assert!(!exercise(&folder, &GgufFile::new().key("k", 9, value).bytes()));
}

/// A mutation of a file. The position is a fraction of the file's length.
#[derive(Clone, Debug)]
enum Change {
    FlipBits(prop::sample::Index, u8),
    SetNumber(prop::sample::Index, u64),
    Remove(prop::sample::Index, usize),
    Duplicate(prop::sample::Index, usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        match *self {
            Self::FlipBits(at, mask) => {
                let at = at.index(bytes.len());
                bytes[at] ^= mask;
            }
            Self::SetNumber(at, number) => {
                let at = at.index(bytes.len());
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            Self::Remove(at, len) => {
                let at = at.index(bytes.len());
                bytes.drain(at..(at + len).min(bytes.len()));
            }
            Self::Duplicate(at, len) => {
                let at = at.index(bytes.len());
                let piece = bytes[at..(at + len).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    let number = prop_oneof![0_u64..64, any::<u64>(), (0_u32..64).prop_map(|bit| 1 << bit)];
    prop_oneof![
        4 => (at(), 1_u8..).prop_map(|(at, mask)| Change::FlipBits(at, mask)),
        3 => (at(), number).prop_map(|(at, number)| Change::SetNumber(at, number)),
        1 => (at(), 1_usize..40).prop_map(|(at, len)| Change::Remove(at, len)),
        1 => (at(), 1_usize..40).prop_map(|(at, len)| Change::Duplicate(at, len)),
    ]
}

/// Returns files of a few keys and tensors whose fields are well-formed, with arbitrary values.
fn file_with_arbitrary_values() -> impl Strategy<Value = GgufFile> {
    let length = prop_oneof![0_u64..600, any::<u64>(), (0_u32..64).prop_map(|bit| 1 << bit)];
    let offset = prop_oneof![(0_u64..12).prop_map(|n| n * 32), any::<u64>()];
    let tensor = ("[ab]", prop::collection::vec(length, 0..6), 0_u32..44, offset, 0_usize..200);
    let key = prop::sample::select(vec!["general.alignment", "split.no", "split.count", "general.architecture", "k"]);
    let value = prop::collection::vec(any::<u8>(), 0..24);
    let keys = prop::collection::vec((key, 0_u32..14, value), 0..4);
    (prop::collection::vec(tensor, 0..4), keys).prop_map(|(tensors, keys)| {
        let file = keys.into_iter().fold(GgufFile::new(), |file, (key, kind, value)| file.key(key, kind, value));
        tensors.into_iter().fold(file, |file, (name, lengths, number, offset, len)| {
            file.tensor(&name, &lengths, number, vec![0; len]).at(offset)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_are_handled(index in 0_usize..3, changes in prop::collection::vec(change(), 1..6)) {
        let mut bytes = valid_files()[index].bytes();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        exercise(&Folder::new(), &bytes);
    }

    #[test]
    fn mutated_shards_are_handled(index in 0_usize..2, changes in prop::collection::vec(change(), 1..4)) {
        let mut shards = valid_shards().map(|shard| shard.bytes());
        changes.iter().for_each(|change| change.apply(&mut shards[index]));
        exercise_shards(&Folder::new(), &shards);
    }

    #[test]
    fn arbitrary_values_are_handled(file in file_with_arbitrary_values()) {
        exercise(&Folder::new(), &file.bytes());
    }

    #[test]
    fn arbitrary_bytes_after_the_magic_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&Folder::new(), &[b"GGUF\x03\0\0\0".as_slice(), &bytes].concat());
    }
}
