// RUN: lamina opt %s --passes "lamina-store-by-tokens,lamina-form-kernels{turned=true}" | filecheck %s

// The copy joins the attention, also where a batch of one leaves only heads and tokens to swap.
// CHECK-LABEL: @main
// CHECK: "lamina.attention"(%{{.*}}) {{.*}}lamina.kernel = 0
// CHECK: [[T:%.*]] = "lamina.permute"
// CHECK: [[C:%.*]] = "lamina.materialize"([[T]]) {lamina.kernel = 0 : i64}
// CHECK: "lamina.reshape"([[C]])
func.func @main(%q: tensor<1x4x8x16xf32>) -> tensor<1x8x64xf32> {
  %y, %lse = "lamina.attention"(%q, %q, %q) {causal = false, gqa = 1 : i64, scale} : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> (tensor<1x4x8x16xf32>, tensor<1x4x8xf32>)
  %0 = "lamina.permute"(%y) {dims = array<i64: 0, 2, 1, 3>} : (tensor<1x4x8x16xf32>) -> tensor<1x8x4x16xf32>
  %1 = "lamina.reshape"(%0) {shape = ["1", "8", "64"]} : (tensor<1x8x4x16xf32>) -> tensor<1x8x64xf32>
  %2 = "lamina.softmax"(%1) {dim = -1 : i64} : (tensor<1x8x64xf32>) -> tensor<1x8x64xf32>
  return %2 : tensor<1x8x64xf32>
}

// -----

// A result that is read in the order of heads too stays as it is.
// CHECK-LABEL: @main
// CHECK-NOT: lamina.materialize
func.func @main(%q: tensor<2x4x8x16xf32>) -> (tensor<2x8x64xf32>, tensor<2x4x8x16xf32>) {
  %y, %lse = "lamina.attention"(%q, %q, %q) {causal = false, gqa = 1 : i64, scale} : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
  %0 = "lamina.permute"(%y) {dims = array<i64: 0, 2, 1, 3>} : (tensor<2x4x8x16xf32>) -> tensor<2x8x4x16xf32>
  %1 = "lamina.reshape"(%0) {shape = ["2", "8", "64"]} : (tensor<2x8x4x16xf32>) -> tensor<2x8x64xf32>
  %2 = "lamina.softmax"(%1) {dim = -1 : i64} : (tensor<2x8x64xf32>) -> tensor<2x8x64xf32>
  return %2, %y : tensor<2x8x64xf32>, tensor<2x4x8x16xf32>
}
