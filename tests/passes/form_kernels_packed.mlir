// RUN: lamina opt %s --passes "lamina-form-kernels{packed=f32}" | filecheck %s

// The second operand of a product is computed as it is packed, also through a transpose.
// CHECK-LABEL: @second
// CHECK: "lamina.relu"{{.*}}lamina.kernel = 0
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 0
// CHECK: "lamina.tanh"{{.*}}lamina.kernel = 1
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 1
func.func @second(%x: tensor<4x8xf32>, %v: tensor<8x6xf32>, %w: tensor<6x8xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = "lamina.relu"(%v) : (tensor<8x6xf32>) -> tensor<8x6xf32>
  %1 = "lamina.matmul"(%x, %0) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %2 = "lamina.tanh"(%w) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %3 = "lamina.permute"(%2) {dims = array<i64: 1, 0>} : (tensor<6x8xf32>) -> tensor<8x6xf32>
  %4 = "lamina.matmul"(%x, %3) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  return %1, %4 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Queries, keys and values of attention are.
// CHECK-LABEL: @attention
// CHECK: "lamina.neg"{{.*}}lamina.kernel = 0
// CHECK: "lamina.abs"{{.*}}lamina.kernel = 0
// CHECK: "lamina.exp"{{.*}}lamina.kernel = 0
// CHECK: "lamina.attention"{{.*}}lamina.kernel = 0
func.func @attention(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = "lamina.neg"(%q) : (tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %1 = "lamina.abs"(%k) : (tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
  %2 = "lamina.exp"(%v) : (tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
  %3:2 = "lamina.attention"(%0, %1, %2) {causal = false, gqa = 1 : i64, scale} : (tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
  return %3#0 : tensor<1x2x4x8xf32>
}

// -----

// The first operand of few columns is, and the image of a convolution if that is cheap.
// CHECK-LABEL: @first
// CHECK: "lamina.tanh"{{.*}}lamina.kernel = 0
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 0
// CHECK: "lamina.relu"{{.*}}lamina.kernel = 1
// CHECK: "lamina.conv"{{.*}}lamina.kernel = 1
func.func @first(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %i: tensor<1x2x4x4xf32>, %f: tensor<4x2x3x3xf32>) -> (tensor<4x6xf32>, tensor<1x4x2x2xf32>) {
  %0 = "lamina.tanh"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "lamina.matmul"(%0, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %2 = "lamina.relu"(%i) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %3 = "lamina.conv"(%2, %f) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x2x4x4xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x2x2xf32>
  return %1, %3 : tensor<4x6xf32>, tensor<1x4x2x2xf32>
}

// -----

// Not so: a first operand that each block of columns would compute again, one whose rows do not follow memory, and
// what is dear for a convolution.
// CHECK-LABEL: @again
// CHECK: "lamina.relu"{{.*}}lamina.kernel = 0
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 1
// CHECK: "lamina.neg"{{.*}}lamina.kernel = 2
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 3
// CHECK: "lamina.tanh"{{.*}}lamina.kernel = 4
// CHECK: "lamina.conv"{{.*}}lamina.kernel = 5
func.func @again(%x: tensor<4x8xf32>, %w: tensor<8x768xf32>, %y: tensor<8x4xf32>, %v: tensor<8x6xf32>, %i: tensor<1x2x4x4xf32>, %f: tensor<4x2x3x3xf32>) -> (tensor<4x768xf32>, tensor<4x6xf32>, tensor<1x4x2x2xf32>) {
  %0 = "lamina.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "lamina.matmul"(%0, %w) : (tensor<4x8xf32>, tensor<8x768xf32>) -> tensor<4x768xf32>
  %2 = "lamina.neg"(%y) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %3 = "lamina.permute"(%2) {dims = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %4 = "lamina.matmul"(%3, %v) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %5 = "lamina.tanh"(%i) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %6 = "lamina.conv"(%5, %f) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x2x4x4xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x2x2xf32>
  return %1, %4, %6 : tensor<4x768xf32>, tensor<4x6xf32>, tensor<1x4x2x2xf32>
}

// -----

// Nor keys that several heads read, or a matrix that several batches do.
// CHECK-LABEL: @stretched
// CHECK: "lamina.relu"{{.*}}lamina.kernel = 0
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 1
// CHECK: "lamina.neg"{{.*}}lamina.kernel = 2
// CHECK: "lamina.attention"{{.*}}lamina.kernel = 3
func.func @stretched(%x: tensor<2x4x8xf32>, %w: tensor<8x6xf32>, %q: tensor<1x2x4x8xf32>, %k: tensor<1x1x6x8xf32>) -> (tensor<2x4x6xf32>, tensor<1x2x4x8xf32>) {
  %0 = "lamina.relu"(%w) : (tensor<8x6xf32>) -> tensor<8x6xf32>
  %1 = "lamina.expand"(%0) {shape = ["2", "8", "6"]} : (tensor<8x6xf32>) -> tensor<2x8x6xf32>
  %2 = "lamina.matmul"(%x, %1) : (tensor<2x4x8xf32>, tensor<2x8x6xf32>) -> tensor<2x4x6xf32>
  %3 = "lamina.neg"(%k) : (tensor<1x1x6x8xf32>) -> tensor<1x1x6x8xf32>
  %4:2 = "lamina.attention"(%q, %3, %k) {causal = false, gqa = 2 : i64, scale} : (tensor<1x2x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
  return %2, %4#0 : tensor<2x4x6xf32>, tensor<1x2x4x8xf32>
}

// -----

// Nor what another op reads too, sums, and dtypes that the target does not pack.
// CHECK-LABEL: @others
// CHECK: "lamina.relu"{{.*}}lamina.kernel = 0
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 1
// CHECK: "lamina.softmax"{{.*}}lamina.kernel = 2
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 3
// CHECK: "lamina.neg"{{.*}}lamina.kernel = 4
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 5
func.func @others(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %u: tensor<8x6xf32>, %y: tensor<4x8xbf16>, %v: tensor<8x6xbf16>) -> (tensor<8x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xbf16>) {
  %0 = "lamina.relu"(%w) : (tensor<8x6xf32>) -> tensor<8x6xf32>
  %1 = "lamina.matmul"(%x, %0) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %2 = "lamina.softmax"(%u) {dim = 1 : i64} : (tensor<8x6xf32>) -> tensor<8x6xf32>
  %3 = "lamina.matmul"(%x, %2) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %4 = "lamina.neg"(%v) : (tensor<8x6xbf16>) -> tensor<8x6xbf16>
  %5 = "lamina.matmul"(%y, %4) : (tensor<4x8xbf16>, tensor<8x6xbf16>) -> tensor<4x6xbf16>
  return %0, %1, %3, %5 : tensor<8x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xbf16>
}
