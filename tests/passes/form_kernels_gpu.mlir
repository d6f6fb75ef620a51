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

// What a norm has normalised is computed again for the gradient of its weight, a sum over rows: nothing of it is stored in f32.
// CHECK-LABEL: func.func @normalised
// CHECK-NOT: lamina.sub{{.*}}lamina.kernel
// CHECK: lamina.mul{{.*}}lamina.kernel = [[ROWS:[01]]]
// CHECK: lamina.mean{{.*}}lamina.kernel = [[ROWS]]
// CHECK: lamina.mul{{.*}}lamina.kernel = [[ROWS]]
// CHECK: lamina.mul{{.*}}lamina.kernel = [[COLUMNS:[01]]]
// CHECK: lamina.sum{{.*}}lamina.kernel = [[COLUMNS]]
func.func @normalised(%x: tensor<4096x768xbf16>, %m: tensor<4096x1xbf16>, %g: tensor<4096x768xf32>) -> (tensor<4096x768xf32>, tensor<768xf32>) {
  %0 = "lamina.cast"(%x) {dtype = f32} : (tensor<4096x768xbf16>) -> tensor<4096x768xf32>
  %1 = "lamina.cast"(%m) {dtype = f32} : (tensor<4096x1xbf16>) -> tensor<4096x1xf32>
  %2 = "lamina.sub"(%0, %1) : (tensor<4096x768xf32>, tensor<4096x1xf32>) -> tensor<4096x768xf32>
  %3 = "lamina.mul"(%g, %2) : (tensor<4096x768xf32>, tensor<4096x768xf32>) -> tensor<4096x768xf32>
  %4 = "lamina.mean"(%3) {dims = array<i64: 1>, keepdim = true} : (tensor<4096x768xf32>) -> tensor<4096x1xf32>
  %5 = "lamina.mul"(%2, %4) : (tensor<4096x768xf32>, tensor<4096x1xf32>) -> tensor<4096x768xf32>
  %6 = "lamina.mul"(%2, %2) : (tensor<4096x768xf32>, tensor<4096x768xf32>) -> tensor<4096x768xf32>
  %7 = "lamina.sum"(%6) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4096x768xf32>) -> tensor<768xf32>
  return %5, %7 : tensor<4096x768xf32>, tensor<768xf32>
}
