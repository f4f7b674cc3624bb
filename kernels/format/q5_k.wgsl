// Q5_K: 16 bytes of low bits a unit, then a word of high bits, then a head of 16 bytes for eight units.
fn unit{{p}}(row: u32, u: u32) -> Unit {
    let i = row * {{units}}u + u;
    let dm = scale_and_min(wide{{p}}[{{at[2] // 4}}u + i / 8u], i % 8u);
    return with_fifth_bit(four_bits(wide{{p}}[i], dm.xx, dm.yy), small{{p}}[{{at[1]}}u + i]);
}
