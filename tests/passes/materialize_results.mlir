// RUN: lamina opt %s --passes lamina-materialize-results | filecheck %s

// A reshape that moves elements needs a copy.
// CHECK-LABEL: @reshape_of_a_transpose
// CHECK: %[[copy:.*]] = "lamina.materialize"(%1)
// CHECK-NEXT: return %[[copy]]
func.func @reshape_of_a_transpose(%x: tensor<2x?xf32, ["2", "s0"]>) -> tensor<?xf32, ["2*s0"]> {
  %0 = "lamina.permute"(%x) {dims = array<i64: 1, 0>} : (tensor<2x?xf32, ["2", "s0"]>) -> tensor<?x2xf32, ["s0", "2"]>
  %1 = "lamina.reshape"(%0) {shape = ["2*s0"]} : (tensor<?x2xf32, ["s0", "2"]>) -> tensor<?xf32, ["2*s0"]>
  return %1 : tensor<?xf32, ["2*s0"]>
}

// -----

// The new content of `y` lies in `y`: it is contiguous. The plain result may stay a view.
// CHECK-LABEL: @new_content
// CHECK: %[[copy:.*]] = "lamina.materialize"(%0)
// CHECK-NEXT: return %0, %[[copy]]
func.func @new_content(%x: tensor<2x3xf32>, %y: tensor<3x2xf32>) -> (tensor<3x2xf32>, tensor<3x2xf32>)
    attributes {lamina.mutates = ["", "y"]} {
  %0 = "lamina.permute"(%x) {dims = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %0, %0 : tensor<3x2xf32>, tensor<3x2xf32>
}

// -----

// Strided views, computed results and arguments need no copy.
// CHECK-LABEL: @views
// CHECK-NOT: materialize
func.func @views(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<6x4xf32>, tensor<2x12xf32>, tensor<4x6xf32>) attributes {lamina.mutates = ["", "", "", "x"]} {
  %0 = "lamina.neg"(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = "lamina.permute"(%0) {dims = array<i64: 1, 0>} : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %2 = "lamina.reshape"(%0) {shape = ["2", "12"]} : (tensor<4x6xf32>) -> tensor<2x12xf32>
  return %x, %1, %2, %0 : tensor<4x6xf32>, tensor<6x4xf32>, tensor<2x12xf32>, tensor<4x6xf32>
}
