// RUN: lamina opt %s --passes "lamina-pack-weights{i8_depth=8}" | filecheck %s

// A linear layer's weight and a matmul's constant right side go into panels of 16 columns; equal weights are packed once.
// CHECK-LABEL: func.func @main
// CHECK: %[[w:.*]] = "lamina.weight"
// CHECK-DAG: %[[p:.*]] = "lamina.pack"(%[[w]]) {columns = 16 : i64, depth = 1 : i64} : (tensor<72x64xf32>) -> tensor<5x64x16xf32>
// CHECK: "lamina.packed_linear"(%{{.*}}, %[[p]]) {depth = 1 : i64, size = 72 : i64}
// CHECK: "lamina.packed_linear"(%{{.*}}, %[[p]]) {depth = 1 : i64, size = 72 : i64}
// CHECK: "lamina.permute"
// CHECK: "lamina.pack"
// CHECK: "lamina.packed_linear"
// A small weight, and a right side that is no weight, stay.
// CHECK: "lamina.linear"
// CHECK: "lamina.matmul"
func.func @main(%x: tensor<2x64xf32>, %y: tensor<64x64xf32>) -> (tensor<2x72xf32>, tensor<2x72xf32>, tensor<2x72xf32>, tensor<2x3xf32>, tensor<2x64xf32>) {
  %w = "lamina.weight"() {symbol = "w", shape = ["72", "64"], dtype = f32} : () -> tensor<72x64xf32>
  %0 = "lamina.linear"(%x, %w) : (tensor<2x64xf32>, tensor<72x64xf32>) -> tensor<2x72xf32>
  %1 = "lamina.linear"(%x, %w) : (tensor<2x64xf32>, tensor<72x64xf32>) -> tensor<2x72xf32>
  %v = "lamina.weight"() {symbol = "v", shape = ["64", "72"], dtype = f32} : () -> tensor<64x72xf32>
  %2 = "lamina.matmul"(%x, %v) : (tensor<2x64xf32>, tensor<64x72xf32>) -> tensor<2x72xf32>
  %u = "lamina.weight"() {symbol = "u", shape = ["3", "64"], dtype = f32} : () -> tensor<3x64xf32>
  %3 = "lamina.linear"(%x, %u) : (tensor<2x64xf32>, tensor<3x64xf32>) -> tensor<2x3xf32>
  %4 = "lamina.matmul"(%x, %y) : (tensor<2x64xf32>, tensor<64x64xf32>) -> tensor<2x64xf32>
  return %0, %1, %2, %3, %4 : tensor<2x72xf32>, tensor<2x72xf32>, tensor<2x72xf32>, tensor<2x3xf32>, tensor<2x64xf32>
}

// -----

// What is cast from 8 bits is multiplied as such: a weight of i8, by columns or by rows, becomes one in groups of 8 for the
// instructions of i8, and as it is for a u8 that the target has none for.
// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[x:.*]]: tensor<2x64xi8>, %[[u:.*]]: tensor<2x64xui8>
// CHECK: %[[w:.*]] = "lamina.weight"
// CHECK-DAG: %[[p:.*]] = "lamina.pack"(%[[w]]) {columns = 16 : i64, depth = 8 : i64} : (tensor<72x64xi8>) -> tensor<5x8x128xi8>
// CHECK-DAG: %[[q:.*]] = "lamina.pack"(%[[w]]) {columns = 16 : i64, depth = 1 : i64} : (tensor<72x64xi8>) -> tensor<5x64x16xi8>
// CHECK: "lamina.packed_linear"(%[[x]], %[[p]]) {depth = 8 : i64, size = 72 : i64} : {{.*}} -> tensor<2x72xi32>
// CHECK: "lamina.packed_linear"(%[[x]], %[[p]])
// CHECK: "lamina.packed_linear"(%[[u]], %[[q]]) {depth = 1 : i64, size = 72 : i64} : {{.*}} -> tensor<2x72xi32>
// A product of i32 stays.
// CHECK: "lamina.matmul"
func.func @main(%x: tensor<2x64xi8>, %u: tensor<2x64xui8>, %i: tensor<2x64xi32>) -> (tensor<2x72xi32>, tensor<2x72xi32>, tensor<2x72xi32>, tensor<2x72xi32>) {
  %w = "lamina.weight"() {symbol = "w", shape = ["72", "64"], dtype = i8} : () -> tensor<72x64xi8>
  %t = "lamina.permute"(%w) {dims = array<i64: 1, 0>} : (tensor<72x64xi8>) -> tensor<64x72xi8>
  %a = "lamina.cast"(%x) {dtype = i32} : (tensor<2x64xi8>) -> tensor<2x64xi32>
  %b = "lamina.cast"(%t) {dtype = i32} : (tensor<64x72xi8>) -> tensor<64x72xi32>
  %0 = "lamina.matmul"(%a, %b) : (tensor<2x64xi32>, tensor<64x72xi32>) -> tensor<2x72xi32>
  %c = "lamina.cast"(%w) {dtype = i32} : (tensor<72x64xi8>) -> tensor<72x64xi32>
  %d = "lamina.permute"(%c) {dims = array<i64: 1, 0>} : (tensor<72x64xi32>) -> tensor<64x72xi32>
  %1 = "lamina.matmul"(%a, %d) : (tensor<2x64xi32>, tensor<64x72xi32>) -> tensor<2x72xi32>
  %e = "lamina.cast"(%u) {dtype = i32} : (tensor<2x64xui8>) -> tensor<2x64xi32>
  %2 = "lamina.matmul"(%e, %d) : (tensor<2x64xi32>, tensor<64x72xi32>) -> tensor<2x72xi32>
  %3 = "lamina.matmul"(%i, %d) : (tensor<2x64xi32>, tensor<64x72xi32>) -> tensor<2x72xi32>
  return %0, %1, %2, %3 : tensor<2x72xi32>, tensor<2x72xi32>, tensor<2x72xi32>, tensor<2x72xi32>
}

