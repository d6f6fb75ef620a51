// RUN: lamina opt %s --passes "lamina-form-kernels{gpu=true turned=true}" | filecheck %s

// The scale of a norm, of 64 elements, is computed again by each element that it scales: one launch.
// CHECK-LABEL: func.func @norm
// CHECK: lamina.rsqrt{{.*}}lamina.kernel = 0
// CHECK: lamina.mul{{.*}}lamina.kernel = 0
func.func @norm(%x: tensor<64x4096xf32>, %v: tensor<64x1xf32>) -> tensor<64x4096xf32> {
  %0 = "lamina.rsqrt"(%v) : (tensor<64x1xf32>) -> tensor<64x1xf32>
  %1 = "lamina.mul"(%x, %0) : (tensor<64x4096xf32>, tensor<64x1xf32>) -> tensor<64x4096xf32>
  return %1 : tensor<64x4096xf32>
}

// A function of many instructions, and what is not small, has a kernel of its own.
// CHECK-LABEL: func.func @others
// CHECK: lamina.tanh{{.*}}lamina.kernel = 0
// CHECK: lamina.mul{{.*}}lamina.kernel = 1
// CHECK: lamina.rsqrt{{.*}}lamina.kernel = 2
// CHECK: lamina.mul{{.*}}lamina.kernel = 3
func.func @others(%x: tensor<64x4096xf32>, %v: tensor<64x1xf32>, %y: tensor<65536x8xf32>, %w: tensor<65536x1xf32>) -> (tensor<64x4096xf32>, tensor<65536x8xf32>) {
  %0 = "lamina.tanh"(%v) : (tensor<64x1xf32>) -> tensor<64x1xf32>
  %1 = "lamina.mul"(%x, %0) : (tensor<64x4096xf32>, tensor<64x1xf32>) -> tensor<64x4096xf32>
  %2 = "lamina.rsqrt"(%w) : (tensor<65536x1xf32>) -> tensor<65536x1xf32>
  %3 = "lamina.mul"(%y, %2) : (tensor<65536x8xf32>, tensor<65536x1xf32>) -> tensor<65536x8xf32>
  return %1, %3 : tensor<64x4096xf32>, tensor<65536x8xf32>
}

// In f64 a root is no few instructions.
// CHECK-LABEL: func.func @wide
// CHECK: lamina.rsqrt{{.*}}lamina.kernel = 0
// CHECK: lamina.mul{{.*}}lamina.kernel = 1
func.func @wide(%x: tensor<64x4096xf64>, %v: tensor<64x1xf64>) -> tensor<64x4096xf64> {
  %0 = "lamina.rsqrt"(%v) : (tensor<64x1xf64>) -> tensor<64x1xf64>
  %1 = "lamina.mul"(%x, %0) : (tensor<64x4096xf64>, tensor<64x1xf64>) -> tensor<64x4096xf64>
  return %1 : tensor<64x4096xf64>
}

// What a norm has normalised is computed again for the gradient of its weight, a sum over rows: nothing of it is stored in f32.
// CHECK-LABEL: func.func @normalised
// CHECK-NOT: lamina.sub{{.*}}lamina.kernel
// CHECK: lamina.mul{{.*}}lamina.kernel = [[ROWS:[01]]]
// CHECK: lamina.mean{{.*}}lamina.kernel = [[ROWS]]
// CHECK: lamina.mul{{.*}}lamina.kernel = [[ROWS]]
// CHECK: lamina.mul{{.*}}lamina.kernel = [[COLUMNS:[01]]]
// CHECK: lamina.sum{{.*}}lamina.kernel = [[COLUMNS]]
func.func @normalised(%x: tensor<4096x768xbf16>, %m: tensor<4096x1xbf16>, %g: tensor<4096x768xf32>) -> (tensor<4096x768xf32>, tensor<768xf32>) {
  %0 = "lamina.cast"(%x) {dtype = f32} : (tensor<4096x768xbf16>) -> tensor<4096x768xf32>
  %1 = "lamina.cast"(%m) {dtype = f32} : (tensor<4096x1xbf16>) -> tensor<4096x1xf32>
  %2 = "lamina.sub"(%0, %1) : (tensor<4096x768xf32>, tensor<4096x1xf32>) -> tensor<4096x768xf32>
  %3 = "lamina.mul"(%g, %2) : (tensor<4096x768xf32>, tensor<4096x768xf32>) -> tensor<4096x768xf32>
  %4 = "lamina.mean"(%3) {dims = array<i64: 1>, keepdim = true} : (tensor<4096x768xf32>) -> tensor<4096x1xf32>
  %5 = "lamina.mul"(%2, %4) : (tensor<4096x768xf32>, tensor<4096x1xf32>) -> tensor<4096x768xf32>
  %6 = "lamina.mul"(%2, %2) : (tensor<4096x768xf32>, tensor<4096x768xf32>) -> tensor<4096x768xf32>
  %7 = "lamina.sum"(%6) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4096x768xf32>) -> tensor<768xf32>
  return %5, %7 : tensor<4096x768xf32>, tensor<768xf32>
}

