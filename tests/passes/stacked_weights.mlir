// RUN: lamina opt %s --passes "lamina-split-init{stacked=true},lamina-form-kernels{stacked=true},lamina-outline" | filecheck %s

// Query and key weights are read where they lie: no launch puts them together, before or in a call.
// CHECK-LABEL: func.func @main
// CHECK: %[[Q:.*]] = "lamina.weight"() {{.*}}symbol = "q"
// CHECK: %[[K:.*]] = "lamina.weight"() {{.*}}symbol = "k"
// CHECK-NOT: persistent
// CHECK: "lamina.launch"(%arg0, %[[Q]], %[[K]])
// CHECK-NOT: "lamina.launch"
// CHECK: func.func private @k0
// CHECK: %[[W:.*]] = "lamina.concat"(%arg1, %arg2)
// CHECK: "lamina.linear"(%arg0, %[[W]])
func.func @main(%x: tensor<64x512xbf16>) -> tensor<64x768xbf16> {
  %q = "lamina.weight"() {symbol = "q", shape = ["512", "512"], dtype = bf16} : () -> tensor<512x512xbf16>
  %k = "lamina.weight"() {symbol = "k", shape = ["256", "512"], dtype = bf16} : () -> tensor<256x512xbf16>
  %w = "lamina.concat"(%q, %k) {dim = 0 : i64} : (tensor<512x512xbf16>, tensor<256x512xbf16>) -> tensor<768x512xbf16>
  %y = "lamina.linear"(%x, %w) : (tensor<64x512xbf16>, tensor<768x512xbf16>) -> tensor<64x768xbf16>
  return %y : tensor<64x768xbf16>
}

// -----

// A matrix of 200 rows would share a tile with the next, and who adds to weights reads a buffer: both are copied once.
// CHECK-LABEL: func.func @main
// CHECK: "lamina.persistent"() {{.*}}["712", "512"]
// CHECK: "lamina.persistent"() {{.*}}["1024", "512"]
// CHECK: func.func private @init
func.func @main(%x: tensor<64x512xbf16>) -> (tensor<64x712xbf16>, tensor<64x1024xbf16>, tensor<64x1024x512xbf16>) {
  %q = "lamina.weight"() {symbol = "q", shape = ["512", "512"], dtype = bf16} : () -> tensor<512x512xbf16>
  %k = "lamina.weight"() {symbol = "k", shape = ["200", "512"], dtype = bf16} : () -> tensor<200x512xbf16>
  %w = "lamina.concat"(%q, %k) {dim = 0 : i64} : (tensor<512x512xbf16>, tensor<200x512xbf16>) -> tensor<712x512xbf16>
  %0 = "lamina.linear"(%x, %w) : (tensor<64x512xbf16>, tensor<712x512xbf16>) -> tensor<64x712xbf16>
  %v = "lamina.concat"(%q, %q) {dim = 0 : i64} : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<1024x512xbf16>
  %1 = "lamina.linear"(%x, %v) : (tensor<64x512xbf16>, tensor<1024x512xbf16>) -> tensor<64x1024xbf16>
  %s = "lamina.reshape"(%x) {shape = ["64", "1", "512"]} : (tensor<64x512xbf16>) -> tensor<64x1x512xbf16>
  %2 = "lamina.add"(%v, %s) : (tensor<1024x512xbf16>, tensor<64x1x512xbf16>) -> tensor<64x1024x512xbf16>
  return %0, %1, %2 : tensor<64x712xbf16>, tensor<64x1024xbf16>, tensor<64x1024x512xbf16>
}
