// RUN: lamina opt %s --passes "lamina-sink-reshapes,lamina-dce" | filecheck %s

// The ops after a linear layer on flattened rows get its shape; only the result is reshaped.
// CHECK-LABEL: @flattened
// CHECK: %[[L:.*]] = "lamina.linear"
// CHECK: %[[A:.*]] = "lamina.add"(%[[L]], %{{.*}}) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
// CHECK: %[[M:.*]] = "lamina.mul"(%[[A]], %arg2) : (tensor<6x8xf32>, tensor<8xf32>) -> tensor<6x8xf32>
// CHECK-NEXT: %[[R:.*]] = "lamina.reshape"(%[[M]])
// CHECK-NEXT: return %[[R]]
func.func @flattened(%x: tensor<2x3x8xf32>, %w: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %0 = "lamina.reshape"(%x) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %1 = "lamina.linear"(%0, %w) : (tensor<6x8xf32>, tensor<8x8xf32>) -> tensor<6x8xf32>
  %2 = "lamina.reshape"(%1) {shape = ["2", "3", "8"]} : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
  %3 = "lamina.add"(%2, %x) : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %4 = "lamina.mul"(%3, %b) : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  return %4 : tensor<2x3x8xf32>
}

// -----

// An operand that varies along half of a merged dim keeps the op where it is.
// CHECK-LABEL: @stays
// CHECK: "lamina.reshape"
// CHECK-NEXT: "lamina.add"({{.*}}) : (tensor<2x3x8xf32>, tensor<2x1x8xf32>) -> tensor<2x3x8xf32>
func.func @stays(%x: tensor<6x8xf32>, %y: tensor<2x1x8xf32>) -> tensor<2x3x8xf32> {
  %0 = "lamina.neg"(%x) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %1 = "lamina.reshape"(%0) {shape = ["2", "3", "8"]} : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
  %2 = "lamina.add"(%1, %y) : (tensor<2x3x8xf32>, tensor<2x1x8xf32>) -> tensor<2x3x8xf32>
  return %2 : tensor<2x3x8xf32>
}

// -----

// Where both operands are worth being next to, the matmul wins, though both could be had by turns for ever.
// CHECK-LABEL: @residual
// CHECK: %[[L:.*]] = "lamina.linear"
// CHECK: %[[R:.*]] = "lamina.reshape"(%{{.*}}) {shape = ["6", "8"]}
// CHECK-NEXT: %[[A:.*]] = "lamina.add"(%[[L]], %[[R]]) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
// CHECK-NEXT: "lamina.reshape"(%[[A]])
// CHECK-NEXT: return
func.func @residual(%x: tensor<2x3x8xf32>, %y: tensor<6x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x3x8xf32> {
  %0 = "lamina.neg"(%x) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %1 = "lamina.linear"(%y, %w) : (tensor<6x8xf32>, tensor<8x8xf32>) -> tensor<6x8xf32>
  %2 = "lamina.reshape"(%1) {shape = ["2", "3", "8"]} : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
  %3 = "lamina.add"(%2, %0) : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %3 : tensor<2x3x8xf32>
}

// -----

// Of equals the one of lower rank wins, here the operand that needs no reshape.
// CHECK-LABEL: @equals
// CHECK: "lamina.add"({{.*}}) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
// CHECK-NEXT: return
func.func @equals(%x: tensor<2x3x8xf32>, %y: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %0 = "lamina.neg"(%x) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %1 = "lamina.reshape"(%0) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %2 = "lamina.neg"(%y) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %3 = "lamina.add"(%1, %2) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  return %3 : tensor<6x8xf32>
}

// -----

// A sum over whole dims of the flattened value is taken before the reshape; one over a part of a merged dim is not.
// CHECK-LABEL: @sums
// CHECK: %[[N:.*]] = "lamina.neg"
// CHECK: %[[C:.*]] = "lamina.sum"(%[[N]]) {dims = array<i64: 0>, {{.*}}} : (tensor<6x8xf32>) -> tensor<8xf32>
// CHECK: %[[M:.*]] = "lamina.mean"(%[[N]]) {dims = array<i64: 1>, keepdim = true} : (tensor<6x8xf32>) -> tensor<6x1xf32>
// CHECK: %[[R:.*]] = "lamina.reshape"(%[[M]]) {shape = ["2", "3", "1"]}
// CHECK: "lamina.sum"({{.*}}) {dims = array<i64: 1>, {{.*}}} : (tensor<2x3x8xf32>) -> tensor<2x8xf32>
func.func @sums(%x: tensor<6x8xf32>) -> (tensor<8xf32>, tensor<2x3x1xf32>, tensor<2x8xf32>) {
  %0 = "lamina.neg"(%x) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %1 = "lamina.reshape"(%0) {shape = ["2", "3", "8"]} : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
  %2 = "lamina.sum"(%1) {dims = array<i64: 0, 1>, keepdim = false, dtype = f32} : (tensor<2x3x8xf32>) -> tensor<8xf32>
  %3 = "lamina.mean"(%1) {dims = array<i64: 2>, keepdim = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %4 = "lamina.sum"(%1) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<2x3x8xf32>) -> tensor<2x8xf32>
  return %2, %3, %4 : tensor<8xf32>, tensor<2x3x1xf32>, tensor<2x8xf32>
}
