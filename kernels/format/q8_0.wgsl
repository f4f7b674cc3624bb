// Q8_0: 32 bytes of signed codes a unit, then a half-precision scale.
fn unit{{p}}(row: u32, u: u32) -> Unit {
    let i = row * {{units}}u + u;
    let d = half_of(small{{p}}[{{at[1]}}u + i / 2u], i);
    return Unit(wide{{p}}[2u * i], wide{{p}}[2u * i + 1u], vec2(d), vec2(0.0));
}
