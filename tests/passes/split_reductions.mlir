// RUN: lamina opt %s --passes lamina-split-reductions | filecheck %s

// Rows of the tensor are summed by all threads, and their sums by one; the result keeps its shape.
// CHECK-LABEL: @main
// CHECK: %[[ROWS:.*]] = "lamina.sum"(%arg0) {dims = array<i64: 2>, dtype = f32, keepdim = false}
// CHECK-SAME: -> tensor<4x512xf32>
// CHECK: %[[ALL:.*]] = "lamina.sum"(%[[ROWS]]) {dims = array<i64: 0, 1>, dtype = f32, keepdim = false}
// CHECK: "lamina.reshape"(%[[ALL]]) {shape = ["1", "1", "1"]}
func.func @main(%x: tensor<4x512x256xf32>) -> tensor<1x1x1xf32> {
  %y = "lamina.sum"(%x) {dims = array<i64: 0, 1, 2>, dtype = f32, keepdim = true} : (tensor<4x512x256xf32>) -> tensor<1x1x1xf32>
  return %y : tensor<1x1x1xf32>
}

// -----

// A vector is cut into pieces; a mean of bf16 is rounded once, at its end.
// CHECK-LABEL: @main
// CHECK: "lamina.cast"(%arg0) {dtype = f32}
// CHECK: "lamina.reshape"({{.*}}) {shape = ["64", "2000"]}
// CHECK: "lamina.mean"({{.*}} -> tensor<64xf32>
// CHECK: "lamina.mean"({{.*}} -> tensor<f32>
// CHECK: "lamina.cast"({{.*}}) {dtype = bf16}
func.func @main(%x: tensor<128000xbf16>) -> tensor<bf16> {
  %y = "lamina.mean"(%x) {dims = array<i64: 0>, keepdim = false} : (tensor<128000xbf16>) -> tensor<bf16>
  return %y : tensor<bf16>
}

// -----

// Small tensors, and reductions that have rows, stay.
// CHECK-LABEL: @main
// CHECK: "lamina.amax"(%arg0) {dims = array<i64: 0, 1>
// CHECK: "lamina.amax"(%arg1) {dims = array<i64: 1>
// CHECK-NOT: "lamina.amax"
func.func @main(%x: tensor<64x64xf32>, %y: tensor<512x256xf32>) -> (tensor<f32>, tensor<512xf32>) {
  %0 = "lamina.amax"(%x) {dims = array<i64: 0, 1>, keepdim = false} : (tensor<64x64xf32>) -> tensor<f32>
  %1 = "lamina.amax"(%y) {dims = array<i64: 1>, keepdim = false} : (tensor<512x256xf32>) -> tensor<512xf32>
  return %0, %1 : tensor<f32>, tensor<512xf32>
}
