// Returns one of the two f16 in a word: the second if `i` is odd.
fn half_of(word: u32, i: u32) -> f32 {
    let pair = unpack2x16float(word);
    return select(pair.x, pair.y, i % 2u == 1u);
}
