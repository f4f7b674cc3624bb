// Q4_1: 16 bytes of codes a unit, then scale and minimum of each unit, in f16.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let dm = unpack2x16float(small{{matrix.number}}[{{matrix.planes[1]}}u + i]);
    return four_bits(wide{{matrix.number}}[i], dm.xx, -dm.yy);
}
