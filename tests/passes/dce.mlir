// RUN: lamina opt %s --passes lamina-dce | filecheck %s

// What nobody reads goes, in chains; one read result keeps an op with several; kernels nobody launches go.
// CHECK-LABEL: @main
// CHECK-NEXT: %0:2 = "lamina.var_mean"
// CHECK-NEXT: return %0#1
// CHECK-NOT: @k0
func.func @main(%x: tensor<2x3xf32>) -> tensor<2xf32> {
  %0 = "lamina.neg"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = "lamina.exp"(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %2:2 = "lamina.var_mean"(%x) {dims = array<i64: 1>, correction = 1.0 : f64, keepdim = false} : (tensor<2x3xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  return %2#1 : tensor<2xf32>
}
func.func private @k0(%x: tensor<2xf32>) -> tensor<2xf32> attributes {lamina.kind = "loops", lamina.symbols = []} {
  %0 = "lamina.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
