// RUN: lamina opt %s --passes lamina-cse | filecheck %s

// Equal ops are computed once, transitively.
// CHECK-LABEL: @equal
// CHECK-NEXT: %0 = "lamina.neg"(%arg0)
// CHECK-NEXT: %1 = "lamina.exp"(%0)
// CHECK-NEXT: %2 = "lamina.add"(%1, %1)
// CHECK-NEXT: return %2
func.func @equal(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "lamina.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "lamina.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "lamina.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "lamina.exp"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "lamina.add"(%2, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// -----

// Attributes count, 0.0 and -0.0 differ, and `materialize` has a buffer of its own each time.
// CHECK-LABEL: @different
// CHECK-COUNT-2: "lamina.full"
// CHECK-COUNT-2: "lamina.materialize"
func.func @different(%x: tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "lamina.full"() {shape = [], value = 0.0 : f64, dtype = f32} : () -> tensor<f32>
  %1 = "lamina.full"() {shape = [], value = -0.0 : f64, dtype = f32} : () -> tensor<f32>
  %2 = "lamina.materialize"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "lamina.materialize"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2, %3 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>
}
