// RUN: lamina opt %s --passes "lamina-form-kernels,lamina-outline" | filecheck %s

// Equal kernels are one function, whatever their symbols are called; views are inside kernels, or lead to outputs.
module attributes {lamina.symbols = [{name = "s0"}, {name = "s1"}]} {
// CHECK-LABEL: @main
// CHECK-NEXT: %[[A:.*]] = "lamina.launch"(%arg0) {dims = ["s0"], kernel = @k0}
// CHECK-NEXT: %[[B:.*]] = "lamina.launch"(%arg1) {dims = ["s1"], kernel = @k0}
// CHECK-NEXT: %[[C:.*]] = "lamina.permute"(%[[B]])
// CHECK-NEXT: return %[[A]], %[[C]]
// CHECK-LABEL: func.func private @k0
// CHECK-SAME: lamina.kind = "loops", lamina.label = "tanh", lamina.symbols = ["d0"]
// CHECK-NEXT: "lamina.slice"(%arg0) {sizes = ["2", "d0 - 1"]
// CHECK-NEXT: "lamina.tanh"
// CHECK-NOT: @k1
func.func @main(%x: tensor<4x?xf32, ["4", "s0"]>, %y: tensor<4x?xf32, ["4", "s1"]>)
    -> (tensor<2x?xf32, ["2", "s0 - 1"]>, tensor<?x2xf32, ["s1 - 1", "2"]>) {
  %0 = "lamina.slice"(%x) {starts = ["1", "1"], sizes = ["2", "s0 - 1"], steps = array<i64: 1, 1>} : (tensor<4x?xf32, ["4", "s0"]>) -> tensor<2x?xf32, ["2", "s0 - 1"]>
  %1 = "lamina.tanh"(%0) : (tensor<2x?xf32, ["2", "s0 - 1"]>) -> tensor<2x?xf32, ["2", "s0 - 1"]>
  %2 = "lamina.slice"(%y) {starts = ["1", "1"], sizes = ["2", "s1 - 1"], steps = array<i64: 1, 1>} : (tensor<4x?xf32, ["4", "s1"]>) -> tensor<2x?xf32, ["2", "s1 - 1"]>
  %3 = "lamina.tanh"(%2) : (tensor<2x?xf32, ["2", "s1 - 1"]>) -> tensor<2x?xf32, ["2", "s1 - 1"]>
  %4 = "lamina.permute"(%3) {dims = array<i64: 1, 0>} : (tensor<2x?xf32, ["2", "s1 - 1"]>) -> tensor<?x2xf32, ["s1 - 1", "2"]>
  return %1, %4 : tensor<2x?xf32, ["2", "s0 - 1"]>, tensor<?x2xf32, ["s1 - 1", "2"]>
}
}

// -----

// Nothing to compute, nothing to launch: arguments and views of them are returned.
// CHECK-LABEL: @main
// CHECK-NEXT: %0 = "lamina.permute"(%arg0)
// CHECK-NEXT: return %arg0, %0
// CHECK-NOT: @k0
func.func @main(%x: tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<2x4xf32>) {
  %0 = "lamina.permute"(%x) {dims = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  return %x, %0 : tensor<4x2xf32>, tensor<2x4xf32>
}
