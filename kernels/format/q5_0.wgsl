// Q5_0: 16 bytes of low bits a unit, then a word of high bits, then a half-precision scale.
fn unit{{p}}(row: u32, u: u32) -> Unit {
    let i = row * {{units}}u + u;
    let d = half_of(small{{p}}[{{at[2]}}u + i / 2u], i);
    return with_fifth_bit(four_bits(wide{{p}}[i], vec2(d), vec2(16.0 * d)), small{{p}}[{{at[1]}}u + i]);
}
