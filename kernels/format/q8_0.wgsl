// Q8_0: 32 bytes of signed codes a unit, then an f16 scale.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[1]}}u + i / 2u], i);
    return Unit(wide{{matrix.number}}[2u * i], wide{{matrix.number}}[2u * i + 1u], vec2(d), vec2(0.0));
}
