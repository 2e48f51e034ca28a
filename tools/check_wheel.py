"""Check that the native library of an installed heedful loads, and that each level of this machine computes.

It needs Python and the wheel alone: `pip install --no-deps heedful-*.whl && python tools/check_wheel.py`.
"""

import ctypes
import math
import operator
import random
import sys

import heedful
from heedful.runtime.native import Functions, Linear, functions_of, native

FLOAT32, IDENTITY = 0, 0  # in native/heedful.h
ROWS, INPUTS, PANELS, THREADS = 53, 28, 3, 2


def floats(numbers: list[int] | list[float]) -> ctypes.Array[ctypes.c_float]:
    """Return the numbers as a C array."""
    return (ctypes.c_float * len(numbers))(*numbers)


def check_exponentials(functions: Functions) -> None:
    """Compare with math.exp, to two units in the last place of a float32."""
    inputs = floats([-87 * i / 1009 for i in range(1009)])
    outputs = floats(list(inputs))
    functions.exponentials(outputs, len(outputs))
    assert all(math.isclose(math.exp(x), y, rel_tol=2**-22) for x, y in zip(inputs, outputs, strict=True))


def check_matrix_multiplication(functions: Functions) -> None:
    """Compare with Python, on whole numbers so small that float32 holds every sum exactly."""
    generator = random.Random(7)
    panel, size = functions.panel, PANELS * functions.panel
    x = [[generator.randint(-8, 8) for _ in range(INPUTS)] for _ in range(ROWS)]
    weight = [[generator.randint(-8, 8) for _ in range(size)] for _ in range(INPUTS)]
    bias = [generator.randint(-8, 8) for _ in range(size)]
    packed = floats([row[i + j] for i in range(0, size, panel) for row in weight for j in range(panel)])
    biases, y = floats(bias), (ctypes.c_float * (ROWS * size))()
    layer = Linear(INPUTS, size, ctypes.addressof(packed), ctypes.addressof(biases), None, None)
    inputs = floats([number for row in x for number in row])
    assert functions.linear(layer, FLOAT32, IDENTITY, THREADS, inputs, ROWS, y) == 0
    columns = list(zip(*weight, strict=True))
    assert list(y) == [bias[j] + sum(map(operator.mul, row, columns[j])) for row in x for j in range(size)]


def main() -> None:
    """Check every level that this machine can run; fail where there is no library."""
    print(f"{heedful.__file__}: {native().describe()}")
    if native().level is None:
        sys.exit(1)
    for level in native().levels:
        if level.why_not is None:
            check_exponentials(functions_of(level.name))
            check_matrix_multiplication(functions_of(level.name))
        print(f"{level.name}: {level.why_not or 'computes'}")


if __name__ == "__main__":
    main()
