// Q4_K: 16 bytes of codes a unit, then a head of 16 bytes for eight units.
fn unit{{p}}(row: u32, u: u32) -> Unit {
    let i = row * {{units}}u + u;
    let dm = scale_and_min(wide{{p}}[{{at[1] // 4}}u + row * {{units // 8}}u + u / 8u], u % 8u);
    return four_bits(wide{{p}}[i], dm.xx, dm.yy);
}
