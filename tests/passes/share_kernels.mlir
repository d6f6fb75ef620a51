// RUN: lamina opt %s --passes "lamina-form-kernels,lamina-outline,lamina-share-kernels" | filecheck %s

// Three steps that begin elsewhere are one kernel; a start in which they agree stays a number.
// CHECK-LABEL: @main
// CHECK-NEXT: "lamina.launch"(%arg0) {dims = ["0"], kernel = @k0}
// CHECK-NEXT: "lamina.launch"(%arg0) {dims = ["1"], kernel = @k0}
// CHECK-NEXT: "lamina.launch"(%arg0) {dims = ["3"], kernel = @k0}
// CHECK: func.func private @k0
// CHECK-SAME: lamina.symbols = ["d0"]
// CHECK: starts = ["d0", "2", "4"]
// CHECK-NOT: @k1
func.func @main(%x: tensor<4x5x8xf32>) -> (tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>) {
  %0 = "lamina.slice"(%x) {starts = ["0", "2", "4"], sizes = ["1", "2", "4"], steps = array<i64: 1, 1, 1>} : (tensor<4x5x8xf32>) -> tensor<1x2x4xf32>
  %1 = "lamina.exp"(%0) : (tensor<1x2x4xf32>) -> tensor<1x2x4xf32>
  %2 = "lamina.slice"(%x) {starts = ["1", "2", "4"], sizes = ["1", "2", "4"], steps = array<i64: 1, 1, 1>} : (tensor<4x5x8xf32>) -> tensor<1x2x4xf32>
  %3 = "lamina.exp"(%2) : (tensor<1x2x4xf32>) -> tensor<1x2x4xf32>
  %4 = "lamina.slice"(%x) {starts = ["3", "2", "4"], sizes = ["1", "2", "4"], steps = array<i64: 1, 1, 1>} : (tensor<4x5x8xf32>) -> tensor<1x2x4xf32>
  %5 = "lamina.exp"(%4) : (tensor<1x2x4xf32>) -> tensor<1x2x4xf32>
  return %1, %3, %5 : tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>
}

// -----

// Sizes of the caller stay; the starts come after them.
module attributes {lamina.symbols = [{name = "s0"}]} {
// CHECK-LABEL: @main
// CHECK-NEXT: "lamina.launch"(%arg0) {dims = ["s0", "0"], kernel = @k0}
// CHECK-NEXT: "lamina.launch"(%arg0) {dims = ["s0", "1"], kernel = @k0}
// CHECK-NEXT: "lamina.launch"(%arg0) {dims = ["s0", "2"], kernel = @k0}
// CHECK: lamina.symbols = ["d0", "d1"]
// CHECK: starts = ["d1", "0"]
func.func @main(%x: tensor<4x?xf32, ["4", "s0"]>) -> (tensor<1x?xf32, ["1", "s0"]>, tensor<1x?xf32, ["1", "s0"]>, tensor<1x?xf32, ["1", "s0"]>) {
  %0 = "lamina.slice"(%x) {starts = ["0", "0"], sizes = ["1", "s0"], steps = array<i64: 1, 1>} : (tensor<4x?xf32, ["4", "s0"]>) -> tensor<1x?xf32, ["1", "s0"]>
  %1 = "lamina.exp"(%0) : (tensor<1x?xf32, ["1", "s0"]>) -> tensor<1x?xf32, ["1", "s0"]>
  %2 = "lamina.slice"(%x) {starts = ["1", "0"], sizes = ["1", "s0"], steps = array<i64: 1, 1>} : (tensor<4x?xf32, ["4", "s0"]>) -> tensor<1x?xf32, ["1", "s0"]>
  %3 = "lamina.exp"(%2) : (tensor<1x?xf32, ["1", "s0"]>) -> tensor<1x?xf32, ["1", "s0"]>
  %4 = "lamina.slice"(%x) {starts = ["2", "0"], sizes = ["1", "s0"], steps = array<i64: 1, 1>} : (tensor<4x?xf32, ["4", "s0"]>) -> tensor<1x?xf32, ["1", "s0"]>
  %5 = "lamina.exp"(%4) : (tensor<1x?xf32, ["1", "s0"]>) -> tensor<1x?xf32, ["1", "s0"]>
  return %1, %3, %5 : tensor<1x?xf32, ["1", "s0"]>, tensor<1x?xf32, ["1", "s0"]>, tensor<1x?xf32, ["1", "s0"]>
}
}

// -----

// Parts of the last dim, of which numbers say how they are aligned, stay apart, and so do two halves.
// CHECK-LABEL: @main
// CHECK-COUNT-5: {dims = [], kernel = @k{{[0-4]}}}
// CHECK: func.func private @k4
func.func @main(%x: tensor<4x9xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<2x9xf32>, tensor<2x9xf32>) {
  %0 = "lamina.slice"(%x) {starts = ["0", "0"], sizes = ["4", "3"], steps = array<i64: 1, 1>} : (tensor<4x9xf32>) -> tensor<4x3xf32>
  %1 = "lamina.exp"(%0) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %2 = "lamina.slice"(%x) {starts = ["0", "3"], sizes = ["4", "3"], steps = array<i64: 1, 1>} : (tensor<4x9xf32>) -> tensor<4x3xf32>
  %3 = "lamina.exp"(%2) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %4 = "lamina.slice"(%x) {starts = ["0", "6"], sizes = ["4", "3"], steps = array<i64: 1, 1>} : (tensor<4x9xf32>) -> tensor<4x3xf32>
  %5 = "lamina.exp"(%4) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %6 = "lamina.slice"(%x) {starts = ["0", "0"], sizes = ["2", "9"], steps = array<i64: 1, 1>} : (tensor<4x9xf32>) -> tensor<2x9xf32>
  %7 = "lamina.exp"(%6) : (tensor<2x9xf32>) -> tensor<2x9xf32>
  %8 = "lamina.slice"(%x) {starts = ["2", "0"], sizes = ["2", "9"], steps = array<i64: 1, 1>} : (tensor<4x9xf32>) -> tensor<2x9xf32>
  %9 = "lamina.exp"(%8) : (tensor<2x9xf32>) -> tensor<2x9xf32>
  return %1, %3, %5, %7, %9 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<2x9xf32>, tensor<2x9xf32>
}
