// Q5_1: 16 bytes of low bits a unit, then a word of high bits, then scale and minimum in half precision.
fn unit{{p}}(row: u32, u: u32) -> Unit {
    let i = row * {{units}}u + u;
    let dm = unpack2x16float(small{{p}}[{{at[2]}}u + i]);
    return with_fifth_bit(four_bits(wide{{p}}[i], dm.xx, -dm.yy), small{{p}}[{{at[1]}}u + i]);
}