// A rotary embedding is one kernel, the concatenation of the halves included; what a row needs whole is stored first.
// CHECK-LABEL: func.func @rotary
// CHECK: lamina.neg{{.*}}lamina.kernel = 0
// CHECK: lamina.concat{{.*}}lamina.kernel = 0
// CHECK: lamina.mul{{.*}}lamina.kernel = 0
// CHECK: lamina.add{{.*}}lamina.kernel = 0
// CHECK: lamina.softmax{{.*}}lamina.kernel = 1
func.func @rotary(%x: tensor<64x128xf32>, %s: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %0 = "lamina.slice"(%x) {starts = ["0", "64"], sizes = ["64", "64"], steps = array<i64: 1, 1>} : (tensor<64x128xf32>) -> tensor<64x64xf32>
  %1 = "lamina.slice"(%x) {starts = ["0", "0"], sizes = ["64", "64"], steps = array<i64: 1, 1>} : (tensor<64x128xf32>) -> tensor<64x64xf32>
  %2 = "lamina.neg"(%0) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = "lamina.concat"(%2, %1) {dim = 1 : i64} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x128xf32>
  %4 = "lamina.mul"(%3, %s) : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<64x128xf32>
  %5 = "lamina.add"(%x, %4) : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<64x128xf32>
  %6 = "lamina.softmax"(%5) {dim = 1 : i64} : (tensor<64x128xf32>) -> tensor<64x128xf32>
  return %6 : tensor<64x128xf32>
}

// So it is where heads are stored behind positions; columns are turned in tiles, by a kernel of their own.
// CHECK-LABEL: func.func @stored
// CHECK: lamina.concat{{.*}}lamina.kernel = 0
// CHECK: lamina.materialize{{.*}}lamina.kernel = 0
// CHECK: lamina.concat{{.*}}lamina.kernel = 1
// CHECK: lamina.materialize{{.*}}lamina.kernel = 2
func.func @stored(%x: tensor<2x64x32xf32>, %y: tensor<2x64x32xf32>) -> (tensor<64x2x64xf32>, tensor<2x64x64xf32>) {
  %0 = "lamina.concat"(%x, %y) {dim = 2 : i64} : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x64xf32>
  %1 = "lamina.permute"(%0) {dims = array<i64: 1, 0, 2>} : (tensor<2x64x64xf32>) -> tensor<64x2x64xf32>
  %2 = "lamina.materialize"(%1) : (tensor<64x2x64xf32>) -> tensor<64x2x64xf32>
  %3 = "lamina.concat"(%y, %x) {dim = 2 : i64} : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x64xf32>
  %4 = "lamina.permute"(%3) {dims = array<i64: 0, 2, 1>} : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %5 = "lamina.materialize"(%4) : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  return %2, %5 : tensor<64x2x64xf32>, tensor<2x64x64xf32>
}

// A product puts parts of its rows between each other as it stores them, by vectors of eight: the phases of a transposed convolution.
// CHECK-LABEL: func.func @phases
// CHECK: lamina.linear{{.*}}lamina.kernel = 0
// CHECK: lamina.materialize{{.*}}lamina.kernel = 0
func.func @phases(%x: tensor<2x3x5x8xbf16>, %w: tensor<32x8xbf16>) -> tensor<2x3x2x5x2x8xbf16> {
  %0 = "lamina.linear"(%x, %w) : (tensor<2x3x5x8xbf16>, tensor<32x8xbf16>) -> tensor<2x3x5x32xbf16>
  %1 = "lamina.reshape"(%0) {shape = ["2", "3", "5", "2", "2", "8"]} : (tensor<2x3x5x32xbf16>) -> tensor<2x3x5x2x2x8xbf16>
  %2 = "lamina.permute"(%1) {dims = array<i64: 0, 1, 3, 2, 4, 5>} : (tensor<2x3x5x2x2x8xbf16>) -> tensor<2x3x2x5x2x8xbf16>
  %3 = "lamina.materialize"(%2) : (tensor<2x3x2x5x2x8xbf16>) -> tensor<2x3x2x5x2x8xbf16>
  return %3 : tensor<2x3x2x5x2x8xbf16>
}

