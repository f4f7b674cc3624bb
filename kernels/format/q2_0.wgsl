// Q2_0: 8 bytes of codes a unit, then an f16 scale for two units.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[1]}}u + i / 4u], i / 2u);
    let words = wide{{matrix.number}}[i / 2u];
    let codes = select(words.xy, words.zw, i % 2u == 1u);
    return Unit(two_bits(codes.x), two_bits(codes.y), vec2(d), vec2(d));
}
