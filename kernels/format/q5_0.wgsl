// Q5_0: 16 bytes of low bits a unit, then a word of high bits, then an f16 scale.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[2]}}u + i / 2u], i);
    let low = four_bits(wide{{matrix.number}}[i], vec2(d), vec2(16.0 * d));
    return with_fifth_bit(low, small{{matrix.number}}[{{matrix.planes[1]}}u + i]);
}
