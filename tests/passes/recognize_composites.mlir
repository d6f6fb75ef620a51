// RUN: lamina opt %s --passes lamina-recognize-composites | filecheck %s

// A softmax that is spelled out, and its logarithm.
// CHECK-LABEL: @softmax
// CHECK-NEXT: %0 = "lamina.softmax"(%arg0) {dim = 0 : i64}
// CHECK-NEXT: return %0
func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "lamina.amax"(%x) {dims = array<i64: 0>, keepdim = false} : (tensor<4x8xf32>) -> tensor<8xf32>
  %1 = "lamina.reshape"(%0) {shape = ["1", "8"]} : (tensor<8xf32>) -> tensor<1x8xf32>
  %2 = "lamina.sub"(%x, %1) : (tensor<4x8xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
  %3 = "lamina.exp"(%2) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = "lamina.sum"(%3) {dims = array<i64: 0>, dtype = f32, keepdim = true} : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %5 = "lamina.div"(%3, %4) {rounding = "none"} : (tensor<4x8xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}

// -----

// Without the maximum large elements overflow; with exponentials that are returned too nothing would be saved.
// CHECK-LABEL: @other_softmax
// CHECK-NOT: "lamina.softmax"
func.func @other_softmax(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = "lamina.exp"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "lamina.sum"(%0) {dims = array<i64: 1>, dtype = f32, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %2 = "lamina.div"(%0, %1) {rounding = "none"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %3 = "lamina.amax"(%x) {dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %4 = "lamina.sub"(%x, %3) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %5 = "lamina.exp"(%4) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %6 = "lamina.sum"(%5) {dims = array<i64: 1>, dtype = f32, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %7 = "lamina.div"(%5, %6) {rounding = "none"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  return %2, %5, %7 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// transformers' RMS norm of a symbolic number of rows: the weight comes first.
// CHECK-LABEL: @rms_norm
// CHECK-NEXT: %0 = "lamina.rms_norm"(%arg0, %arg1) {dims = 1 : i64, eps = 9.9999999999999995E-7 : f64}
// CHECK-NEXT: return %0
func.func @rms_norm(%x: tensor<?x8xf32, ["s0", "8"]>, %w: tensor<8xf32>) -> tensor<?x8xf32, ["s0", "8"]> {
  %e = "lamina.full"() {dtype = f32, shape = [], value = 9.9999999999999995E-7 : f64} : () -> tensor<f32>
  %0 = "lamina.mul"(%x, %x) : (tensor<?x8xf32, ["s0", "8"]>, tensor<?x8xf32, ["s0", "8"]>) -> tensor<?x8xf32, ["s0", "8"]>
  %1 = "lamina.mean"(%0) {dims = array<i64: -1>, keepdim = true} : (tensor<?x8xf32, ["s0", "8"]>) -> tensor<?x1xf32, ["s0", "1"]>
  %2 = "lamina.add"(%1, %e) : (tensor<?x1xf32, ["s0", "1"]>, tensor<f32>) -> tensor<?x1xf32, ["s0", "1"]>
  %3 = "lamina.rsqrt"(%2) : (tensor<?x1xf32, ["s0", "1"]>) -> tensor<?x1xf32, ["s0", "1"]>
  %4 = "lamina.mul"(%x, %3) : (tensor<?x8xf32, ["s0", "8"]>, tensor<?x1xf32, ["s0", "1"]>) -> tensor<?x8xf32, ["s0", "8"]>
  %5 = "lamina.mul"(%w, %4) : (tensor<8xf32>, tensor<?x8xf32, ["s0", "8"]>) -> tensor<?x8xf32, ["s0", "8"]>
  return %5 : tensor<?x8xf32, ["s0", "8"]>
}

// -----

// A layer norm with its weight and bias; the variance is a mean of squares.
// CHECK-LABEL: @layer_norm
// CHECK-NEXT: %0:3 = "lamina.layer_norm"(%arg0, %arg1, %arg2) {dims = 1 : i64, eps = 1.000000e-03 : f64
// CHECK-NEXT: return %0#0
func.func @layer_norm(%x: tensor<4x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  %e = "lamina.full"() {dtype = f32, shape = [], value = 0.001 : f64} : () -> tensor<f32>
  %0 = "lamina.mean"(%x) {dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %1 = "lamina.sub"(%x, %0) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %2 = "lamina.mul"(%1, %1) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = "lamina.mean"(%2) {dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %4 = "lamina.add"(%3, %e) : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %5 = "lamina.sqrt"(%4) : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %6 = "lamina.mul"(%w, %1) : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %7 = "lamina.div"(%6, %5) {rounding = "none"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %8 = "lamina.add"(%7, %b) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %8 : tensor<4x8xf32>
}

// -----

// `(x - mean) / (std + eps)` with the unbiased variance is no layer norm.
// CHECK-LABEL: @other_norm
// CHECK-NOT: "lamina.layer_norm"
func.func @other_norm(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = "lamina.full"() {dtype = f32, shape = [], value = 0.001 : f64} : () -> tensor<f32>
  %0:2 = "lamina.var_mean"(%x) {correction = 1.0 : f64, dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> (tensor<4x1xf32>, tensor<4x1xf32>)
  %1 = "lamina.sub"(%x, %0#1) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %2 = "lamina.add"(%0#0, %e) : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %3 = "lamina.sqrt"(%2) : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %4 = "lamina.div"(%1, %3) {rounding = "none"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}

// -----

// Activations: x / (1 + exp(-x)), and GPT-2's gelu. In bf16 eager rounds the parts, so they stay.
// CHECK-LABEL: @activations
// CHECK-DAG: "lamina.silu"(%arg0)
// CHECK-DAG: "lamina.gelu"(%arg0) {approximate = "tanh"}
// CHECK: "lamina.sigmoid"(%arg1)
// CHECK-NEXT: "lamina.mul"
// CHECK-NEXT: return
func.func @activations(%x: tensor<4xf32>, %h: tensor<4xbf16>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xbf16>) {
  %one = "lamina.full"() {dtype = f32, shape = [], value = 1.0 : f64} : () -> tensor<f32>
  %half = "lamina.full"() {dtype = f32, shape = [], value = 0.5 : f64} : () -> tensor<f32>
  %c = "lamina.full"() {dtype = f32, shape = [], value = 0.044715 : f64} : () -> tensor<f32>
  %r = "lamina.full"() {dtype = f32, shape = [], value = 0.7978845608 : f64} : () -> tensor<f32>
  %0 = "lamina.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "lamina.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "lamina.add"(%one, %1) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "lamina.div"(%x, %2) {rounding = "none"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = "lamina.mul"(%x, %half) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = "lamina.mul"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "lamina.mul"(%5, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %7 = "lamina.mul"(%6, %c) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %8 = "lamina.add"(%x, %7) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %9 = "lamina.mul"(%8, %r) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %10 = "lamina.tanh"(%9) : (tensor<4xf32>) -> tensor<4xf32>
  %11 = "lamina.add"(%10, %one) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %12 = "lamina.mul"(%4, %11) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %13 = "lamina.sigmoid"(%h) : (tensor<4xbf16>) -> tensor<4xbf16>
  %14 = "lamina.mul"(%h, %13) : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4xbf16>
  return %3, %12, %14 : tensor<4xf32>, tensor<4xf32>, tensor<4xbf16>
}

// -----

// Scores of a scaled query, keys and values repeated over two heads each, a causal mask: one op on what is in memory.
// CHECK-LABEL: @shared_heads
// CHECK-NEXT: %0:2 = "lamina.attention"(%arg0, %arg1, %arg2) {causal = true, gqa = 2 : i64, scale = 5.000000e-01 : f64}
// CHECK-NEXT: return %0#0
func.func @shared_heads(%q: tensor<1x4x2x8xf32>, %k: tensor<1x2x2x8xf32>, %v: tensor<1x2x2x8xf32>) -> tensor<1x4x2x8xf32> {
  %two = "lamina.full"() {dtype = f32, shape = [], value = 2.0 : f64} : () -> tensor<f32>
  %minus = "lamina.full"() {dtype = f32, shape = [], value = -1.0e9 : f64} : () -> tensor<f32>
  %0 = "lamina.div"(%q, %two) {rounding = "none"} : (tensor<1x4x2x8xf32>, tensor<f32>) -> tensor<1x4x2x8xf32>
  %1 = "lamina.reshape"(%k) {shape = ["1", "2", "1", "2", "8"]} : (tensor<1x2x2x8xf32>) -> tensor<1x2x1x2x8xf32>
  %2 = "lamina.expand"(%1) {shape = ["1", "2", "2", "2", "8"]} : (tensor<1x2x1x2x8xf32>) -> tensor<1x2x2x2x8xf32>
  %3 = "lamina.reshape"(%2) {shape = ["1", "4", "2", "8"]} : (tensor<1x2x2x2x8xf32>) -> tensor<1x4x2x8xf32>
  %4 = "lamina.permute"(%3) {dims = array<i64: 0, 1, 3, 2>} : (tensor<1x4x2x8xf32>) -> tensor<1x4x8x2xf32>
  %5 = "lamina.reshape"(%v) {shape = ["1", "2", "1", "2", "8"]} : (tensor<1x2x2x8xf32>) -> tensor<1x2x1x2x8xf32>
  %6 = "lamina.expand"(%5) {shape = ["1", "2", "2", "2", "8"]} : (tensor<1x2x1x2x8xf32>) -> tensor<1x2x2x2x8xf32>
  %7 = "lamina.reshape"(%6) {shape = ["1", "4", "2", "8"]} : (tensor<1x2x2x2x8xf32>) -> tensor<1x4x2x8xf32>
  %8 = "lamina.matmul"(%0, %4) : (tensor<1x4x2x8xf32>, tensor<1x4x8x2xf32>) -> tensor<1x4x2x2xf32>
  %9 = "lamina.constant"() {data = "AQABAQ==", dtype = i1, shape = ["2", "2"]} : () -> tensor<2x2xi1>
  %10 = "lamina.where"(%9, %8, %minus) : (tensor<2x2xi1>, tensor<1x4x2x2xf32>, tensor<f32>) -> tensor<1x4x2x2xf32>
  %11 = "lamina.softmax"(%10) {dim = -1 : i64} : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32>
  %12 = "lamina.matmul"(%11, %7) : (tensor<1x4x2x2xf32>, tensor<1x4x2x8xf32>) -> tensor<1x4x2x8xf32>
  return %12 : tensor<1x4x2x8xf32>
}

// -----

// Where a mask may leave nothing of a row, softmax gives NaN and the op zeros.
// CHECK-LABEL: @rows_may_be_empty
// CHECK: %[[A:.*]]:2 = "lamina.attention"(%arg0, %arg1, %arg2, %arg3) {causal = false, gqa = 1 : i64, scale = 1.000000e+00 : f64}
// CHECK-NEXT: %[[NAN:.*]] = "lamina.full"() {dtype = f32, shape = [], value = 0x7FF8000000000000 : f64}
// CHECK-NEXT: %[[ANY:.*]] = "lamina.any"(%arg3) {dims = array<i64: 1>, keepdim = true}
// CHECK-NEXT: %[[Y:.*]] = "lamina.where"(%[[ANY]], %[[A]]#0, %[[NAN]])
// CHECK-NEXT: return %[[Y]]
func.func @rows_may_be_empty(%q: tensor<3x2x8xf32>, %k: tensor<3x5x8xf32>, %v: tensor<3x5x8xf32>, %m: tensor<2x5xi1>) -> tensor<3x2x8xf32> {
  %inf = "lamina.full"() {dtype = f32, shape = [], value = 0xFFF0000000000000 : f64} : () -> tensor<f32>
  %0 = "lamina.permute"(%k) {dims = array<i64: 0, 2, 1>} : (tensor<3x5x8xf32>) -> tensor<3x8x5xf32>
  %1 = "lamina.matmul"(%q, %0) : (tensor<3x2x8xf32>, tensor<3x8x5xf32>) -> tensor<3x2x5xf32>
  %2 = "lamina.where"(%m, %1, %inf) : (tensor<2x5xi1>, tensor<3x2x5xf32>, tensor<f32>) -> tensor<3x2x5xf32>
  %3 = "lamina.softmax"(%2) {dim = -1 : i64} : (tensor<3x2x5xf32>) -> tensor<3x2x5xf32>
  %4 = "lamina.matmul"(%3, %v) : (tensor<3x2x5xf32>, tensor<3x5x8xf32>) -> tensor<3x2x8xf32>
  return %4 : tensor<3x2x8xf32>
}

// -----

// With -1e9 a row with everything masked is the mean of all values; and weights that are returned must be stored anyway.
// CHECK-LABEL: @no_attention
// CHECK-NOT: "lamina.attention"
func.func @no_attention(%q: tensor<3x2x8xf32>, %k: tensor<3x8x5xf32>, %v: tensor<3x5x8xf32>, %m: tensor<2x5xi1>) -> (tensor<3x2x8xf32>, tensor<3x2x5xf32>, tensor<3x2x8xf32>) {
  %fill = "lamina.full"() {dtype = f32, shape = [], value = -1.0e9 : f64} : () -> tensor<f32>
  %0 = "lamina.matmul"(%q, %k) : (tensor<3x2x8xf32>, tensor<3x8x5xf32>) -> tensor<3x2x5xf32>
  %1 = "lamina.where"(%m, %0, %fill) : (tensor<2x5xi1>, tensor<3x2x5xf32>, tensor<f32>) -> tensor<3x2x5xf32>
  %2 = "lamina.softmax"(%1) {dim = -1 : i64} : (tensor<3x2x5xf32>) -> tensor<3x2x5xf32>
  %3 = "lamina.matmul"(%2, %v) : (tensor<3x2x5xf32>, tensor<3x5x8xf32>) -> tensor<3x2x8xf32>
  %4 = "lamina.softmax"(%0) {dim = -1 : i64} : (tensor<3x2x5xf32>) -> tensor<3x2x5xf32>
  %5 = "lamina.matmul"(%4, %v) : (tensor<3x2x5xf32>, tensor<3x5x8xf32>) -> tensor<3x2x8xf32>
  return %3, %4, %5 : tensor<3x2x8xf32>, tensor<3x2x5xf32>, tensor<3x2x8xf32>
}
