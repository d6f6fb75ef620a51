// RUN: lamina opt %s --passes lamina-pack-convolutions | filecheck %s

// A constant weight goes into panels of 16 output channels, once for all convolutions by it.
// CHECK-LABEL: func.func @main
// CHECK: %[[w:.*]] = "lamina.weight"
// CHECK: %[[m:.*]] = "lamina.reshape"(%[[w]]) {shape = ["24", "144"]}
// CHECK: %[[p:.*]] = "lamina.pack"(%[[m]]) {columns = 16 : i64, depth = 1 : i64} : (tensor<24x144xf32>) -> tensor<2x144x16xf32>
// CHECK: "lamina.packed_conv"(%{{.*}}, %[[p]]) {dilation = array<i64: 1, 1>, kernel = array<i64: 3, 3>, padding = array<i64: 1, 1>, size = 24 : i64, stride = array<i64: 2, 2>}
// CHECK: "lamina.packed_conv"(%{{.*}}, %[[p]])
func.func @main(%x: tensor<1x16x20x20xf32>) -> (tensor<1x24x10x10xf32>, tensor<1x24x20x20xf32>) {
  %w = "lamina.weight"() {symbol = "w", shape = ["24", "16", "3", "3"], dtype = f32} : () -> tensor<24x16x3x3xf32>
  %0 = "lamina.conv"(%x, %w) {stride = array<i64: 2, 2>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x16x20x20xf32>, tensor<24x16x3x3xf32>) -> tensor<1x24x10x10xf32>
  %1 = "lamina.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x16x20x20xf32>, tensor<24x16x3x3xf32>) -> tensor<1x24x20x20xf32>
  return %0, %1 : tensor<1x24x10x10xf32>, tensor<1x24x20x20xf32>
}

// -----

// With one kernel position the image is packed in one copy: only few positions, here 49, are better by channels.
// CHECK-LABEL: func.func @main
// CHECK: "lamina.packed_conv"
// CHECK: "lamina.conv"
func.func @main(%x: tensor<1x32x7x7xf32>, %y: tensor<1x32x32x32xf32>) -> (tensor<1x32x7x7xf32>, tensor<1x32x32x32xf32>) {
  %w = "lamina.weight"() {symbol = "w", shape = ["32", "32", "1", "1"], dtype = f32} : () -> tensor<32x32x1x1xf32>
  %0 = "lamina.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x32x7x7xf32>, tensor<32x32x1x1xf32>) -> tensor<1x32x7x7xf32>
  %1 = "lamina.conv"(%y, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x32x32x32xf32>, tensor<32x32x1x1xf32>) -> tensor<1x32x32x32xf32>
  return %0, %1 : tensor<1x32x7x7xf32>, tensor<1x32x32x32xf32>
}

// -----

// Half a panel or less takes panels half as wide.
// CHECK-LABEL: func.func @main
// CHECK: "lamina.pack"(%{{.*}}) {columns = 8 : i64, depth = 1 : i64} : (tensor<8x72xf32>) -> tensor<1x72x8xf32>
// CHECK: "lamina.packed_conv"(%{{.*}}) {dilation = array<i64: 1, 1>, kernel = array<i64: 3, 3>, padding = array<i64: 1, 1>, size = 8 : i64, stride = array<i64: 1, 1>}
func.func @main(%x: tensor<1x8x20x20xf32>) -> tensor<1x8x20x20xf32> {
  %w = "lamina.weight"() {symbol = "w", shape = ["8", "8", "3", "3"], dtype = f32} : () -> tensor<8x8x3x3xf32>
  %0 = "lamina.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x8x20x20xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x20x20xf32>
  return %0 : tensor<1x8x20x20xf32>
}

// -----

// Groups, weights that are no constants, fewer channels than half a panel, and a short K of many channels stay.
// CHECK-LABEL: func.func @main
// CHECK-NOT: "lamina.packed_conv"
func.func @main(%x: tensor<1x4x96xf32>, %v: tensor<16x4x9xf32>) -> (tensor<1x16x96xf32>, tensor<1x16x96xf32>, tensor<1x4x96xf32>, tensor<1x64x96xf32>) {
  %w = "lamina.weight"() {symbol = "w", shape = ["16", "2", "9"], dtype = f32} : () -> tensor<16x2x9xf32>
  %0 = "lamina.conv"(%x, %w) {stride = array<i64: 1>, padding = array<i64: 4>, dilation = array<i64: 1>, groups = 2 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x4x96xf32>, tensor<16x2x9xf32>) -> tensor<1x16x96xf32>
  %1 = "lamina.conv"(%x, %v) {stride = array<i64: 1>, padding = array<i64: 4>, dilation = array<i64: 1>, groups = 1 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x4x96xf32>, tensor<16x4x9xf32>) -> tensor<1x16x96xf32>
  %f = "lamina.weight"() {symbol = "f", shape = ["4", "4", "9"], dtype = f32} : () -> tensor<4x4x9xf32>
  %2 = "lamina.conv"(%x, %f) {stride = array<i64: 1>, padding = array<i64: 4>, dilation = array<i64: 1>, groups = 1 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x4x96xf32>, tensor<4x4x9xf32>) -> tensor<1x4x96xf32>
  %s = "lamina.weight"() {symbol = "s", shape = ["64", "4", "9"], dtype = f32} : () -> tensor<64x4x9xf32>
  %3 = "lamina.conv"(%x, %s) {stride = array<i64: 1>, padding = array<i64: 4>, dilation = array<i64: 1>, groups = 1 : i64, transposed = false, output_padding = array<i64>} : (tensor<1x4x96xf32>, tensor<64x4x9xf32>) -> tensor<1x64x96xf32>
  return %0, %1, %2, %3 : tensor<1x16x96xf32>, tensor<1x16x96xf32>, tensor<1x4x96xf32>, tensor<1x64x96xf32>
}
