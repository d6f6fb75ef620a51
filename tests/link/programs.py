"""Programs that use each way of reaching code and data, for machines on which the tests cannot run."""

MAIN = """
@far = internal constant [40000 x i8] zeroinitializer
@numbers = internal constant [3 x i32] [i32 10, i32 20, i32 30]
@table = constant [2 x ptr] [ptr @square, ptr @numbers]
@variable = global i64 7
declare i32 @square(i32)
declare i32 @memcmp(i32, i32)
define i32 @direct(i32 %x) {
  %a = call i32 @square(i32 %x)
  %y = add i32 %a, 1
  ret i32 %y
}
define i32 @tail(i32 %x) {
  %y = tail call i32 @square(i32 %x)
  ret i32 %y
}
define i32 @through_table(i32 %x) {
  %f = load ptr, ptr @table
  %y = call i32 %f(i32 %x)
  ret i32 %y
}
define i32 @constant() {
  %v = load volatile i32, ptr getelementptr ([3 x i32], ptr @numbers, i64 0, i64 2)
  ret i32 %v
}
define i32 @pointer_to_constant() {
  %p = load volatile ptr, ptr getelementptr ([2 x ptr], ptr @table, i64 0, i64 1)
  %q = getelementptr i32, ptr %p, i64 1
  %v = load i32, ptr %q
  ret i32 %v
}
define i64 @read_variable() {
  %v = load volatile i64, ptr @variable
  ret i64 %v
}
define i32 @imported(i32 %x, i32 %y) {
  %v = call i32 @memcmp(i32 %x, i32 %y)
  %w = add i32 %v, 1
  ret i32 %w
}
"""
SQUARE = "define i32 @square(i32 %x) {\n %y = mul i32 %x, %x\n ret i32 %y\n}"

# function, arguments, result; `memcmp` is imported and computes 100 a + b
CASES = [
    ("direct", (5,), 26),
    ("tail", (6,), 36),
    ("through_table", (7,), 49),
    ("constant", (), 30),
    ("pointer_to_constant", (), 20),
    ("read_variable", (), 7),
    ("imported", (3, 4), 305),
]
