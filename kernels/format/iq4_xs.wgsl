// IQ4_XS: 16 bytes of indices a unit, then 8 bytes for eight units: scale, the scales' high bits,
// their low bits.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let g = i % 8u;
    let head = small{{matrix.number}}[{{matrix.planes[1]}}u + i / 8u * 2u];
    let low = small{{matrix.number}}[{{matrix.planes[1]}}u + i / 8u * 2u + 1u];
    let code = ((low >> (4u * g)) & 15u) | (((head >> (16u + 2u * g)) & 3u) << 4u);
    let d = unpack2x16float(head).x * (f32(code) - 32.0);
    return looked_up(four_bits(wide{{matrix.number}}[i], vec2(d), vec2(0.0)), UNEVEN);
}
