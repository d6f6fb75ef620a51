// RUN: lamina opt %s --passes lamina-fold-constants | filecheck %s

// The mask of a causal model: compare two ranges.
// CHECK-LABEL: @mask
// CHECK-NEXT: %0 = "lamina.constant"() {data = "AQABAQ==", dtype = i1, shape = ["2", "2"]}
// CHECK-NEXT: return %0
func.func @mask() -> tensor<2x2xi1> {
  %0 = "lamina.iota"() {size = ["2"], start = 0 : i64, step = 1 : i64, dtype = i64} : () -> tensor<2xi64>
  %1 = "lamina.reshape"(%0) {shape = ["2", "1"]} : (tensor<2xi64>) -> tensor<2x1xi64>
  %2 = "lamina.le"(%0, %1) : (tensor<2xi64>, tensor<2x1xi64>) -> tensor<2x2xi1>
  return %2 : tensor<2x2xi1>
}

// -----

// Equal elements give `full`; what depends on an argument or a symbolic size stays.
// CHECK-LABEL: @partly
// CHECK: "lamina.full"() {dtype = f32, shape = ["2"], value = 3.500000e+00 : f64}
// CHECK: "lamina.add"(%arg0
// CHECK: "lamina.iota"() {{.*}}s0
// CHECK: "lamina.neg"
module attributes {lamina.symbols = [{name = "s0"}]} {
func.func @partly(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<?xi64, ["s0"]>) {
  %0 = "lamina.full"() {shape = ["2"], value = 1.5 : f64, dtype = f32} : () -> tensor<2xf32>
  %1 = "lamina.full"() {shape = [], value = 2.0 : f64, dtype = f32} : () -> tensor<f32>
  %2 = "lamina.add"(%0, %1) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %3 = "lamina.add"(%x, %2) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %4 = "lamina.iota"() {size = ["s0"], start = 0 : i64, step = 1 : i64, dtype = i64} : () -> tensor<?xi64, ["s0"]>
  %5 = "lamina.neg"(%4) : (tensor<?xi64, ["s0"]>) -> tensor<?xi64, ["s0"]>
  return %3, %5 : tensor<2xf32>, tensor<?xi64, ["s0"]>
}
}

// -----

// Tensors of one value fold at any size.
// CHECK-LABEL: @uniform
// CHECK-NEXT: %0 = "lamina.full"() {dtype = f16, shape = ["s0", "100000"], value = 3.000000e+00 : f64}
// CHECK-NEXT: return %0
module attributes {lamina.symbols = [{name = "s0"}]} {
func.func @uniform() -> tensor<?x100000xf16, ["s0", "100000"]> {
  %0 = "lamina.full"() {shape = ["s0", "100000"], value = 2.0 : f64, dtype = f32} : () -> tensor<?x100000xf32, ["s0", "100000"]>
  %1 = "lamina.full"() {shape = [], value = 1.0 : f64, dtype = f32} : () -> tensor<f32>
  %2 = "lamina.add"(%0, %1) : (tensor<?x100000xf32, ["s0", "100000"]>, tensor<f32>) -> tensor<?x100000xf32, ["s0", "100000"]>
  %3 = "lamina.cast"(%2) {dtype = f16} : (tensor<?x100000xf32, ["s0", "100000"]>) -> tensor<?x100000xf16, ["s0", "100000"]>
  return %3 : tensor<?x100000xf16, ["s0", "100000"]>
}
}