// -----

// A weight of floats of 8 bits is packed in bf16, and multiplied by either format.
// CHECK-LABEL: func.func @main
// CHECK: %[[w:.*]] = "lamina.weight"
// CHECK: %[[wide:.*]] = "lamina.cast"(%{{.*}}) {dtype = bf16} : (tensor<72x64xf8E4M3FN>) -> tensor<72x64xbf16>
// CHECK: %[[p:.*]] = "lamina.pack"(%[[wide]]) {columns = 16 : i64, depth = 1 : i64} : (tensor<72x64xbf16>) -> tensor<5x64x16xbf16>
// CHECK: "lamina.packed_linear"(%{{.*}}, %[[p]]) {depth = 1 : i64, size = 72 : i64} : (tensor<2x64xf8E5M2>, tensor<5x64x16xbf16>) -> tensor<2x72xf32>
func.func @main(%x: tensor<2x64xf8E5M2>) -> tensor<2x72xf32> {
  %w = "lamina.weight"() {symbol = "w", shape = ["72", "64"], dtype = f8E4M3FN} : () -> tensor<72x64xf8E4M3FN>
  %t = "lamina.permute"(%w) {dims = array<i64: 1, 0>} : (tensor<72x64xf8E4M3FN>) -> tensor<64x72xf8E4M3FN>
  %0 = "lamina.matmul"(%x, %t) : (tensor<2x64xf8E5M2>, tensor<64x72xf8E4M3FN>) -> tensor<2x72xf32>
  return %0 : tensor<2x72xf32>
}

// -----

// Matrices of groups are packed one after the other; not where few rows read matrices that lie turned, or panels are not whole.
// CHECK-LABEL: func.func @main
// CHECK: %[[rows:.*]] = "lamina.reshape"(%{{.*}}) {shape = ["64", "80"]} : (tensor<2x32x80xf32>) -> tensor<64x80xf32>
// CHECK: %[[p:.*]] = "lamina.pack"(%[[rows]]) {columns = 16 : i64, depth = 1 : i64}
// CHECK: %[[q:.*]] = "lamina.reshape"(%[[p]]) {shape = ["2", "2", "80", "16"]}
// CHECK: "lamina.packed_grouped_matmul"(%{{.*}}, %[[q]], %{{.*}})
// CHECK-COUNT-2: "lamina.grouped_matmul"
func.func @main(%x: tensor<20x80xf32>, %y: tensor<8x80xf32>, %ends: tensor<2xi64>) -> (tensor<20x32xf32>, tensor<8x64xf32>, tensor<20x35xf32>) {
  %w = "lamina.weight"() {symbol = "w", shape = ["2", "32", "80"], dtype = f32} : () -> tensor<2x32x80xf32>
  %t = "lamina.permute"(%w) {dims = array<i64: 0, 2, 1>} : (tensor<2x32x80xf32>) -> tensor<2x80x32xf32>
  %0 = "lamina.grouped_matmul"(%x, %t, %ends) : (tensor<20x80xf32>, tensor<2x80x32xf32>, tensor<2xi64>) -> tensor<20x32xf32>
  %v = "lamina.weight"() {symbol = "v", shape = ["2", "64", "80"], dtype = f32} : () -> tensor<2x64x80xf32>
  %u = "lamina.permute"(%v) {dims = array<i64: 0, 2, 1>} : (tensor<2x64x80xf32>) -> tensor<2x80x64xf32>
  %1 = "lamina.grouped_matmul"(%y, %u, %ends) : (tensor<8x80xf32>, tensor<2x80x64xf32>, tensor<2xi64>) -> tensor<8x64xf32>
  %r = "lamina.weight"() {symbol = "r", shape = ["2", "80", "35"], dtype = f32} : () -> tensor<2x80x35xf32>
  %2 = "lamina.grouped_matmul"(%x, %r, %ends) : (tensor<20x80xf32>, tensor<2x80x35xf32>, tensor<2xi64>) -> tensor<20x35xf32>
  return %0, %1, %2 : tensor<20x32xf32>, tensor<8x64xf32>, tensor<20x35xf32>
}
