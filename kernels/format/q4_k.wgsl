// Q4_K: 16 bytes of codes a unit, then a head of 16 bytes for eight units.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let head = wide{{matrix.number}}[{{matrix.planes[1] // 4}}u + row * {{matrix.units // 8}}u + u / 8u];
    let dm = scale_and_min(head, u % 8u);
    return four_bits(wide{{matrix.number}}[i], dm.xx, dm.yy);
}
