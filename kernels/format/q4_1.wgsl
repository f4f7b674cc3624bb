// Q4_1: 16 bytes of codes a unit, then scale and minimum of each unit, in half precision.
fn unit{{p}}(row: u32, u: u32) -> Unit {
    let i = row * {{units}}u + u;
    let dm = unpack2x16float(small{{p}}[{{at[1]}}u + i]);
    return four_bits(wide{{p}}[i], dm.xx, -dm.yy);
}
