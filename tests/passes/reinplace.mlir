// RUN: lamina opt %s --passes "lamina-form-kernels,lamina-outline,lamina-reinplace" | filecheck %s

// A cache that is replaced by its update is written in place, twice in a row.
// CHECK-LABEL: @main
// CHECK: %[[A:.*]] = "lamina.launch"(%arg0, %arg1) {dims = [], inplace = array<i64: 0, 0>
// CHECK: %[[B:.*]] = "lamina.launch"(%[[A]], %arg1) {dims = [], inplace = array<i64: 0, 0>
// CHECK: return %[[B]]
func.func @main(%cache: tensor<8x4xf32>, %x: tensor<1x4xf32>) -> tensor<8x4xf32>
    attributes {lamina.arg_names = ["cache", "x"], lamina.mutates = ["cache"]} {
  %0 = "lamina.slice_scatter"(%cache, %x) {starts = ["3", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.slice_scatter"(%0, %x) {starts = ["4", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// -----

// The old value is read afterwards, so the update has a buffer of its own.
// CHECK-LABEL: @main
// CHECK-NOT: inplace
func.func @main(%cache: tensor<8x4xf32>, %x: tensor<1x4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>)
    attributes {lamina.arg_names = ["cache", "x"], lamina.mutates = ["cache", ""]} {
  %0 = "lamina.slice_scatter"(%cache, %x) {starts = ["3", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.mul"(%cache, %0) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %2 = "lamina.sum"(%1) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<8x4xf32>) -> tensor<8xf32>
  return %0, %2 : tensor<8x4xf32>, tensor<8xf32>
}

// -----

// The caller keeps an argument that no output replaces.
// CHECK-LABEL: @main
// CHECK-NOT: inplace
func.func @main(%x: tensor<8x4xf32>, %y: tensor<1x4xf32>) -> tensor<8x4xf32>
    attributes {lamina.arg_names = ["x", "y"], lamina.mutates = [""]} {
  %0 = "lamina.slice_scatter"(%x, %y) {starts = ["3", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// What reads the old value, and does not need the new one, comes first: the sums of rows are one kernel with the product
// that is after the update in program order.
// CHECK-LABEL: @main
// CHECK: %[[S:.*]] = "lamina.launch"(%arg0, %arg2) {dims = [], kernel
// CHECK: %[[C:.*]] = "lamina.launch"(%arg0, %arg1) {dims = [], inplace = array<i64: 0, 0>
// CHECK: return %[[C]], %[[S]]
func.func @main(%cache: tensor<8x4xf32>, %x: tensor<1x4xf32>, %y: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>)
    attributes {lamina.arg_names = ["cache", "x", "y"], lamina.mutates = ["cache", ""]} {
  %0 = "lamina.slice_scatter"(%cache, %x) {starts = ["3", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.mul"(%cache, %y) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %2 = "lamina.sum"(%1) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<8x4xf32>) -> tensor<8xf32>
  return %0, %2 : tensor<8x4xf32>, tensor<8xf32>
}

// -----

// Of two updates the second is returned beside another new value of the argument, so it has a buffer of its own.
// CHECK-LABEL: @main
// CHECK: %[[A:.*]] = "lamina.launch"(%arg0, %arg1) {dims = [], inplace = array<i64: 0, 0>
// CHECK: %[[B:.*]] = "lamina.launch"(%[[A]], %arg1) {dims = [], kernel
// CHECK: return %{{.*}}, %[[B]]
func.func @main(%x: tensor<8x4xf32>, %y: tensor<1x4xf32>, %z: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>)
    attributes {lamina.arg_names = ["x", "y", "z"], lamina.mutates = ["x", ""]} {
  %0 = "lamina.slice_scatter"(%x, %y) {starts = ["3", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.slice_scatter"(%0, %y) {starts = ["4", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  %2 = "lamina.mul"(%z, %z) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %2, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}
