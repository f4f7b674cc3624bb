// Q5_K: 16 bytes of low bits a unit, then a word of high bits, then a head of 16 bytes for eight
// units.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let dm = scale_and_min(wide{{matrix.number}}[{{matrix.planes[2] // 4}}u + i / 8u], i % 8u);
    let low = four_bits(wide{{matrix.number}}[i], dm.xx, dm.yy);
    return with_fifth_bit(low, small{{matrix.number}}[{{matrix.planes[1]}}u + i]);
}
