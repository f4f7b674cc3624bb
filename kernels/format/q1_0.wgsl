// Q1_0: a word of codes a unit, then an f16 scale for four units.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[1]}}u + i / 8u], i / 4u);
    let codes = small{{matrix.number}}[i];
    return Unit(one_bit(codes), one_bit(codes >> 4u), vec2(2.0 * d), vec2(d));
}
