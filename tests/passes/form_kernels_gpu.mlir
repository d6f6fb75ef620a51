// RUN: lamina opt %s --passes "lamina-form-kernels{gpu=true}" | filecheck %s

// The scale of a norm, of 64 elements, is computed again by each element that it scales: one launch.
// CHECK-LABEL: func.func @norm
// CHECK: lamina.rsqrt{{.*}}lamina.kernel = 0
// CHECK: lamina.mul{{.*}}lamina.kernel = 0
func.func @norm(%x: tensor<64x4096xf32>, %v: tensor<64x1xf32>) -> tensor<64x4096xf32> {
  %0 = "lamina.rsqrt"(%v) : (tensor<64x1xf32>) -> tensor<64x1xf32>
  %1 = "lamina.mul"(%x, %0) : (tensor<64x4096xf32>, tensor<64x1xf32>) -> tensor<64x4096xf32>
  return %1 : tensor<64x4096xf32>
}

// A function of many instructions, and what is not small, has a kernel of its own.
// CHECK-LABEL: func.func @others
// CHECK: lamina.tanh{{.*}}lamina.kernel = 0
// CHECK: lamina.mul{{.*}}lamina.kernel = 1
// CHECK: lamina.rsqrt{{.*}}lamina.kernel = 2
// CHECK: lamina.mul{{.*}}lamina.kernel = 3
func.func @others(%x: tensor<64x4096xf32>, %v: tensor<64x1xf32>, %y: tensor<65536x8xf32>, %w: tensor<65536x1xf32>) -> (tensor<64x4096xf32>, tensor<65536x8xf32>) {
  %0 = "lamina.tanh"(%v) : (tensor<64x1xf32>) -> tensor<64x1xf32>
  %1 = "lamina.mul"(%x, %0) : (tensor<64x4096xf32>, tensor<64x1xf32>) -> tensor<64x4096xf32>
  %2 = "lamina.rsqrt"(%w) : (tensor<65536x1xf32>) -> tensor<65536x1xf32>
  %3 = "lamina.mul"(%y, %2) : (tensor<65536x8xf32>, tensor<65536x1xf32>) -> tensor<65536x8xf32>
  return %1, %3 : tensor<64x4096xf32>, tensor<65536x8xf32>
}

// In f64 a root is no few instructions.
// CHECK-LABEL: func.func @wide
// CHECK: lamina.rsqrt{{.*}}lamina.kernel = 0
// CHECK: lamina.mul{{.*}}lamina.kernel = 1
func.func @wide(%x: tensor<64x4096xf64>, %v: tensor<64x1xf64>) -> tensor<64x4096xf64> {
  %0 = "lamina.rsqrt"(%v) : (tensor<64x1xf64>) -> tensor<64x1xf64>
  %1 = "lamina.mul"(%x, %0) : (tensor<64x4096xf64>, tensor<64x1xf64>) -> tensor<64x4096xf64>
  return %1 : tensor<64x4096xf64>
}