// Elements of columns, or fours, would be stored one by one: another kernel copies them.
// CHECK-LABEL: func.func @columns
// CHECK: lamina.linear{{.*}}lamina.kernel = 0
// CHECK: lamina.materialize{{.*}}lamina.kernel = 1
// CHECK: lamina.materialize{{.*}}lamina.kernel = 2
func.func @columns(%x: tensor<6x8xbf16>, %w: tensor<16x8xbf16>) -> (tensor<16x6xbf16>, tensor<4x6x4xbf16>) {
  %0 = "lamina.linear"(%x, %w) : (tensor<6x8xbf16>, tensor<16x8xbf16>) -> tensor<6x16xbf16>
  %1 = "lamina.permute"(%0) {dims = array<i64: 1, 0>} : (tensor<6x16xbf16>) -> tensor<16x6xbf16>
  %2 = "lamina.materialize"(%1) : (tensor<16x6xbf16>) -> tensor<16x6xbf16>
  %3 = "lamina.reshape"(%0) {shape = ["6", "4", "4"]} : (tensor<6x16xbf16>) -> tensor<6x4x4xbf16>
  %4 = "lamina.permute"(%3) {dims = array<i64: 1, 0, 2>} : (tensor<6x4x4xbf16>) -> tensor<4x6x4xbf16>
  %5 = "lamina.materialize"(%4) : (tensor<4x6x4xbf16>) -> tensor<4x6x4xbf16>
  return %2, %5 : tensor<16x6xbf16>, tensor<4x6x4xbf16>
}

// A mean and its count are one kernel, also over everything, where rows alone do not fill the machine; so are a norm's gradients.
// CHECK-LABEL: func.func @pairs
// CHECK: lamina.sum{{.*}}lamina.kernel = [[ALL:[01]]]
// CHECK: lamina.sum{{.*}}lamina.kernel = [[ALL]]
// CHECK: lamina.div{{.*}}lamina.kernel = [[ALL]]
// CHECK: lamina.sum{{.*}}lamina.kernel = [[COLUMNS:[01]]]
// CHECK: lamina.sum{{.*}}lamina.kernel = [[COLUMNS]]
func.func @pairs(%x: tensor<65536xf32>, %kept: tensor<65536xi1>, %g: tensor<4096x768xf32>, %y: tensor<4096x768xf32>) -> (tensor<f32>, tensor<768xf32>, tensor<768xf32>) {
  %0 = "lamina.cast"(%kept) {dtype = f32} : (tensor<65536xi1>) -> tensor<65536xf32>
  %1 = "lamina.sum"(%0) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<65536xf32>) -> tensor<f32>
  %2 = "lamina.sum"(%x) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<65536xf32>) -> tensor<f32>
  %3 = "lamina.div"(%2, %1) {rounding = "none"} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %4 = "lamina.sum"(%g) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4096x768xf32>) -> tensor<768xf32>
  %5 = "lamina.mul"(%g, %y) : (tensor<4096x768xf32>, tensor<4096x768xf32>) -> tensor<4096x768xf32>
  %6 = "lamina.sum"(%5) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4096x768xf32>) -> tensor<768xf32>
  return %3, %4, %6 : tensor<f32>, tensor<768xf32>, tensor<768xf32>
}

// Sums over columns and over rows of one matrix are two.
// CHECK-LABEL: func.func @apart
// CHECK: lamina.sum{{.*}}lamina.kernel = 0
// CHECK: lamina.sum{{.*}}lamina.kernel = 1
func.func @apart(%g: tensor<4096x768xf32>) -> (tensor<768xf32>, tensor<4096xf32>) {
  %0 = "lamina.sum"(%g) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4096x768xf32>) -> tensor<768xf32>
  %1 = "lamina.sum"(%g) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<4096x768xf32>) -> tensor<4096xf32>
  return %0, %1 : tensor<768xf32>, tensor<4096xf32>
}

