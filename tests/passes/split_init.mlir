// RUN: lamina opt %s --passes lamina-split-init | filecheck %s

// Arithmetic on weights moves; their views stay, and so does a cast that only makes a weight larger.
// CHECK-LABEL: @main
// CHECK-DAG: %[[W:.*]] = "lamina.weight"
// CHECK-DAG: %[[P:.*]] = "lamina.persistent"() {dtype = f32, index = 0 : i64, shape = ["4"]}
// CHECK: "lamina.mul"(%arg0, %[[P]])
// CHECK: %[[C:.*]] = "lamina.cast"
// CHECK: "lamina.reshape"(%[[C]])
// CHECK-LABEL: func.func private @init() -> tensor<4xf32>
// CHECK: "lamina.weight"() {dtype = f32, shape = ["4"], symbol = "w"}
// CHECK-NEXT: "lamina.rsqrt"
// CHECK-NEXT: return
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = "lamina.weight"() {symbol = "w", shape = ["4"], dtype = f32} : () -> tensor<4xf32>
  %h = "lamina.weight"() {symbol = "h", shape = ["4"], dtype = bf16} : () -> tensor<4xbf16>
  %0 = "lamina.rsqrt"(%w) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "lamina.mul"(%x, %0) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %2 = "lamina.cast"(%h) {dtype = f32} : (tensor<4xbf16>) -> tensor<4xf32>
  %3 = "lamina.reshape"(%2) {shape = ["1", "4"]} : (tensor<4xf32>) -> tensor<1x4xf32>
  %4 = "lamina.add"(%1, %3) : (tensor<2x4xf32>, tensor<1x4xf32>) -> tensor<2x4xf32>
  return %4 : tensor<2x4xf32>
}

// -----

// Nothing depends on weights alone except views.
// CHECK-LABEL: @main
// CHECK-NOT: persistent
// CHECK-NOT: @init
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %w = "lamina.weight"() {symbol = "w", shape = ["3", "4"], dtype = f32} : () -> tensor<3x4xf32>
  %0 = "lamina.permute"(%w) {dims = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %1 = "lamina.matmul"(%x, %0) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// -----

// A result belongs to the caller: it is computed anew, from what is kept.
// CHECK-LABEL: @main
// CHECK: %[[P:.*]] = "lamina.persistent"() {{.*}}["2", "2"]
// CHECK: %[[E:.*]] = "lamina.exp"(%[[P]])
// CHECK: return %[[E]], %[[E]]
func.func @main() -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %w = "lamina.weight"() {symbol = "w", shape = ["2", "2"], dtype = f32} : () -> tensor<2x2xf32>
  %0 = "lamina.matmul"(%w, %w) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = "lamina.exp"(%0) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %1, %1 : tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// One element of each row is chosen where the tensor is read: what would be kept is a buffer of its size, for two rows of weights.
// CHECK-LABEL: @main
// CHECK-DAG: %[[I:.*]] = "lamina.persistent"() {{.*}}["2", "1"]
// CHECK-DAG: %[[Z:.*]] = "lamina.full"
// CHECK: %[[S:.*]] = "lamina.place"(%[[Z]], %[[I]]
// CHECK: "lamina.mul"(%arg0, %[[S]])
func.func @main(%x: tensor<2x40xf32>) -> tensor<2x40xf32> {
  %w = "lamina.weight"() {symbol = "w", shape = ["2", "1"], dtype = i64} : () -> tensor<2x1xi64>
  %v = "lamina.weight"() {symbol = "v", shape = ["2", "1"], dtype = f32} : () -> tensor<2x1xf32>
  %i = "lamina.neg"(%w) : (tensor<2x1xi64>) -> tensor<2x1xi64>
  %z = "lamina.full"() {shape = ["2", "40"], value = 0.0 : f64, dtype = f32} : () -> tensor<2x40xf32>
  %0 = "lamina.place"(%z, %i, %v) {dim = 1 : i64, reduce = "none", index_error = false} : (tensor<2x40xf32>, tensor<2x1xi64>, tensor<2x1xf32>) -> tensor<2x40xf32>
  %1 = "lamina.mul"(%x, %0) : (tensor<2x40xf32>, tensor<2x40xf32>) -> tensor<2x40xf32>
  return %1 : tensor<2x40xf32>
}
