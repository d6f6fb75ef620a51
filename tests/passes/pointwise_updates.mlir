// RUN: lamina opt %s --passes "lamina-reinplace{pointwise=true}" | filecheck %s

// A pointwise kernel makes new values of two arguments from their old ones; its loops then know.
// CHECK-LABEL: @main
// CHECK: "lamina.launch"(%arg0, %arg1, %arg2) {dims = [], inplace = array<i64: 0, 0, 2, 1>, kernel = @k0}
// CHECK: func.func private @k0({{.*}}lamina.inplace = array<i64: 0, 0, 2, 1>
func.func @main(%m: tensor<8xf32>, %g: tensor<8xf32>, %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
    attributes {lamina.arg_names = ["m", "g", "x"], lamina.mutates = ["m", "x"]} {
  %0:2 = "lamina.launch"(%m, %g, %x) {kernel = @k0, dims = []} : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  return %0#0, %0#1 : tensor<8xf32>, tensor<8xf32>
}
func.func private @k0(%m: tensor<8xf32>, %g: tensor<8xf32>, %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
    attributes {lamina.kind = "loops", lamina.label = "add_sub", lamina.symbols = []} {
  %0 = "lamina.add"(%m, %g) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %1 = "lamina.sub"(%x, %0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Of two launches of one kernel only one may overwrite: it gets a kernel of its own.
// CHECK-LABEL: @main
// CHECK: "lamina.launch"(%arg0) {dims = [], inplace = array<i64: 0, 0>, kernel = @k0_0}
// CHECK: "lamina.launch"(%arg1) {dims = [], kernel = @k0}
// CHECK: func.func private @k0_0({{.*}}lamina.inplace = array<i64: 0, 0>
// CHECK: func.func private @k0(
// CHECK-NOT: inplace
func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
    attributes {lamina.arg_names = ["x", "y"], lamina.mutates = ["x", ""]} {
  %0 = "lamina.launch"(%x) {kernel = @k0, dims = []} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "lamina.launch"(%y) {kernel = @k0, dims = []} : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}
func.func private @k0(%x: tensor<8xf32>) -> tensor<8xf32>
    attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = []} {
  %0 = "lamina.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// What is read at another index than it is written, or as a whole row, is not overwritten.
// CHECK-LABEL: @main
// CHECK-NOT: inplace
func.func @main(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
    attributes {lamina.arg_names = ["x", "y"], lamina.mutates = ["x", "y"]} {
  %0 = "lamina.launch"(%x) {kernel = @k0, dims = []} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "lamina.launch"(%y) {kernel = @k1, dims = []} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}
func.func private @k0(%x: tensor<8x8xf32>) -> tensor<8x8xf32>
    attributes {lamina.kind = "loops", lamina.label = "add", lamina.symbols = []} {
  %0 = "lamina.permute"(%x) {dims = array<i64: 1, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "lamina.add"(%x, %0) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
func.func private @k1(%x: tensor<8x8xf32>) -> tensor<8x8xf32>
    attributes {lamina.kind = "loops", lamina.label = "softmax", lamina.symbols = []} {
  %0 = "lamina.softmax"(%x) {dim = 1 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
