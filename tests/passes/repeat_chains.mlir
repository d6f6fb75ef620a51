// RUN: lamina opt %s --passes "lamina-repeat-chains,lamina-form-kernels" | filecheck %s

// The product of the weights' gradient has the function by itself, and the other one computes its derivative in the epilogue.
// CHECK-LABEL: @main
// CHECK: "lamina.tanh"(%arg0) {lamina.kernel = [[D:.*]] : i64}
// CHECK: "lamina.tanh"(%arg0) {lamina.kernel = [[A:.*]] : i64}
// CHECK: "lamina.mul"(%arg0, {{.*}}) {lamina.kernel = [[A]] : i64}
// CHECK: "lamina.matmul"(%arg1, %arg2) {lamina.kernel = [[D]] : i64}
// CHECK: "lamina.mul"({{.*}}) {lamina.kernel = [[D]] : i64}
func.func @main(%x: tensor<4x8xf32>, %g: tensor<4x3xf32>, %w: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<4x8xf32>) {
  %t = "lamina.tanh"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "lamina.mul"(%x, %t) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %gt = "lamina.permute"(%g) {dims = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %dw = "lamina.matmul"(%gt, %y) : (tensor<3x4xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
  %dy = "lamina.matmul"(%g, %w) : (tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32>
  %dx = "lamina.mul"(%dy, %t) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %dw, %dx : tensor<3x8xf32>, tensor<4x8xf32>
}

// -----

// What a product reads is needed elsewhere too: nothing is gained.
// CHECK-LABEL: @main
// CHECK-COUNT-1: lamina.tanh
// CHECK-NOT: lamina.tanh
func.func @main(%x: tensor<4x8xf32>, %g: tensor<3x4xf32>) -> (tensor<3x8xf32>, tensor<4x8xf32>) {
  %t = "lamina.tanh"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "lamina.mul"(%x, %t) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %dw = "lamina.matmul"(%g, %y) : (tensor<3x4xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
  return %dw, %y : tensor<3x8xf32>, tensor<4x8xf32>
}
