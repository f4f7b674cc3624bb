// MXFP4: 16 bytes of codes a unit, then an exponent a unit.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let exponent = (small{{matrix.number}}[{{matrix.planes[1]}}u + i / 4u] >> (i % 4u * 8u)) & 255u;
    // 2^(exponent - 128), which for the two least exponents is a subnormal float.
    let bits = select((exponent - 1u) << 23u, (1u << 21u) << exponent, exponent < 2u);
    return looked_up(four_bits(wide{{matrix.number}}[i], vec2(bitcast<f32>(bits)), vec2(0.0)), DOUBLED);
}
