// Q4_0: 16 bytes of codes a unit, then an f16 scale a unit.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[1]}}u + i / 2u], i);
    return four_bits(wide{{matrix.number}}[i], vec2(d), vec2(8.0 * d));
}
