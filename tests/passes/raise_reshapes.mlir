// RUN: lamina opt %s --passes lamina-raise-reshapes | filecheck %s

// What is computed again of saved values gets the shape of the product that it is combined with; a row's scale goes with it.
// CHECK-LABEL: @saved
// CHECK-DAG: %[[X:.*]] = "lamina.reshape"(%arg1) {shape = ["6", "8"]}
// CHECK-DAG: %[[S:.*]] = "lamina.reshape"(%arg2) {shape = ["6", "1"]}
// CHECK: %[[D:.*]] = "lamina.mul"(%[[X]], %[[S]])
// CHECK: %[[T:.*]] = "lamina.tanh"(%[[D]]) : (tensor<6x8xf32>)
// CHECK: "lamina.mul"(%arg0, %[[T]])
// CHECK-NEXT: return
func.func @saved(%a: tensor<6x8xf32>, %x: tensor<2x3x8xf32>, %s: tensor<2x3x1xf32>) -> tensor<6x8xf32> {
  %0 = "lamina.mul"(%x, %s) : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %1 = "lamina.tanh"(%0) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %2 = "lamina.reshape"(%1) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %3 = "lamina.mul"(%a, %2) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  return %3 : tensor<6x8xf32>
}

// -----

// Who is read as it is too, is fed by a row op, or has an operand that no merged dim follows, stays.
// CHECK-LABEL: @stays
// CHECK: "lamina.tanh"({{.*}}) : (tensor<2x3x8xf32>)
// CHECK: "lamina.neg"({{.*}}) : (tensor<2x3x8xf32>)
// CHECK: "lamina.add"({{.*}}) : (tensor<2x3x8xf32>, tensor<2x1x8xf32>)
func.func @stays(%x: tensor<2x3x8xf32>, %y: tensor<2x1x8xf32>) -> (tensor<6x8xf32>, tensor<2x3x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>) {
  %0 = "lamina.tanh"(%x) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %1 = "lamina.reshape"(%0) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %2 = "lamina.softmax"(%x) {dim = 2 : i64} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %3 = "lamina.neg"(%2) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %4 = "lamina.reshape"(%3) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %5 = "lamina.add"(%x, %y) : (tensor<2x3x8xf32>, tensor<2x1x8xf32>) -> tensor<2x3x8xf32>
  %6 = "lamina.reshape"(%5) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  return %1, %0, %4, %6 : tensor<6x8xf32>, tensor<2x3x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>
}
