// RUN: lamina opt %s --passes lamina-merge-linears | filecheck %s

// Three projections of one input are one product.
// CHECK-LABEL: @main
// CHECK: %[[W:.*]] = "lamina.concat"(%0, %1) {dim = 0 : i64}
// CHECK: %[[B:.*]] = "lamina.concat"(%2, %3) {dim = 0 : i64}
// CHECK: %[[Y:.*]] = "lamina.linear"(%arg0, %[[W]], %[[B]])
// CHECK: %[[Q:.*]] = "lamina.slice"(%[[Y]]) {sizes = ["3", "4"], starts = ["0", "0"]
// CHECK: %[[K:.*]] = "lamina.slice"(%[[Y]]) {sizes = ["3", "6"], starts = ["0", "4"]
// CHECK-NOT: "lamina.linear"
// CHECK: "lamina.reshape"(%[[Q]])
// CHECK: "lamina.permute"(%[[K]])
func.func @main(%x: tensor<3x8xf32>) -> (tensor<3x2x2xf32>, tensor<6x3xf32>) {
  %w0 = "lamina.weight"() {symbol = "w0", shape = ["4", "8"], dtype = f32} : () -> tensor<4x8xf32>
  %w1 = "lamina.weight"() {symbol = "w1", shape = ["6", "8"], dtype = f32} : () -> tensor<6x8xf32>
  %b0 = "lamina.weight"() {symbol = "b0", shape = ["4"], dtype = f32} : () -> tensor<4xf32>
  %b1 = "lamina.weight"() {symbol = "b1", shape = ["6"], dtype = f32} : () -> tensor<6xf32>
  %0 = "lamina.linear"(%x, %w0, %b0) : (tensor<3x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %1 = "lamina.reshape"(%0) {shape = ["3", "2", "2"]} : (tensor<3x4xf32>) -> tensor<3x2x2xf32>
  %2 = "lamina.linear"(%x, %w1, %b1) : (tensor<3x8xf32>, tensor<6x8xf32>, tensor<6xf32>) -> tensor<3x6xf32>
  %3 = "lamina.permute"(%2) {dims = array<i64: 1, 0>} : (tensor<3x6xf32>) -> tensor<6x3xf32>
  return %1, %3 : tensor<3x2x2xf32>, tensor<6x3xf32>
}

// -----

// A gate keeps its activation in the product's epilogue, and an argument is no constant weight.
// CHECK-LABEL: @main
// CHECK-NOT: "lamina.concat"
func.func @main(%x: tensor<3x8xf32>, %w2: tensor<4x8xf32>) -> (tensor<3x4xf32>, tensor<4x3xf32>, tensor<4x3xf32>) {
  %w0 = "lamina.weight"() {symbol = "w0", shape = ["4", "8"], dtype = f32} : () -> tensor<4x8xf32>
  %w1 = "lamina.weight"() {symbol = "w1", shape = ["4", "8"], dtype = f32} : () -> tensor<4x8xf32>
  %0 = "lamina.linear"(%x, %w0) : (tensor<3x8xf32>, tensor<4x8xf32>) -> tensor<3x4xf32>
  %1 = "lamina.silu"(%0) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %2 = "lamina.linear"(%x, %w1) : (tensor<3x8xf32>, tensor<4x8xf32>) -> tensor<3x4xf32>
  %3 = "lamina.permute"(%2) {dims = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %4 = "lamina.linear"(%x, %w2) : (tensor<3x8xf32>, tensor<4x8xf32>) -> tensor<3x4xf32>
  %5 = "lamina.permute"(%4) {dims = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  return %1, %3, %5 : tensor<3x4xf32>, tensor<4x3xf32>, tensor<4x3xf32>
}
