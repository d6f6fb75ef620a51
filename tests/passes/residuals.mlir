// RUN: lamina opt %s --passes "lamina-reinplace{residuals=true}" | filecheck %s

// A product writes over the tensor that it adds, and so does the next one; their kernel says that both may be one buffer.
// CHECK-LABEL: @main
// CHECK: %[[A:.*]] = "lamina.launch"(%arg0) {dims = [], kernel = @k0}
// CHECK: %[[B:.*]] = "lamina.launch"(%arg0, %arg1, %[[A]]) {dims = [], inplace = array<i64: 2, 0>, kernel = @k1}
// CHECK: %[[C:.*]] = "lamina.launch"(%arg0, %arg1, %[[B]]) {dims = [], inplace = array<i64: 2, 0>, kernel = @k1}
// CHECK: func.func private @k1({{.*}}lamina.aliased = array<i64: 2>
func.func @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %0 = "lamina.launch"(%x) {kernel = @k0, dims = []} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.launch"(%x, %w, %0) {kernel = @k1, dims = []} : (tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %2 = "lamina.launch"(%x, %w, %1) {kernel = @k1, dims = []} : (tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}
func.func private @k0(%x: tensor<8x4xf32>) -> tensor<8x4xf32>
    attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = []} {
  %0 = "lamina.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
func.func private @k1(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32>
    attributes {lamina.kind = "matmul", lamina.label = "linear_add", lamina.symbols = []} {
  %0 = "lamina.linear"(%x, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.add"(%y, %0) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// -----

// Not over an argument, not over what is read later or returned, not over what the product multiplies, too.
// CHECK-LABEL: @main
// CHECK-NOT: inplace
// CHECK-NOT: lamina.aliased
func.func @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<32xf32>, tensor<8x4xf32>) {
  %0 = "lamina.launch"(%x) {kernel = @k0, dims = []} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.launch"(%0, %w, %x) {kernel = @k1, dims = []} : (tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %2 = "lamina.launch"(%x, %w, %0) {kernel = @k1, dims = []} : (tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %3 = "lamina.launch"(%0, %w, %0) {kernel = @k1, dims = []} : (tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %4 = "lamina.launch"(%x) {kernel = @k0, dims = []} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %5 = "lamina.launch"(%x, %w, %4) {kernel = @k1, dims = []} : (tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %6 = "lamina.reshape"(%4) {shape = ["32"]} : (tensor<8x4xf32>) -> tensor<32xf32>
  return %1, %2, %3, %6, %5 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<32xf32>, tensor<8x4xf32>
}
func.func private @k0(%x: tensor<8x4xf32>) -> tensor<8x4xf32>
    attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = []} {
  %0 = "lamina.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
func.func private @k1(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32>
    attributes {lamina.kind = "matmul", lamina.label = "linear_add", lamina.symbols = []} {
  %0 = "lamina.linear"(%x, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.add"(%y, %0) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// -----

// Not over a tensor that is read at other places than those that are written.
// CHECK-LABEL: @main
// CHECK-NOT: inplace
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "lamina.launch"(%x) {kernel = @k0, dims = []} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "lamina.launch"(%x, %w, %0) {kernel = @k1, dims = []} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
func.func private @k0(%x: tensor<4x4xf32>) -> tensor<4x4xf32>
    attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = []} {
  %0 = "lamina.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
func.func private @k1(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> tensor<4x4xf32>
    attributes {lamina.kind = "matmul", lamina.label = "linear_add", lamina.symbols = []} {
  %0 = "lamina.linear"(%x, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "lamina.permute"(%y) {dims = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "lamina.add"(%1, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "lamina.mul"(%2, %y) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// Nor over one of which something is multiplied: in another shape, or what is computed of it.
// CHECK-LABEL: @main
// CHECK-NOT: inplace
func.func @main(%x: tensor<1x4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "lamina.launch"(%x) {kernel = @k0, dims = []} : (tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %1 = "lamina.launch"(%0, %w) {kernel = @k1, dims = []} : (tensor<1x4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "lamina.launch"(%1, %w) {kernel = @k2, dims = []} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}
func.func private @k2(%y: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32>
    attributes {lamina.kind = "matmul", lamina.label = "linear_add", lamina.symbols = []} {
  %0 = "lamina.tanh"(%y) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "lamina.linear"(%0, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "lamina.add"(%1, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}
func.func private @k0(%x: tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
    attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = []} {
  %0 = "lamina.exp"(%x) : (tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  return %0 : tensor<1x4x4xf32>
}
func.func private @k1(%x: tensor<1x4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32>
    attributes {lamina.kind = "matmul", lamina.label = "linear_add", lamina.symbols = []} {
  %0 = "lamina.reshape"(%x) {shape = ["4", "4"]} : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
  %1 = "lamina.linear"(%0, %w) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "lamina.add"(%0, %1) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}
