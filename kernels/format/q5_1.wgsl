// Q5_1: 16 bytes of low bits a unit, then a word of high bits, then scale and minimum in
// f16.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let dm = unpack2x16float(small{{matrix.number}}[{{matrix.planes[2]}}u + i]);
    let low = four_bits(wide{{matrix.number}}[i], dm.xx, -dm.yy);
    return with_fifth_bit(low, small{{matrix.number}}[{{matrix.planes[1]}}u + i]);
}
