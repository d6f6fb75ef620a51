// RUN: lamina opt %s --passes lamina-pack-weights | filecheck %s

// A linear layer's weight and a matmul's constant right side go into panels of 16 columns; equal weights are packed once.
// CHECK-LABEL: func.func @main
// CHECK: %[[w:.*]] = "lamina.weight"
// CHECK-DAG: %[[p:.*]] = "lamina.pack"(%[[w]]) {columns = 16 : i64} : (tensor<72x64xf32>) -> tensor<5x64x16xf32>
// CHECK: "lamina.packed_linear"(%{{.*}}, %[[p]]) {size = 72 : i64}
// CHECK: "lamina.packed_linear"(%{{.*}}, %[[p]]) {size = 72 : i64}
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