// What stacks values along the last dimension and reads them as one row is one kernel, the copy in that shape included.
// CHECK-LABEL: func.func @pairs_in_rows
// CHECK: lamina.concat{{.*}}lamina.kernel = 0
// CHECK: lamina.materialize{{.*}}lamina.kernel = 0
func.func @pairs_in_rows(%x: tensor<64x128x1xf32>, %y: tensor<64x128x1xf32>) -> tensor<64x256xf32> {
  %0 = "lamina.neg"(%y) : (tensor<64x128x1xf32>) -> tensor<64x128x1xf32>
  %1 = "lamina.concat"(%0, %x) {dim = 2 : i64} : (tensor<64x128x1xf32>, tensor<64x128x1xf32>) -> tensor<64x128x2xf32>
  %2 = "lamina.reshape"(%1) {shape = ["64", "256"]} : (tensor<64x128x2xf32>) -> tensor<64x256xf32>
  %3 = "lamina.materialize"(%2) : (tensor<64x256xf32>) -> tensor<64x256xf32>
  return %3 : tensor<64x256xf32>
}

// So is the gradient, which is summed itself for the bias: nothing of it is stored in f32, and both sums are one kernel.
// CHECK-LABEL: func.func @gradients
// CHECK-NOT: lamina.cast{{.*}}lamina.kernel
// CHECK: lamina.mean{{.*}}lamina.kernel = [[ROWS:[01]]]
// CHECK: lamina.sub{{.*}}lamina.kernel = [[ROWS]]
// CHECK: lamina.sum{{.*}}lamina.kernel = [[COLUMNS:[01]]]
// CHECK: lamina.sum{{.*}}lamina.kernel = [[COLUMNS]]
func.func @gradients(%g: tensor<4096x768xbf16>, %y: tensor<4096x768xf32>) -> (tensor<4096x768xf32>, tensor<768xf32>, tensor<768xf32>) {
  %0 = "lamina.cast"(%g) {dtype = f32} : (tensor<4096x768xbf16>) -> tensor<4096x768xf32>
  %1 = "lamina.mul"(%0, %y) : (tensor<4096x768xf32>, tensor<4096x768xf32>) -> tensor<4096x768xf32>
  %2 = "lamina.mean"(%1) {dims = array<i64: 1>, keepdim = true} : (tensor<4096x768xf32>) -> tensor<4096x1xf32>
  %3 = "lamina.sub"(%0, %2) : (tensor<4096x768xf32>, tensor<4096x1xf32>) -> tensor<4096x768xf32>
  %4 = "lamina.sum"(%0) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4096x768xf32>) -> tensor<768xf32>
  %5 = "lamina.mul"(%0, %y) : (tensor<4096x768xf32>, tensor<4096x768xf32>) -> tensor<4096x768xf32>
  %6 = "lamina.sum"(%5) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4096x768xf32>) -> tensor<768xf32>
  return %3, %4, %6 : tensor<4096x768xf32>, tensor<768xf32>, tensor<768xf32>
}

// What the function returns is computed once, by a kernel, also where sums along rows and over them begin with it.
// CHECK-LABEL: func.func @returned
// CHECK: lamina.neg{{.*}}lamina.kernel
func.func @returned(%x: tensor<17x5xi64>) -> (tensor<17x5xi64>, tensor<17x1xf32>, tensor<17xf32>) {
  %0 = "lamina.neg"(%x) : (tensor<17x5xi64>) -> tensor<17x5xi64>
  %1 = "lamina.cast"(%0) {dtype = f32} : (tensor<17x5xi64>) -> tensor<17x5xf32>
  %2 = "lamina.amax"(%1) {dims = array<i64: 1>, keepdim = true} : (tensor<17x5xf32>) -> tensor<17x1xf32>
  %3 = "lamina.sub"(%1, %2) : (tensor<17x5xf32>, tensor<17x1xf32>) -> tensor<17x5xf32>
  %4 = "lamina.exp"(%3) : (tensor<17x5xf32>) -> tensor<17x5xf32>
  %5 = "lamina.sum"(%4) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<17x5xf32>) -> tensor<17xf32>
  return %0, %2, %5 : tensor<17x5xi64>, tensor<17x1xf32>, tensor<17xf32>
}
