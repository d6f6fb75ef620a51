// RUN: lamina opt %s --passes lamina-form-kernels | filecheck %s

// What reads a product by packed weights in halves of its columns is computed where these are summed up.
// CHECK-LABEL: @halves
// CHECK: "lamina.packed_linear"{{.*}}lamina.kernel = 0
// CHECK: "lamina.add"{{.*}}lamina.kernel = 0
// CHECK: "lamina.sigmoid"{{.*}}lamina.kernel = 0
// CHECK: "lamina.mul"{{.*}}lamina.kernel = 0
func.func @halves(%x: tensor<3x8xf32>, %p: tensor<4x8x16xf32>, %b: tensor<64xf32>) -> tensor<3x32xf32> {
  %0 = "lamina.packed_linear"(%x, %p) {size = 64 : i64, depth = 1 : i64} : (tensor<3x8xf32>, tensor<4x8x16xf32>) -> tensor<3x64xf32>
  %1 = "lamina.add"(%0, %b) : (tensor<3x64xf32>, tensor<64xf32>) -> tensor<3x64xf32>
  %2 = "lamina.slice"(%1) {starts = ["0", "0"], sizes = ["3", "32"], steps = array<i64: 1, 1>} : (tensor<3x64xf32>) -> tensor<3x32xf32>
  %3 = "lamina.slice"(%1) {starts = ["0", "32"], sizes = ["3", "32"], steps = array<i64: 1, 1>} : (tensor<3x64xf32>) -> tensor<3x32xf32>
  %4 = "lamina.sigmoid"(%3) : (tensor<3x32xf32>) -> tensor<3x32xf32>
  %5 = "lamina.mul"(%2, %4) : (tensor<3x32xf32>, tensor<3x32xf32>) -> tensor<3x32xf32>
  return %5 : tensor<3x32xf32>
}

// -----

// Two kernels read it: it is stored.
// CHECK-LABEL: @stored
// CHECK: "lamina.packed_linear"{{.*}}lamina.kernel = 0
// CHECK: "lamina.mul"{{.*}}lamina.kernel = 1
// CHECK: "lamina.sum"{{.*}}lamina.kernel = 2
func.func @stored(%x: tensor<3x8xf32>, %p: tensor<4x8x16xf32>) -> (tensor<3x32xf32>, tensor<3xf32>) {
  %0 = "lamina.packed_linear"(%x, %p) {size = 64 : i64, depth = 1 : i64} : (tensor<3x8xf32>, tensor<4x8x16xf32>) -> tensor<3x64xf32>
  %1 = "lamina.slice"(%0) {starts = ["0", "0"], sizes = ["3", "32"], steps = array<i64: 1, 1>} : (tensor<3x64xf32>) -> tensor<3x32xf32>
  %2 = "lamina.slice"(%0) {starts = ["0", "32"], sizes = ["3", "32"], steps = array<i64: 1, 1>} : (tensor<3x64xf32>) -> tensor<3x32xf32>
  %3 = "lamina.mul"(%1, %2) : (tensor<3x32xf32>, tensor<3x32xf32>) -> tensor<3x32xf32>
  %4 = "lamina.sum"(%0) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<3x64xf32>) -> tensor<3xf32>
  return %3, %4 : tensor<3x32xf32>, tensor<3xf32>
}

// -----

// The columns of a part are not whole panels: tiles cannot begin there.
// CHECK-LABEL: @panels
// CHECK: "lamina.packed_linear"{{.*}}lamina.kernel = 0
// CHECK: "lamina.mul"{{.*}}lamina.kernel = 1
func.func @panels(%x: tensor<3x8xf32>, %p: tensor<3x8x16xf32>) -> tensor<3x24xf32> {
  %0 = "lamina.packed_linear"(%x, %p) {size = 48 : i64, depth = 1 : i64} : (tensor<3x8xf32>, tensor<3x8x16xf32>) -> tensor<3x48xf32>
  %1 = "lamina.slice"(%0) {starts = ["0", "0"], sizes = ["3", "24"], steps = array<i64: 1, 1>} : (tensor<3x48xf32>) -> tensor<3x24xf32>
  %2 = "lamina.slice"(%0) {starts = ["0", "24"], sizes = ["3", "24"], steps = array<i64: 1, 1>} : (tensor<3x48xf32>) -> tensor<3x24xf32>
  %3 = "lamina.mul"(%1, %2) : (tensor<3x24xf32>, tensor<3x24xf32>) -> tensor<3x24xf32>
  return %3 : tensor<3x24xf32>
}
