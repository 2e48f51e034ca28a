"""All entry points of `device_training.py` and `device_decoding.py`, by name."""

import device_decoding
import device_training
from device_case import CASES, Result, assert_equal

__all__ = ["CASES", "Result", "assert_equal", "device_decoding", "device_training"]
